"""Batched fits of many networks: weighted samples, problems, random starts, halving, Gaussian priors."""

from dataclasses import dataclass, field, replace

import numpy as np

from skident.budget import chunk_bytes as default_chunk_bytes
from skident.budget.constants import RIDGE
from skident.network import FeedforwardNetwork, get_activation
from skident.network.calculus import flatten_parameters, unflatten_parameters
from skident.optim import BatchedNormalEquations, Ending, WorkBudget, batched_levenberg_marquardt

_CACHE_BYTES = 2**21  # of the Jacobians formed at a time, so that they stay in the processor's cache
_SMALLEST_START = 0.1  # factor of the first-layer weights of the smallest start: nearly linear units
_BIAS_SCALE = 0.3  # standard deviation of the biases of starts, for pre-activations of variance 1
_MIN_VARIANCE = 1e-4  # of a prior: parameters of a layer that are all 0 would be fixed there otherwise
_CHI2_MEDIAN = 0.455  # median of the square of a standard normal variable
_QUADRATURE_NODES = 60  # of Gauss-Hermite: variances of smooth activations to 1e-3, of ReLU to 1e-2
# Variance of pre-activations under the broad prior. With the variances of the recovered network, layer by layer,
# weights of softplus and sigmoid units shrink without end and their output weights grow.
_PREACTIVATION_VARIANCE = 4.0


@dataclass(frozen=True)
class WeightedSamples:
    """Inputs U (n, D), outputs Y (n, m_L) and sample weights (n,) in memory; weight None is 1 for every sample."""

    U: np.ndarray
    Y: np.ndarray
    weight: np.ndarray | None = None

    @property
    def n_inputs(self):
        """D."""
        return self.U.shape[1]

    @property
    def n_outputs(self):
        """m_L."""
        return self.Y.shape[1]

    @property
    def n_values(self):
        """Number of scalar outputs: the sum of the weights, times m_L."""
        return self.n_outputs * (len(self.U) if self.weight is None else float(np.sum(self.weight)))

    @property
    def total(self):
        """Weighted sum of squares of the outputs."""
        squares = np.sum(self.Y**2, axis=1)
        return float(squares.sum() if self.weight is None else self.weight @ squares)

    def blocks(self, size):
        """Yield (U, Y, weight) of up to `size` samples at a time."""
        for first in range(0, len(self.U), size):
            part = slice(first, first + size)
            yield self.U[part], self.Y[part], None if self.weight is None else self.weight[part]


class BatchedNetworkFits:
    """``sum_n w_n ||f(u_n; x_b) - y_n||^2`` for B networks, a problem of `batched_levenberg_marquardt`.

    `samples` are `WeightedSamples`, or anything with their `blocks`, `n_inputs` and `n_outputs`, such as samples read
    from a file. Parameters x (B, P) are ordered as in `NetworkLeastSquares`. A linearization costs ``O(B n m_L P^2)``,
    a step ``O(B P^3)``; memory is ``24 B P^2`` bytes and twice `chunk_bytes`, whatever n is.
    """

    def __init__(self, architecture, samples, *, chunk_bytes=None):
        self.shapes = architecture.shapes(samples.n_inputs)
        self.activations, self.samples = architecture.activations, samples
        self.chunk_bytes = chunk_bytes or default_chunk_bytes() // 2
        self.offsets = np.concatenate([[0], np.cumsum([(a + 1) * c for a, c in self.shapes])])

    @property
    def n_parameters(self):
        """P."""
        return int(self.offsets[-1])

    def take(self, index):
        """The problems of some of the networks: all of them have the same samples."""
        return self

    def cost(self, x):
        """Weighted sums of squared residuals (B,); infinite for networks that overflow."""
        cost = np.zeros(len(x))
        widest = max(c for _, c in self.shapes)
        with np.errstate(over="ignore", invalid="ignore"):
            for U, Y, weight in self.samples.blocks(self._block_size(len(x) * 3 * widest)):
                cost += np.sum(self.residuals(x, U, Y, weight) ** 2, axis=1)
        return np.where(np.isfinite(cost), cost, np.inf)

    def residuals(self, x, U, Y, weight):
        """Residuals of a block of samples, times roots of the weights, (B, m_L n)."""
        H = U
        for A, activation in zip(self.layers(x), self.activations, strict=True):
            H = activation(H @ A[:, :-1] + A[:, -1:])
        root = 1.0 if weight is None else np.sqrt(weight)
        return (np.swapaxes(H - Y, 1, 2) * root).reshape(len(x), -1)

    def linearize(self, x):
        """The Gauss-Newton models at x (B, P)."""
        return BatchedNormalEquations(*self.normal_equations(x), floor=RIDGE)

    def normal_equations(self, x):
        """Gauss-Newton matrices ``J^T J`` (B, P, P) and gradients ``J^T r`` (B, P), summed over blocks of samples."""
        B, P = len(x), self.n_parameters
        matrix, gradient = np.zeros((B, P, P)), np.zeros((B, P))
        for U, Y, weight in self.samples.blocks(self._block_size(B * self.samples.n_outputs * P)):
            at_once = max(1, _CACHE_BYTES // (8 * Y.size * P))
            for first in range(0, B, at_once):
                some = slice(first, first + at_once)
                J, r = self.jacobians(x[some], U, Y, weight)
                matrix[some] += J @ np.swapaxes(J, 1, 2)
                gradient[some] += (J @ r[:, :, None])[:, :, 0]
        return matrix, gradient

    def _block_size(self, numbers_per_sample):
        return max(1, self.chunk_bytes // (8 * numbers_per_sample))

    def layers(self, x):
        """Weights above biases of every layer, (B, m_{l-1} + 1, m_l) each; views where possible."""
        return [
            x[:, s:e].reshape(len(x), a + 1, c)
            for s, e, (a, c) in zip(self.offsets[:-1], self.offsets[1:], self.shapes, strict=True)
        ]

    def jacobians(self, x, U, Y, weight):
        """Jacobians (B, P, m_L n) and residuals (B, m_L n) of a block of samples, times roots of the weights.

        Samples are the last axis: it is long products along them that make this fast.
        """
        layers, (n, p), B = self.layers(x), Y.shape, len(x)
        reads, jets, H = [], [], np.broadcast_to(U.T, (B, U.shape[1], n))
        for A, activation in zip(layers, self.activations, strict=True):
            reads.append(np.concatenate([H, np.ones((B, 1, n))], axis=1))
            pre = np.swapaxes(A, 1, 2) @ reads[-1]
            jets.append([np.swapaxes(jet, 1, 2) for jet in activation.jet(np.swapaxes(pre, 1, 2), 1)])
            H = jets[-1][0]
        root = np.ones(n) if weight is None else np.sqrt(weight)
        J, by_post = np.empty((B, self.n_parameters, p, n)), root * np.eye(p)[:, :, None]
        for k in range(len(layers) - 1, -1, -1):
            by_pre = by_post * jets[k][1][:, None]  # (B, m_L, m_l, n)
            (s, e), (a, c) = self.offsets[k : k + 2], self.shapes[k]
            out = J[:, s:e].reshape(B, a + 1, c, p, n)  # a view
            np.multiply(reads[k][:, :, None, None], np.swapaxes(by_pre, 1, 2)[:, None], out=out)
            if k:
                by_post = layers[k][:, None, :-1] @ by_pre
        return J.reshape(B, -1, p * n), ((H - Y.T) * root).reshape(B, p * n)


def random_parameters(n_inputs, architecture, n_starts, rng):
    """Parameters (n_starts, P) of random networks, for inputs of unit variance.

    Gaussian weights of variance ``1 / m_{l-1}`` and biases of standard deviation 0.3. The first layer's parameters are
    scaled by factors from 0.1 to 1, start by start: units that begin nearly linear do not get stuck at high
    frequencies.
    """
    layers = []
    factors = _SMALLEST_START ** (np.arange(n_starts) % 4 / 3.0)
    for k, (a, c) in enumerate(architecture.shapes(n_inputs)):
        A = rng.standard_normal((n_starts, a + 1, c)) / np.sqrt(a)
        A[:, -1] *= _BIAS_SCALE * np.sqrt(a)
        layers.append((A if k else factors[:, None, None] * A).reshape(n_starts, -1))
    return np.concatenate(layers, axis=1)


def network_of(x, n_inputs, architecture):
    """The network with parameters x (P,): layer by layer, weights above biases, row by row."""
    return FeedforwardNetwork(*unflatten_parameters(x, architecture.shapes(n_inputs)), *architecture.names)


def parameters_of(network):
    """The parameters (P,) of a network, in the order of `network_of`."""
    return flatten_parameters(network.weights, network.biases)


@dataclass(frozen=True)
class Halving:
    """How `successive_halving` goes on."""

    rounds: tuple = ((25, 8), (35, 4), (100, 3), (300, 3))  # steps of a round, and starts that survive it
    target: float = 0.0  # a cost that ends it
    ftol: float = 1e-5  # a start whose step lowers its cost by less, relatively, as predicted and in fact, has ended
    budget: WorkBudget = field(default_factory=WorkBudget)  # no step is made once it is spent


def successive_halving(fits, x, options=None):
    """Levenberg-Marquardt from starts x (B, P) in one batch; only the best go on after every round.

    Returns the parameters (b, P) of the last round, the best first, and their costs (b,). At its true width, a tanh
    network of two hidden layers is recovered from about one start in ten, and these starts are among the best third
    after a few dozen steps. Source: successive halving, Jamieson and Talwalkar (2016).
    """
    options = Halving() if options is None else options
    ending = Ending(ftol=options.ftol, target=options.target, budget=options.budget)
    damping, cost = ending.damping, np.full(len(x), np.inf)
    for steps, n_kept in options.rounds:
        result = batched_levenberg_marquardt(fits, x, replace(ending, max_iter=steps, damping=damping))
        order = np.argsort(result.cost, kind="stable")[:n_kept]
        x, cost, damping = result.x[order], result.cost[order], result.damping[order]
        if cost[0] <= options.target or options.budget.spent:
            break
    return x, cost


@dataclass(frozen=True)
class Prior:
    """Prior variances of the weights and of the biases, one per layer, and the variance of the noise of an output."""

    weights: tuple
    biases: tuple
    noise: float

    @classmethod
    def like(cls, network, noise):
        """The prior of which a network is typical: medians over units, because some units may fit noise."""
        weights = [max(float(np.median(np.mean(W**2, axis=0))), _MIN_VARIANCE) for W in network.weights]
        biases = [max(float(np.median(b**2)) / _CHI2_MEDIAN, _MIN_VARIANCE) for b in network.biases]
        return cls(tuple(weights), tuple(biases), noise)

    @classmethod
    def broad(cls, architecture, n_inputs, noise, variance=_PREACTIVATION_VARIANCE):
        """A prior of pre-activations of a variance, the same in all layers."""
        fan_in, output = (n_inputs, *architecture.widths[:-1]), _output_variance(architecture.activation)
        read = (1.0, *[output] * (len(fan_in) - 1))
        weights = [max(variance / (a * v), _MIN_VARIANCE) for a, v in zip(fan_in, read, strict=True)]
        return cls(tuple(weights), (variance,) * len(fan_in), noise)

    def penalty(self, shapes):
        """Factors (P,) of the squared parameters in the penalized cost; 0 for the biases of the outputs."""
        return self.noise / self.variances(shapes)

    def variances(self, shapes):
        """Variances (P,) of all parameters of layers of shapes (m_{l-1}, m_l); infinite for biases of the outputs."""
        parts = []
        for layer, (a, c) in enumerate(shapes):
            bias = np.inf if layer == len(shapes) - 1 else self.biases[layer]
            parts += [np.full(a * c, self.weights[layer]), np.full(c, bias)]
        return np.concatenate(parts)


def _output_variance(activation):
    """Variance of the output of a hidden unit whose pre-activation is standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_NODES)
    values, weights = get_activation(activation)(nodes), weights / weights.sum()
    return max(float(weights @ values**2 - (weights @ values) ** 2), _MIN_VARIANCE)


class PenalizedNetworkFits(BatchedNetworkFits):
    """``sum_n w_n ||f(u_n; x) - y_n||^2 + noise sum_k (x_k - center_k)^2 / variance_k``: maximum a posteriori fits.

    `center` (P,) is the mean of the prior; None is 0.
    """

    def __init__(self, architecture, samples, prior, center=None):
        super().__init__(architecture, samples)
        self.center = np.zeros(self.n_parameters) if center is None else center
        self.penalty = prior.penalty(self.shapes)

    def cost(self, x):
        """Weighted sums of squared residuals and penalties, (B,)."""
        return super().cost(x) + (x - self.center) ** 2 @ self.penalty

    def normal_equations(self, x):
        """Gauss-Newton matrices (B, P, P) and gradients (B, P), penalties included."""
        matrix, gradient = super().normal_equations(x)
        return matrix + np.diag(self.penalty), gradient + (x - self.center) * self.penalty
