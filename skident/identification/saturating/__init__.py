"""Far out, where first-layer units saturate: their directions, lengths and shifts, and the layers behind."""
