"""Which activation the outputs have: linear, tanh, sigmoid, softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, erfinv, expit, logit

from skident.oracle import logits_from_probabilities

__all__ = ["PreActivationOracle", "OutputEvidence", "detect_output_activation"]

_SPREADS = (1.0, 3.0, 30.0, 1e4, 1e5)  # distances at which a few dozen answers are looked at
_ROWS = 40
_EPS = {"float32": float(np.finfo(np.float32).eps)}  # relative rounding of the answers; of a double otherwise
_ROUNDINGS = 16.0
_AT_LIMIT = 1e-9  # distance from a limit at which an output has reached it
_MOSTLY, _OFTEN = 0.75, 0.2  # shares of answers that do that near the centre at most, and far out at least
_BEFORE = (3.0, 10.0)  # values before the activation between which the way to a limit is looked at
_RAYS, _POINTS = 6, 40  # on which that is done
_SAME_GROWTH = 0.02  # by which a straight line may miss what comes before the output there, beside its range
_LINEAR = 1e-4  # answers up to which tanh is linear to 1e-8
_SINGLE = 1e-5  # by which an activation of a linear function may miss the answers
_CIRCLES, _CIRCLE, _FAR = 3, 400, 1e6  # great circles, points on half of one, and its radius
_ALIKE, _STEP = 1e-6, 30.0  # relative difference of two jumps that are the same, and errors from which one is a jump
_MANY, _FEWER = 0.5, 0.75  # share of jumps that come again on the right scale, and how many of these do on a wrong one
_FEWEST, _BY_CHANCE = 3, 1.037  # jumps that tell, and a factor after which hardly one may come again
_ONCE = 3  # answers that are limits, from which outputs may be cut off

_LIMITS = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "erf": (-1.0, 1.0)}
_FORWARD = {"tanh": np.tanh, "sigmoid": expit, "erf": erf}
_INVERSES = {"tanh": np.arctanh, "sigmoid": logit, "erf": erfinv}


@dataclass(frozen=True)
class OutputEvidence:
    """What was seen of the outputs' activation.

    Attributes
    ----------
    name : {"identity", "tanh", "sigmoid", "erf", "softmax"}
    doubt : str
        Why it may be another; empty where nothing speaks for another.
    seen : str
    saturates : bool
        Whether answers reach the limits of the activation far out: then hidden units grow.
    rival : str or None
        Another activation of which answers stay within the limits, where nothing tells whether it is that one.
    """

    name: str = "identity"
    doubt: str = ""
    seen: str = "not looked at"
    saturates: bool = False
    rival: str | None = None

    def gives_probabilities(self, n_outputs):
        """Whether answers of so many columns are probabilities of exclusive classes.

        Parameters
        ----------
        n_outputs : int

        Returns
        -------
        bool
        """
        return self.name == "softmax" or (self.name == "sigmoid" and n_outputs == 1)

    def __str__(self):
        sure = f"; in doubt: {self.doubt}" if self.doubt else ""
        return f"output {self.name} ({self.seen}{sure})"


class PreActivationOracle:
    """An oracle's answers before their activation, for looks at what comes before it.

    Parameters
    ----------
    oracle : Oracle
    name : {"identity", "tanh", "sigmoid", "erf", "softmax"}
    noise : float or ndarray of shape (m_L,), default=0.0
        Standard deviation of the oracle's errors beyond rounding.
    """

    def __init__(self, oracle, name, noise=0.0):
        self._oracle, self._name, self._noise = oracle, name, noise * oracle.output_scale
        self.n_inputs = oracle.n_inputs

    @property
    def n_outputs(self):
        """Numbers an answer."""
        return self._oracle.n_outputs

    @property
    def n_queries(self):
        """Rows that the oracle was asked."""
        return self._oracle.n_queries

    def __call__(self, U):
        return self.ask(U)[0]

    def noise(self, rng):
        """Errors of the values far out beyond rounding, where these can be told.

        Parameters
        ----------
        rng : numpy.random.RandomState

        Returns
        -------
        float
        """
        error = self.ask(_SPREADS[-2] * rng.standard_normal((_ROWS, self.n_inputs)))[1]
        return float(np.max(error[np.isfinite(error)], initial=0.0))

    def ask(self, U):
        """Values before the activation, and bounds of their errors.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        Z, errors : ndarray of shape (n, m_L)
            Where an output has reached a limit, Z is as far out as can be told, and the error infinite.
        """
        Y, precision = raw_outputs(self._oracle, U), self._oracle.precision
        if self._name == "softmax":
            Z, error = logits_from_probabilities(np.maximum(Y, 0.0), precision)
            Z = np.hstack([-0.5 * Z, 0.5 * Z]) if Z.shape[1] == 1 else Z
            return Z, error[:, None] + np.max(self._noise) / np.maximum(Y, np.finfo(float).tiny)
        error = _rounding(precision) * np.maximum(np.abs(Y), np.finfo(float).tiny) + self._noise
        return inverse(self._name, Y, error)


def raw_outputs(oracle, U):
    """Answers as the black box gives them, not in the oracle's units.

    Parameters
    ----------
    oracle : Oracle
    U : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m_L)
    """
    return oracle.output_center + oracle.output_scale * oracle(U)


def inverse(name, Y, error):
    """What comes before an activation, and the error of that.

    Parameters
    ----------
    name : {"identity", "tanh", "sigmoid", "erf"}
    Y, error : ndarray of shape (n, m_L)

    Returns
    -------
    Z, errors : ndarray of shape (n, m_L)
    """
    if name == "identity":
        return Y, error
    low, high = _LIMITS[name]
    inside = np.clip(Y, np.nextafter(low, high), np.nextafter(high, low))
    Z = _INVERSES[name](inside)
    moved = np.maximum(np.minimum(inside - low, high - inside), np.finfo(float).tiny)
    return Z, np.where(error < 0.1 * moved, 2.0 * error / moved, np.inf)


def detect_output_activation(oracle, rng, noise=0.0):
    """Tell the outputs' activation from answers near the centre and far out.

    Positive answers that sum to 1 come from a softmax. Answers beyond -1 and 1 come from no tanh, those beyond 0 and 1
    from no sigmoid. Where hidden units grow, an activation of the outputs brings them to its limits far out, and the
    logarithm of the distance from there falls like a line. Where units of one hidden layer settle, the answers far out
    on a great circle change in jumps, and every unit makes the same jump wherever it changes: on the scale before the
    activation, and on no other.

    Parameters
    ----------
    oracle : Oracle
        One that may be asked anywhere.
    rng : numpy.random.RandomState
    noise : float or ndarray of shape (m_L,), default=0.0
        Standard deviation of the answers' errors beyond rounding.

    Returns
    -------
    OutputEvidence

    Notes
    -----
    200 queries; some 500 more where answers reach limits, 1200 where they stay within them otherwise.
    """
    E = rng.standard_normal((_ROWS, oracle.n_inputs))
    Y = raw_outputs(oracle, np.concatenate([spread * E for spread in _SPREADS]))
    error = _rounding(oracle.precision) * np.abs(Y).max(axis=0) + _ROUNDINGS * noise * oracle.output_scale
    if Y.shape[1] > 1 and Y.min() >= -error.max() and np.abs(Y.sum(axis=1) - 1.0).max() <= Y.shape[1] * error.max():
        far = Y[-2 * _ROWS :].max(axis=1)
        return OutputEvidence("softmax", "", "answers sum to 1", bool(np.mean(far > 1.0 - _AT_LIMIT) > 0.25 * _OFTEN))
    within = [name for name, (low, high) in _LIMITS.items() if np.all((low - error <= Y) & (high + error >= Y))]
    if not within:
        return _unbounded(Y, error)
    if np.abs(Y).max() < _LINEAR and "sigmoid" not in within:
        return OutputEvidence("identity", "", "answers so small that tanh would be linear")
    reached = {name: _reached(Y, *_LIMITS[name], _AT_LIMIT + error) for name in within}
    for name, both in reached.items():
        if both:
            return _saturated(oracle, name, E, Y, noise)
    if any(both is not None for both in reached.values()):
        return OutputEvidence("identity", "as behind tanh or sigmoid", "answers reach 1 and no other limit", True)
    found = _by_jumps(oracle, rng, within, noise)
    cut = sum(np.sum(np.min(np.abs(Y[:, :, None] - _LIMITS[name]), axis=2) <= error) for name in within[:1])
    if found.name == "identity" and cut >= _ONCE:
        return OutputEvidence("identity", "they may be cut off there", "some answers are limits", True)
    return found


def _reached(Y, low, high, error):
    """Whether the lower limit is among those that answers reach far out; None if none is, or near the centre too."""
    at_low, at_limit = low + error >= Y, (low + error >= Y) | (high - error <= Y)
    near, far = slice(_ROWS), slice(-2 * _ROWS, None)
    if at_limit[far].mean() < _OFTEN or at_limit[near].mean() > _MOSTLY:
        return None
    return bool(at_low[far].any())


def _rounding(precision):
    return _ROUNDINGS * _EPS.get(precision.kind, float(np.finfo(float).eps))


def _unbounded(Y, error):
    """Linear, unless an output is never negative, and 0 along some rays."""
    zero = np.abs(Y) <= error
    cut = (Y.min(axis=0) >= -error) & (zero[-2 * _ROWS :].sum(axis=0) >= 3)
    if cut.any():
        doubt = f"output {int(np.argmax(cut))} is never negative, and 0 along some rays, as behind relu"
        return OutputEvidence("identity", doubt, "answers beyond the limits of tanh")
    return OutputEvidence("identity", "", "answers beyond the limits of tanh")


def _saturated(oracle, name, E, Y, noise):
    """An activation whose limits are reached on most rays: of growing units if the way there is one of exponentials."""
    low, high = _LIMITS[name]
    seen = f"answers reach {low:g} and {high:g}"
    behind = PreActivationOracle(oracle, name, noise)
    if _single_units(behind, name, E, Y):
        return OutputEvidence("identity", "", f"{seen}, and every output is one hidden unit")
    straight = _straight_tails(behind, E[:_RAYS])
    if straight is None:
        return OutputEvidence("identity", "they may be cut off there", f"{seen} at once", True)
    if straight < 0.5:
        return OutputEvidence("identity", f"they do so as no {name} of growing units does", seen, True)
    return OutputEvidence(name, "", f"{seen} along exponentials", True)


def _single_units(behind, name, E, Y):
    """Whether outputs are activations of linear functions: fitted where they tell, and right everywhere."""
    t = np.minimum(1.0, 2.0 / np.maximum(np.abs(behind(E)).max(axis=1), 1e-300))[:, None]
    rows = np.concatenate([s * t * E for s in np.linspace(0.2, 1.0, 2 + 2 * behind.n_inputs // _ROWS)])
    a = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), rows]), behind(rows), rcond=None)[0]
    Z = a[0] + np.concatenate([spread * E for spread in _SPREADS]) @ a[1:]
    return bool(np.abs(_FORWARD[name](Z) - Y).max() < _SINGLE)


def _straight_tails(behind, E):
    """On which share of rays the value before the activation grows like a line; None if the limits are reached at once.

    Looked at where an output is near a limit, the one that is so on most points of a ray.
    """
    radii, straight, sharp = np.geomspace(1e-2, 1e5, _POINTS), [], 0
    Z = behind(np.concatenate([r * E for r in radii])).reshape(_POINTS, len(E), -1)
    low, high = _BEFORE
    for ray in range(len(E)):
        size = np.abs(Z[:, ray])
        k = int(np.argmax(np.max(size, axis=0)))
        before = np.flatnonzero(size[:, k] < low)
        beyond = np.flatnonzero(size[:, k] > high)
        if not len(before) or not len(beyond) or beyond[-1] < before[-1]:
            continue
        ends = radii[before[-1]], radii[min(before[-1] + 1, _POINTS - 1)]
        t = np.linspace(ends[0], max(ends[1], radii[beyond[beyond > before[-1]][0]]), 4 * _POINTS)
        z = np.abs(behind(t[:, None] * E[ray])[:, k])
        inside = (z > low) & (z < high)
        if inside.sum() < 4:
            sharp += 1
            continue
        fit = np.polyfit(t[inside], z[inside], 1)
        straight.append(np.abs(np.polyval(fit, t[inside]) - z[inside]).max() < _SAME_GROWTH * np.ptp(z[inside]))
    if not straight:
        return None
    return float(np.mean(straight))


def _by_jumps(oracle, rng, within, noise):
    """Linear or not by the jumps of units that settle, on great circles."""
    angles, circles = np.pi * (np.arange(_CIRCLE) + 0.5) / _CIRCLE, []
    for a, b in _FAR * rng.standard_normal((_CIRCLES, 2, oracle.n_inputs)):
        circles.append(raw_outputs(oracle, np.cos(angles)[:, None] * a + np.sin(angles)[:, None] * b))
    shares = {name: _same_jumps(name, circles, oracle, noise) for name in ("identity", *within)}
    best = max(shares, key=shares.get)
    others = max(share for name, share in shares.items() if name != best)
    by_chance = _same_jumps(best, circles, oracle, noise, _BY_CHANCE)
    if shares[best] >= _MANY and others <= _FEWER * shares[best] and by_chance < 0.5 * _MANY:
        return OutputEvidence(best, "", f"of the jumps far out {shares[best]:.0%} come again as they were before it")
    rival, low = ("sigmoid", 0) if "sigmoid" in within else ("tanh", -1)
    seen = f"jumps far out {'are alike' if shares[best] >= _MANY else 'differ'} before any"
    return OutputEvidence("identity", f"answers stay between {low} and 1, as behind {rival}", seen, rival=rival)


def _same_jumps(name, circles, oracle, noise, factor=1.0):
    """Which share of the jumps on one circle, times a factor, comes again on others."""
    jumps = []
    for Y in circles:
        Z, error = inverse(name, Y, _rounding(oracle.precision) * np.abs(Y) + 4.0 * noise * oracle.output_scale)
        D, tol = np.diff(Z, axis=0), error[1:] + error[:-1]
        clear = np.any(np.abs(D) > _STEP * tol, axis=1)
        jumps.append((D[clear], tol[clear]))
    (A, tol_a), (B, tol_b) = jumps[0], (np.concatenate(part) for part in zip(*jumps[1:]))
    if min(len(A), len(B)) < _FEWEST:
        return 0.0
    again = 0
    for d, tol in zip(factor * A, tol_a):
        gaps = np.minimum(np.abs(B - d), np.abs(B + d))
        again += bool(np.any(np.all(gaps <= tol + tol_b + _ALIKE * np.abs(d).max(), axis=1)))
    return again / len(A)
