"""Modules with a forward of their own as chains of torch modules, from the graph that torch.fx traces."""

import operator

import torch
from torch import fx, nn

from ._torch_maps import Entrywise, unreadable
from .alignment.graph import traced
from .torch_activations import MODULES

_ROWS = "rows"  # value of a node that is a layer's output; constants have their own
_SHAPE = "shape"  # and of its shape
_BATCH = "batch"  # and of the number of rows
_MODULES = {name: kind for name, kind in MODULES.items() if name not in ("gelu_tanh", "hard_tanh", "identity")}
_MODULES |= {"special_erf": MODULES["erf"], "square": MODULES["quadratic"], "leaky_relu": nn.LeakyReLU}
_MODULES |= {"hardtanh": nn.Hardtanh, "relu6": nn.ReLU6, "flatten": lambda start=0, end=-1: nn.Flatten(start, end)}
_MODULES |= {f"avg_pool{k}d": getattr(nn, f"AvgPool{k}d") for k in (1, 2, 3)}
_MODULES |= {f"adaptive_avg_pool{k}d": getattr(nn, f"AdaptiveAvgPool{k}d") for k in (1, 2, 3)}
_MODULES |= dict.fromkeys(("contiguous", "clone", "detach", "float", "double"), nn.Identity)
_ARITHMETIC = ("add", "sub", "mul", "truediv", "neg")
_OTHER_NAMES = {"div": "truediv", "itruediv": "truediv", "mm": "matmul", "iadd": "add", "isub": "sub", "imul": "mul"}


def has_own_forward(module):
    """Whether a module's forward is not one of torch or of this package."""
    return not type(module).forward.__module__.startswith(("torch.", "skident."))


def chain_of(module, path):
    """Pairs of name and module that are applied one after the other; ValueError if the forward is no such chain."""
    try:
        graph, values, chain, last = traced(module, "it").graph, {}, [], None
        for node in graph.nodes:
            if node.op == "output":
                if node.args[0] is not last:
                    raise ValueError("its outputs are not the values of its last layer")
            elif node.op == "placeholder":
                if last is not None:
                    raise ValueError("it has several inputs")
                values[node], last = _ROWS, node
            elif node.op == "get_attr":
                owner, _, name = node.target.rpartition(".")
                values[node] = getattr(module.get_submodule(owner), name).detach().double().cpu()
            elif node.op == "call_module" and node.args == (last,):
                chain.append((node.target, module.get_submodule(node.target)))
                values[node], last = _ROWS, node
            else:
                values[node] = value = _value(node, values, last, module.training)
                if isinstance(value, nn.Module):
                    chain.append((node.name, value))
                    values[node], last = _ROWS, node
    except (ValueError, TypeError) as error:
        reason = f"it defines its own forward, and {str(error).rstrip('.')}; query it instead, with "
        raise unreadable(path, module, f"{reason}NetworkIdentifier(module).fit(X)") from None
    return chain


def _value(node, values, last, training):
    """What a node is: a module that follows the last one, a constant, a shape, or the length of the batch."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    args = fx.node.map_arg(node.args, values.get)
    kwargs = {key: v for key, v in fx.node.map_arg(node.kwargs, values.get).items() if key != "inplace"}
    name, first = _OTHER_NAMES.get(name.rstrip("_"), name.rstrip("_")), args[0] if args else None
    rows = [one for one in node.all_input_nodes if isinstance(values[one], str) and values[one] == _ROWS]
    if not any(isinstance(values[one], str) for one in node.all_input_nodes) and node.op != "call_module":
        return (
            getattr(first, node.target)(*args[1:], **kwargs)
            if node.op == "call_method"
            else node.target(*args, **kwargs)
        )
    if name == "size" or (name, args[1:2]) == ("getattr", ("shape",)):
        return _SHAPE if len(args) == 1 or name == "getattr" else _BATCH if args[1] == 0 else None
    if name == "getitem" and isinstance(first, str) and first == _SHAPE and args[1] == 0:
        return _BATCH
    if rows != [last]:
        raise ValueError(f"node {node.name!r} does not follow the layer before it: it is no chain")
    if name in _ARITHMETIC:
        return _entrywise(name, *args)
    if name in ("linear", "matmul"):
        return _linear(*args[1:], **kwargs) if name == "linear" else _linear(args[1].T)
    if name in ("view", "reshape"):
        sizes = list(args[1]) if isinstance(args[1], (tuple, list)) else list(args[1:])
        if sizes[0] not in (-1, _BATCH) or len(sizes) < 2:
            raise ValueError(f"node {node.name!r} does not keep the rows of a batch")
        return nn.Flatten(1) if sizes[1:] == [-1] else nn.Unflatten(1, sizes[1:])
    if name.startswith("dropout"):
        return nn.Dropout(kwargs.get("p", 0.5)).train(training)
    if name in ("clamp", "clip"):
        low, high = (kwargs.get(key, args[i] if len(args) > i else None) for i, key in ((1, "min"), (2, "max")))
        if low == 0 and high is None:
            return nn.ReLU()
        return nn.Hardtanh(-torch.inf if low is None else low, torch.inf if high is None else high)
    if name not in _MODULES:
        raise ValueError(f"node {node.name!r} ({name}) is not an operation of layers")
    return _MODULES[name](*args[1:], **kwargs)


def _entrywise(name, x, y=0.0):
    """The module of a sum, difference, product or quotient of rows and a constant."""
    first, function = isinstance(x, str), getattr(operator, name)
    zero, one, c = torch.zeros(()), torch.ones(()), torch.as_tensor(y if isinstance(x, str) else x, dtype=torch.float64)
    if name == "truediv" and not first:
        raise ValueError("it divides by what depends on the input")
    if name in ("add", "sub"):
        return Entrywise(
            *(function(one, zero), function(zero, c)) if first else (function(zero, one), function(c, zero))
        )
    return Entrywise(-one if name == "neg" else function(one, c), zero)


def _linear(weight, bias=None):
    """The module of ``x @ weight.T + bias``."""
    linear = nn.utils.skip_init(nn.Linear, *weight.T.shape, bias=bias is not None, dtype=torch.float64)
    linear.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return linear
