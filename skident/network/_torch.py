"""Read `FeedforwardNetwork` parameters from torch modules, and write them to one; imported when needed."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from . import torch_activations
from ._torch_graph import chain_of, has_own_forward
from ._torch_maps import AffineMap, affine_map_of, reshaped, unreadable
from .activations import ACTIVATIONS, Bounded, Clip, LeakyReLU, bounded, clip, is_built_in, leaky_relu
from .partly_linear import PartlyLinear, partly_linear
from .tabulated import Tabulated, tabulated
from .torch_activations import MODULES

_KNOWN_OTHERS = "convolutions, average pooling, Identity, Flatten(1), Unflatten(1), eval-mode BatchNorm and Dropout"


def from_torch(module, input_shape=None):
    """Arguments of `FeedforwardNetwork` from a torch module; a ValueError names the submodule that cannot be read."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"from_torch reads a torch.nn.Module, got {type(module).__name__}.")
    layers = _layers(module, None if input_shape is None else tuple(np.atleast_1d(input_shape).tolist()))
    if not any(layer.map.weighted for layer in layers):
        raise ValueError(f"there is no torch.nn.Linear in {type(module).__name__}.")
    names = [layer.activation for layer in layers]
    mixed = [i for i, name in enumerate(names[:-1]) if name != names[0]]
    if mixed:
        raise ValueError(
            f"all hidden layers must have the same activation, got {names[0]!r} at {layers[0].path!r} and "
            f"{names[mixed[0]]!r} at {layers[mixed[0]].path!r}."
        )
    if len(names) > 1 and isinstance(names[0], Clip):
        raise ValueError(f"from_torch cannot read {layers[0].path!r}: only limits of -1 and 1 are supported there.")
    weights, biases = zip(*(layer.map.arrays() for layer in layers), strict=True)
    return weights, biases, names[0], names[-1]


@dataclass(frozen=True)
class _Layer:
    """An affine map, the activation after it, and the path of the last module in it."""

    map: AffineMap
    activation: object
    path: str
    closed: bool = False


def _layers(module, dims):
    """The layers of a module whose rows have the axes `dims`: two modules with weights are never one layer."""
    layers = []
    for path, part in _flat_modules(module):
        found, last = affine_map_of(path, part, dims), layers[-1] if layers else None
        if found is not None:
            if last is None or last.closed or (last.map.weighted and found.weighted):
                layers.append(_Layer(found, "identity", path))
            else:
                layers[-1] = _Layer(last.map.then(found), "identity", path)
            dims = found.dims or dims
        elif changed := reshaped(path, part, dims):
            dims = changed[0]
        elif not _is_skipped(path, part):
            name = _activation_name(path, part)
            if last is None or last.closed:
                raise unreadable(path, part, "an activation must follow a Linear")
            layers[-1] = _Layer(last.map, name, path, closed=True)
    return layers


def to_torch(network, dtype=None):
    """A torch.nn.Sequential with copies of the network's parameters, float64 by default."""
    dtype = torch.float64 if dtype is None else dtype
    modules = []
    for W, b, activation in zip(network.weights, network.biases, network.activations):
        # skip_init: no random draw, torch's global stream stays where it is.
        linear = nn.utils.skip_init(nn.Linear, *W.shape, dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(W.T.copy()))
            linear.bias.copy_(torch.from_numpy(b.copy()))
        modules.append(linear)
        if activation.symmetry != "linear":
            modules.append(_torch_activation(activation))
    return nn.Sequential(*modules)


def _torch_activation(activation):
    if isinstance(activation, PartlyLinear):
        return torch_activations.PartlyLinear(_torch_activation(activation.base), activation.n_linear)
    if isinstance(activation, LeakyReLU):
        return nn.LeakyReLU(activation.negative_slope)
    if isinstance(activation, Clip):
        return torch_activations.Clip(activation.low, activation.high)
    if isinstance(activation, Bounded):
        limits = ACTIVATIONS[activation.base].limits
        return torch_activations.Bounded(MODULES[activation.base](), limits, activation.low, activation.high)
    if isinstance(activation, Tabulated):
        return torch_activations.Table(activation.jet.edges, activation.jet.coefficients, activation.jet.slopes)
    if not is_built_in(activation):
        raise ValueError(f"to_torch knows the activations {sorted(ACTIVATIONS)}, got a custom {activation.name!r}.")
    # Its linear part begins where it is exact in double precision.
    options = {"threshold": 40.0} if activation.name == "softplus" else {}
    return MODULES[activation.name](**options)


def _flat_modules(module, path=""):
    """Pairs of dotted name and leaf module, Sequentials opened in order and custom modules traced."""
    if has_own_forward(module):
        children = chain_of(module, path)
    elif isinstance(module, nn.Sequential):
        # With repetitions: one activation module may serve several layers, and named_children lists it once.
        named = module.named_modules(remove_duplicate=False)
        children = [(name, child) for name, child in named if name and "." not in name]
    else:
        yield path, module
        return
    for name, child in children:
        yield from _flat_modules(child, f"{path}.{name}" if path else name)


def _is_skipped(path, module):
    """Whether the module does not change (n, m) arrays; ValueError if it would do so in another mode."""
    if isinstance(module, nn.Dropout):
        if module.training and module.p > 0:
            raise unreadable(path, module, "it is in training mode and so draws at random; call .eval() first")
        return True
    return isinstance(module, nn.Identity)


def _activation_name(path, module):
    """Name of a torch activation module, or a LeakyReLU or Clip; ValueError names a module that is unknown."""
    if isinstance(module, torch_activations.PartlyLinear):
        return partly_linear(_activation_name(path, module.base), module.n_linear)
    if isinstance(module, torch_activations.Table):
        return tabulated(*(part.numpy(force=True) for part in (module.edges, module.coefficients, module.slopes)))
    if type(module) is nn.LeakyReLU:
        return leaky_relu(module.negative_slope)
    if type(module) is nn.PReLU:
        if module.num_parameters != 1:
            raise unreadable(path, module, "only a PReLU with one slope for all units is supported")
        return leaky_relu(module.weight.item())
    if isinstance(module, torch_activations.Bounded):
        return bounded(_activation_name(path, module.base), module.low.tolist(), module.high.tolist())
    if isinstance(module, torch_activations.Clip):
        return clip(module.low.tolist(), module.high.tolist())
    if isinstance(module, nn.Hardtanh) and (module.min_val, module.max_val) != (-1, 1):  # ReLU6 is one of these
        return clip(module.min_val, module.max_val)
    kinds = {name: kind for name, kind in MODULES.items() if isinstance(kind, type) and kind is not nn.Identity}
    name = next((name for name, kind in kinds.items() if kind is type(module)), None)
    if name is None:
        known = ", ".join(kind.__name__ for kind in (nn.Linear, *kinds.values(), nn.LeakyReLU, nn.PReLU))
        raise unreadable(path, module, f"known are {known}; {_KNOWN_OTHERS}")
    if name == "gelu" and module.approximate == "tanh":
        return "gelu_tanh"
    if name == "elu" and module.alpha != 1:
        raise unreadable(path, module, "only alpha=1 is supported")
    if name == "softplus" and (module.beta != 1 or module.threshold < 20):
        raise unreadable(path, module, "only beta=1 and threshold >= 20 are supported")
    return name
