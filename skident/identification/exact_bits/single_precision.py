"""The weights of a model that computes in float32, to the last bit, from its outputs in float32 alone."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget import check_deadline, chunks
from skident.fitting.design import design_points
from skident.fitting.standard_errors import parameter_jacobian
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.network.calculus import flatten_parameters, unflatten_parameters

from .grid import FORMAT_DIGITS, spacing
from .integers import bootstrapped
from .summation import Summation, find_summation, leaf_order

BLOCK = 8192  # rows per call: the rounding of a matrix product may depend on their number
_DIGITS = FORMAT_DIGITS["float32"]
_BLOCKS = 49  # of queries per fit (budget): standard errors of 2e-9, a tenth of the spacing at typical weights
_QUERIES_PER_PARAMETER = 2500  # that suffice for a smaller network
_FITS = 2  # the second one on twice as many
_SPREAD = 1.5  # standard deviation of pre-activations: they are not saturated, and vary
_EXACT_SUMS = 4  # roundings of all weights before the order of summation is searched for: the errors settle
_ROUNDINGS = 20  # at most, until a candidate repeats
_ORDER_ROWS = 4 * BLOCK  # that show the order of summation for nearly right weights
_OWN_ORDER_ROWS = 16 * BLOCK  # `_ORDER_ROWS` for right ones: 131,072 do for 32 units, and 8,192 for 16
_HOPEFUL = 0.7  # share of equal outputs from which single steps are tried: .9 to .99 with a few wrong bits
_STEP_ROWS = BLOCK  # that distinguish candidates with single steps, as many of those that differ as there are
_SWEEPS = 3  # over all parameters
_SEARCHES = 6  # on rows that differed after the one before
_MAX_STEP = 3.0  # standard errors up to which single weights are changed
_OFFSET_STD = 0.35  # prior standard deviation of a constant rounding error, in spacings: it is uniform over one
_EXPONENTS = (-20, 20)  # of outputs with offsets of their own: others are too rare, or not there


@dataclass(frozen=True)
class Emulation:
    """How a model evaluates candidates: ``emulate(network, X)``, and the order in which it adds hidden outputs.

    Without an order the last sums are exact, and the rest is emulated.
    """

    emulate: callable
    orders: tuple[Summation, ...] | None = None

    def hidden(self, network, X):
        """Outputs (n, m) of the last hidden layer."""
        activations = [a.name for a in network.activations[:-1]]
        inner = FeedforwardNetwork(network.weights[:-1], network.biases[:-1], activations[0], activations[-1])
        return np.asarray(self.emulate(inner, X), dtype=float)

    def __call__(self, network, X):
        """Outputs (n, m_L)."""
        H, A, b = self.hidden(network, X), network.weights[-1], network.biases[-1]
        if self.orders is None:
            return H @ A + b
        return np.column_stack([order(H, a, c) for order, a, c in zip(self.orders, A.T, b, strict=True)])


@dataclass(frozen=True)
class SinglePrecisionFit:
    """A network of float32 numbers that was fitted to outputs in float32.

    Attributes
    ----------
    network : FeedforwardNetwork
        Hidden units in the order in which the emulated model adds them like the model, if there is one.
    equal : float
        Share of outputs that are equal to the last bit, emulated with the model's own order of summation.
    emulation : Emulation
    inputs : ndarray of shape (n, D)
        At which outputs were compared.
    """

    network: FeedforwardNetwork
    equal: float
    emulation: Emulation
    inputs: np.ndarray


def bits_from_outputs(network, query, allowed, emulate, rng, n_queries=None):
    """Round a network (one or more hidden layers without a scale) to the float32 numbers that explain all outputs.

    Parameters
    ----------
    network : FeedforwardNetwork
        Of the model's own inputs, recovered to a few errors of float32 outputs; linear output.
    query : callable
        ``query(X)`` (n, m_L) gives outputs at float32 inputs X (n, D), in calls of `BLOCK` rows.
    allowed : callable
        ``allowed(X)`` moves inputs into the range that is allowed.
    emulate : callable
        ``emulate(network, X)`` (n, m_L): outputs as the model computes them.
    rng : numpy.random.RandomState
    n_queries : int, optional
        Queries of one fit. None: up to 401,408, and as many again for a second fit unless all outputs are equal.

    Returns
    -------
    SinglePrecisionFit

    Notes
    -----
    Real estimates are rounded by `bootstrapped`. Then the outputs of the candidate itself, computed in float32, are
    subtracted: the rounding errors that it shares with the model cancel, and what is left determines more bits. The
    rounding errors of the last sums do not cancel before their order is known (`find_summation`). Until then a
    constant rounding error is fitted per binade of an output before and after its bias is added.
    """
    X, Y = np.empty((0, network.n_inputs)), np.empty((0, network.n_outputs))
    enough = BLOCK * min(_BLOCKS, 1 + _QUERIES_PER_PARAMETER * network.n_parameters // BLOCK)
    n = n_queries or enough
    best = None
    for _ in range(_FITS if n_queries is None else 1):
        drawn = design_points(network.weights[0], network.biases[0], n, _SPREAD, rng)
        drawn = allowed(drawn[rng.permutation(len(drawn))[:n]]).astype(np.float32).astype(float)
        X, Y = np.concatenate([X, drawn]), np.concatenate([Y, query(drawn)])
        found = _Fit(network, X, Y, emulate).run()
        best = found if best is None or found.equal > best.equal else best
        if best.equal == 1.0:
            break
    return replace(best, network=_in_own_order(best, emulate))


class _Fit:
    """Candidates for the parameters of a network, and the outputs (n, m_L) at X (n, D) that they have to explain."""

    def __init__(self, network, X, Y, emulate):
        self.network, self.X, self.Y = network, X, Y
        self.shapes = [W.shape for W in network.weights]
        self.emulation = Emulation(emulate)
        self.groups, ulps = _rounding_groups(Y, network.biases[-1])
        self.information, _ = self._normal_equations(network, np.zeros_like(Y))
        self.precision = 1.0 / (_OFFSET_STD * ulps) ** 2

    def run(self):
        """The best candidate."""
        candidate = flatten_parameters(self.network.weights, self.network.biases)
        seen, settled, best = set(), False, (np.inf, candidate, self.emulation)
        for k in range(_ROUNDINGS):
            if k >= _EXACT_SUMS and not settled:
                settled = self._find_order(candidate)
            residual = self._residual(candidate, slice(None))
            cost = float(np.mean(residual**2))
            if self.emulation.orders is not None and cost < best[0]:
                best = cost, candidate, self.emulation
            if cost == 0.0 or (k > _EXACT_SUMS and candidate.tobytes() in seen):
                break
            seen.add(candidate.tobytes())
            candidate, errors = self._rounded(candidate, residual)
        cost, candidate, self.emulation = best
        equal = float(np.mean(self._residual(candidate, slice(None)) == 0.0))
        if _HOPEFUL < equal < 1.0:
            candidate = self._single_steps(candidate, errors)
            equal = float(np.mean(self._residual(candidate, slice(None)) == 0.0))
        return SinglePrecisionFit(self._at(candidate), equal, self.emulation, self.X)

    def _at(self, candidate):
        return self.network.with_parameters(*unflatten_parameters(candidate, self.shapes))

    def _residual(self, candidate, rows):
        return self.Y[rows] - self.emulation(self._at(candidate), self.X[rows])

    def _rounded(self, candidate, residual):
        """The next candidate, from the residual (n, m_L) of the last one, and standard errors (P,) before rounding."""
        P, variance = len(candidate), float(np.mean(residual**2))
        _, gradient = self._normal_equations(self._at(candidate), residual, gradient_only=True)
        if self.emulation.orders is None:
            information = self.information.copy()
            information.flat[P * (len(information) + 1) :: len(information) + 1] += variance * self.precision
        else:
            information, gradient = self.information[:P, :P], gradient[:P]
        covariance = lapack.inv(information)
        change = covariance @ gradient
        covariance = variance * covariance[:P, :P]
        return bootstrapped(candidate + change[:P], covariance, _DIGITS), np.sqrt(np.diag(covariance))

    def _normal_equations(self, network, residual, gradient_only=False):
        """Information matrix and gradient of all parameters and rounding offsets."""
        P, k, m = network.n_parameters, int(self.groups.max()) + 1, self.Y.shape[1]
        A, g = None if gradient_only else np.zeros((P + k, P + k)), np.zeros(P + k)
        g[P:] = np.bincount(self.groups.ravel(), residual.ravel(), k)
        for rows in chunks(len(self.X), 3 * 8 * (P + k) * m):
            J = parameter_jacobian(network, self.X[rows])
            g[:P] += J.T @ residual[rows].ravel()
            if not gradient_only:
                J = np.hstack([J, np.eye(k)[self.groups[rows].ravel()]])
                A += J.T @ J
        return A, g

    def _find_order(self, candidate):
        """Keep the order of summation that hidden outputs show if it explains more; True if it is not new."""
        network, rows = self._at(candidate), slice(0, _ORDER_ROWS)
        H, A, b = self.emulation.hidden(network, self.X[rows]), network.weights[-1], network.biases[-1]
        residual = self.Y[rows] - H @ A - b
        J = parameter_jacobian(network, self.X[rows])
        linear = (J @ lapack.lstsq(J, residual.ravel(), rcond=None)[0]).reshape(residual.shape)
        Y = self.Y[rows] - linear
        tried = [self.emulation]
        for exact in (False, True):
            orders = (find_summation(H, a, c, y, exact=exact) for a, c, y in zip(A.T, b, Y.T, strict=True))
            tried.append(replace(self.emulation, orders=tuple(orders)))
        if self.emulation in tried[1:]:
            return True
        costs = [np.mean((Y - emulation(network, self.X[rows])) ** 2) for emulation in tried]
        known = self.emulation.orders is not None
        self.emulation = tried[int(np.argmin(costs))] if known else tried[1 + int(np.argmin(costs[1:]))]
        return False

    def _single_steps(self, candidate, errors):
        """Change one parameter at a time by spacings; rows that still differ then join those that decide."""
        rows = np.zeros(0, dtype=int)
        for _ in range(_SEARCHES):
            differs = np.any(self._residual(candidate, slice(None)) != 0.0, axis=1)
            new = np.setdiff1d(np.flatnonzero(differs), rows)
            if not len(new):
                break
            rows = np.concatenate([rows, new[: _STEP_ROWS // 2]])
            if len(rows) < _STEP_ROWS:
                rows = np.concatenate([rows, np.flatnonzero(~differs)[: _STEP_ROWS - len(rows)]])
            candidate = self._search(candidate, errors, rows)
        return candidate

    def _search(self, candidate, errors, rows):
        """Steps of single parameters as long as they reduce the sum of squares on some rows."""
        cost = np.sum(self._residual(candidate, rows) ** 2)
        for _ in range(_SWEEPS):
            before = cost
            for k in range(len(candidate)):
                candidate, cost = self._best_step(candidate, cost, k, errors[k], rows)
            if cost == 0.0 or cost == before:
                break
        return candidate

    def _best_step(self, candidate, cost, k, error, rows):
        """A candidate, with parameter k moved by powers of two of its spacing as long as the sum of squares falls."""
        step = max(float(spacing(candidate[k], _DIGITS)), np.finfo(np.float32).tiny)
        n_sizes = 1 + int(np.log2(max(_MAX_STEP * error / step, 1.0)))
        for change in (sign * step * 2.0**size for size in range(n_sizes) for sign in (1.0, -1.0)):
            gained = cost > 0.0
            while gained:
                check_deadline()
                changed = candidate.copy()
                changed[k] += change
                new = np.sum(self._residual(changed, rows) ** 2)
                gained = new < cost
                if gained:
                    candidate, cost = changed, new
        return candidate, cost


def neighbors_differ(fit):
    """Which parameters (P,) of the network of a `SinglePrecisionFit` change some outputs by one spacing, up or down."""
    network, X = fit.network, fit.inputs
    shapes = [W.shape for W in network.weights]
    values = flatten_parameters(network.weights, network.biases)
    differ = np.zeros((2, len(values)), dtype=bool)
    for first in range(0, len(X), _STEP_ROWS):
        some = X[first : first + _STEP_ROWS]
        own = fit.emulation.emulate(network, some)
        for sign, k in np.argwhere(~differ):
            changed = values.copy()
            changed[k] += (1.0 - 2.0 * sign) * max(float(spacing(values[k], _DIGITS)), np.finfo(np.float32).tiny)
            other = fit.emulation.emulate(network.with_parameters(*unflatten_parameters(changed, shapes)), some)
            differ[sign, k] = np.any(other != own)
        if differ.all():
            break
    return differ.all(axis=0)


def _rounding_groups(Y, bias):
    """Groups (n, m_L) of outputs with the same binades before and after the bias is added, and spacings per group."""
    exponents = [np.clip(np.frexp(values)[1], *_EXPONENTS) for values in (Y, Y - bias)]
    columns = np.broadcast_to(np.arange(Y.shape[1]), Y.shape)
    keys = np.stack([columns, *exponents], axis=-1).reshape(-1, 3)
    groups, of_each = np.unique(keys, axis=0, return_inverse=True)
    return of_each.reshape(Y.shape), np.ldexp(1.0, groups[:, 1] - _DIGITS)


def _in_own_order(fit, emulate):
    """The network with its last hidden units in the order in which `emulate` adds them as the model does."""
    network, X = fit.network, fit.inputs[:_OWN_ORDER_ROWS]
    H, A, b = fit.emulation.hidden(network, X), network.weights[-1], network.biases[-1]
    order = find_summation(H, A[:, 0], b[0], np.asarray(emulate(network, X), dtype=float)[:, 0], exact=True)
    units = leaf_order(order.tree, fit.emulation.orders[0].tree)
    if units is None:
        return network
    W, b = [w.copy() for w in network.weights], [v.copy() for v in network.biases]
    W[-2], b[-2], W[-1] = W[-2][:, units], b[-2][units], W[-1][units]
    return network.with_parameters(W, b)
