"""Training of torch modules by skorch; nothing else in skident imports it."""
