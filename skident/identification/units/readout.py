"""The last layer: output weights, the signs of the last hidden layer, and its undetermined weights, from outputs."""

from __future__ import annotations

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

__all__ = [
    "PreactivationSigns",
    "Readout",
    "fill_undetermined",
    "hidden_outputs",
    "in_oracle_units",
    "inputs_as_pairs",
    "point_pool",
    "read_out",
    "spread_points",
]


# Points.
_RADII = (0.5, 1.0, 2.0, 3.0, 4.0)  # spreads of random points, in standard deviations of the inputs
_RARE = 0.2  # share of points on one side of a unit below which more are drawn there
_RARE_POINTS = 1.5  # of these, per weight of the unit, and beyond:
_MORE_RARE_POINTS = 4  # more, for few weights
_FARTHEST_BOUNDARY = 30.0  # standard deviations of the inputs beyond which a unit's boundary is not crossed (design)
_LARGEST_POOL = 100_000  # points among which rare ones are searched
_POOL_NUMBERS = 5_000_000  # entries of them, 40 MiB, and as many of points across boundaries
_SIGN_POOL = 30_000  # points that determine signs where weights are undetermined
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
# Undetermined weights.
_NEAREST = 9  # points nearest to a boundary that decide a sign behind it, an odd number
_STEEPEST = 1e3  # weight, beside others of norm 1, that is still filled in
_BEYOND = 1.01  # factor of the weight that just keeps a unit inactive
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


def read_out(probe, layers, weights, biases, rng, *, undetermined=None, slope=0.0):
    """Output weights, and the signs of the last hidden layer, from outputs, as a `Readout`.

    On ``(|z_L|, h_{L-1}, 1)`` the outputs are linear, and the part that is linear in h_{L-1} is ``sum_k s_k a_k w_k``
    if ``a_k`` belongs to ``|z_k|``. The last hidden layer, (m_{L-1}, m_L) and (m_L,), is known up to signs;
    `undetermined` (m_{L-1}, m_L) as `LayerUnits.weights` gives it. A slope of None is recovered, in the first layer.
    ``3 (m_L + m_{L-1}) + 60`` queries, and half as many again as its weights for every unit that is rarely on one side.
    """
    fit = _OutputFit.queried(probe, layers, weights, biases, undetermined, slope, rng)
    coef, share = fit.solve(probe)
    if share > _MOST_EXPLAINED:
        used = fit.used_units(probe, coef, share)
        if not used.all():
            fit = fit.of_units(used)
            coef, share = fit.solve(probe)
    K, H = len(fit.biases), fit.H
    known_inputs = ~np.any(fit.undetermined != 0, axis=1)
    known_inputs = known_inputs if known_inputs.any() else ~known_inputs
    signs, deviation, slope = _signs(coef[:K], coef[K:-1][known_inputs], fit.weights[known_inputs], slope)
    W, b = fit.filled_weights(signs, coef[:K], coef[K:-1]) * signs, fit.biases * signs
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
    undetermined: np.ndarray  # (m_{L-1}, m_L), see `LayerUnits.weights`
    F: np.ndarray  # (n, m_o), outputs
    tol: np.ndarray  # (n,), their accuracies
    H: np.ndarray  # (n, m_{L-1}), outputs of layer L - 1
    sizes: np.ndarray  # (n, m_L), absolute values of the pre-activations
    signs: PreactivationSigns | None = None  # of the units, if some weights are undetermined
    pool: np.ndarray | None = None  # (q, m_{L-1}), outputs of layer L - 1 at more points

    @classmethod
    def queried(cls, probe, layers, weights, biases, undetermined, slope, rng):
        """From queries at random points with accurate outputs."""
        X = spread_points(probe, [*layers, (weights, biases)], _POINTS * sum(weights.shape) + _MORE_POINTS, rng)
        F, tol = probe.query(X)
        finite = np.isfinite(tol)
        good = finite & (tol <= _INACCURATE * max(np.median(tol[finite]) if finite.any() else 1.0, 1.0))
        F, tol, H = F[good], tol[good], hidden_outputs(layers, X[good], slope)
        Z = H @ weights + biases
        if undetermined is None or not np.any(undetermined):
            return cls(weights, biases, np.zeros(weights.shape), F, tol, H, np.abs(Z))
        points = spread_points(probe, [], min(_SIGN_POOL, _POOL_NUMBERS // probe.n_inputs), rng)
        inputs = hidden_outputs(layers[:-1], points, slope) @ layers[-1][0] + layers[-1][1]
        pool = np.maximum(inputs, slope * inputs)
        known = PreactivationSigns.determine(pool @ weights + biases, pool, inputs, undetermined)
        signs = known.of(Z, H)
        i = np.flatnonzero(np.all(signs != 0, axis=1))
        if len(i) <= sum(weights.shape):  # too few outputs where all signs are known: as if the weights were
            return cls(weights, biases, np.zeros(weights.shape), F, tol, H, np.abs(Z))
        return cls(weights, biases, undetermined, F[i], tol[i], H[i], (Z * signs)[i], known, pool)

    def of_units(self, units):
        """The same for some of the units, an index array or mask."""
        columns = {name: getattr(self, name)[:, units] for name in ("weights", "undetermined", "sizes")}
        signs = None if self.signs is None else self.signs.take(units)
        return replace(self, biases=self.biases[units], signs=signs, **columns)

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

    def filled_weights(self, signs, outer, linear):
        """The weights; undetermined ones so that units keep their signs."""
        if self.signs is None:
            return self.weights
        units = self.weights, self.biases, self.undetermined, self.signs
        return fill_undetermined(*units, signs, outer, linear, self.pool)


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


@dataclass(frozen=True)
class PreactivationSigns:
    """Signs of units where inputs are active, or inactive, that are not so on any critical point of the unit.

    Weights to such inputs are undetermined. Input k was inactive on all critical points of unit j (`usual` -1) or
    active on all of them (1): behind the input's boundary the unit keeps the sign that it has there.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.units.readout import PreactivationSigns
    >>> signs = PreactivationSigns(np.array([[0.0], [-1.0]]), np.array([[-1.0], [-1.0]]))
    >>> print(signs.of(np.array([[2.0], [2.0]]), np.array([[1.0, 0.0], [1.0, 3.0]])).ravel())
    [ 1. -1.]
    """

    signs: np.ndarray  # (m_{L-1}, m_L), of z_j behind the boundary of input k, 0 where the weight is determined
    usual: np.ndarray  # (m_{L-1}, m_L)

    @classmethod
    def determine(cls, Z, H, inputs, undetermined):
        """From Z (n, m_L), right near critical points, and outputs H and pre-activations (n, m_{L-1}) before it."""
        signs = np.zeros(undetermined.shape)
        for j in np.flatnonzero(np.any(undetermined != 0, axis=0)):
            rows = np.flatnonzero(undetermined[:, j])
            unusual = (H[:, rows] > 0) == (undetermined[rows, j] < 0)
            signs[rows, j] = _signs_behind(Z[:, j], unusual, inputs[:, rows])
        return cls(signs, np.where(undetermined != 0, undetermined, -1))

    def of(self, Z, H):
        """Signs (n, m_L) of pre-activations Z (n, m_L), without the undetermined weights; 0 where two contradict."""
        active, inactive = (H > 0).astype(float), (H <= 0).astype(float)
        if_active, if_inactive = self.signs * (self.usual < 0), self.signs * (self.usual > 0)
        total = active @ if_active + inactive @ if_inactive
        count = active @ np.abs(if_active) + inactive @ np.abs(if_inactive)
        agreed = np.where(np.abs(total) == count, np.sign(total), 0.0)
        return np.where(count == 0, np.where(Z >= 0, 1.0, -1.0), agreed)

    def take(self, units):
        """Those of some units, an index array or mask."""
        return PreactivationSigns(self.signs[:, units], self.usual[:, units])


def _signs_behind(z, unusual, inputs):
    """Signs (q,) of one unit z (n,) behind the boundaries of q inputs, at points where these are `unusual` (n, q).

    From the points nearest to an input's own boundary where no other input's sign is missing.
    """
    found = np.zeros(unusual.shape[1])
    for _ in range(len(found)):
        total, missing = unusual @ found, unusual @ (found == 0)
        sign = np.where(unusual @ np.abs(found) > 0, np.sign(total), np.sign(z))
        new = found.copy()
        for i in np.flatnonzero(found == 0):
            near = np.flatnonzero(unusual[:, i] & (missing == 1))
            near = near[np.argsort(np.abs(inputs[near, i]))[:_NEAREST]]
            new[i] = np.sign(sign[near].sum())
        if np.array_equal(new, found):
            break
        found = new
    return found


def fill_undetermined(weights, biases, undetermined, known_signs, signs, outer, linear, points):
    """Weights (m_{L-1}, m_L) for which units keep their `PreactivationSigns` and the linear part is right.

    With ``sum_j a_j |z_j| + l . h`` on the outputs, unit j adds ``2 s_j a_j w_kj`` to ``l_k`` if it is active with
    input k. If it is inactive with it, any weight will do that keeps it so. Only weights are filled whose inputs are
    inactive on the unit's critical points (-1). Shapes: signs s (m_L,), outer weights a (m_L, m_o), linear part l
    (m_{L-1}, m_o), outputs of layer L - 1 at many points (n, m_{L-1}).
    """
    filled, inactive = weights.copy(), undetermined < 0
    for k in np.flatnonzero(inactive.any(axis=1)):
        units = np.flatnonzero(inactive[k] & (known_signs.signs == signs)[k])
        if len(units):
            left = linear[k] - (signs * weights[k]) @ outer
            filled[k, units] = lapack.lstsq((2.0 * signs[units, None] * outer[units]).T, left, rcond=RANK_TOL)[0]
    for k, j in np.argwhere(inactive & (known_signs.signs == -signs)):
        active = points[points[:, k] > 0]
        z = signs[j] * (active @ filled[:, j] + biases[j])
        steepest = np.max(z / active[:, k], initial=0.0)
        if 0.0 < steepest < _STEEPEST:
            filled[k, j] = -_BEYOND * signs[j] * steepest
    return filled


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
