"""Feedforward networks: weights and activations, derivatives, symmetries, conversions and files."""

import lazy_loader

from ._affine import center_outputs, change_inputs, change_outputs, output_scaling
from ._convolution import Convolution
from ._feedforward import FeedforwardNetwork
from ._structure import NetworkStructure
from ._transformers import affine_map, named_method
from .activations import ACTIVATIONS, Activation, Bounded, Clip, LeakyReLU, bounded, clip, get_activation, leaky_relu
from .architecture import Architecture
from .partly_linear import PartlyLinear, partly_linear, with_linear_skip, with_skip_of_first_layer

# What needs torch is loaded when it is first used.
__getattr__, _, _ = lazy_loader.attach(
    __name__, submod_attrs={"alignment.modules": ["ModuleAlignment", "align_modules"]}
)

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Convolution",
    "FeedforwardNetwork",
    "ModuleAlignment",
    "NetworkStructure",
    "align_modules",
    "center_outputs",
    "clip",
    "leaky_relu",
    "with_linear_skip",
]


def __dir__():
    return __all__
