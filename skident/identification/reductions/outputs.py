"""Outputs that are a known function of the values of a network: each is undone for the queries, and put back."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax, logsumexp

from skident.budget.constants import EPS, ROUNDINGS, SUM_TOL
from skident.network import Clip, FeedforwardNetwork, bounded, center_outputs, clip, get_activation, with_linear_skip
from skident.oracle import BlackBoxError, NotIdentified, Oracle, are_probabilities, precision_of

from ..activation.outputs import inverse

_FAR = (1e3, 1e5)  # standard deviations at which units that grow bring outputs to their bounds
_NEAR = (1.0, 10.0, 100.0)  # at which exponentials of units that grow differ most
_SAMPLES = 60  # per distance (budget)
_SCREENED = 15  # of these, at two of which at least every output is at either bound
_AT_BOUNDS = 0.4  # share of far outputs at either bound: units that are off leave some; twice as many at one alone
_INSIDE = 0.2  # share of near outputs between the bounds
_ACROSS = 2.0  # standard deviations on either side of the center, of lines between the bounds
_POINTS = 64  # on either side
_AGREE = 1e-9  # relative error of a bound that decides, and difference of two that agree: chance leaves 1e-4
_FEWEST = 3  # of them at each bound: one is the largest of all
_APPROACHING = (3.0, 10.0, 30.0)  # standard deviations at which some outputs are near a bound, but not at it
_NEAR_BOUND = 1e-4  # distance from a bound over the range, and share of outputs at which clips come as near
_MORE_NEAR = 100.0  # times that share, from which bounds are approached smoothly
_LEAST_RANGE = 1e-6  # of bounds over their size, from which their rounding leaves nine digits
_LARGEST_LOG = 600.0  # of an exponential that does not overflow
_LARGEST = 4.0  # value before tanh, sigmoid or erf up to which rounding of the outputs costs it three digits at most
_LARGEST_ODDS = 16.0  # log-odds from which the rounding of a probability near 1 hides their ninth digit
_CLEARLY = 20.0  # logarithm of outputs that grow faster than polynomials within `_NEAR`


class Outputs:
    """Part of a reduction of outputs: the oracle of what comes before them, and the network with them again."""

    activation = "identity"
    bound = None  # size beyond which values before the outputs are lost
    whole = True  # whether the network of `invert` has the outputs of the model
    roundings = 1.0  # error of values before the outputs, over that of the outputs, relative to their size

    def apply(self, oracle):
        """An oracle of the values before the outputs of a model; its `outputs` end with them."""
        place = {"center": oracle.center, "scale": oracle.scale, "budget": oracle.budget}
        box = _Before(self, oracle)
        inner = Oracle(box, oracle.n_inputs, input_range=oracle.input_range, **place)
        inner.outputs = (*oracle.outputs, box)
        if self.bound is not None:
            inner.output_bounds = tuple(np.full(oracle.n_outputs, sign * self.bound) for sign in (-1.0, 1.0))
        return inner

    def of(self, index):
        """The reduction of one output alone."""
        return self

    def forward(self, Z):
        """Outputs of the model, from those Z (n, m_L) of the network of `invert`."""
        return Z

    def refuted(self, Y):
        """Whether outputs Y (n, m_L) of the model are none that `before` inverts."""
        return False


class _Before:
    """A black box before its outputs, and whether one of these has refuted the reduction; it can be pickled."""

    def __init__(self, reduction, oracle):
        self.reduction, self._outputs, self.refuted = reduction, oracle.raw_outputs, False

    def __call__(self, X):
        Y = self._outputs(X)
        Y = np.asarray(Y.detach() if getattr(Y, "requires_grad", False) else Y, dtype=float)
        table = Y.reshape(len(X), -1)
        self.refuted |= bool(self.reduction.refuted(table))
        Z = self.reduction.before(table, X)
        return Z[:, 0] if Y.ndim == 1 else Z


def _samples(oracle, distances, n=_SAMPLES):
    """Outputs at n random points of each distance, as the model returns them; None if it cannot be queried there."""
    E = np.random.RandomState(0).standard_normal((n, oracle.n_inputs))
    oracle = oracle.within(np.eye(oracle.n_inputs))  # whose extremes are its own: those near the center show a clip
    try:
        return np.concatenate([oracle.output_center + oracle.output_scale * oracle(r * E) for r in distances])
    except BlackBoxError:
        return None


def with_outputs(network, oracle):
    """The network of the model itself, from one of the values of an oracle before its `outputs`."""
    for box in reversed(oracle.outputs):
        network = box.reduction.invert(network)
    return network


def has_skip(oracle):
    """Whether a linear function of the inputs was left out."""
    return any(isinstance(box.reduction, LinearSkip) for box in oracle.outputs)


def refuse_refuted(oracle):
    """Raise `NotIdentified` if an output was none that a reduction inverts: the model is another one."""
    for box in oracle.outputs:
        if box.refuted:
            raise NotIdentified("outputs", "refuted", f"some outputs of the model contradict: {box.reduction}.")


def _with_activation(network, activation):
    """A network with another output activation, and without bounds beyond which values were lost."""
    return FeedforwardNetwork(network.weights, network.biases, network.activations[0], activation)


@dataclass(frozen=True)
class LinearSkip(Outputs):
    """Outputs with a linear function ``X @ matrix`` (D, m_L) of the inputs: the network gets it as linear units."""

    matrix: np.ndarray

    def __str__(self):
        return "linear function of the inputs beside the network"

    def before(self, Y, X):
        """Outputs Y (n, m_L) at inputs X (n, D) without it."""
        return Y - X @ self.matrix

    def invert(self, network):
        """The network with it."""
        return with_linear_skip(network, self.matrix)


@dataclass(frozen=True)
class ActivatedOutputs(Outputs):
    """Outputs behind an activation with limits: tanh, sigmoid, or erf."""

    name: str
    bound = _LARGEST

    def __str__(self):
        return f"values before {self.name}"

    @property
    def activation(self):
        """Of the outputs."""
        return self.name

    def kept(self, Y):
        """Which outputs Y (n, m_L) keep the values before them."""
        return np.abs(inverse(self.name, Y, 0.0)[0]) < _LARGEST

    def before(self, Y, X=None):
        """Values before outputs Y (n, m_L)."""
        return np.clip(inverse(self.name, Y, 0.0)[0], -_LARGEST, _LARGEST)

    def apply(self, oracle):
        """As `Outputs.apply`; the rounding of the outputs over the slope is the error of the values before them."""
        inner, activation = super().apply(oracle), get_activation(self.name)
        error = EPS * max((box.reduction.roundings for box in oracle.outputs), default=1.0)

        def uncertainty(Z):
            return error / activation.jet(Z, 1)[1].min(axis=1) / np.min(inner.output_scale)

        inner.uncertainty = uncertainty
        return inner

    def invert(self, network):
        """The network with the activation."""
        return _with_activation(network, self.name)


class SigmoidOutputs(ActivatedOutputs):
    """Several outputs behind a sigmoid, which keeps small probabilities to full relative precision."""

    @classmethod
    def accepts(cls, oracle, Y):
        """Whether several outputs between 0 and 1, which do not sum to 1, come near these limits, but not to them."""
        if Y.shape[1] == 1 or Y.min() < 0.0 or Y.max() > 1.0 or are_probabilities(Y, SUM_TOL):
            return None
        far = _samples(oracle, _APPROACHING)
        if far is None or far.min() < 0.0 or far.max() > 1.0:
            return None
        gap = np.minimum(far, 1.0 - far)
        return cls("sigmoid") if np.sum((gap > 0.0) & (gap < _NEAR_BOUND)) >= _FEWEST else None

    def kept(self, Y):
        """As above: large log-odds are lost, but not small ones."""
        return (Y > np.finfo(float).tiny) & (Y < expit(_LARGEST_ODDS))

    def apply(self, oracle):
        """As above: the log-odds of a probability."""
        return oracle.with_response("predict_proba")


@dataclass(frozen=True)
class ClippedOutputs(Outputs):
    """Outputs clipped to bounds (m_L,), some of them infinite."""

    low: np.ndarray
    high: np.ndarray

    @property
    def activation(self):
        """Of the outputs."""
        return clip(self.low, self.high)

    def kept(self, Y):
        """Which outputs Y (n, m_L) are not clipped."""
        return (self.low < Y) & (self.high > Y)

    def of(self, index):
        """The same for one output."""
        return ClippedOutputs(self.low[[index]], self.high[[index]])

    def before(self, Y, X=None):
        """Values before the clip."""
        return Y

    def apply(self, oracle):
        """As above, with the bounds."""
        if np.isfinite([self.low, self.high]).any():
            oracle.output_bounds = self.low, self.high
        return oracle


@dataclass(frozen=True)
class BoundedOutputs(Outputs):
    """Outputs ``low + (high - low) (g + 1) / 2`` of values g between -1 and 1, with bounds (m_L,) of their own.

    `inexact` is the error of the bounds over their distance.
    """

    low: np.ndarray
    high: np.ndarray
    inexact: float = EPS

    def __str__(self):
        return f"outputs between {np.array2string(self.low, precision=4)} and {np.array2string(self.high, precision=4)}"

    @classmethod
    def accepts(cls, oracle, Y):
        """The bounds if outputs of far samples are at one of two values, or constant; Y (n, m_L) are near ones."""
        for n in (_SCREENED, _SAMPLES):
            far = _samples(oracle, _FAR, n)
            if far is None or any(np.sum(y == y.min()) == 1 == np.sum(y == y.max()) for y in far.T):
                return None
        low, high, error = _extremes(Y, far)
        nearer, farther = np.split(far, len(_FAR))
        settled = (np.abs(nearer - farther) <= error) & (low + error < farther) & (high - error > farther)
        # Where all ReLU units are off, outputs settle at one value; at several, units saturate.
        grow = [len(np.unique(y[k])) < 2 for y, k in zip(farther.T, settled.T, strict=True)]
        far = far[~np.tile(settled.any(axis=1), len(_FAR))]
        low, high, error = _extremes(Y, far)
        constant = high - low <= error
        at = np.array([np.sum(far <= low + error, axis=0), np.sum(far >= high - error, axis=0)])
        missing = (at < _FEWEST) & ~constant
        one_sided = missing.any(axis=0)
        bounded = grow & (at.sum(axis=0) > _AT_BOUNDS * (1.0 + one_sided) * len(far))
        if constant.all() or not np.all(bounded | constant) or (len(low) > 1 and are_probabilities(Y, SUM_TOL)):
            return None
        inexact = EPS
        if one_sided.any():
            ranges, errors = _ranges_of_tails(oracle, np.where(missing[0], high, low), error)
            low, high = np.where(missing[0], high - ranges, low), np.where(missing[1], low + ranges, high)
            inexact = np.max(errors, where=one_sided, initial=EPS)
        found = cls(np.where(constant, low - 1.0, low), np.where(constant, low + 1.0, high), inexact)
        return found if found._is_approached(oracle, Y, constant, one_sided) else None

    def _is_approached(self, oracle, Y, constant, one_sided):
        """Whether bounds are those of no activation, and Y (n, m_L) are between them and come near, as no clip does."""
        low, high, error = self.low, self.high, _rounding(self.low, self.high)
        inside = np.mean((low + error < Y) & (high - error > Y), axis=0) > _INSIDE
        inside &= high - low > _LEAST_RANGE * np.maximum(np.abs(low), np.abs(high))
        same = error + self.inexact * (high - low)
        usual = [np.all(np.abs([low - at, high - 1.0]) <= same) for at in (-1.0, 0.0)]  # an activation has these
        if any(usual) or not np.all(inside | constant):
            return False
        gap = np.minimum((Y := _samples(oracle, _APPROACHING)) - low, high - Y)
        near = (gap > error) & (gap < _NEAR_BOUND * (high - low))
        clear = near[:, ~(constant | one_sided)]
        return bool(np.sum(clear) >= _MORE_NEAR * _NEAR_BOUND * clear.size) and not self.refuted(Y)

    @property
    def roundings(self):
        """As above: bounds that are near each other, or inexact."""
        near = np.max(2.0 * np.maximum(np.abs(self.low), np.abs(self.high)) / (self.high - self.low))
        return float(max(near, self.inexact / EPS))

    def refuted(self, Y):
        """Whether outputs leave the bounds."""
        error = _rounding(self.low, self.high) + self.inexact * (self.high - self.low)
        return np.any((self.low - error > Y) | (self.high + error < Y))

    def before(self, Y, X=None):
        """Values g of outputs Y (n, m_L)."""
        return np.clip((2.0 * Y - self.low - self.high) / (self.high - self.low), -1.0, 1.0)

    def invert(self, network):
        """The network with outputs between the bounds, where a clip stays one."""
        g = network.activations[-1]
        if not isinstance(g, Clip):
            return _with_activation(network, bounded(network.output_activation, self.low, self.high))
        half, middle = (self.high - self.low) / 2.0, (self.high + self.low) / 2.0
        (*W, w), (*b, c) = network.weights, network.biases
        limits = [middle + half * np.asarray(limit) for limit in (g.low, g.high)]
        return FeedforwardNetwork([*W, w * half], [*b, c * half + middle], network.activations[0], clip(*limits))


def _extremes(*parts):
    """Least and largest outputs (m_L,) of parts (n, m_L), and their rounding."""
    low, high = (bound(np.concatenate(parts), axis=0) for bound in (np.min, np.max))
    return low, high, _rounding(low, high)


def _rounding(low, high):
    """Rounding of outputs between bounds (m_L,)."""
    return ROUNDINGS * EPS * np.maximum(np.abs(low), np.abs(high))


def _ranges_of_tails(oracle, known, error):
    """Distances (m_L,) of bounds of tanh outputs from `known` ones, and their relative errors; nan if lines disagree.

    Where the values before tanh are straight, ``1 / |y - known|`` is ``1 / range`` plus an exponential: three points of
    a line determine it, and other lines agree.
    """
    steps = np.linspace(-_ACROSS, _ACROSS, 2 * _POINTS + 1)
    u = 1.0 / np.maximum(np.abs(_samples(oracle, steps, _SCREENED) - known), error).reshape(len(steps), -1, len(known))
    parts = []
    for h in 2 ** np.arange(int(np.log2(_POINTS))):
        a, b, c = u[: -2 * h], u[h:-h], u[2 * h :]
        with np.errstate(divide="ignore", invalid="ignore"):
            x = b + (a - b) * (c - b) / (a + c - 2.0 * b)
            lost = np.abs(c - x) * a**2 + np.abs(a - x) * c**2 + 2.0 * np.abs(b - x) * b**2
            parts.append(np.stack([x, error * lost / np.abs((a + c - 2.0 * b) * x)]).reshape(2, -1, len(known)))
    return np.array([_agreed(*part) for part in np.moveaxis(np.concatenate(parts, axis=1), -1, 0)]).T


def _agreed(x, error):
    """The inverse of the number x (n,) of least relative error among those that most others equal, and that error."""
    x, error = np.array(sorted(zip(x[error < _AGREE], error[error < _AGREE], strict=True))).reshape(-1, 2).T
    first, last = (np.searchsorted(x, x * (1.0 + side * _AGREE)) for side in (-1.0, 1.0))
    if np.max(last - first, initial=0) < _FEWEST:
        return np.nan, np.nan
    most = int(np.argmax(last - first))
    best = first[most] + int(np.argmin(error[first[most] : last[most]]))
    return 1.0 / x[best], error[best]


@dataclass(frozen=True)
class LogProbabilities(Outputs):
    """Outputs ``z_k - log sum_j exp(z_j)``: the differences from the last of them are linear outputs.

    If far ones are `lost`, as logarithms of probabilities that underflow, the model is queried for these probabilities.
    """

    eps: float = EPS
    lost: bool = False
    whole = False

    def __str__(self):
        return "log-probabilities"

    @classmethod
    def accepts(cls, oracle, Y):
        """Whether the exponentials of all rows of Y (n, m_L) sum to one."""
        if Y.shape[1] == 1 or cls(precision_of(Y).eps).refuted(Y):
            return None
        return cls(precision_of(Y).eps, lost=_samples(oracle, _FAR, _FEWEST) is None)

    def apply(self, oracle):
        """As above."""
        inner = super().apply(oracle)
        return inner.with_response("predict_proba") if self.lost else inner

    def refuted(self, Y):
        """Whether exponentials do not sum to one."""
        error = 2.0 * ROUNDINGS * self.eps * np.maximum(1.0, np.abs(Y).max(axis=1))
        return np.any(np.abs(logsumexp(Y, axis=1)) > error)

    def before(self, Y, X=None):
        """Log-odds (n, m_L - 1) of outputs Y (n, m_L), or probabilities."""
        return np.exp(Y) if self.lost else Y[:, :-1] - Y[:, -1:]

    def forward(self, Z):
        """Log-probabilities of logits Z (n, m_L)."""
        return log_softmax(Z, axis=1)

    def invert(self, network):
        """The network of the logits, which have mean zero."""
        if self.lost:
            return network
        weights = [*network.weights[:-1], np.pad(network.weights[-1], ((0, 0), (0, 1)))]
        biases = [*network.biases[:-1], np.append(network.biases[-1], 0.0)]
        return center_outputs(network.with_parameters(weights, biases))


@dataclass(frozen=True)
class ExponentialOutputs(Outputs):
    """Outputs ``exp(z)``, as of Poisson regression; z is lost where they overflow."""

    bound: float | None = _LARGEST_LOG
    whole = False

    def __str__(self):
        return "logarithm of the outputs"

    @classmethod
    def accepts(cls, oracle, Y):
        """Whether positive outputs grow faster than polynomials do, or those at far opposite points have one product.

        The latter are exponentials of odd units that saturate, such as tanh, up to a constant.
        """
        if Y.min() <= 0.0 or (near := _samples(cls().apply(oracle), _NEAR)) is None:
            return None
        if np.max(near[-_SAMPLES:]) - np.log(np.median(Y)) > _CLEARLY:
            return cls()
        far = _samples(cls().apply(oracle), (_FAR[-1], -_FAR[-1]))
        if far is None:
            return None
        sums, size = far[:_SAMPLES] + far[_SAMPLES:], np.ptp(far, axis=0)
        return cls(None) if np.all(size > _LEAST_RANGE) and np.all(np.ptp(sums, axis=0) < _AGREE * size) else None

    def refuted(self, Y):
        """Whether outputs are negative."""
        return np.any(Y < 0.0)

    def before(self, Y, X=None):
        """Logarithms of outputs Y (n, m_L)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(np.where(Y > 0.0, np.log(Y), -np.inf), -_LARGEST_LOG, _LARGEST_LOG)

    def forward(self, Z):
        """Outputs of values Z (n, m_L)."""
        return np.exp(Z)

    def invert(self, network):
        """The network of the logarithms."""
        return _with_activation(network, "identity")


KINDS = (LogProbabilities, BoundedOutputs, ExponentialOutputs)
