"""What a network is: weights and activations, derivatives, symmetries, conversions."""

from ._affine import (
    affine_map,
    center_outputs,
    change_inputs,
    change_outputs,
    fold_inputs,
    output_units,
    unfold_inputs,
)
from ._feedforward import FeedforwardNetwork
from ._maps import named_method
from .activations import ACTIVATIONS, Activation, LeakyReLU, get_activation, leaky_relu
from .architecture import Architecture

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Architecture",
    "FeedforwardNetwork",
    "LeakyReLU",
    "affine_map",
    "center_outputs",
    "change_inputs",
    "change_outputs",
    "fold_inputs",
    "get_activation",
    "leaky_relu",
    "named_method",
    "output_units",
    "unfold_inputs",
]
