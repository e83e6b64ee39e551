"""The cube of first-layer outputs: points of its faces, edges and vertices, where all other units are saturated."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erfinv

from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.network.activations import Activation
from skident.oracle import Accuracy

from ..constants import VERY_FAR

# Pre-activation beyond which the activation is constant in float64: 2 exp(-2 * 21) and erfc(6.5) are below 2^-53.
SATURATED = {"tanh": 21.0, "sigmoid": 42.0, "erf": 6.5}
_ROUNDING = 2.0**-53  # distance of saturated outputs from their limits (rounding)
_INVERSES = {"tanh": np.arctanh, "sigmoid": lambda y: 2.0 * np.arctanh(y), "erf": erfinv}  # of outputs in (-1, 1)
_MARGIN = 60.0  # pre-activation of saturated units on faces, by norms that may be wrong by a third
_RAYS = 4000  # random rays per face (budget); no queries
_RAYS_PER_VERTEX = 6  # rays per vertex: many reach the same one
_FEW_VERTICES = 4.0  # vertices per point below which half of the levels lie between saturation and 0
_LEVEL = 1.5  # standard deviation of these levels
_RAYS_OF_ONE_UNIT = 400  # budget of rays along one unit's hyperplane
_NEAREST_QUANTILE = 0.25  # of these rays, by the distance where all other units saturate; leaves 100 to choose from


def preactivations_of(g, outputs):
    """Pre-activations at which a unit's outputs, mapped from their limits to [-1, 1], are these."""
    return _INVERSES[g.name](np.clip(outputs, _ROUNDING - 1.0, 1.0 - _ROUNDING))


def outputs_of(g, preactivations):
    """Outputs of a unit, mapped from their limits to [-1, 1]."""
    low, high = g.limits
    return (2.0 * g(preactivations) - low - high) / (high - low)


def saturated(activation, noise):
    """Pre-activation beyond which a tanh or sigmoid unit is constant up to noise relative to the outputs."""
    of_tanh = 0.5 * np.log(2.0 / noise) if noise > 0 else np.inf
    return min(SATURATED[activation], of_tanh * SATURATED[activation] / SATURATED["tanh"])


def saturating_rays(weights, biases, fixed, margin, n_rays, rng):
    """The foot (D,) of units `fixed` and random unit vectors (n, D) that leave these unchanged.

    Also the steps (n,) beyond which all other units have ``|z| >= margin``, and their signs (n, m - k).
    """
    others = np.setdiff1d(np.arange(weights.shape[1]), fixed)
    base = -biases[fixed] @ lapack.pinv(weights[:, fixed]) if len(fixed) else np.zeros(len(weights))
    along = lapack.qr(weights[:, fixed], mode="complete")[0][:, len(fixed) :]
    d = along.shape[1]
    rays = np.array([[1.0], [-1.0]])[:, :d] if d < 2 else rng.standard_normal((n_rays, d))
    rays = (rays / np.linalg.norm(rays, axis=1, keepdims=True)) @ along.T if d else np.zeros((0, len(weights)))
    levels, rates = base @ weights[:, others] + biases[others], rays @ weights[:, others]
    signs = np.sign(rates)
    with np.errstate(divide="ignore"):
        steps = np.max((margin - signs * levels) / np.abs(rates), axis=1, initial=0.0)
    return base, rays, steps, signs


def rays_of_one_unit(weights, biases, unit, n_rays, rng, *, margin, farthest):
    """Up to `n_rays` rays along a unit's hyperplane: its foot (D,), unit vectors (n, D), distances (n,).

    Beyond its distance from the foot, all other units on a ray have ``|z| >= margin``.
    """
    base, rays, steps, _ = saturating_rays(weights, biases, np.array([unit]), margin, _RAYS_OF_ONE_UNIT, rng)
    near = np.flatnonzero(steps <= min(np.quantile(steps, _NEAREST_QUANTILE), farthest))
    chosen = near[rng.permutation(len(near))[:n_rays]]
    return base, rays[chosen], steps[chosen]


@dataclass(frozen=True)
class Face:
    """Points (n, D) where the units `free` (k,) are at z = 0, and all units at Z (n, m).

    The inputs change by ``t @ moves`` if free pre-activations change by t (k,).
    """

    free: np.ndarray
    points: np.ndarray
    moves: np.ndarray
    Z: np.ndarray

    def __getitem__(self, rows):
        """The face at some of its points."""
        return Face(self.free, self.points[rows], self.moves, self.Z[rows])

    def at_levels(self, levels):
        """The face at other pre-activations (n, k) of the free units, its points in turn."""
        face = self[np.arange(len(levels)) % len(self.points)]
        face.Z[:, self.free] = levels
        return replace(face, points=face.points + levels @ self.moves)


@dataclass(frozen=True)
class Cube:
    """A black box behind first-layer units of known directions and roughly known norms and biases.

    `query` maps points (n, D) to outputs (n, P); weights (D, m), biases (m,), the activation `g` has limits. `farthest`
    bounds the distance of queries from the origin. `accuracy` is that of the outputs, None if they are exact;
    `representable` maps points to the nearest ones that the black box represents exactly.
    """

    query: Callable
    weights: np.ndarray
    biases: np.ndarray
    g: Activation
    n_outputs: int
    rng: np.random.RandomState
    farthest: float = VERY_FAR
    accuracy: Accuracy | None = None
    representable: Callable = np.asarray

    @property
    def shape(self):
        """``(D, m)``."""
        return self.weights.shape

    def rescaled(self, factors, shifts):
        """The cube with other norms and biases of its units: pre-activations become ``factors z + shifts``."""
        return replace(self, weights=self.weights * factors, biases=self.biases * factors + shifts)

    def at(self, X):
        """Outputs (..., P) at points X (..., D)."""
        return self.query(X.reshape(-1, X.shape[-1])).reshape(*X.shape[:-1], self.n_outputs)

    def face(self, free, n, n_rays=_RAYS, between=True):
        """The `Face` of units `free`, of at most n points with different signs of the other units, the nearest ones.

        With m <= D all pre-activations are chosen. Where there are few signs, half of them lie `between`.
        """
        free, (D, m) = np.asarray(free, dtype=int), self.shape
        others = np.setdiff1d(np.arange(m), free)
        if m <= D:
            return self._free_face(free, others, n, between)
        base, rays, steps, signs = saturating_rays(self.weights, self.biases, free, _MARGIN, n_rays, self.rng)
        order = np.argsort(steps)
        order = order[steps[order] < self.farthest]
        first = np.sort(np.unique(np.packbits(signs[order] > 0, axis=1), axis=0, return_index=True)[1])
        chosen = order[first][:n]
        Z = np.zeros((len(chosen), m))
        Z[:, others] = _MARGIN * signs[chosen]
        moves = lapack.pinv(self.weights[:, free]) if len(free) else np.zeros((0, D))
        return Face(free, base + steps[chosen, None] * rays[chosen], moves, Z)

    def _free_face(self, free, others, n, between):
        """The face if all pre-activations are free: other units do not move, so that they need not be saturated."""
        Z = np.zeros((n, self.shape[1]))
        levels = _MARGIN * self.rng.choice([-1.0, 1.0], (n, len(others)))
        if between and len(free) and 2.0 ** len(others) < _FEW_VERTICES * n:
            drawn = _LEVEL * self.rng.standard_normal(levels.shape)
            levels = np.where(self.rng.uniform(size=levels.shape) < 0.5, levels, drawn)
            repeated = np.setdiff1d(np.arange(n), np.unique(levels, axis=0, return_index=True)[1])
            levels[repeated] = drawn[repeated]
        Z[:, others] = levels
        inverse = lapack.pinv(self.weights)
        return Face(free, (Z - self.biases) @ inverse, inverse[free], Z)

    def vertices(self, n):
        """First-layer outputs (k, m) at up to n different vertices, and outputs (k, P) there."""
        face = self.face([], n, _RAYS_PER_VERTEX * n + _RAYS)
        some = np.sort(np.unique(face.Z > 0, axis=0, return_index=True)[1])
        low, high = self.g.limits
        return np.where(face.Z[some] > 0, high, low), self.at(face.points[some])


@dataclass(frozen=True)
class RecoveredNetwork:
    """A network and its relative residual on vertices."""

    network: FeedforwardNetwork
    residual: float
