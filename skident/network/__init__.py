"""What a network is: weights and activations, derivatives, symmetries, conversions."""

from ._affine import affine_map, center_outputs, fold_inputs, unfold_inputs
from ._feedforward import FeedforwardNetwork
from .activations import ACTIVATIONS, Activation, get_activation

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "FeedforwardNetwork",
    "affine_map",
    "center_outputs",
    "fold_inputs",
    "get_activation",
    "unfold_inputs",
]
