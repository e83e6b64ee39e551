"""One hidden layer of maxout units: the largest of several linear functions, as max pooling behind ReLU units gives."""
