"""One patch recovered entirely, then extension to all other first-layer units across their hyperplanes."""
