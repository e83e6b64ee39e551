"""Training of torch modules by skorch: the one room that imports it."""
