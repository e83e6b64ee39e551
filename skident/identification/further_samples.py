"""Held-out samples beyond those of the problem: one per ten queries spent, also where recovered units change."""

from dataclasses import dataclass, field

import numpy as np

from skident.budget import check_deadline
from skident.network import FeedforwardNetwork
from skident.network.calculus import forward_jets
from skident.oracle import BlackBoxError, OutOfBudgetError, probability_error

from .contradictions import ROUNDING_STDS, TIMES_TOL, errors_over_deviation
from .problem import NOISE_STDS
from .query_points import evenly_spaced_rows

PROBABILITY_TOL = 100.0  # error of a probability, in units of `tol`, below which a classifier is exact
_PER_QUERY = 0.1  # samples per query spent before (budget)
_NEAR_SHARE = 0.25  # of the samples lie near activation boundaries, and as many at most are rows of X (budget)
_BLOCK = 4096  # samples per comparison, for memory: 26 MB with 784 inputs
_DEEPER_STEPS = 3  # to the activation boundary of a deeper unit; that of a first-layer unit takes one
_BESIDE = 0.1  # standard deviations within which samples lie beside a boundary, and pre-activations of them
# Standard deviations that a sample is moved to a boundary at most: farther ones are outside of the data.
_LONGEST_MOVE = 3.0
_SHOWN = 6  # entries of an input in a message


@dataclass
class FurtherSamples:
    """How a network compares with the model on further held-out samples.

    Attributes
    ----------
    n_normal, n_rows, n_near : int
        Samples from N(center, scale^2), rows of X, and samples near activation boundaries.
    low, high : ndarray of shape (D,)
        Range of the samples.
    n_off : int
        Samples at which the model differs by more than is allowed.
    error : float
        Largest difference, relative to the deviation of the outputs, or of a probability.
    worst : ndarray of shape (D,) or None
        The input where it occurs, if it is more than is allowed.
    """

    n_normal: int = 0
    n_rows: int = 0
    n_near: int = 0
    low: np.ndarray = field(default_factory=lambda: np.array(np.inf))
    high: np.ndarray = field(default_factory=lambda: np.array(-np.inf))
    n_off: int = 0
    error: float = 0.0
    worst: np.ndarray | None = None

    def count(self, kind, X):
        """Count samples X (n, D) that were compared."""
        setattr(self, f"n_{kind}", getattr(self, f"n_{kind}") + len(X))
        if len(X):
            self.low, self.high = np.minimum(self.low, X.min(axis=0)), np.maximum(self.high, X.max(axis=0))

    @property
    def n(self):
        """All samples."""
        return self.n_normal + self.n_rows + self.n_near

    @property
    def caveat(self):
        """How the model contradicts the network; empty if it does not."""
        if self.worst is None:
            return ""
        at = ", ".join(f"{x:.4g}" for x in self.worst[:_SHOWN]) + (", ..." if len(self.worst) > _SHOWN else "")
        return (
            f"at {self.n_off} of {self.n} further held-out samples the outputs differ by up to {self.error:.1e} of "
            f"their range, most at the input ({at}): a local deviation, such as a rule or a lookup beside the network, "
            "or a unit that is active there only. Compare the model with predict(report_.deviates_at[None]), and give "
            "samples X around that input"
        )


def compare_further(problem, best, network, input_rounding):
    """Compare a network with the model on one further held-out sample per ten queries spent; `FurtherSamples`.

    `best` is its attempt; the network has the model's own inputs and outputs, with its clip. A budget that ends, or a
    model that cannot be queried there, ends the comparison: what was compared until then counts.
    """
    oracle, found, rng = problem.oracle, FurtherSamples(), np.random.RandomState(2)
    if oracle.response == "predict_proba" and problem.held_out.noise_std is not None:
        return found  # their rounding has no bound per sample
    n = int(_PER_QUERY * oracle.n_queries)
    n_near = int(_NEAR_SHARE * n)
    rows = _rows_left(problem, rng)[:n_near]
    n_near = n_near if len(best.network.weights) > 1 else 0
    try:
        for kind, total in (("near", n_near), ("rows", len(rows)), ("normal", n - n_near - len(rows))):
            for first in range(0, total, _BLOCK):
                check_deadline()
                size = int(min(_BLOCK, total - first, oracle.budget.queries_left))
                if size < 1:
                    return found
                U = rng.standard_normal((size, oracle.n_inputs))
                if kind == "near":
                    U = near_boundaries(best.network, U, rng)
                elif kind == "rows":
                    U = rows[first : first + size]
                U = oracle.representable(oracle.clip_to_range(U))
                _compare(problem, network, input_rounding, U, found)
                found.count(kind, oracle.to_inputs(U))
    except (OutOfBudgetError, BlackBoxError):
        pass
    return found


def _rows_left(problem, rng):
    """Standardized rows of X that the first held-out samples do not contain, in random order."""
    rows = np.arange(len(problem.X))
    if problem.held_out.n_rows:
        rows = np.delete(rows, evenly_spaced_rows(rows, problem.held_out.n_rows))
    return problem.oracle.from_inputs(problem.X[rng.permutation(rows)])


def _compare(problem, network, input_rounding, U, found):
    """Add the errors at standardized points U (n, D)."""
    if not len(U):
        return
    oracle, tol = problem.oracle, problem.options.tol
    X = oracle.to_inputs(U)
    if oracle.response == "predict_proba":
        Z, error = oracle.query(U)
        allowed, Y = PROBABILITY_TOL * tol, network(X)
        rows = (slice(i, i + 1) for i in range(len(Z)))
        errors = np.array([probability_error(Z[i], error[i], Y[i], oracle.precision)[0] for i in rows])
    else:
        errors = errors_over_deviation(problem, network, X, oracle.output_center + oracle.output_scale * oracle(U))
        noise = NOISE_STDS * problem.held_out.relative_noise
        allowed = max(TIMES_TOL * tol, noise, ROUNDING_STDS * input_rounding)
    found.n_off += int(np.sum(errors > allowed))
    if errors.max() > found.error:
        found.error = float(errors.max())
        found.worst = X[np.argmax(errors)] if found.n_off else None


def near_boundaries(network, U, rng):
    """Points U (n, D), each moved close to the activation boundary of a unit; those that would move far are dropped.

    The units take turns over all hidden layers. Newton steps along the gradient of the pre-activation.
    """
    widths = network.layer_widths[:-1]
    layer, unit = np.repeat(np.arange(len(widths)), widths), np.concatenate([np.arange(m) for m in (*widths, 0)])
    turn = rng.permutation(len(unit))[np.arange(len(U)) % max(len(unit), 1)] if len(unit) else np.empty(0, int)
    parts = []
    for k in range(len(widths)):
        check_deadline()
        below = FeedforwardNetwork(network.weights[: k + 1], network.biases[: k + 1], network.activations[0])
        start, units = U[layer[turn] == k], unit[turn[layer[turn] == k]]
        V = start
        for _ in range(1 if k == 0 else _DEEPER_STEPS):
            z, gradient = _pre_activations(below, V, units)
            V = V - _along(gradient, z)
        z, gradient = _pre_activations(below, V, units)
        beside = rng.uniform(-_BESIDE, _BESIDE, len(V))
        V = V + _along(gradient, beside * np.minimum(1.0, np.linalg.norm(gradient, axis=1)))
        parts.append(V[np.linalg.norm(V - start, axis=1) <= _LONGEST_MOVE])
    return np.concatenate(parts) if parts else U[:0]


def _pre_activations(below, V, units):
    """Pre-activations (n,) of one unit of the last layer per point, and their gradients (n, D)."""
    jets = forward_jets(below.weights, below.biases, below.activations, V)[1]
    gradient = below.weights[-1][:, units].T
    for W, jet in zip(below.weights[-2::-1], jets[-2::-1], strict=True):
        gradient = (gradient * jet[1]) @ W.T
    return jets[-1][0][np.arange(len(V)), units], gradient


def _along(gradient, change):
    """Shortest moves (n, D) that change linear functions with gradients (n, D) by (n,); none for constants."""
    squared = np.sum(gradient**2, axis=1)
    return (change / np.where(squared > np.finfo(float).eps ** 2, squared, np.inf))[:, None] * gradient
