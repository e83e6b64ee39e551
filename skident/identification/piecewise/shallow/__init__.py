"""One hidden layer of ReLU or hard tanh units, from activation boundaries on lines far out."""
