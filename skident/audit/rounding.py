"""By how much two evaluations of the same network may differ."""

from dataclasses import dataclass

import numpy as np

from skident.oracle import Precision, precision_of

_DOUBLE = 2.0**-53  # relative rounding of float64
_SINGLE = 2.0**-24  # relative rounding of float32
_SHORT = {"bfloat16": 8, "float16": 11}  # bits of a number
_FEW = 3  # distinct outputs from which decimals are recognized
_MANY = 12  # distinct outputs from which the number format is recognized
_FEW_DECIMALS = 3  # that few different outputs indicate
_OF_ACTIVATION = 4.0  # roundings that an activation makes of its value and of what it is given
_OF_SIGMOID = 0.5  # standard deviation, in roundings of 1, of a sigmoid's absolute error (onnxruntime: 2.8 at most)
_LINEAR_FROM = 20.0  # torch's softplus is linear from here on
_SIDES = 8.0  # standard deviations of a pre-activation within which its slope is searched for


@dataclass(frozen=True)
class Arithmetic:
    """Precision in which a black box computes and returns its outputs.

    Attributes
    ----------
    kind : {"float64", "float32", "float16", "bfloat16", "decimals", "digits"}
        Number format of the outputs.
    decimals : int or None
        Decimal places, or significant digits for kind "digits".
    single : bool
        Whether it computes in single precision, weights and inputs rounded to it too.
    noise : ndarray of shape (m_L,)
        Standard deviation of other errors.
    """

    kind: str
    decimals: int | None
    single: bool
    noise: np.ndarray

    def spacing(self, Y):
        """The distance between the numbers to which outputs are rounded after they were computed.

        Y (n, m_L); returns (n, m_L).
        """
        if self.kind == "decimals":
            return np.full(Y.shape, 10.0**-self.decimals)
        if self.kind == "digits":
            return 10.0 ** (np.floor(np.log10(np.maximum(np.abs(Y), np.finfo(float).tiny))) + 1.0 - self.decimals)
        if self.kind in _SHORT:
            spacing = 2.0 ** (np.frexp(Y)[1] - _SHORT[self.kind])
            return np.maximum(spacing, np.finfo(np.float16).smallest_subnormal) if self.kind == "float16" else spacing
        return np.zeros(Y.shape)


def numbers_of(Y, known):
    """Number format of the outputs, which the known network's outputs do not have.

    Y (n, m_L), known (n, m_L).

    By `skident.oracle.precision_of` where there are many different outputs. Few (a large offset in single precision,
    few decimals) are evidence, too, as the network's own outputs come in all digits.
    """
    told, n_distinct = precision_of(Y), len(np.unique(Y))
    if told.kind == "decimals":
        return told
    formats = [(kind, bits) for kind, bits in _SHORT.items() if n_distinct >= _MANY]
    for kind, bits in (*formats, ("float32", 24)):
        if _have_bits(Y, bits) and not _have_bits(known, bits):
            few = [d for d in range(_FEW_DECIMALS) if _FEW <= n_distinct < _MANY and np.array_equal(Y, Y.round(d))]
            return Precision("decimals", few[0]) if few else Precision(kind)
    return told


def _have_bits(Y, bits):
    mantissas = np.frexp(Y)[0] * 2.0**bits
    return bool(np.all(mantissas == np.rint(mantissas)))


def rounding_of_outputs(network, X, single):
    """Standard deviation of what rounding leaves in the outputs of a network, whatever the order of its sums.

    Every rounding counts as an independent error of one unit in the last place of what is rounded: partial sums of n
    terms t are taken as large as ``|t|_2`` and the result, n times; an activation makes four of its value.
    Errors pass through a layer by its squared weights and the largest slope of the activation nearby.

    X (n, D); returns (n, m_L).

    O(n n_parameters) operations, a few times an evaluation.
    """
    unit = _SINGLE if single else _DOUBLE
    H, variance = X, (unit * X) ** 2 if single else np.zeros_like(X)
    for W, b, g in zip(network.weights, network.biases, network.activations, strict=True):
        Z, squares = H @ W + b, W**2
        terms = H**2 @ squares
        own = unit**2 * (len(W) * (terms + Z**2) + b**2)
        spread = np.sqrt(variance @ squares + own)
        slope = np.max([np.abs(g.jet(Z + side * _SIDES * spread, 1)[1]) for side in (-1.0, 0.0, 1.0)], axis=0)
        H, slope_here = g.jet(Z, 1)
        of_value = _error_of_activation(g.name, Z, H, slope_here, unit)
        variance = (slope * spread) ** 2 + of_value**2
    return np.sqrt(variance + (unit * H) ** 2)


def _error_of_activation(name, Z, H, slope, unit):
    """Standard deviation of what implementations make of one value, beside the error of what they are given."""
    if name == "identity":
        return 0.0
    error = _OF_ACTIVATION * unit * (np.abs(H) + np.abs(Z * slope))
    if name in ("sigmoid", "silu"):  # 1/2 + r, as onnxruntime computes it, has an absolute error
        error = error + _OF_SIGMOID * unit * np.abs(Z if name == "silu" else 1.0)
    if name == "gelu":  # x/2 (1 + erf): far below 0 the brackets are a rounding beside 1
        error = error + unit * np.abs(Z)
    if name == "softplus":
        error = error + np.where(_LINEAR_FROM < Z, np.exp(-np.abs(Z)), 0.0)
    return error
