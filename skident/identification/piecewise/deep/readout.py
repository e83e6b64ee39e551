"""The last layer: output weights, and the signs of the last hidden layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.budget import check_deadline
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork, leaky_relu

from ..kernel.robust_fit import NOISY
from .signs import over_ratio
from .undetermined_weights import OpenSides, fill_open_weights, open_sides

__all__ = ["Readout", "hidden_outputs", "read_out", "spread_points"]

_EXPLAINED = 1e-7  # error of an answer, over their deviation, that counts as explained
_ROUNDINGS, _NOISES = 300.0, 3000.0  # or in units of their rounding, or of their noise
_RADII = (0.5, 1.0, 2.0, 3.0, 4.0)
_NOTHING = 1e-9
_RARE, _POOL = 0.2, 5_000_000  # of numbers in all points among which rare ones are looked for
_MOST_OPEN = 30_000  # points that tell on which side units are where their weights are open
_MOST, _UNUSED = 0.9, 1e-9  # share explained above which units of this relative size are left out
_SVD = 4.0  # operations of least squares by singular values, beside n m^2 (Golub and Van Loan, section 8.6)
_SAME = 0.003  # share of noisy probe that is no difference


@dataclass(frozen=True)
class Readout:
    """A network of the layers found, read as if there were no more.

    Attributes
    ----------
    network : FeedforwardNetwork
        In the units of `DeepProbe`; what no signs explain stays as pairs of units that add up to a linear function.
    share : float
        Of the probe, those that the features explain.
    signed : float
        Of the probe, those that the network explains.
    doubt : ndarray of shape (m_L,)
        ``| |s| - 1 |`` of the last hidden layer.
    linear : ndarray of shape (m_{L-1}, r)
        Inner weights of the r pairs of units that stand for a linear part.
    plain : FeedforwardNetwork or None
        The network without these pairs, where there are some.
    """

    network: FeedforwardNetwork
    share: float
    signed: float
    doubt: np.ndarray
    linear: np.ndarray
    plain: FeedforwardNetwork | None = None


def hidden_outputs(layers, X, slope=0.0):
    """Outputs of the last of some ReLU or leaky ReLU layers.

    Parameters
    ----------
    layers : list of (ndarray, ndarray)
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m)
    """
    for W, b in layers:
        Z = X @ W + b
        X = np.maximum(Z, slope * Z)
    return X


def spread_points(probe, layers, n, rng, *, radii=_RADII):
    """Random points at several distances, and for every unit some of its rarer side.

    Parameters
    ----------
    probe : DeepProbe
    layers : list of (ndarray, ndarray)
    n : int
    rng : numpy.random.RandomState
    radii : tuple of float, default=(0.5, 1.0, 2.0, 3.0)
        Spreads of the points.

    Returns
    -------
    ndarray of shape (k, D)
        Points that may be asked.
    """

    def draw(k):
        X = rng.choice(radii, (k, 1)) * rng.standard_normal((k, probe.n_inputs))
        return probe.oracle.clip_to_range(X)

    X, pool = draw(n), draw(min(100_000, _POOL // probe.n_inputs) if layers else 0)
    H, rare = pool, []
    for W, b in layers:
        Z = H @ W + b
        H, on = np.maximum(Z, 0.0), Z > 0
        share = on.mean(axis=0)
        for k in np.flatnonzero(np.minimum(share, 1.0 - share) < _RARE):
            side = np.flatnonzero(on[:, k] == (share[k] < 0.5))
            rare.append(rng.permutation(side)[: int(1.5 * len(W)) + 4])
    return np.vstack([X, pool[np.concatenate(rare)]]) if rare else X


def read_out(probe, layers, weights, biases, rng, *, open_entries=None, slope=0.0):
    """Output weights, and the signs of the last hidden layer, from probe.

    On ``(|z_L|, h_{L-1}, 1)`` the probe are linear, and the part that is linear in h_{L-1} is
    ``sum_k s_k a_k w_k`` if ``a_k`` belongs to ``|z_k|``.

    Parameters
    ----------
    probe : DeepProbe
    layers : list of (ndarray, ndarray)
        Those before the last hidden one.
    weights, biases : ndarray of shape (m_{L-1}, m_L) and (m_L,)
        Of the last hidden layer, up to signs.
    rng : numpy.random.RandomState
    open_entries : ndarray of shape (m_{L-1}, m_L), default=None
        Not 0 where weights are not known: 1 where inputs were active on all kinks seen, -1 where they were silent on
        all of them; see `open_sides`.
    slope : float or None, default=0.0
        Of units that are not active; None where it is to be found, in the first layer.

    Returns
    -------
    Readout

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    ``3 (m_L + m_{L-1}) + 60`` queries, and half as many again as its weights for every unit that is rarely on
    one of its sides.
    """
    parts = _Parts.asked(probe, layers, weights, biases, open_entries, slope, rng)
    solution, share = parts.fit(probe)
    if share > _MOST:
        used = parts.used_units(probe, solution, share)
        if not used.all():
            parts = parts.of_units(used)
            solution, share = parts.fit(probe)
    K, before, H = len(parts.biases), len(weights), parts.H
    told = ~np.any(parts.open_entries != 0, axis=1)
    told = told if told.any() else ~told
    signs, doubt, slope = _signs(solution[:K], solution[K:-1][told], parts.weights[told], slope)
    weights = parts.filled(signs, solution[:K], solution[K:-1])
    W, b = weights * signs, parts.biases * signs
    on = H @ W + b
    on = np.maximum(on, slope * on)
    solution, signed = _robust(np.hstack([on, np.ones((len(H), 1))]), parts.F, parts.accuracy, probe)
    if signed >= share - 0.05:
        network = _network(layers, W, b, solution[:K], solution[-1], slope)
        return Readout(network, share, signed, doubt, np.zeros((before, 0)))
    plain = _network(layers, W, b, solution[:K], solution[-1], slope)
    solution, signed = _robust(np.hstack([on, H, np.ones((len(H), 1))]), parts.F, parts.accuracy, probe)
    linear, n_linear = _as_pairs(solution[K:-1] / (1.0 + slope))
    W, b = np.hstack([W, linear[0], -linear[0]]), np.concatenate([b, np.zeros(2 * n_linear)])
    out = np.vstack([solution[:K], linear[1], -linear[1]])
    return Readout(_network(layers, W, b, out, solution[-1], slope), share, signed, doubt, linear[0], plain)


@dataclass(frozen=True)
class _Parts:
    """DeepProbe F and their weights, outputs H of layer L - 1, sizes of pre-activations, and the units they are of.

    The sides of units whose weights are open, and outputs of layer L - 1 at more points, where there are such units.
    """

    weights: np.ndarray
    biases: np.ndarray
    open_entries: np.ndarray
    F: np.ndarray
    accuracy: np.ndarray
    H: np.ndarray
    sizes: np.ndarray
    sides: OpenSides | None
    pool: np.ndarray | None

    @classmethod
    def asked(cls, probe, layers, weights, biases, open_entries, slope, rng):
        """From questions at random points."""
        X = spread_points(probe, [*layers, (weights, biases)], 3 * sum(weights.shape) + 60, rng)
        X, F, accuracy = _precise(probe, X)
        H = hidden_outputs(layers, X, slope)
        Z = H @ weights + biases
        if open_entries is None or not np.any(open_entries):
            return cls(weights, biases, np.zeros(weights.shape), F, accuracy, H, np.abs(Z), None, None)
        points = spread_points(probe, [], min(_MOST_OPEN, _POOL // probe.n_inputs), rng)
        heights = hidden_outputs(layers[:-1], points, slope) @ layers[-1][0] + layers[-1][1]
        pool = np.maximum(heights, slope * heights)
        sides = open_sides(pool @ weights + biases, pool, heights, open_entries)
        signs = sides.of(Z, H)
        i = np.flatnonzero(np.all(signs != 0, axis=1))
        return cls(weights, biases, open_entries, F[i], accuracy[i], H[i], (Z * signs)[i], sides, pool)

    def of_units(self, units):
        """The same of some units."""
        columns = {name: getattr(self, name)[:, units] for name in ("weights", "open_entries", "sizes")}
        sides = None if self.sides is None else self.sides.take(units)
        return replace(self, biases=self.biases[units], sides=sides, **columns)

    def fit(self, probe):
        """Weights of the sizes, of the linear part and constants, and the share of the probe that they explain."""
        return _robust(np.hstack([self.sizes, self.H, np.ones((len(self.H), 1))]), self.F, self.accuracy, probe)

    def used_units(self, probe, solution, share):
        """Which units the probe need; of noisy ones, those without which fewer are explained."""
        K = len(self.biases)
        sizes = np.abs(solution[:K]).max(axis=1) * self.sizes.std(axis=0)
        used = sizes > _UNUSED * sizes.max()
        if probe.resolution > NOISY:
            for k in np.argsort(sizes)[: max(K - self.H.shape[1], 0) + 1]:
                without = used & (np.arange(K) != k)
                if without.any() and self.of_units(without).fit(probe)[1] >= share - _SAME:
                    used = without
        return used

    def filled(self, signs, outer, linear):
        """Weights, those that are open so that units keep to their sides."""
        if self.sides is None:
            return self.weights
        known = self.weights, self.biases, self.open_entries, self.sides
        return fill_open_weights(*known, signs, outer, linear, self.pool)


def _network(layers, W, b, out, constant, slope):
    weights, biases = [*(w for w, _ in layers), W, out], [*(b for _, b in layers), b, constant]
    return FeedforwardNetwork(weights, biases, leaky_relu(slope) if slope else "relu")


def _as_pairs(linear):
    """A linear map (m_{L-1}, m_L) as a product of inner directions and outer weights."""
    U, s, Vt = np.linalg.svd(linear, full_matrices=False)
    k = int(np.sum(s > _NOTHING * max(s[0], np.finfo(float).tiny)))
    return (U[:, :k], s[:k, None] * Vt[:k]), k


def _precise(probe, X):
    """The points with accurate probe, the probe, and weights."""
    F, tol = probe.query(X)
    good = np.isfinite(tol) & (
        tol <= 1e4 * max(np.median(tol[np.isfinite(tol)], axis=0) if np.isfinite(tol).any() else 1.0, 1.0)
    )
    return X[good], F[good], 1.0 / tol[good]


def _robust(A, F, weight, probe):
    """Weighted least squares that leaves out what does not fit, and the share of the probe that do."""
    size = np.maximum(np.linalg.norm(A, axis=0), 1e-300)
    A = A / size
    enough = max(_EXPLAINED / probe.resolution, _NOISES if probe.resolution > NOISY else _ROUNDINGS)
    w = weight.copy()
    for _ in range(24):
        check_deadline(_SVD * A.shape[0] * A.shape[1] ** 2)
        solution = np.linalg.lstsq(A * w[:, None], F * w[:, None], rcond=1e-11)[0]
        misfit = np.abs(A @ solution - F).max(axis=1) * weight
        if np.all(misfit < enough) or np.median(misfit) < 1e-4 * enough:
            break
        w = weight / np.sqrt(np.maximum(misfit, 1e-3 * np.median(misfit) + 1e-12))
    return solution / size[:, None], float(np.mean(misfit < enough))


def _signs(kinked, linear, weights, slope):
    """Signs (m_L,) for which outgoing weights (m_L, m_o) explain the linear part (m_{L-1}, m_o); doubts; slope."""
    sizes = np.abs(kinked).max(axis=1)
    matters = sizes > _NOTHING * sizes.max()
    M = np.concatenate([weights * column for column in kinked.T])
    target = linear.T.ravel()
    told = np.linalg.lstsq(M[:, matters], target, rcond=1e-9)[0]
    told, rho = over_ratio(told, np.ones(len(told), dtype=bool), slope)
    doubt = np.abs(np.abs(told) - 1.0)
    if doubt.max(initial=0.0) > 1e-3 and matters.sum() > len(target) and slope == 0.0:
        told = _search_signs(M[:, matters], target, told)
        doubt = np.abs(np.abs(told) - 1.0)
    signs = np.ones(len(matters))
    signs[matters] = np.where(told >= 0, 1.0, -1.0)
    certificate = np.zeros(len(matters))
    certificate[matters] = doubt
    return signs, certificate, (rho - 1.0) / (rho + 1.0)


def _search_signs(M, target, instead):
    """Signs where equations are too few to solve for them as numbers."""
    try:
        found = solve_signs(M, target, 1e-6 * np.abs(M).max(), max_solutions=16)
    except UndecidedSignsError:
        return instead
    if len(found) == 0:
        return instead
    return found[np.abs(found @ M.T - target).max(axis=1).argmin()].astype(float)
