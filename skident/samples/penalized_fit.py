"""ReLU networks with a Gaussian prior on their weights: units and strength of the prior by evidence.

Few samples with noise hardly determine the weights of a unit; a prior on them costs less than fewer units.
"""

import math
from dataclasses import replace

import numpy as np

from skident.budget.constants import RIDGE_OF_PRODUCTS
from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

from .ridges import EXACT, RidgeFit, RidgeModel, jacobian_of_ridges, squared_errors
from .sample import FEW_VALUES
from .unit_count import ROWS_PER_WEIGHT
from .unit_signs import as_relu

MOST_UNITS = 8  # with which random starts begin (tuned on relu/few_samples)
_FIRST_ALPHA = 2.5e-3  # penalty per sample with which the search begins, for standardized inputs and y
_DISTINCT = 0.5  # units per input beyond which they are hardly distinct (tuned on relu/few_samples)
_DECISIVE = 1.7  # difference of log evidences from which more units are taken: they are 5 times as likely
_OVERCONFIDENCE = 2.0  # factor of log evidences: Laplace's approximation is overconfident (tuned on relu/few_samples)
_WORK = 2e7  # samples times parameters squared, up to which networks of a size are fitted (budget: 3 s)


def _metric(sample):
    """Matrix (k, k) of the squared norm of weights, taken for standardized columns of X, in whitened coordinates.

    A prior in whitened coordinates would shrink all least-squares solutions alike.
    """
    back = np.linalg.pinv(sample.whitener)
    scale = np.linalg.norm(back, axis=0)
    back = back / np.where(scale > 0, scale, 1.0)
    return np.linalg.inv(back @ back.T)


def penalty_matrix(sample, n_units, skip):
    """Quadratic form (P, P) of the prior on the parameters of a ReLU model; its constant is free."""
    k, metric = sample.dim, _metric(sample)
    size = n_units * (k + 1)
    matrix = np.zeros((size + (k if skip else 0) + 1,) * 2)
    for start in range(0, size, k + 1):
        matrix[start : start + k, start : start + k] = metric
        matrix[start + k, start + k] = 1.0
    if skip:
        matrix[size:-1, size:-1] = metric
    return matrix


class _Networks:
    """Penalized least squares over ReLU models (B, P) of one size, each with its own signs (B, m)."""

    def __init__(self, rows, signs, penalty):
        self.rows, self.signs, self.penalty = rows, signs, penalty

    def take(self, index):
        return _Networks(self.rows, self.signs[index], self.penalty)

    def _residuals(self, x):
        X, y, root = self.rows
        m, k1 = self.signs.shape[1], X.shape[1]
        t = X @ np.swapaxes(x[:, : m * k1].reshape(len(x), m, k1), 1, 2)
        outputs = (np.maximum(t, 0.0) @ self.signs[..., None])[..., 0]
        rest = x[:, m * k1 :]
        return t, root * (outputs + rest @ X[:, -rest.shape[1] :].T - y)

    def cost(self, x):
        r = self._residuals(x)[1]
        return np.sum(r * r, axis=1) + np.sum(x * (x @ self.penalty), axis=1)

    def linearize(self, x):
        t, r = self._residuals(x)
        X, _, root = self.rows
        skip = x.shape[1] > self.signs.shape[1] * X.shape[1] + 1
        J = jacobian_of_ridges(X, (t > 0) * self.signs[:, None, :], skip, root[:, None])
        Jt = np.swapaxes(J, 1, 2)
        return BatchedNormalEquations(Jt @ J + self.penalty, (Jt @ r[..., None])[..., 0] + x @ self.penalty)


class _Search:
    """Networks with or without a linear part: from many units to few, each size with penalties around the last best."""

    def __init__(self, sample, skip):
        Z, y, w = sample.arrays(np.float64)
        self.n, self.sample, self.skip = sample.effective_rows, sample, skip
        root = np.sqrt(w * (self.n / sample.total))
        self.rows = np.column_stack([Z, np.ones(len(Z))]), y, root
        # Steps between classes are fitted best by steep units, which fail between the samples.
        self.least_alpha = _FIRST_ALPHA if len(np.unique(y)) <= FEW_VALUES else 0.0
        self.found = {}  # of every number of units, the largest evidence: its negative, the network, its penalty
        self.log_det = float(np.linalg.slogdet(_metric(sample))[1])

    def problem(self, signs, alpha):
        return _Networks(self.rows, signs, self.n * alpha * penalty_matrix(self.sample, signs.shape[1], self.skip))

    def fitted(self, x, signs, alpha, ending=None):
        ending = ending or Ending(max_iter=25, ftol=1e-4, damping=1e-2)  # not to the last digit
        result = batched_levenberg_marquardt(self.problem(signs, alpha), x, ending)
        return result.x, result.cost

    def _minus_evidence(self, x, signs, alpha, cost):
        """Minus the log of the evidence of a network, by Laplace's approximation.

        The variance of the noise is profiled, and the constant takes one row. Networks of m units have m! equal optima,
        as long as units are distinct.
        """
        permutations = math.lgamma(min(len(signs), _DISTINCT * self.sample.dim) + 1.0)
        matrix = self.problem(signs[None], alpha).linearize(x[None]).matrix[0]
        log_prior = (len(x) - 1) * math.log(self.n * alpha) + (len(signs) + self.skip) * self.log_det
        variance = max(cost / self.n, EXACT)
        return 0.5 * ((self.n - 1.0) * math.log(variance) + np.linalg.slogdet(matrix)[1] - log_prior) - permutations

    def _score(self, x, signs, alpha, ending=None):
        x, cost = self.fitted(x, signs, alpha, ending)
        i = int(np.argmin(cost))
        score = self._minus_evidence(x[i], signs[i], alpha, cost[i])
        if score < self.found.get(len(signs[i]), (math.inf,))[0]:
            self.found[len(signs[i])] = score, x[i], signs[i], alpha
        return x, score

    def kept(self, x, signs, alpha):
        """Score networks of one size with a given penalty, which is returned."""
        self._score(x, signs, alpha)
        return alpha

    def explore(self, x, signs, alpha, most_steps=10):
        """Score networks of one size with larger and smaller penalties while that helps; the best penalty."""
        middle, best = self._score(x, signs, alpha)
        chosen = alpha
        for factor in (0.5, 2.0):
            at, last = middle, math.inf
            for step in range(1, most_steps + 1):
                if alpha * factor**step < self.least_alpha:
                    break
                at, score = self._score(at, signs, alpha * factor**step)
                if score < best:
                    best, chosen = score, alpha * factor**step
                elif score > last or score > best + 2.0:
                    break
                last = score
        return chosen

    def random(self, n_units, rng):
        """Fits of random networks, from large penalties to small ones."""
        k1, P = self.rows[0].shape[1], self.parameters(n_units)
        x, signs = np.zeros((2 * MOST_UNITS, P)), rng.choice([-1.0, 1.0], (2 * MOST_UNITS, n_units))
        U = rng.standard_normal((2 * MOST_UNITS, n_units, k1))
        U /= np.linalg.norm(U[..., :-1], axis=-1, keepdims=True) * math.sqrt(n_units)
        U[..., -1] = rng.uniform(-1.0, 1.0, U.shape[:2]) / math.sqrt(n_units)
        x[:, : n_units * k1] = U.reshape(2 * MOST_UNITS, -1)
        for doublings in (3, 2, 1):
            x, cost = self.fitted(x, signs, 2.0**doublings * _FIRST_ALPHA)
            kept = np.argsort(cost, kind="stable")[: 2 * MOST_UNITS if doublings == 3 else MOST_UNITS]
            x, signs = x[kept], signs[kept]
        return x, signs

    def parameters(self, n_units):
        k1 = self.rows[0].shape[1]
        return n_units * k1 + (k1 if self.skip else 1)

    def without_one(self, x, signs, alpha):
        """Networks (B, P') without the unit that the others replace best, to second order."""
        k1, fewer, left = self.rows[0].shape[1], [], []
        matrices = self.problem(signs, alpha).linearize(x).matrix
        for one, s, inverse in zip(x, signs, np.linalg.inv(matrices), strict=True):
            blocks = [slice(i * k1, (i + 1) * k1) for i in range(len(s))]
            steps = [np.linalg.solve(inverse[b, b], one[b]) for b in blocks]
            i = int(np.argmin([one[b] @ step for b, step in zip(blocks, steps, strict=True)]))
            moved = one - inverse[:, blocks[i]] @ steps[i]
            fewer.append(np.delete(moved, blocks[i]))
            left.append(np.delete(s, i))
        return np.array(fewer), np.array(left)

    def run(self, start, largest, sizes, alpha, rng):
        """Search from random networks of the largest size and from a given model, down to the smallest of the sizes."""
        fixed, alpha = alpha, alpha or _FIRST_ALPHA
        top = max(largest, start.n_units, sizes[0])
        x, signs = np.empty((0, self.parameters(top))), np.empty((0, top))
        for m in range(top, sizes[0] - 1, -1):
            more = [self.random(m, rng)] if m == largest and m else []
            if m == start.n_units:
                given = as_relu(start, skip=self.skip) if start.kind == "abs" else start
                more.append((given.pack()[None], given.s[None]))
            x, signs = (np.concatenate(parts) for parts in zip((x, signs), *more, strict=True))
            if not len(x):
                x, signs = np.zeros((1, self.parameters(m))), np.ones((1, m))
            x, cost = self.fitted(x, signs, alpha)
            order = np.argsort(cost, kind="stable")[:MOST_UNITS]
            x, signs = x[order], signs[order]
            if m <= sizes[-1]:
                few = x[: MOST_UNITS // 2], signs[: MOST_UNITS // 2], alpha
                alpha = self.explore(*few) if fixed is None else self.kept(*few)
            if m > sizes[0]:
                x, signs = self.without_one(x, signs, alpha)

    def model(self, x, signs):
        """A network as a `RidgeModel`."""
        k, m = self.sample.dim, len(signs)
        return RidgeModel(np.zeros((k, m)), np.zeros(m), signs, np.zeros(k), 0.0, "relu", self.skip).unpack(x)

    def finished(self, x, signs, alpha):
        """A network fitted to the end."""
        (x,), _ = self.fitted(x[None], signs[None], alpha, Ending(max_iter=200, ftol=1e-10))
        model = self.model(x, signs)
        rss = float(self.sample.reduce(squared_errors, model)[0])
        return RidgeFit(model, rss, 1, "ftol", alpha)


def _largest_size(sample, n_units):
    """Units of the random starts: no more parameters than rows, and no more work than allowed."""
    n, k1 = sample.n_rows, sample.dim + 1
    most = min(n, math.isqrt(int(_WORK / max(n, 1)))) // k1 - 1
    return max(0, min(n_units, most))


def is_affordable(sample):
    """Whether rows are few for networks of several units, and these are fitted to them in seconds."""
    n, k1 = sample.n_rows, sample.dim + 1
    return n <= ROWS_PER_WEIGHT * k1 and (n * ((MOST_UNITS + 1) * k1) ** 2 <= _WORK or n <= 4 * k1)


def penalized_fit(sample, start, rng, *, most_units=None, n_units=None, alpha=None):
    """The network of the largest evidence, with and without a linear part; its units, fitted to the mean of others.

    ``sum_n w_n (f(z_n) - y_n)^2 + alpha n sum_i |a_i (w_i, b_i)|^2``, weights as those of standardized columns of X;
    a linear part is penalized like a unit's weights. Random networks of up to eight units, and a given model, lose one
    unit after the other; the evidence decides on `n_units` and `alpha`, unless they are given. Rows are weighted in the
    residuals, so that integer weights are repetitions up to the number of rows, which is the effective one.
    """
    limit = MOST_UNITS if most_units is None else min(MOST_UNITS, most_units)
    largest = _largest_size(sample, limit if n_units is None else n_units + max(3, n_units // 3))
    top = max(largest, start.n_units)
    sizes = (0, top) if n_units is None else (n_units, n_units)
    searches = [_Search(sample, skip) for skip in (False, True)]
    for search in searches:
        search.run(start, largest, sizes, alpha, rng)
    found = [(search, m, *one) for search in searches for m, one in search.found.items()]
    least = min(one[2] for one in found)
    search, *_, x, signs, chosen = min((one for one in found if one[2] <= least + _DECISIVE), key=lambda one: one[1:3])
    fit = search.finished(x, signs, chosen)
    if alpha is not None:
        return fit
    plausible = [(one[2] - least, one[0].model(*one[3:5])) for one in found]
    return _closest_to_mean(search, fit, plausible, rng)


def _closest_to_mean(search, fit, plausible, rng):
    """The network with the units of a fit whose outputs are closest to the mean of plausible networks.

    Noisy samples leave networks with more units and fewer almost as plausible. Their mean has a smaller error than the
    most plausible one. `plausible` are pairs of minus the log of the evidence, from the least, and a model.
    """
    Z = search.rows[0][:, :-1]
    # Coordinates are uncorrelated: permuted, they give further points where inputs lie.
    Q = np.concatenate([Z, *(np.column_stack([rng.permutation(z) for z in Z.T]) for _ in range(MOST_UNITS))])
    weights = np.exp(np.array([-score / _OVERCONFIDENCE for score, _ in plausible]))
    mean = np.average([model(Q) for _, model in plausible], axis=0, weights=weights)
    rows = np.column_stack([Q, np.ones(len(Q))]), mean, np.ones(len(Q))
    penalty = RIDGE_OF_PRODUCTS * len(Q) * penalty_matrix(search.sample, fit.model.n_units, search.skip)
    problem = _Networks(rows, fit.model.s[None], penalty)
    x = batched_levenberg_marquardt(problem, fit.model.pack()[None], Ending(max_iter=30, ftol=1e-4)).x[0]
    model = fit.model.unpack(x)
    return replace(fit, model=model, rss=float(search.sample.reduce(squared_errors, model)[0]))
