"""Compression: hidden units are removed while a refit of the rest keeps the outputs to a tolerance."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skident.budget import MemoryLimitError, OutOfBudgetError, check_deadline
from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.pruning import (
    prune_units,
    removal_costs,
    remove_cheap,
    remove_unit,
    without_constant_units,
)
from skident.linalg import column_units, svd
from skident.network import FeedforwardNetwork
from skident.oracle import probabilities_from_logits

METRICS = ("outputs", "probabilities", "labels")
_OUTPUTS_PER_PARAMETER = 5  # of a refit: overdetermined, so that it generalizes between the samples
_MAX_ROWS = 4000  # samples of a refit at most (budget)
_ROUND = 5  # steps of a refit between two checks of the held-out samples
_ENOUGH = 0.7  # of the tolerance: a refit ends here, and leaves what more it could gain to the last one
_CHEAP = 2.0  # of the tolerance: a refit usually lowers the error of removals by as much
_ROUNDING = 1e-5  # removals that cost no more are mended in a step or two, whatever the tolerance
_NO_GAIN = 0.97  # share of the held-out error after a round of steps, from which a refit has converged
_DENSE_LIMIT = 600  # parameters; rough steps by conjugate gradients are cheaper beyond


@dataclass(frozen=True)
class Compression:
    """How `compress_network` goes about it.

    Attributes
    ----------
    spread : float
        See `rows_around`.
    held_out : float
        Share of the rows that refits never see, and that errors are measured on.
    n_candidates : int
        A layer is as small as it gets when leaving out any one of so many units, the cheapest ones, has failed.
    max_iter : int
        Levenberg-Marquardt steps of a refit at most.
    """

    spread: float = 0.7
    held_out: float = 0.25
    n_candidates: int = 3
    max_iter: int = 60


def compress_network(network, X, *, tol=1e-2, rng, metric="outputs", start=None, options=None, callback=None):
    """A smaller network whose outputs agree with another one's around given samples, to a tolerance.

    Parameters
    ----------
    network : FeedforwardNetwork
        Whose function is to be kept.
    X : ndarray of shape (n, D)
        Rows where it is used, n at least 2. Any units; standardized inputs make refits better conditioned.
    tol : float, default=1e-2
        Largest error on the held-out rows, see `compression_error`.
    rng : numpy.random.RandomState
        Draws held-out rows and perturbations.
    metric : {"outputs", "probabilities", "labels"}, default="outputs"
        What is compared. Whatever it is, refits minimize squared errors of the outputs (logits).
    start : FeedforwardNetwork, default=None
        Where to begin, the result of a call with a smaller `tol` for instance; `network` by default.
    options : Compression, default=None
    callback : callable, default=None
        ``callback(entry)`` with every new entry of the path.

    Returns
    -------
    network : FeedforwardNetwork
        Error at most `tol`; as it was if nothing can go. A hidden layer keeps one unit at least.
    path : list of dict
        ``layer_widths``, ``n_parameters``, ``error`` and ``accepted`` of the start and of every network fitted, in
        their order. Those that are not accepted hold the error of the next smaller size. The last is the
        network returned.

    Warns
    -----
    ConvergenceWarning
        If a `time_limit` around the call ends the search.

    Raises
    ------
    OutOfBudgetError
        If it ends before any unit is removed.
    ValueError
        If X has fewer than two rows or another number of columns than the network has inputs, the metric is unknown,
        or the start has another number of inputs or outputs than the network.

    Notes
    -----
    Units that are constant on all rows go at once, and layers that are linear there. The others go the cheapest first
    by `removal_costs`, the others taking over what they can. First as many as cost little without any refit, then as
    many as bisection suggests, and in the end one at a time; after each such batch all parameters are fitted
    (`fit_network`) to the network's outputs at rows around X, five outputs per parameter, 4000 rows at most. A refit
    goes on while it gains on the held-out rows and can still get below the tolerance. The result is a local optimum: no
    unit of any layer that was tried can be left out from there, but another start may be smaller. A refit costs
    ``O(n P^2)`` a step for P parameters, above 600 of them ``O(n P)`` for each of some tens of inner iterations.

    References
    ----------
    Hassibi, Stork (1993), "Second order derivatives for network pruning: optimal brain surgeon".

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.compression import compress_network
    >>> W = np.array([[1.0, 1.0, 0.5], [2.0, 2.0, 0.1]])
    >>> network = FeedforwardNetwork([W, np.ones((3, 1))], [np.zeros(3), np.zeros(1)])
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> smaller, path = compress_network(network, X, tol=1e-8, rng=np.random.RandomState(0))
    >>> print(smaller.layer_widths, path[-1]["error"] < 1e-10)
    (2, 1) True
    """
    start = network if start is None else start
    _check(network, X, metric, start)
    task = _Task(network, X, tol, metric, Compression() if options is None else options, rng)
    shrinking = _Shrinking(task, callback)
    shrinking.record(start)
    try:
        without_dead = without_constant_units(start, np.concatenate([task.U, task.held]))
        if without_dead.layer_widths != start.layer_widths:
            shrinking.record(without_dead)
        prune_units(shrinking.best, shrinking.take, shrinking.attempt)
        if len(shrinking.path) > 1:
            shrinking.record(task.polish(shrinking.best))
    except OutOfBudgetError as error:
        if shrinking.best is start or isinstance(error, MemoryLimitError):
            raise
        shrinking.record(shrinking.best)
        warnings.warn(
            f"{error}: smaller networks than {shrinking.best.layer_widths} were not tried. Raise max_seconds, or tol.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return shrinking.best, shrinking.path


def compression_error(Z, found, unit, metric="outputs"):
    """How far the outputs of one network are from those of another.

    Z and `found` are outputs (n, m_L).
    """
    if not np.isfinite(found).all():
        return np.inf
    if metric == "labels":
        return float(np.mean(_labels(Z) != _labels(found)))
    gap = _compared(found, metric) - _compared(Z, metric)
    return float(np.sqrt(np.mean((gap / unit) ** 2)))


def output_scales(Z, metric="outputs"):
    """Standard deviation of every output or probability, one of the largest magnitude's order where it is constant.

    Z (n, m_L); returns (m_L,).
    """
    compared = _compared(Z, metric)
    size = np.abs(compared).max(axis=0)
    return column_units(compared, constant=np.where(size > 0, size, 1.0))[1]


def _compared(Z, metric):
    return probabilities_from_logits(Z) if metric == "probabilities" else Z


def _labels(Z):
    return np.argmax(Z, axis=1) if Z.shape[1] > 1 else Z[:, 0] > 0


def rows_around(X, n_rows, spread, rng):
    """Rows of X moved at random, by Gaussian steps with the covariance of X.

    Steps of this shape stay in the data's linear span: inputs that are constant, or that depend on others, remain so,
    and no unit is spent on inputs far from the data.

    X (n, D); returns (n_rows, D).
    """
    _, s, Vt = svd(X - X.mean(axis=0), full_matrices=False)
    steps = rng.standard_normal((n_rows, len(s))) @ (s[:, None] * Vt) / np.sqrt(len(X))
    return X[rng.randint(len(X), size=n_rows)] + spread * steps


class _Task:
    """Inputs and outputs of refits, and held-out ones."""

    def __init__(self, network, X, tol, metric, options, rng):
        order = rng.permutation(len(X))
        n_held = int(np.clip(round(options.held_out * len(X)), 1, len(X) - 1))
        self.held, seen = X[order[:n_held]], X[order[n_held:]][: _MAX_ROWS // 2]
        n_rows = min(_MAX_ROWS, max(2 * len(seen), self._enough_rows(network)))
        self.U = np.vstack([seen, rows_around(X[order[n_held:]], n_rows - len(seen), options.spread, rng)])
        self.Y, self.held_outputs, outputs = network(self.U), network(self.held), network(X)
        self.units = {m: output_scales(outputs, m) for m in {"outputs", metric}}
        self.tol, self.metric, self.least = tol, metric, 2 * len(seen)
        self.max_iter, self.n_candidates = options.max_iter, options.n_candidates

    @staticmethod
    def _enough_rows(network):
        return 50 + _OUTPUTS_PER_PARAMETER * network.n_parameters // network.n_outputs

    def rows(self, network):
        """Inputs and outputs, as many as a network of this size needs."""
        n = max(self.least, self._enough_rows(network))
        return self.U[:n], self.Y[:n]

    def error(self, network, metric=None):
        """On held-out rows."""
        metric = self.metric if metric is None else metric
        return compression_error(self.held_outputs, network(self.held), self.units.get(metric), metric)

    def rank(self, network):
        """By which of two networks of a size the better one is kept: shares of labels are too coarse for that."""
        return self.error(network, "outputs" if self.metric == "labels" else None)

    def refit(self, network):
        """The best network on the held-out rows that rounds of Levenberg-Marquardt pass through."""
        best, least, before = network, self.rank(network), self.error(network, "outputs")
        for left in range(max(1, self.max_iter // _ROUND) - 1, -1, -1):
            check_deadline()
            network = self._fit(network, min(_ROUND, self.max_iter))
            error, now, rank = self.error(network), self.error(network, "outputs"), self.rank(network)
            if rank <= least:
                best, least = network, rank
            gain, before = now / max(before, np.finfo(float).tiny), now
            reached = error <= _ENOUGH * self.tol and self.metric != "labels"
            hopeless = error * gain ** (0.7 * left) > self.tol
            if reached or gain > _NO_GAIN or hopeless:
                break
        return best

    def polish(self, network):
        """Fitted once more without stops: every round starts with a damping that slows the last digits."""
        polished = self._fit(network, self.max_iter)
        better = self.rank(polished) <= self.rank(network) and self.error(polished) <= self.tol
        return polished if better else network

    def _fit(self, network, max_iter):
        stopping = Stopping(target=1e-14, max_iter=max_iter)
        return fit_network(network, *self.rows(network), stopping, dense_limit=_DENSE_LIMIT, inner_tol=0.1)[0]


class _Shrinking:
    """Batches of units, bisected between what went and what did not; single units of every layer in the end."""

    def __init__(self, task, callback):
        self.task, self.callback, self.path, self.best = task, callback, [], None
        self._failed, self._streak, self._removed = None, 0, 1

    def record(self, candidate):
        """Enter a network into the path; whether it is accepted, and so the best until now."""
        error = self.task.error(candidate)
        accepted = error <= self.task.tol or not self.path
        self.best = candidate if accepted else self.best
        entry = {"layer_widths": candidate.layer_widths, "n_parameters": candidate.n_parameters}
        self.path.append({**entry, "error": error, "accepted": bool(accepted)})
        if self.callback is not None:
            self.callback(self.path[-1])
        return accepted

    def take(self, network, closed):
        """One unit less, and up to the limit as long as they cost little."""
        bound = max(_CHEAP * self.task.tol, _ROUNDING)
        self._before = network
        return remove_cheap(
            network,
            self.task.rows(network)[0],
            lambda net: [k for k, m in enumerate(net.layer_widths[:-1]) if m > 1 and k not in closed],
            lambda removal, spent: self.task.error(removal.network) <= bound,
            self._limit(network),
        )

    def _limit(self, network):
        """Units at most of the next batch: half of those between what went and what failed; more after successes."""
        if self._failed is None:
            return np.inf
        more = 2 * self._removed if self._streak > 2 else 1
        return max(1, (sum(network.layer_widths) - self._failed) // 2, more)

    def attempt(self, removal):
        """The network refitted where that keeps the tolerance; of single units, some others of the layer are tried."""
        self._removed = removal.n_units
        fitted = self.task.refit(removal.network)
        if self.record(fitted):
            self._streak += 1
            return fitted
        self._streak = 0
        if removal.n_units > 1:
            self._failed = sum(fitted.layer_widths)
            return None
        return self._without_another(self._before, removal.layer)

    def _without_another(self, network, layer):
        """The network without one of the units of a layer that come after its cheapest; None if none can go."""
        costs, takeovers = removal_costs(network, self.task.rows(network)[0])
        for unit in np.argsort(costs[layer])[1 : self.task.n_candidates]:
            fitted = self.task.refit(remove_unit(network, layer, unit, takeovers[layer][:, unit]))
            if self.record(fitted):
                return fitted
        return None


def _check(network, X, metric, start):
    if not isinstance(network, FeedforwardNetwork):
        raise TypeError(
            f"network must be a FeedforwardNetwork, got {type(network).__name__}; FeedforwardNetwork.from_sklearn and "
            "from_torch make one of others."
        )
    if X.ndim != 2 or len(X) < 2 or X.shape[1] != network.n_inputs:
        raise ValueError(f"X must have shape (n, {network.n_inputs}) with n at least 2, got {X.shape}.")
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {METRICS}, got {metric!r}.")
    if (start.n_inputs, start.n_outputs) != (network.n_inputs, network.n_outputs):
        raise ValueError(f"start must have the inputs and outputs of {network!r}, got {start!r}.")
