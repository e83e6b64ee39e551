"""What a network is: weights and activations, derivatives, symmetries, conversions."""

from ._feedforward import FeedforwardNetwork
from .activations import ACTIVATIONS, Activation, get_activation

__all__ = ["ACTIVATIONS", "Activation", "FeedforwardNetwork", "get_activation"]
