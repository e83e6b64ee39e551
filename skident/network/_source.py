"""Networks as source code in C or Python without dependencies: one function of one row."""

import math

import numpy as np

from .activations import (
    _GELU_CUBIC,
    _GELU_SLOPE,
    ACTIVATIONS,
    SELU_ALPHA,
    SELU_SLOPE,
    Bounded,
    Clip,
    LeakyReLU,
    is_built_in,
)
from .partly_linear import PartlyLinear

_SIGMOID = "exp(fmin(z, 0.0)) / (1.0 + exp(-fabs(z)))"
_SOFTPLUS = "(fmax(z, 0.0) + log1p(exp(-fabs(z))))"
_BELOW = "expm1(fmin(z, 0.0))"
_VALUES = {  # of activations at z, in terms that both languages have
    "tanh": "tanh(z)",
    "sigmoid": _SIGMOID,
    "erf": "erf(z)",
    "softplus": _SOFTPLUS,
    "sin": "sin(z)",
    "gelu": f"0.5 * z * erfc(-z / {math.sqrt(2.0)!r})",
    "silu": f"z * ({_SIGMOID})",
    "gelu_tanh": f"0.5 * z * (1.0 + tanh({float(_GELU_SLOPE)!r} * (z + {_GELU_CUBIC!r} * z * z * z)))",
    "mish": f"z * tanh{_SOFTPLUS}",
    "hardswish": "z * fmin(fmax(z / 6.0 + 0.5, 0.0), 1.0)",
    "elu": f"fmax(z, 0.0) + {_BELOW}",
    "selu": f"{SELU_SLOPE!r} * (fmax(z, 0.0) + {SELU_ALPHA!r} * {_BELOW})",
    "relu": "fmax(z, 0.0)",
    "hard_tanh": "fmin(fmax(z, -1.0), 1.0)",
    "identity": "z",
    "quadratic": "z * z",
}
_LANGUAGES = {  # heading, array, activation, function, layer, end
    "c": (
        "/* {0} */\n#include <math.h>\n",
        "static const double {0}{1} = {2};",
        "static double g{0}(double z, int j) {{ (void)j; return {1}; }}",
        "\nvoid network(const double *x, double *y)\n{{",
        "    double h{0}[{1}];\n    for (int j = 0; j < {1}; j++) {{\n        double z = b{0}[j];\n"
        "        for (int i = 0; i < {2}; i++) z += W{0}[j][i] * {3}[i];\n        h{0}[j] = g{0}(z, j);\n    }}",
        "    for (int j = 0; j < {1}; j++) y[j] = {0}[j];\n}}\n",
    ),
    "python": (
        '"""{0}"""\n\nfrom math import erf, erfc, exp, expm1, fabs, inf, log1p, sin, tanh\n\nfmax, fmin = max, min\n',
        "{0} = {2}",
        "\n\ndef g{0}(z, j):\n    return {1}",
        "\n\ndef network(x):",
        "    h{0} = [g{0}(sum((w * v for w, v in zip(row, {3})), b), j) for j, (row, b) in enumerate(zip(W{0}, b{0}))]",
        "    return {0}\n",
    ),
}


def to_source(network, language):
    """The network in the language, "c" or "python"; ValueError for others, and for activations without a name."""
    if language not in _LANGUAGES:
        raise ValueError(f"language must be one of {sorted(_LANGUAGES)}, got {language!r}.")
    heading, array, activation, function, layer, end = _LANGUAGES[language]
    arrays, functions, layers, values = [], [], [], "x"
    for k, (W, b, g) in enumerate(zip(network.weights, network.biases, network.activations)):
        constants = {f"W{k}": W.T, f"b{k}": b}
        functions.append(activation.format(k, _value(g, k, len(b), constants, language)))
        layers.append(layer.format(k, len(b), len(W), values))
        arrays += [array.format(name, *_written(A, language)) for name, A in constants.items()]
        values = f"h{k}"
    lines = [heading.format(network), *arrays, *functions, function.format(), *layers]
    return "\n".join([*lines, end.format(values, network.n_outputs)])


def _written(A, language):
    """Sizes and entries of an array."""
    text = repr(A.tolist())
    if language == "c":
        text = text.replace("[", "{").replace("]", "}").replace("inf", "INFINITY")
    return "".join(f"[{m}]" for m in A.shape), text


def _value(g, k, n_units, constants, language):
    """The value of an activation at z for unit j; further constants of it are added to `constants`."""
    if isinstance(g, PartlyLinear):
        n_units -= g.n_linear
        value = _value(g.base, k, n_units, constants, language)
        return f"j < {n_units} ? {value} : z" if language == "c" else f"{value} if j < {n_units} else z"
    if isinstance(g, LeakyReLU):
        return f"fmax(z, 0.0) + {float(g.negative_slope)!r} * fmin(z, 0.0)"
    if isinstance(g, Bounded):
        low, high = (np.broadcast_to(bound, n_units).astype(float) for bound in (g.low, g.high))
        if not isinstance(g, Clip):
            ends = ACTIVATIONS[g.base].limits
            factor = (high - low) / (ends[1] - ends[0])
            low, high = low - factor * ends[0], factor
        constants |= {f"u{k}": low, f"v{k}": high}
        return f"fmin(fmax(z, u{k}[j]), v{k}[j])" if isinstance(g, Clip) else f"u{k}[j] + v{k}[j] * ({_VALUES[g.base]})"
    if not is_built_in(g):
        raise ValueError(f"to_source knows the activations {sorted(_VALUES)}, got {g.name!r}.")
    return _VALUES[g.name]
