"""Piecewise linear networks: their kinks along lines, the units that make them, and their signs."""
