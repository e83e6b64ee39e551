"""Units that grow linearly, such as softplus or GELU, from the ReLU networks that they tend to far from the center."""
