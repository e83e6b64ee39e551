"""Activation functions with their first two derivatives, limits and symmetries."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf, expit

_SLOPE_TOL = 1e-6  # difference of a recovered slope to the true one: error of an identification
_SQRT_2 = np.sqrt(2.0)  # GELU is z times the normal distribution function, (1 + erf(z / sqrt 2)) / 2
_SQRT_2PI = np.sqrt(2.0 * np.pi)  # of the normal density, its derivative
_GELU_SLOPE = np.sqrt(2.0 / np.pi)  # of the argument of tanh at 0, in the form of GELU by tanh
_GELU_CUBIC = 0.044715  # third coefficient of that argument over the first one
SELU_SLOPE = 1.0507009873554805  # on the right: layers keep mean 0 and variance 1 (Klambauer et al., 2017)
SELU_ALPHA = 1.6732632423543772  # minus the left limit over that slope
_TWO_OVER_SQRT_PI = 2.0 / np.sqrt(np.pi)  # slope of erf at 0


@dataclass(frozen=True)
class Activation:
    """A scalar nonlinearity ``g``, applied componentwise.

    Parameters
    ----------
    name : str
        The name by which estimators and files refer to it.
    jet : callable
        ``jet(z, order)`` returns the tuple ``(g(z), g'(z), ..., g^(order)(z))`` for ``order`` 0, 1 or 2; each entry has
        the shape of ``z``. Common subexpressions are computed once.
    limits : tuple of float or None
        ``(g(-inf), g(+inf))`` for an activation that saturates smoothly, else None.
    symmetry : {"odd", "point", "even", "homogeneous", "sine", "linear", None}
        What a hidden unit may do without changing the network: ``odd`` ``g(-z) = -g(z)``; ``point``
        ``g(-z) = limits[0] + limits[1] - g(z)``; ``even`` ``g(-z) = g(z)`` (and ``g(c z) = c^2 g(z)``);
        ``homogeneous`` ``g(c z) = c g(z)`` for c > 0; ``sine`` odd and ``g(z + pi) = -g(z)``; ``linear`` any mixing.
    smooth : bool
        Whether ``g''`` exists everywhere.
    """

    name: str
    jet: Callable[[np.ndarray, int], tuple[np.ndarray, ...]]
    limits: tuple[float, float] | None = None
    symmetry: str | None = None
    smooth: bool = True

    def __call__(self, z):
        return self.jet(z, 0)[0]

    @property
    def curved(self) -> bool:
        """Whether ``g''`` is not zero, so that a layer's weights appear in Hessians."""
        return self.name not in ("identity", "relu", "leaky_relu", "hard_tanh")

    @property
    def saturating(self) -> bool:
        """Whether the activation tends to a constant on both sides, smoothly."""
        return self.limits is not None


def _tanh(z, order):
    g = np.tanh(z)
    if order == 0:
        return (g,)
    d = 1.0 - g * g
    return (g, d) if order == 1 else (g, d, -2.0 * g * d)


def _sigmoid(z, order):
    g = expit(z)
    if order == 0:
        return (g,)
    d = g * expit(-z)
    return (g, d) if order == 1 else (g, d, d * (1.0 - 2.0 * g))


def _erf(z, order):
    g = erf(z)
    if order == 0:
        return (g,)
    d = _TWO_OVER_SQRT_PI * np.exp(-z * z)
    return (g, d) if order == 1 else (g, d, -2.0 * z * d)


def _softplus(z, order):
    g = np.logaddexp(0.0, z)
    if order == 0:
        return (g,)
    d = expit(z)
    return (g, d) if order == 1 else (g, d, d * expit(-z))


def _sin(z, order):
    g = np.sin(z)
    if order == 0:
        return (g,)
    d = np.cos(z)
    return (g, d) if order == 1 else (g, d, -g)


def _gelu(z, order):
    cdf = 0.5 * (1.0 + erf(z / _SQRT_2))
    g = z * cdf
    if order == 0:
        return (g,)
    pdf = np.exp(-0.5 * z * z) / _SQRT_2PI
    d = cdf + z * pdf
    return (g, d) if order == 1 else (g, d, pdf * (2.0 - z * z))


def _silu(z, order):
    sigmoid = expit(z)
    g = z * sigmoid
    if order == 0:
        return (g,)
    slope = sigmoid * expit(-z)
    d = sigmoid + z * slope
    return (g, d) if order == 1 else (g, d, slope * (2.0 + z * (1.0 - 2.0 * sigmoid)))


def _elu(z, order):
    below = np.minimum(z, 0.0)
    jet = (np.maximum(z, 0.0) + np.expm1(below), np.exp(below), np.where(z > 0, 0.0, np.exp(below)))
    return jet[: order + 1]


def _selu(z, order):
    below = SELU_ALPHA * np.exp(np.minimum(z, 0.0))
    jet = (np.where(z > 0, z, below - SELU_ALPHA), np.where(z > 0, 1.0, below), np.where(z > 0, 0.0, below))
    return tuple(SELU_SLOPE * value for value in jet[: order + 1])


def _mish(z, order):
    t, s = np.tanh(np.logaddexp(0.0, z)), expit(z)
    if order == 0:
        return (z * t,)
    slope = (1.0 - t * t) * s
    d = t + z * slope
    return (z * t, d) if order == 1 else (z * t, d, slope * (2.0 + z * (1.0 - s - 2.0 * t * s)))


def _hardswish(z, order):
    gate, inside = np.clip(z / 6.0 + 0.5, 0.0, 1.0), (np.abs(z) < 3.0).astype(z.dtype)
    return (z * gate, gate + z * inside / 6.0, inside / 3.0)[: order + 1]


def _gelu_tanh(z, order):
    t = np.tanh(_GELU_SLOPE * (z + _GELU_CUBIC * z**3))
    g = 0.5 * z * (1.0 + t)
    if order == 0:
        return (g,)
    slope, bend = _GELU_SLOPE * (1.0 + 3.0 * _GELU_CUBIC * z**2), 6.0 * _GELU_SLOPE * _GELU_CUBIC * z
    d = 0.5 * (1.0 + t + z * (1.0 - t * t) * slope)
    return (g, d) if order == 1 else (g, d, (1.0 - t * t) * (slope + 0.5 * z * bend - z * t * slope**2))


def _relu(z, order):
    jet = (np.maximum(z, 0.0), (z > 0).astype(z.dtype), np.zeros_like(z))
    return jet[: order + 1]


def _hard_tanh(z, order):
    jet = (np.clip(z, -1.0, 1.0), (np.abs(z) < 1.0).astype(z.dtype), np.zeros_like(z))
    return jet[: order + 1]


def _identity(z, order):
    jet = (z, np.ones_like(z), np.zeros_like(z))
    return jet[: order + 1]


def _quadratic(z, order):
    jet = (z * z, 2.0 * z, np.full_like(z, 2.0))
    return jet[: order + 1]


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("tanh", _tanh, (-1.0, 1.0), "odd"),
        Activation("sigmoid", _sigmoid, (0.0, 1.0), "point"),
        Activation("erf", _erf, (-1.0, 1.0), "odd"),
        Activation("softplus", _softplus),
        Activation("sin", _sin, None, "sine"),
        Activation("gelu", _gelu),
        Activation("silu", _silu),
        Activation("gelu_tanh", _gelu_tanh),
        Activation("mish", _mish),
        Activation("hardswish", _hardswish, smooth=False),
        Activation("elu", _elu, smooth=False),
        Activation("selu", _selu, smooth=False),
        Activation("relu", _relu, None, "homogeneous", smooth=False),
        Activation("hard_tanh", _hard_tanh, None, "odd", smooth=False),
        Activation("identity", _identity, None, "linear"),
        Activation("quadratic", _quadratic, None, "even"),
    )
}


@dataclass(frozen=True)
class _LeakyJet:
    """``max(z, 0) + s min(z, 0)`` and its derivatives, picklable; equal if the slopes are."""

    negative_slope: float

    def __call__(self, z, order):
        slope = np.where(z > 0, 1.0, self.negative_slope)
        return (slope * z, slope, np.zeros_like(z))[: order + 1]


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """``g(z) = max(z, 0) + s min(z, 0)``; `leaky_relu` makes one.

    Parameters
    ----------
    negative_slope : float, default=0.01
        s.
    """

    negative_slope: float = 0.01


def alike(one, other):
    """Whether two activations are equal, up to rounding of a recovered slope."""
    if isinstance(one, LeakyReLU) and isinstance(other, LeakyReLU):
        return abs(one.negative_slope - other.negative_slope) < _SLOPE_TOL
    return one == other


def leaky_relu(negative_slope=0.01):
    """The leaky ReLU ``g(z) = max(z, 0) + s min(z, 0)``.

    Parameters
    ----------
    negative_slope : float, default=0.01
        s; finite, and not 1, which would be the identity.

    Returns
    -------
    LeakyReLU

    Raises
    ------
    ValueError
        If the slope is 1 or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import leaky_relu
    >>> print(leaky_relu(0.25)(np.array([-2.0, 3.0])))
    [-0.5  3. ]
    """
    slope = float(negative_slope)
    if not np.isfinite(slope) or slope == 1.0:
        raise ValueError(f"negative_slope must be finite and not 1, got {negative_slope!r}.")
    return LeakyReLU("leaky_relu", _LeakyJet(slope), None, "homogeneous", smooth=False, negative_slope=slope)


@dataclass(frozen=True)
class _BoundedJet:
    """A saturating activation between other limits, and its derivatives, picklable; limits per column or for all."""

    base: str
    low: tuple
    high: tuple

    def __call__(self, z, order):
        (low, high), limits = np.array([self.low, self.high]), ACTIVATIONS[self.base].limits
        slope = (high - low) / (limits[1] - limits[0])
        value, *derivatives = ACTIVATIONS[self.base].jet(z, order)
        return (low + slope * (value - limits[0]), *(slope * d for d in derivatives))


@dataclass(frozen=True)
class Bounded(Activation):
    """A saturating activation between other limits, an output activation; `bounded` makes one.

    Parameters
    ----------
    low, high : tuple of float
        One limit per output, or one for all.
    base : str
        Name of the activation.
    """

    low: tuple = (-1.0,)
    high: tuple = (1.0,)
    base: str = "tanh"


def bounded(base, low, high):
    """The output activation ``low + (high - low) (g(z) - g(-inf)) / (g(inf) - g(-inf))`` of a saturating one g.

    Parameters
    ----------
    base : {"tanh", "sigmoid", "erf"}
        Name of g.
    low, high : float or array-like of shape (m_L,)
        Limits of the outputs.

    Returns
    -------
    Bounded

    Raises
    ------
    ValueError
        If the activation does not saturate, limits are not finite, or a lower one is not below its upper one.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import bounded
    >>> g = bounded("tanh", 0.0, 10.0)
    >>> print(g.name, g(np.array([-20.0, 0.0, 20.0])))
    tanh(0, 10) [ 0.  5. 10.]
    """
    if base not in ACTIVATIONS or not ACTIVATIONS[base].saturating:
        raise ValueError(f"base must be one of tanh, sigmoid and erf, got {base!r}.")
    low, high, bounds = _checked_bounds(low, high)
    if not np.all(np.isfinite([low, high])):
        raise ValueError(f"low and high must be finite, got low={low}, high={high}.")
    return Bounded(f"{base}{bounds}", _BoundedJet(base, low, high), low=low, high=high, base=base)


@dataclass(frozen=True)
class _ClipJet:
    """``min(max(z, low), high)`` and its derivatives, picklable; bounds per column or one for all."""

    low: tuple
    high: tuple

    def __call__(self, z, order):
        low, high = np.array(self.low), np.array(self.high)
        slope = ((z > low) & (z < high)).astype(z.dtype)
        return (np.clip(z, low, high), slope, np.zeros_like(z))[: order + 1]


@dataclass(frozen=True)
class Clip(Bounded):
    """``g(z) = min(max(z, low), high)``, an output activation; `clip` makes one.

    Parameters
    ----------
    low, high : tuple of float
        One bound per output, or one for all; infinite where there is none.
    """

    base: str = "clip"


def clip(low=-np.inf, high=np.inf):
    """The output activation ``g(z) = min(max(z, low), high)``.

    Parameters
    ----------
    low, high : float or array-like of shape (m_L,), default=-inf and inf
        Bounds of the outputs; infinite entries are no bounds.

    Returns
    -------
    Clip

    Raises
    ------
    ValueError
        If the bounds have different lengths or are not numbers, or a lower bound is not below its upper bound.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import clip
    >>> g = clip(-1.0, 2.5)
    >>> print(g.name, g(np.array([-2.0, 0.5, 3.0])))
    clip(-1, 2.5) [-1.   0.5  2.5]
    """
    low, high, bounds = _checked_bounds(low, high)
    return Clip(f"clip{bounds}", _ClipJet(low, high), smooth=False, low=low, high=high)


def _checked_bounds(low, high):
    """Bounds as tuples of one or one per output, and their text; ValueError if they are none."""
    try:
        low, high = np.broadcast_arrays(*(np.atleast_1d(np.asarray(bound, dtype=float)) for bound in (low, high)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"low and high must be numbers or one number per output: {error}") from error
    if low.ndim != 1 or not np.all(low < high):
        raise ValueError(f"low must be below high for every output, got low={low}, high={high}.")
    low, high = (tuple(float(v) + 0.0 for v in bound) for bound in (low, high))
    if len(set(low)) == len(set(high)) == 1:
        return low[:1], high[:1], f"({low[0]:.6g}, {high[0]:.6g})"
    return low, high, f"(low and high of {len(low)} outputs)"


def get_activation(name: str | Activation) -> Activation:
    """Look an activation up by name.

    Parameters
    ----------
    name : str or Activation
        One of ``tanh, sigmoid, erf, softplus, sin, gelu, silu, elu, relu, hard_tanh, identity, quadratic``, or
        ``leaky_relu`` (slope 0.01), or scikit-learn's ``logistic`` (sigmoid). An `Activation` is returned as it is.

    Returns
    -------
    Activation

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones.

    Notes
    -----
    ``hard_tanh`` is ``max(-1, min(z, 1))`` and ``silu`` is ``z sigmoid(z)``. ``elu`` is ``exp(z) - 1`` below 0 and z
    above, with a second derivative that jumps at 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import get_activation
    >>> value, slope = get_activation("tanh").jet(np.array([0.5]), 1)
    >>> print(round(float(slope[0]), 4))
    0.7864
    """
    if isinstance(name, Activation):
        return name
    if name == "leaky_relu":
        return leaky_relu()
    known = ACTIVATIONS.get("sigmoid" if name == "logistic" else name) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}.")
    return known


def is_built_in(activation):
    """Whether an `Activation` is the one of `ACTIVATIONS` with its name."""
    return ACTIVATIONS.get(activation.name) == activation
