"""The last layer: output weights, and the signs of the last hidden layer, from outputs."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import NO_EFFECT, TINY
from skident.linalg import lapack, svd
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import NotIdentified

from ..constants import (
    CERTAIN,
    EXPLAINED,
    EXPLAINED_ERRORS,
    LEAST_FLOOR,
    RANK_TOL,
    RESIDUAL_FLOOR,
    REWEIGHTINGS,
    SETTLED,
)
from ..piecewise.kernel.robust_fit import NOISY, fit_outputs
from ..piecewise.kernel.signs import linear_part_matrix, signs_over_ratio, slope_of_ratio

# Points.
_RADII = (0.5, 1.0, 2.0, 3.0, 4.0)  # spreads of random points, in standard deviations of the inputs
_RARE = 0.2  # share of points on one side of a unit below which more are drawn there
_RARE_POINTS = 1.5  # of these, per weight of the unit, and beyond:
_MORE_RARE_POINTS = 4  # more, for few weights
_FARTHEST_BOUNDARY = 30.0  # standard deviations of the inputs beyond which a unit's boundary is not crossed (design)
_LARGEST_POOL = 100_000  # points among which rare ones are searched
_POOL_NUMBERS = 5_000_000  # entries of them, 40 MiB, and as many of points across boundaries
_POINTS = 3  # queried per unit and input of the last hidden layer, and beyond:
_MORE_POINTS = 60  # more, so that outliers of a small layer stay few
_INACCURATE = 1e4  # accuracy of an output over the median that is left out
# Explaining outputs.
_EXPLAINED_NOISE = 3000.0  # `EXPLAINED` for noisy outputs
_SIGNED_LOSS = 0.05  # share of the outputs that signs may leave unexplained
# Units and signs.
_MOST_EXPLAINED = 0.9  # share of the outputs above which units without effect are left out
_SAME_SHARE = 0.003  # share of noisy outputs that is no difference
_SIGN_TOL = 1e-6  # residual of signs that are searched, over the largest equation
_MAX_SOLUTIONS = 16  # sign vectors listed
_NO_RELU_LAYERS = ("activation boundaries", "unexplained", "the recovered layers are not those of ReLU units.")


@dataclass(frozen=True)
class Readout:
    """A network of the recovered layers, as if there were no more; a linear part without signs is pairs of units."""

    network: FeedforwardNetwork  # outputs in units of the probe
    features_share: float  # of the outputs, those that the features explain
    network_share: float  # of the outputs, those that the network explains
    deviation: np.ndarray  # (m_L,), | |s| - 1 | of the last hidden layer
    linear: np.ndarray  # (m_{L-1}, r), inner weights of the pairs that stand for a linear part
    without_linear: FeedforwardNetwork | None = None  # the network without these pairs, if there are some

    @property
    def share(self):
        """Of the outputs, those that the features or the network explain."""
        return max(self.features_share, self.network_share)

    def cut(self):
        """The network without its linear part, which may stand for undetermined weights."""
        n = 2 * self.linear.shape[1]
        (*W, inner, outer), (*b, c, d) = self.network.weights, self.network.biases
        weights, biases = [*W, inner[:, :-n], outer[:-n]], [*b, c[:-n], d]
        return FeedforwardNetwork(weights, biases, self.network.activation)


def hidden_outputs(layers, X, slope=0.0):
    """Outputs (n, m) of the last of some (leaky) ReLU layers, pairs of weights and biases, at points (n, D)."""
    for W, b in layers:
        Z = X @ W + b
        X = np.maximum(Z, slope * Z)
    return X


def point_pool(probe, layers, n, radii, rng):
    """n random points of some spreads in the input range, and as many across the boundary of a first-layer unit.

    These lie beyond it, away from the center: boundaries of trained networks may be where no random point is. Those
    still farther out are of units that pass on their inputs, which they do on one side only.
    """
    D = probe.n_inputs
    X = rng.choice(radii, (2 * n, 1)) * rng.standard_normal((2 * n, D))
    if layers:
        W, b = layers[0]
        norm = np.maximum(np.linalg.norm(W, axis=0), TINY)
        near = np.flatnonzero(np.abs(b) <= _FARTHEST_BOUNDARY * norm)
        if len(near):
            unit, moved = near[rng.randint(len(near), size=n)], X[n:]
            V, c = (W / norm)[:, unit].T, (b / norm)[unit]
            beyond = np.where(c > 0, -1.0, 1.0) * np.abs(rng.standard_normal(n)) - ((moved * V).sum(axis=1) + c)
            moved += beyond[:, None] * V
    return probe.oracle.clip_to_range(X)


def spread_points(probe, layers, n, rng, *, radii=_RADII):
    """n random points with spreads `radii` in the input range, and some on the rarer side of every unit of layers."""
    X = probe.oracle.clip_to_range(rng.choice(radii, (n, 1)) * rng.standard_normal((n, probe.n_inputs)))
    if not layers:
        return X
    n_pool, rare = min(_LARGEST_POOL, _POOL_NUMBERS // probe.n_inputs), [X]
    pool = H = point_pool(probe, layers, n_pool, radii, rng)
    for W, b in layers:
        Z = H @ W + b
        H, on = np.maximum(Z, 0.0), Z > 0
        share = on[:n_pool].mean(axis=0)
        for k in np.flatnonzero(np.minimum(share, 1.0 - share) < _RARE):
            side = np.flatnonzero(on[:, k] == (share[k] < 0.5))
            rare.append(pool[rng.permutation(side)[: int(_RARE_POINTS * len(W)) + _MORE_RARE_POINTS]])
    return np.concatenate(rare)


def read_out(probe, layers, weights, biases, rng, *, slope=0.0):
    """Output weights, and the signs of the last hidden layer, from outputs, as a `Readout`.

    On ``(|z_L|, h_{L-1}, 1)`` the outputs are linear, and the part that is linear in h_{L-1} is ``sum_k s_k a_k w_k``
    if ``a_k`` belongs to ``|z_k|``. The last hidden layer, (m_{L-1}, m_L) and (m_L,), is known up to signs.
    A slope of None is recovered, in the first layer.
    ``3 (m_L + m_{L-1}) + 60`` queries, and half as many again as its weights for every unit that is rarely on one side.
    """
    fit = _OutputFit.queried(probe, layers, weights, biases, slope, rng)
    coef, share = fit.solve(probe)
    if share > _MOST_EXPLAINED:
        used = fit.used_units(probe, coef, share)
        if not used.all():
            fit = fit.of_units(used)
            coef, share = fit.solve(probe)
    K, H = len(fit.biases), fit.H
    signs, deviation, slope = _signs(coef[:K], coef[K:-1], fit.weights, slope)
    W, b = fit.weights * signs, fit.biases * signs
    outputs, one = hidden_outputs([(W, b)], H, slope), np.ones((len(H), 1))
    coef, network_share = _fit(np.hstack([outputs, one]), fit, probe)
    network = _network(layers, W, b, coef[:K], coef[-1], slope)
    if network_share >= share - _SIGNED_LOSS:
        return Readout(network, share, network_share, deviation, np.zeros((len(weights), 0)))
    coef, network_share = _fit(np.hstack([outputs, H, one]), fit, probe)
    linear, out = _as_pairs(coef[K:-1] / (1.0 + slope))
    W, b = np.hstack([W, linear, -linear]), np.concatenate([b, np.zeros(2 * len(out))])
    paired = _network(layers, W, b, np.vstack([coef[:K], out, -out]), coef[-1], slope)
    return Readout(paired, share, network_share, deviation, linear, network)


@dataclass(frozen=True)
class _OutputFit:
    """Outputs of the probe, and the features of the last hidden layer's units on which they are linear."""

    weights: np.ndarray  # (m_{L-1}, m_L)
    biases: np.ndarray  # (m_L,)
    F: np.ndarray  # (n, m_o), outputs
    tol: np.ndarray  # (n,), their accuracies
    H: np.ndarray  # (n, m_{L-1}), outputs of layer L - 1
    sizes: np.ndarray  # (n, m_L), absolute values of the pre-activations

    @classmethod
    def queried(cls, probe, layers, weights, biases, slope, rng):
        """From queries at random points with accurate outputs."""
        X = spread_points(probe, [*layers, (weights, biases)], _POINTS * sum(weights.shape) + _MORE_POINTS, rng)
        F, tol = probe.query(X)
        finite = np.isfinite(tol)
        good = finite & (tol <= _INACCURATE * max(np.median(tol[finite]) if finite.any() else 1.0, 1.0))
        F, tol, H = F[good], tol[good], hidden_outputs(layers, X[good], slope)
        return cls(weights, biases, F, tol, H, np.abs(H @ weights + biases))

    def of_units(self, units):
        """The same for some of the units, an index array or mask."""
        return replace(self, biases=self.biases[units], weights=self.weights[:, units], sizes=self.sizes[:, units])

    def solve(self, probe):
        """Coefficients (m_L + m_{L-1} + 1, m_o) of the sizes, the linear part and 1, and the share they explain."""
        return _fit(np.hstack([self.sizes, self.H, np.ones((len(self.H), 1))]), self, probe)

    def used_units(self, probe, coef, share):
        """A mask (m_L,) of the units that the outputs need; on noisy ones, those without which fewer are explained."""
        K = len(self.biases)
        effects = np.abs(coef[:K]).max(axis=1) * self.sizes.std(axis=0)
        used = effects > NO_EFFECT * effects.max()
        if probe.resolution > NOISY:
            for k in np.argsort(effects)[: max(K - self.H.shape[1], 0) + 1]:
                without = used & (np.arange(K) != k)
                if without.any() and self.of_units(without).solve(probe)[1] >= share - _SAME_SHARE:
                    used = without
        return used


def _fit(A, fit, probe):
    """Robust coefficients of the features A on the outputs of an `_OutputFit`, and the share of these they explain."""
    if not np.isfinite(A).all():  # weights that no unit has, of a network that is none of ReLU units
        raise NotIdentified(*_NO_RELU_LAYERS)
    errors = _EXPLAINED_NOISE if probe.resolution > NOISY else EXPLAINED_ERRORS
    explained = max(EXPLAINED / probe.resolution, errors)
    coef, residual = fit_outputs(
        *(A, fit.F, fit.tol),
        explained=explained,
        n_rounds=REWEIGHTINGS,
        settled=SETTLED * explained,
        floor=lambda residual: RESIDUAL_FLOOR * np.median(residual) + LEAST_FLOOR,
    )
    if not np.isfinite(coef).all():
        raise NotIdentified(*_NO_RELU_LAYERS)
    return coef, float(np.mean(residual < explained))


def _network(layers, W, b, out, constant, slope):
    weights, biases = [*(w for w, _ in layers), W, out], [*(b for _, b in layers), b, constant]
    return FeedforwardNetwork(weights, biases, leaky_relu(slope) if slope else "relu")


def _as_pairs(linear):
    """A linear map (m_{L-1}, m_o) as a product of inner directions (m_{L-1}, r) and outer weights (r, m_o)."""
    U, s, Vt = svd(linear, full_matrices=False)
    k = int(np.sum(s > NO_EFFECT * max(s[0], TINY)))
    return U[:, :k], s[:k, None] * Vt[:k]


def _signs(outer, linear, weights, slope):
    """Signs (m_L,) for which outer weights (m_L, m_o) explain the linear part (m_{L-1}, m_o); deviations; the slope."""
    sizes = np.abs(outer).max(axis=1)
    matters = sizes > NO_EFFECT * sizes.max()
    M, target = linear_part_matrix(weights, outer)[:, matters], linear.T.ravel()
    coef = lapack.lstsq(M, target, rcond=RANK_TOL)[0]
    coef, rho = signs_over_ratio(coef, np.ones(len(coef), dtype=bool), slope)
    deviation = np.abs(np.abs(coef) - 1.0)
    if deviation.max(initial=0.0) > CERTAIN and matters.sum() > len(target) and slope == 0.0:
        coef = _search_signs(M, target, coef)
        deviation = np.abs(np.abs(coef) - 1.0)
    signs, deviations = np.ones(len(matters)), np.zeros(len(matters))
    signs[matters], deviations[matters] = np.where(coef >= 0, 1.0, -1.0), deviation
    return signs, deviations, slope_of_ratio(rho)


def _search_signs(M, target, instead):
    """Signs (m,) of ``M s = target`` if equations are too few to solve for them as numbers; else `instead`."""
    try:
        found = solve_signs(M, target, _SIGN_TOL * np.abs(M).max(), max_solutions=_MAX_SOLUTIONS)
    except UndecidedSignsError:
        return instead
    if len(found) == 0:
        return instead
    return found[np.abs(found @ M.T - target).max(axis=1).argmin()].astype(float)


def inputs_as_pairs(network, n_units):
    """The network with pairs of units for inputs that units behind the first `n_units` of its first layer pass on.

    These are always active within reach only, the pairs everywhere.
    """
    (W, V, *weights), (b, c, *biases) = network.weights, network.biases
    linear, lifts, outgoing = W[:, n_units:], b[n_units:], V[n_units:]
    W, b = np.hstack([W, -linear]), np.concatenate([b[:n_units], np.zeros(2 * len(lifts))])
    return FeedforwardNetwork(
        [W, np.vstack([V, -outgoing]), *weights], [b, c + lifts @ outgoing, *biases], network.activations[0]
    )


def in_oracle_units(network, output_error):
    """A network with outputs in units of their error as one of the oracle's outputs."""
    weights, biases = network.weights, network.biases
    return network.with_parameters(
        [*weights[:-1], weights[-1] * output_error], [*biases[:-1], biases[-1] * output_error]
    )
