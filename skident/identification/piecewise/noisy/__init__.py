"""ReLU networks with two hidden layers from outputs that are not exact: rounded to float32, or noisy."""
