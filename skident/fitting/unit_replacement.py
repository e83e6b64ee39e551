"""Unit replacement: a population of fits whose units are exchanged for ones that the residual calls for."""

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from skident.budget.constants import (
    BLOCK_ENTRIES,
    FINE_FTOL,
    GROWTH_DAMPING,
    GROWTH_STEPS,
    LEAST_DIVISOR,
    MAX_WEIGHT,
    NEAR_STEPS,
    REMOVAL_DAMPING,
    RIDGE_OF_PRODUCTS,
)
from skident.linalg import lapack
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .batched_fits import BatchedNetworkFits

_N_CANDIDATES = 200  # random units of which the best is added (budget)
_SIZES = (1.0, 8.0)  # of candidates' weights, for inputs of unit variance: up to steep units
_CANDIDATE_BIAS = 0.5  # standard deviation of candidates' biases, relative to the norm of their weights
_RIDGE = 0.05  # of a candidate's squared norm: against candidates that the tangent space contains already
_REMOVAL_STEPS = 10  # of the fit after a removal
_PARENT_RANK = 1.5  # mean rank of a parent
_PROGRESS = 0.99  # part of the cost that counts as progress
_RANDOM_AFTER = 2  # generations without progress, after which units are drawn


@dataclass(frozen=True)
class ReplacementOptions:
    """How long to go on."""

    n_generations: int = 80  # at most
    patience: int = 12  # generations in a row without progress, after which it ends
    n_children: int = 4  # of a generation; half of them are fitted to their ends
    target: float = 0.0  # a cost that ends it
    budget: WorkBudget = field(default_factory=WorkBudget)  # no step is made once it is spent


@dataclass(frozen=True)
class _Tangent:
    """A network's layers, its Jacobian J and residuals r on samples U, and the indices of its parameters by layer."""

    layers: list
    U: np.ndarray
    J: np.ndarray
    r: np.ndarray
    indices: list

    def matrix(self, damping):
        return _damped(self.J.T @ self.J, damping)


def replace_units(samples, architecture, x, rng, options=None):
    """Improve fits x (B, P) of networks with hidden layers by replacing units: the fits, best first, and their costs.

    Fits to a network of steep units end in minima that recover some of its units, while the others stand for several. A
    child of one of the better fits gets a unit more in a layer, or in every one: the candidate, random or a unit of
    another fit's first layer, that lowers the cost most if its outgoing weights and all parameters are chosen to first
    order. The child is fitted, loses the unit whose loss costs least in the same sense, is fitted again, and replaces
    its parent if it is better. After generations without progress units are drawn rather than best. A generation costs
    about 150 steps of one fit, ``O(n m_L P^2)`` each.
    """
    options = ReplacementOptions() if options is None else options
    population = _Population(samples, architecture, rng, options)
    x, cost = population.fit(architecture, x, NEAR_STEPS)
    n_hidden, failures = len(architecture.widths) - 1, 0
    turns = [tuple(range(n_hidden)), *((layer,) for layer in range(n_hidden))][n_hidden == 1 :]
    for generation in range(options.n_generations):
        least = cost.min()
        if least <= options.target or failures >= options.patience or options.budget.spent:
            break
        temperature = float(failures >= _RANDOM_AFTER)
        ranks = rng.exponential(_PARENT_RANK, options.n_children).astype(int)
        parents = np.argsort(cost)[np.minimum(ranks, len(x) - 1)]
        children, costs, whose = population.children(x, parents, turns[generation % len(turns)], temperature)
        for child, c, parent in zip(children, costs, whose, strict=True):
            if c < cost[parent]:
                x[parent], cost[parent] = child, c
        failures = 0 if cost.min() < _PROGRESS * least else failures + 1
    order = np.argsort(cost, kind="stable")
    return x[order], cost[order]


class _Population:
    """Children of fits of one architecture to the same samples."""

    def __init__(self, samples, architecture, rng, options):
        self.samples, self.architecture, self.rng, self.options = samples, architecture, rng, options

    def fit(self, architecture, x, n_steps):
        """All fits and their costs after some steps."""
        options = self.options
        ending = Ending(max_iter=n_steps, ftol=FINE_FTOL, target=options.target, budget=options.budget)
        result = batched_levenberg_marquardt(BatchedNetworkFits(architecture, self.samples), x, ending)
        return result.x, result.cost

    def children(self, x, parents, layers, temperature):
        """The better half of the parents' children, their costs, and the indices of their parents."""
        architecture, born = self.architecture, []
        for parent in parents:
            others = [self._layers(self.architecture, one)[0] for k, one in enumerate(x) if k != parent]
            child, architecture = x[parent], self.architecture
            for layer in layers:
                child = self._grown(architecture, child, layer, others if layer == 0 else [], temperature)
                architecture = _resized(architecture, layer, 1)
            born.append(child)
        born, cost = self.fit(architecture, np.array(born), GROWTH_STEPS)
        for layer in layers:
            smaller = _resized(architecture, layer, -1)
            born = np.array([self._pruned(architecture, one, layer, temperature) for one in born])
            architecture = smaller
            born, cost = self.fit(architecture, born, _REMOVAL_STEPS)
        kept = np.argsort(cost)[: max(1, len(born) // 2)]
        return *self.fit(architecture, born[kept], NEAR_STEPS), parents[kept]

    def _layers(self, architecture, x):
        return [A[0] for A in BatchedNetworkFits(architecture, self.samples).layers(x[None])]

    def _tangent(self, architecture, x, n_samples):
        U, Y, weight = next(self.samples.blocks(n_samples))
        J, r = BatchedNetworkFits(architecture, self.samples).jacobians(x[None], U, Y, weight)
        indices = self._layers(architecture, np.arange(len(x)))
        return _Tangent(self._layers(architecture, x), U, J[0].T, r[0], indices)

    def _draw(self, gains, temperature):
        """The index of the largest gain, or of a large one."""
        rank = int(self.rng.exponential(temperature)) if temperature else 0
        return np.argsort(-gains)[min(rank, len(gains) - 1)]

    def _grown(self, architecture, x, layer, others, temperature):
        """A unit more in a layer: the candidate that lowers the cost most to first order."""
        widths, p = architecture.widths, architecture.n_outputs
        n_in, n_next = len(self._layers(architecture, x)[layer]) - 1, widths[layer + 1]
        C = self.rng.standard_normal((n_in + 1, _N_CANDIDATES))
        C[:-1] /= np.maximum(np.linalg.norm(C[:-1], axis=0), LEAST_DIVISOR)
        C[-1] *= _CANDIDATE_BIAS
        C *= np.exp(self.rng.uniform(*np.log(_SIZES), _N_CANDIDATES))
        C = np.concatenate([C, *others], axis=1)
        tangent = self._tangent(architecture, x, max(1, BLOCK_ENTRIES // (C.shape[1] * n_next * p)))
        outgoing, gains = _outgoing(tangent, _outputs(architecture, tangent, layer, C), layer)
        k, A, V = self._draw(gains, temperature), tangent.layers[layer], tangent.layers[layer + 1]
        largest = MAX_WEIGHT * np.abs(V).max()
        tangent.layers[layer] = np.column_stack([A, C[:, k]])
        tangent.layers[layer + 1] = np.vstack([V[:-1], np.clip(outgoing[k], -largest, largest), V[-1:]])
        return np.concatenate([A.ravel() for A in tangent.layers])

    def _pruned(self, architecture, x, layer, temperature):
        """A unit less in a layer, the one whose loss costs least when the others follow to first order."""
        tangent = self._tangent(architecture, x, max(1, BLOCK_ENTRIES // (len(x) * architecture.n_outputs)))
        k = self._draw(-_losses(architecture, tangent, layer, self.samples), 0.5 * temperature)
        tangent.layers[layer] = np.delete(tangent.layers[layer], k, axis=1)
        tangent.layers[layer + 1] = np.delete(tangent.layers[layer + 1], k, axis=0)
        return np.concatenate([A.ravel() for A in tangent.layers])


def _resized(architecture, layer, by):
    return architecture.with_widths(m + by * (k == layer) for k, m in enumerate(architecture.widths))


def _outputs(architecture, tangent, layer, C):
    """Outputs (n, K) of candidates C (m_{l-1} + 1, K) for a layer."""
    H = tangent.U
    for A, activation in zip(tangent.layers[:layer], architecture.activations, strict=False):
        H = activation(H @ A[:-1] + A[-1])
    return architecture.activations[layer](H @ C[:-1] + C[-1])


def _outgoing(tangent, outputs, layer):
    """Outgoing weights (K, m) of candidates that lower the cost most to first order, and the decreases (K,)."""
    J, n, K = tangent.J, *outputs.shape
    p = len(J) // n
    downstream = J[:, tangent.indices[layer + 1][-1]].reshape(p, n, 1, -1)  # by pre-activations of the next layer
    columns = (outputs[:, :, None] * downstream).reshape(n * p, -1)
    factor = lapack.cho_factor(tangent.matrix(GROWTH_DAMPING), lower=True, overwrite_a=True)
    along = J.T @ columns
    followed = scipy.linalg.cho_solve(factor, along)
    m = downstream.shape[-1]
    slopes = (tangent.r @ columns - (J.T @ tangent.r) @ followed).reshape(K, m)
    columns, along, followed = (M.reshape(-1, K, m).transpose(1, 0, 2) for M in (columns, along, followed))
    grams = np.swapaxes(columns, 1, 2) @ columns
    ridge = _RIDGE * np.einsum("kii->ki", grams)
    grams = grams - np.swapaxes(along, 1, 2) @ followed
    np.einsum("kii->ki", grams)[...] += ridge + max(1e-12 * ridge.max(), LEAST_DIVISOR)
    outgoing = -lapack.solve(grams, slopes[..., None])[..., 0]
    return outgoing, -np.sum(outgoing * slopes, axis=1)


def _losses(architecture, tangent, layer, samples):
    """`_removal_losses` of every unit of a layer."""
    fits, residuals, indices = BatchedNetworkFits(architecture, samples), [], []
    _, Y, weight = next(samples.blocks(len(tangent.U)))
    for k in range(tangent.layers[layer].shape[1]):
        layers = [B.copy() for B in tangent.layers]
        layers[layer + 1][k] = 0.0
        without = np.concatenate([B.ravel() for B in layers])[None]
        residuals.append(fits.residuals(without, tangent.U, Y, weight)[0])
        indices.append(np.concatenate([tangent.indices[layer][:, k], tangent.indices[layer + 1][k]]))
    return _removal_losses(tangent.J, tangent.matrix(REMOVAL_DAMPING), residuals, indices)


def _damped(A, damping):
    """Add a part of its own diagonal to a Gauss-Newton matrix A (P, P), in place."""
    diagonal = np.diag(A)
    A.flat[:: len(A) + 1] += damping * np.maximum(diagonal, RIDGE_OF_PRODUCTS * max(diagonal.max(), 1e-300))
    return A


def _removal_losses(J, A, residuals, indices):
    """Predicted costs without each unit, all other parameters following to first order, (m,).

    J (N, P) is the Jacobian and A (P, P) its damped Gram matrix. `residuals` (N,) are those without each unit, whose
    parameters have the `indices` and stay fixed: a least-squares problem with constraints, by block elimination.
    """
    inverse, losses = lapack.inv(A), []
    for left, fixed in zip(residuals, indices, strict=True):
        g = J.T @ left
        step = -inverse @ g
        step -= inverse[:, fixed] @ lapack.solve(inverse[np.ix_(fixed, fixed)], step[fixed])
        losses.append(left @ left + 2.0 * g @ step + step @ A @ step)
    return np.array(losses)
