"""Generators of networks, targets and point sets with a known truth."""

from ._pyramidal import make_network, make_pyramidal_network, pyramidal_widths

__all__ = ["make_network", "make_pyramidal_network", "pyramidal_widths"]
