"""ReLU networks of any depth, layer by layer, from activation boundaries."""
