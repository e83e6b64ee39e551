"""One hidden ReLU layer of a classifier from its labels alone: the decision boundary is piecewise flat."""
