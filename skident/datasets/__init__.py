"""Generators of networks, targets and point sets with a known truth."""

from ._circle import make_alternating_circle
from ._hierarchical import HierarchicalTarget, make_hierarchical_target
from ._planted_shallow import make_planted_shallow
from ._pyramidal import make_network, make_pyramidal_network, pyramidal_widths
from ._relu import make_relu_network

__all__ = [
    "HierarchicalTarget",
    "make_alternating_circle",
    "make_hierarchical_target",
    "make_network",
    "make_planted_shallow",
    "make_pyramidal_network",
    "make_relu_network",
    "pyramidal_widths",
]
