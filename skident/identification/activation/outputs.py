"""Detection of the outputs' activation (linear, tanh, sigmoid, softmax), and the values before it."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erf, erfinv, expit, logit

from skident.budget.constants import ROUNDINGS
from skident.linalg import lapack
from skident.oracle import are_probabilities, logits_from_probabilities, probability_bounds
from skident.oracle.black_box import refuse_batch_dependence

from ..constants import VERY_FAR
from .growth import NOISE_SIGMAS, classify_near_center

_SPREADS = (1.0, 3.0, 30.0, 1e4, 1e5)  # standard deviations of the inputs, near the center and far out
_FARTHEST_SHARES = (1.0, 1.0, 1.0, 0.1, 1.0)  # of the farthest distance, at which they end
_SAMPLES = 40  # per spread
_AT_LIMIT = 1e-9  # distance from a limit at which an output has reached it
_MAX_NEAR = 0.75  # share of outputs near the center that may be at a limit: else they are labels, or clipped
_MIN_FAR = 0.2  # share of outputs far out that must be: units that are off leave some of them
_SOFTMAX_FAR = 0.05  # share of far samples at which one class must be certain: with K classes, fewer outputs
_MIN_ZEROS = 3  # far outputs that are 0, from which a nonnegative output may be behind relu
_SMALL = 1e-4  # largest output up to which tanh is linear to 1e-8
_MIN_AT_LIMIT = 3  # outputs that are limits, from which they may be clipped there

_BEFORE = (3.0, 10.0)  # values before the activation between which the approach to a limit is measured
_RAYS = 6  # on which it is
_POINTS = 40  # per ray: some 6 per decade of the radius
_STRAIGHT = 0.02  # deviation from a straight line, relative to the range, of values that grow linearly
_MAX_ROUNDED = 0.05  # error of a value before the activation up to which a rounded tail is used
_MIN_INSIDE = 4  # points between those values; fewer, and the limit is reached at once
_MIN_STRAIGHT = 0.5  # share of rays that must be straight
# Error of outputs that are an activation of a linear function; not tuned: far from rounding and from 1.
_SINGLE_TOL = 1e-5

_CIRCLES = 3  # great circles; the jumps of the first one are matched with those of the others
_CIRCLE_POINTS = 400  # on half of each
_JUMP = 30.0  # errors from which a change is a jump
_SAME_JUMP = 1e-6  # relative difference of two equal jumps
_MIN_JUMPS = 3  # on a circle, and on the others
_MATCHED_JUMPS = 0.5  # share of jumps that must be matched on the right scale
_FEWER = 0.75  # times that share that may be matched on a wrong scale
_BY_CHANCE = 1.037  # factor of the jumps after which few may be matched; no simple ratio of jumps

_PRECISE = 1e-6  # error of a value before the outputs' activation up to which it counts
_PRECISE_ROUNDED = 3e-5  # `_PRECISE` of rounded outputs: logits from 1e-6 up, whose curvature over a window is 1e-3

_LIMITS = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "erf": (-1.0, 1.0)}
_FORWARD = {"tanh": np.tanh, "sigmoid": expit, "erf": erf}
INVERSES = {"tanh": np.arctanh, "sigmoid": logit, "erf": erfinv}


@dataclass(frozen=True)
class OutputEvidence:
    """The activation of the outputs, and what it was detected from.

    Attributes
    ----------
    name : {"identity", "tanh", "sigmoid", "erf", "softmax"}
    doubt : str
        Why it may be another one; empty if there is no reason.
    seen : str
    saturates : bool
        Whether outputs reach the limits of the activation far out: then hidden units grow.
    rival : str or None
        Another activation within whose limits the outputs stay, if nothing decides between the two.
    constant_far : bool
        Whether the outputs are the same at all far inputs.
    """

    name: str = "identity"
    doubt: str = ""
    seen: str = "not tested"
    saturates: bool = False
    rival: str | None = None
    constant_far: bool = False

    def gives_probabilities(self, n_outputs):
        """Whether outputs with so many columns are probabilities of exclusive classes."""
        return self.name == "softmax" or (self.name == "sigmoid" and n_outputs == 1)

    def __str__(self):
        doubt = f"; in doubt: {self.doubt}" if self.doubt else ""
        return f"output {self.name} ({self.seen}{doubt})"


class PreActivationOracle:
    """The outputs of an oracle before their activation `name`, with bounds of their errors.

    `noise` is the standard deviation of the oracle's errors beyond rounding.
    """

    def __init__(self, oracle, name, noise=0.0):
        self._oracle, self._name, self._noise = oracle, name, noise * oracle.output_scale
        self.n_inputs, self.precision, self.accuracy = oracle.n_inputs, oracle.precision, oracle.accuracy
        self.representable, self.clip_to_range = oracle.representable, oracle.clip_to_range

    @property
    def is_rounded(self):
        """Whether the outputs are rounded more coarsely than double precision."""
        return self._oracle.precision.is_rounded

    @property
    def precise(self):
        """Error of a value up to which it decides whether the values are piecewise linear."""
        return _PRECISE_ROUNDED if self.is_rounded else _PRECISE

    @property
    def n_outputs(self):
        """Number of outputs."""
        return self._oracle.n_outputs

    @property
    def n_queries(self):
        """Queries of the oracle."""
        return self._oracle.n_queries

    def __call__(self, U):
        return self.query(U)[0]

    def noise(self, rng):
        """Largest error of the values far out beyond rounding, as far as it is finite."""
        error = self.query(_SPREADS[-2] * rng.standard_normal((_SAMPLES, self.n_inputs)))[1]
        return float(np.max(error[np.isfinite(error)], initial=0.0))

    def query(self, U):
        """Values (n, m_L) before the activation at inputs U (n, D), and bounds of their errors.

        If an output has reached a limit, the value is the largest possible one, and the error infinite, as of outputs
        and logits that are lost.
        """
        Y, lost = self._oracle.query(U)
        Y, precision = self._oracle.output_center + self._oracle.output_scale * Y, self._oracle.precision
        if self._name == "softmax":
            Z, error = logits_from_probabilities(np.maximum(Y, 0.0), precision)
            Z = np.hstack([-0.5 * Z, 0.5 * Z]) if Z.shape[1] == 1 else Z
            if precision.is_relative:  # rounding is proportional to a probability, and in the bound already
                return Z, np.broadcast_to(error[:, None], Z.shape)
            return Z, error[:, None] + np.max(self._noise) / np.maximum(Y, np.finfo(float).tiny)
        noise = 0.0 if precision.is_relative else self._noise
        error = _rounding(precision) * np.maximum(np.abs(Y), np.finfo(float).tiny) + noise
        if self._name == "sigmoid" and precision.is_coarse_binary:
            error = np.maximum(error, probability_bounds(Y, precision))
        Z, error = inverse(self._name, Y, error)
        return Z, error + lost[:, None]


def _raw_outputs(oracle, U):
    """Outputs (n, m_L) as the black box returns them, not standardized."""
    return oracle.output_center + oracle.output_scale * oracle(U)


def inverse(name, Y, error):
    """Values before an activation, and their errors, from outputs Y (n, m_L) and their errors."""
    if name == "identity":
        return Y, error
    low, high = _LIMITS[name]
    inside = np.clip(Y, np.nextafter(low, high), np.nextafter(high, low))
    Z = INVERSES[name](inside)
    # The inverse has slope 1 / distance at most, up to a factor of two.
    distance = np.maximum(np.minimum(inside - low, high - inside), np.finfo(float).tiny)
    return Z, np.where(error < 0.1 * distance, 2.0 * error / distance, np.inf)


def detect_output_activation(oracle, rng, noise=0.0, farthest=1e5):
    """`OutputEvidence` from outputs near the center and up to `farthest` standard deviations away, with errors `noise`.

    Nonnegative outputs that sum to 1 come from a softmax. Outputs beyond -1 and 1 exclude tanh, those beyond 0 and 1
    sigmoid. If hidden units grow, an activation of the outputs brings them to its limits far out, and the logarithm of
    the distance from there falls linearly. If the units of one hidden layer settle, outputs far out on a great circle
    change in jumps, and every unit makes the same jump wherever it changes: before the activation, and on no other
    scale. 200 queries; some 500 more if outputs reach limits, 1,200 if they stay within them otherwise.
    """
    E = rng.standard_normal((_SAMPLES, oracle.n_inputs))
    spreads = np.minimum(_SPREADS, farthest * np.array(_FARTHEST_SHARES))
    U = np.concatenate([spread * E for spread in spreads])
    Y = _raw_outputs(oracle, U)
    refuse_batch_dependence(oracle, U, (Y - oracle.output_center) / oracle.output_scale)
    evidence = _from_samples(oracle, rng, noise, E, Y)
    return replace(evidence, constant_far=bool(np.all(Y[-2 * _SAMPLES :] == Y[-1])))


def _from_samples(oracle, rng, noise, E, Y):
    """`OutputEvidence` from directions E (n, D) and the outputs at all spreads of these."""
    error = _rounding(oracle.precision) * np.abs(Y).max(axis=0) + NOISE_SIGMAS * noise * oracle.output_scale
    if Y.shape[1] > 1 and are_probabilities(Y, error.max()):
        certain = Y[-2 * _SAMPLES :].max(axis=1) > 1.0 - _AT_LIMIT
        return OutputEvidence("softmax", "", "outputs sum to 1", bool(np.mean(certain) > _SOFTMAX_FAR))
    within = [name for name, (low, high) in _LIMITS.items() if np.all((low - error <= Y) & (high + error >= Y))]
    if not within:
        return _unbounded(Y, error)
    if np.abs(Y).max() < _SMALL and "sigmoid" not in within:
        return OutputEvidence("identity", "", "outputs so small that tanh would be linear")
    reached = {name: _reached(Y, *_LIMITS[name], _AT_LIMIT + error) for name in within}
    for name, both in reached.items():
        if both:
            return _saturated(oracle, name, E, Y, noise)
    for name in (name for name, both in reached.items() if both is not None):
        if classify_near_center(PreActivationOracle(oracle, name, noise), rng) == "piecewise":
            return OutputEvidence(name, "", f"outputs reach one limit, and are piecewise linear before {name}", True)
    if any(both is not None for both in reached.values()):
        return OutputEvidence("identity", "as behind tanh or sigmoid", "outputs reach 1 and no other limit", True)
    evidence = _from_jumps(oracle, rng, within, noise)
    at_limit = sum(np.sum(np.min(np.abs(Y[:, :, None] - _LIMITS[name]), axis=2) <= error) for name in within[:1])
    if evidence.name == "identity" and at_limit >= _MIN_AT_LIMIT:
        return OutputEvidence("identity", "they may be clipped there", "some outputs are limits", True)
    return evidence


def _reached(Y, low, high, error):
    """Whether outputs far out reach the lower limit too; None if they reach none, or do so near the center."""
    at_low, at_limit = low + error >= Y, (low + error >= Y) | (high - error <= Y)
    near, far = slice(_SAMPLES), slice(-2 * _SAMPLES, None)
    if at_limit[far].mean() < _MIN_FAR or at_limit[near].mean() > _MAX_NEAR:
        return None
    return bool(at_low[far].any())


def _rounding(precision):
    return ROUNDINGS * precision.eps


def _unbounded(Y, error):
    """Linear, with a doubt if an output is never negative, and 0 along some rays."""
    zero = np.abs(Y) <= error
    cut = (Y.min(axis=0) >= -error) & (zero[-2 * _SAMPLES :].sum(axis=0) >= _MIN_ZEROS)
    doubt = (
        f"output {int(np.argmax(cut))} is never negative, and 0 along some rays, as behind relu" if cut.any() else ""
    )
    return OutputEvidence("identity", doubt, "outputs beyond the limits of tanh")


def _saturated(oracle, name, E, Y, noise):
    """An activation whose limits are reached on most rays: that of the outputs if they are approached exponentially."""
    low, high = _LIMITS[name]
    seen = f"outputs reach {low:g} and {high:g}"
    inner = PreActivationOracle(oracle, name, noise)
    if _are_single_units(inner, name, E, Y):
        return OutputEvidence("identity", "", f"{seen}, and every output is one hidden unit")
    straight = _straight_tails(inner, E[:_RAYS])
    if straight is None:
        return OutputEvidence("identity", "they may be clipped there", f"{seen} at once", True)
    if straight < _MIN_STRAIGHT:
        return OutputEvidence("identity", f"not as a {name} of growing units does", seen, True)
    return OutputEvidence(name, "", f"{seen} exponentially", True)


def _are_single_units(inner, name, E, Y):
    """Whether outputs Y are activations of linear functions: fitted where |z| is about 2, and right everywhere."""
    t = np.minimum(1.0, 2.0 / np.maximum(np.abs(inner(E)).max(axis=1), 1e-300))[:, None]
    U = np.concatenate([s * t * E for s in np.linspace(0.2, 1.0, 2 + 2 * inner.n_inputs // _SAMPLES)])
    a = lapack.lstsq(np.column_stack([np.ones(len(U)), U]), inner(U), rcond=None)[0]
    Z = a[0] + np.concatenate([spread * E for spread in _SPREADS]) @ a[1:]
    return bool(np.abs(_FORWARD[name](Z) - Y).max() < _SINGLE_TOL)


def _straight_tails(inner, E):
    """Share of rays E (n, D) on which the value before the activation grows linearly; None if none has a tail.

    On each ray, of the output that is near a limit on most of its points.
    """
    radii, straight = np.geomspace(1e-2, 1e5, _POINTS), []
    Z, error = inner.query(np.concatenate([r * E for r in radii]))
    low, high = _BEFORE
    if inner.precision.is_rounded:  # nearer to a limit, rounding bends the tails
        high = min(high, np.abs(Z)[error < _MAX_ROUNDED].max(initial=low))
    Z = Z.reshape(_POINTS, len(E), -1)
    for ray in range(len(E)):
        size = np.abs(Z[:, ray])
        k = int(np.argmax(np.max(size, axis=0)))
        before, beyond = np.flatnonzero(size[:, k] < low), np.flatnonzero(size[:, k] > high)
        if not len(before) or not len(beyond) or beyond[-1] < before[-1]:
            continue
        ends = radii[before[-1]], radii[min(before[-1] + 1, _POINTS - 1)]
        t = np.linspace(ends[0], max(ends[1], radii[beyond[beyond > before[-1]][0]]), 4 * _POINTS)
        z = np.abs(inner(t[:, None] * E[ray])[:, k])
        inside = (z > low) & (z < high)
        if inside.sum() < _MIN_INSIDE:
            continue
        fit = np.polyfit(t[inside], z[inside], 1)
        straight.append(np.abs(np.polyval(fit, t[inside]) - z[inside]).max() < _STRAIGHT * np.ptp(z[inside]))
    return float(np.mean(straight)) if straight else None


def _from_jumps(oracle, rng, within, noise):
    """Linear or one of the activations `within`, by the jumps of units that settle, on great circles."""
    angles, circles = np.pi * (np.arange(_CIRCLE_POINTS) + 0.5) / _CIRCLE_POINTS, []
    for a, b in VERY_FAR * rng.standard_normal((_CIRCLES, 2, oracle.n_inputs)):
        circles.append(_raw_outputs(oracle, np.cos(angles)[:, None] * a + np.sin(angles)[:, None] * b))
    shares = {name: _matched_jumps(name, circles, oracle, noise) for name in ("identity", *within)}
    best = max(shares, key=shares.get)
    others = max(share for name, share in shares.items() if name != best)
    by_chance = _matched_jumps(best, circles, oracle, noise, _BY_CHANCE)
    if shares[best] >= _MATCHED_JUMPS and others <= _FEWER * shares[best] and by_chance < 0.5 * _MATCHED_JUMPS:
        return OutputEvidence(best, "", f"{shares[best]:.0%} of the jumps far out recur before it")
    rival, low = ("sigmoid", 0) if "sigmoid" in within else ("tanh", -1)
    seen = f"jumps far out {'are alike' if shares[best] >= _MATCHED_JUMPS else 'differ'} before any"
    return OutputEvidence("identity", f"outputs stay between {low} and 1, as behind {rival}", seen, rival=rival)


def _matched_jumps(name, circles, oracle, noise, factor=1.0):
    """Share of the jumps on the first circle, times a factor, that recur on the others before the activation."""
    jumps = []
    for Y in circles:
        Z, error = inverse(name, Y, _rounding(oracle.precision) * np.abs(Y) + 4.0 * noise * oracle.output_scale)
        D, tol = np.diff(Z, axis=0), error[1:] + error[:-1]
        clear = np.any(np.abs(D) > _JUMP * tol, axis=1)
        jumps.append((D[clear], tol[clear]))
    (A, tol_a), (B, tol_b) = jumps[0], (np.concatenate(part) for part in zip(*jumps[1:]))
    if min(len(A), len(B)) < _MIN_JUMPS:
        return 0.0
    n_matched = 0
    for d, tol in zip(factor * A, tol_a):
        gaps = np.minimum(np.abs(B - d), np.abs(B + d))
        n_matched += bool(np.any(np.all(gaps <= tol + tol_b + _SAME_JUMP * np.abs(d).max(), axis=1)))
    return n_matched / len(A)
