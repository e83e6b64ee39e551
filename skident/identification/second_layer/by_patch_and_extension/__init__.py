"""One patch recovered entirely, then extension from it to all other first-layer units across their hyperplanes."""
