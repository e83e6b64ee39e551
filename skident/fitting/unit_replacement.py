"""A population of fits whose units are replaced in turn: what the residual asks for comes, what does least goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .batched_fits import BatchedNetworkFits

__all__ = ["Replacing", "replace_units"]

_CANDIDATES = 200
_SIZES = (1.0, 8.0)  # of candidates' weights
_NUMBERS = 2**22  # of the candidates' columns at once: bounds the rows on which they are judged
_RIDGE = 0.05  # of a candidate's squared length, against those that the tangent space has already
_LARGEST = 2.0  # times the largest weight of the layer behind: what leads out of a new unit at most
_STEPS, _MENDING, _FTOL = (20, 40), 10, 1e-4  # after growth and of the children kept; after a removal
_RANKS = 1.5  # mean rank of a parent
_BETTER, _IN_VAIN = 0.99, 2  # part of the cost that counts as progress; generations without, then units are drawn


@dataclass(frozen=True)
class Replacing:
    """How long to go on.

    Attributes
    ----------
    n_generations : int
        At most.
    patience : int
        Generations in a row that do not lower the best cost by a hundredth, after which it ends.
    n_children : int
        Of a generation; half of them are fitted to their ends.
    good : float
        A cost that ends it.
    budget : WorkBudget
        No step is made once it is spent; without limits by default.
    """

    n_generations: int = 80
    patience: int = 12
    n_children: int = 4
    good: float = 0.0
    budget: WorkBudget = field(default_factory=WorkBudget)


@dataclass(frozen=True)
class _Tangent:
    """A network's Jacobian at some rows, its residuals there, and the factor of its normal equations."""

    layers: list
    U: np.ndarray
    J: np.ndarray
    r: np.ndarray
    places: list

    @property
    def gradient(self):
        return self.J.T @ self.r

    def matrix(self, part):
        A = self.J.T @ self.J
        diagonal = np.diag(A)
        A.flat[:: len(A) + 1] += part * np.maximum(diagonal, 1e-10 * max(diagonal.max(), 1e-300))
        return A


def replace_units(rows, architecture, x, rng, options=None):
    """Better local minima of a fit from those of several, by units that come and units that go.

    Parameters
    ----------
    rows : Rows
    architecture : Architecture
        With one hidden layer or more.
    x : ndarray of shape (B, P)
        Where fits from different starts ended.
    rng : numpy.random.RandomState
    options : Replacing, default=None

    Returns
    -------
    x : ndarray of shape (B, P)
        The best first.
    cost : ndarray of shape (B,)

    Notes
    -----
    Fits to a network whose units are steep end in minima where some of its units are met, and the other ones stand for
    several. A child of one of the better fits has a unit more in a layer, or in every one: the candidate, random or a
    unit of another fit's first layer, that lowers the cost most when its outgoing weights and all parameters are chosen
    to first order. It is fitted, loses the unit whose loss costs least in the same sense, is fitted again, and takes
    its parent's place where it is better. After generations in vain units are drawn rather than best. A generation
    costs some 150 steps of one fit, ``O(n m_L P^2)`` each.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.fitting.batched_fits import Rows, random_parameters
    >>> from skident.fitting.unit_replacement import replace_units
    >>> from skident.network import Architecture, FeedforwardNetwork
    >>> rng, architecture = np.random.RandomState(0), Architecture((4, 1))
    >>> steep = FeedforwardNetwork([5.0 * rng.randn(3, 4), rng.randn(4, 1)], [rng.randn(4), np.zeros(1)], "tanh")
    >>> U = rng.randn(300, 3)
    >>> x, cost = replace_units(Rows(U, steep(U)), architecture, random_parameters(3, architecture, 2, rng), rng)
    >>> print(cost[0] < 1e-20)
    True
    """
    options = Replacing() if options is None else options
    population = _Population(rows, architecture, rng, options)
    x, cost = population.fitted(architecture, x, _STEPS[1])
    n_hidden, failures = len(architecture.widths) - 1, 0
    turns = [tuple(range(n_hidden)), *((layer,) for layer in range(n_hidden))][n_hidden == 1 :]
    for generation in range(options.n_generations):
        least = cost.min()
        if least <= options.good or failures >= options.patience or options.budget.spent:
            break
        temperature = float(failures >= _IN_VAIN)
        parents = np.argsort(cost)[np.minimum(rng.exponential(_RANKS, options.n_children).astype(int), len(x) - 1)]
        children, costs, whose = population.children(x, parents, turns[generation % len(turns)], temperature)
        for child, c, parent in zip(children, costs, whose, strict=True):
            if c < cost[parent]:
                x[parent], cost[parent] = child, c
        failures = 0 if cost.min() < _BETTER * least else failures + 1
    order = np.argsort(cost, kind="stable")
    return x[order], cost[order]


class _Population:
    """Children of fits of one architecture to the same rows."""

    def __init__(self, rows, architecture, rng, options):
        self.rows, self.architecture, self.rng, self.options = rows, architecture, rng, options

    def fitted(self, architecture, x, n_steps):
        """All of them after some steps."""
        options = self.options
        ending = Ending(max_iter=n_steps, ftol=_FTOL, target=options.good, budget=options.budget)
        result = batched_levenberg_marquardt(BatchedNetworkFits(architecture, self.rows), x, ending)
        return result.x, result.cost

    def children(self, x, parents, layers, temperature):
        """The better half of the parents' children, their costs, and whose they are."""
        architecture, born = self.architecture, []
        for parent in parents:
            others = [self._parts(self.architecture, one)[0] for k, one in enumerate(x) if k != parent]
            child, architecture = x[parent], self.architecture
            for layer in layers:
                child = self._grown(architecture, child, layer, others if layer == 0 else [], temperature)
                architecture = _resized(architecture, layer, 1)
            born.append(child)
        born, cost = self.fitted(architecture, np.array(born), _STEPS[0])
        for layer in layers:
            smaller = _resized(architecture, layer, -1)
            born = np.array([self._pruned(architecture, one, layer, temperature) for one in born])
            architecture = smaller
            born, cost = self.fitted(architecture, born, _MENDING)
        kept = np.argsort(cost)[: max(1, len(born) // 2)]
        return *self.fitted(architecture, born[kept], _STEPS[1]), parents[kept]

    def _parts(self, architecture, x):
        fits = BatchedNetworkFits(architecture, self.rows)
        return [A[0] for A in fits.layers(x[None])]

    def _tangent(self, architecture, x, n_rows):
        fits = BatchedNetworkFits(architecture, self.rows)
        U, Y, weight = next(self.rows.blocks(n_rows))
        J, r = fits.jacobians(x[None], U, Y, weight)
        return _Tangent(self._parts(architecture, x), U, J[0].T, r[0], self._parts(architecture, np.arange(len(x))))

    def _drawn(self, gains, temperature):
        """The place of the largest gain, or of a large one."""
        rank = int(self.rng.exponential(temperature)) if temperature else 0
        return np.argsort(-gains)[min(rank, len(gains) - 1)]

    def _grown(self, architecture, x, layer, others, temperature):
        """A unit more in a layer, of all candidates the one that lowers the cost most to first order."""
        widths, p = architecture.widths, architecture.n_outputs
        n_in, n_behind = len(self._parts(architecture, x)[layer]) - 1, widths[layer + 1]
        C = self.rng.standard_normal((n_in + 1, _CANDIDATES))
        C[:-1] /= np.maximum(np.linalg.norm(C[:-1], axis=0), 1e-300)
        C[-1] *= 0.5
        C *= np.exp(self.rng.uniform(*np.log(_SIZES), _CANDIDATES))
        C = np.concatenate([C, *others], axis=1)
        tangent = self._tangent(architecture, x, max(1, _NUMBERS // (C.shape[1] * n_behind * p)))
        outgoing, gains = _outgoing(tangent, _units(architecture, tangent, layer, C), layer)
        k, A, V = self._drawn(gains, temperature), tangent.layers[layer], tangent.layers[layer + 1]
        largest = _LARGEST * np.abs(V).max()
        tangent.layers[layer] = np.column_stack([A, C[:, k]])
        tangent.layers[layer + 1] = np.vstack([V[:-1], np.clip(outgoing[k], -largest, largest), V[-1:]])
        return np.concatenate([A.ravel() for A in tangent.layers])

    def _pruned(self, architecture, x, layer, temperature):
        """A unit less in a layer, the one whose loss costs least when the others follow to first order."""
        tangent = self._tangent(architecture, x, max(1, _NUMBERS // (len(x) * architecture.n_outputs)))
        k = self._drawn(-_losses(architecture, tangent, layer, self.rows), 0.5 * temperature)
        tangent.layers[layer] = np.delete(tangent.layers[layer], k, axis=1)
        tangent.layers[layer + 1] = np.delete(tangent.layers[layer + 1], k, axis=0)
        return np.concatenate([A.ravel() for A in tangent.layers])


def _resized(architecture, layer, by):
    return architecture.with_widths(m + by * (k == layer) for k, m in enumerate(architecture.widths))


def _units(architecture, tangent, layer, C):
    """Outputs of candidates for a layer, (n, K)."""
    H = tangent.U
    for A, activation in zip(tangent.layers[:layer], architecture.activations, strict=False):
        H = activation(H @ A[:-1] + A[-1])
    return architecture.activations[layer](H @ C[:-1] + C[-1])


def _outgoing(tangent, units, layer):
    """Outgoing weights of candidates, (K, m), with which they lower the cost most to first order, and by how much."""
    J, n, K = tangent.J, *units.shape
    p = len(J) // n
    behind = J[:, tangent.places[layer + 1][-1]].reshape(p, n, 1, -1)  # by the pre-activations of the layer behind
    columns = (units[:, :, None] * behind).reshape(n * p, -1)
    factor = scipy.linalg.cho_factor(tangent.matrix(1e-6), lower=True, overwrite_a=True)
    along = J.T @ columns
    followed = scipy.linalg.cho_solve(factor, along)
    m = behind.shape[-1]
    slopes = (tangent.r @ columns - tangent.gradient @ followed).reshape(K, m)
    columns, along, followed = (M.reshape(-1, K, m).transpose(1, 0, 2) for M in (columns, along, followed))
    grams = np.swapaxes(columns, 1, 2) @ columns
    ridge = _RIDGE * np.einsum("kii->ki", grams)
    grams = grams - np.swapaxes(along, 1, 2) @ followed
    np.einsum("kii->ki", grams)[...] += ridge + max(1e-12 * ridge.max(), 1e-300)
    outgoing = -np.linalg.solve(grams, slopes[..., None])[..., 0]
    return outgoing, -np.sum(outgoing * slopes, axis=1)


def _losses(architecture, tangent, layer, rows):
    """Costs without each unit of a layer, all other parameters following to first order, (m,)."""
    J, A, places = tangent.J, tangent.matrix(1e-7), tangent.places
    inverse, losses = np.linalg.inv(A), []
    fits, n = BatchedNetworkFits(architecture, rows), len(tangent.U)
    _, Y, weight = next(rows.blocks(n))
    for k in range(tangent.layers[layer].shape[1]):
        layers = [B.copy() for B in tangent.layers]
        layers[layer + 1][k] = 0.0
        left = fits.residuals(np.concatenate([B.ravel() for B in layers])[None], tangent.U, Y, weight)[0]
        held = np.concatenate([places[layer][:, k], places[layer + 1][k]])
        g = J.T @ left
        step = -inverse @ g
        step -= inverse[:, held] @ np.linalg.solve(inverse[np.ix_(held, held)], step[held])
        losses.append(left @ left + 2.0 * g @ step + step @ A @ step)
    return np.array(losses)
