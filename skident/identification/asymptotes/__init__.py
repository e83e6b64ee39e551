"""One hidden layer of units that grow linearly, such as softplus or GELU, from their asymptotes far from the center."""
