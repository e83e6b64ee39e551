"""Norms, positions and activation of units whose hyperplanes are known, from outputs near the center."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import FTOL, RIDGE, ROUNDS
from skident.fitting.design import design_points
from skident.fitting.linear_units import reflection_slope, with_linear_units
from skident.fitting.polish import NOISY_OUTPUTS, polish_network
from skident.linalg import lapack
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import Activation, Architecture, FeedforwardNetwork, get_activation
from skident.optim import DenseNormalEquations, levenberg_marquardt
from skident.oracle import NotIdentified

from ..constants import NORM_SPREAD
from .profiles import limits_of

_STARTS = (0.3, 1.0, 3.0, 10.0)  # norms of units at the start, in pre-activations per standard deviation
_FIRST_STEPS = 10  # of every start, after which the best one goes on
_LAST_STEPS = 50  # of that one
_MAX_LOG_NORM = 12.0  # of norms: larger ones are diverging fits
_ROWS = 8  # points per unknown of one output
_MIN_POSITION_ERROR = 1e-3  # units are not ReLUs at the distance where positions are measured
_POLISH_STEPS = 40  # of the fit of all parameters (budget): from 1e-7, some five suffice
_POLISHES = 5  # in a row at most (budget): a single one gives up when it is slow
_UNEXPLAINED = 2.0  # residual over the outputs' errors from which units are missing; rounding leaves 0.6 to 1.8
_LESS = 0.7  # part of the residual that a network with one unit more may leave
_SIGN_TOLS = (1e-6, 1e-5, 1e-4, 1e-3)  # of the linear part, relative to its terms, tried in turn


@dataclass(frozen=True)
class _Start:
    """Units with known normals (D, m) and jumps (m, m_L), at points U (n, D) with outputs Y (n, m_L)."""

    normals: np.ndarray
    positions: np.ndarray
    position_errors: np.ndarray
    jumps: np.ndarray
    U: np.ndarray
    Y: np.ndarray


@dataclass(frozen=True)
class _NormFit:
    """Least squares in log norms, positions, shares of orientation, and a linear part.

    The outputs of a unit at distance h from its hyperplane are ``a (g(s h + l) - l) / s`` with its jump a, norm s and
    the left limit l of the activation g, in units of whose right slope both are, or ``a (g(-s h + l) - l) / s + a h``.
    Both are the same if the activation reflects to a line; else a share of each is fitted.
    """

    start: _Start
    g: Activation
    weights: np.ndarray | None = None
    center: np.ndarray | None = None

    def __post_init__(self):
        start = self.start
        object.__setattr__(self, "ends", limits_of(self.g))
        object.__setattr__(self, "reflects", bool(np.isclose(reflection_slope(self.g), 1.0)))
        object.__setattr__(self, "H", start.U @ start.normals)
        object.__setattr__(self, "Z", np.column_stack([start.U, np.ones(len(start.U))]))

    @property
    def m(self):
        """Number of units."""
        return len(self.start.positions)

    def first(self, norm):
        """Parameters for a norm of all units, with the linear part by least squares."""
        start, m = self.start, self.m
        shares = np.full(0 if self.reflects else m, 0.5)
        linear = np.zeros((self.Z.shape[1], start.Y.shape[1]))
        x = np.concatenate([np.full(m, np.log(norm)), start.positions, shares, linear.ravel()])
        linear = lapack.lstsq(self.Z, -self.residual(x), rcond=None)[0]
        return np.concatenate([x[: len(x) - linear.size], linear.ravel()])

    def split(self, x):
        """Norms (m,), positions (m,), shares (m,) of units oriented as the normals, linear part (D + 1, m_L)."""
        m, n_shares = self.m, 0 if self.reflects else self.m
        shares = x[2 * m : 2 * m + n_shares] if n_shares else np.ones(m)
        linear = x[2 * m + n_shares :].reshape(self.Z.shape[1], -1)
        return np.exp(np.clip(x[:m], -_MAX_LOG_NORM, _MAX_LOG_NORM)), x[m : 2 * m], shares, linear

    def _sides(self, norms, positions):
        """For both orientations: outputs of units without jump, their derivatives by log norm and position."""
        h, (low, rate) = self.H + positions, self.ends
        for side in (1.0,) if self.reflects else (1.0, -1.0):
            z = side * norms * h
            value, slope = (part / rate for part in self.g.jet(z + low, 1))
            value = (value - low) / norms
            yield value + (h if side < 0 else 0.0), slope * side * h - value, slope * side + (1.0 if side < 0 else 0.0)

    def residual(self, x):
        """(n, m_L)."""
        norms, positions, shares, linear = self.split(x)
        sides = [value for value, _, _ in self._sides(norms, positions)]
        units = shares * sides[0] + ((1.0 - shares) * sides[1] if len(sides) > 1 else 0.0)
        return units @ self.start.jumps + self.Z @ linear - self.start.Y

    def with_prior(self, x):
        """The same fit with log norms kept near those of x, the positions near the start: as far as residuals allow."""
        variance = self._squares(x) / self.start.Y.size
        weights = np.zeros(len(x))
        weights[: self.m] = variance / NORM_SPREAD**2
        weights[self.m : 2 * self.m] = variance / self.start.position_errors**2
        center = np.concatenate([np.full(self.m, np.median(x[: self.m])), self.start.positions])
        return replace(self, weights=weights, center=np.concatenate([center, np.zeros(len(x) - 2 * self.m)]))

    def _squares(self, x):
        return float(np.sum(self.residual(x) ** 2))

    def cost(self, x):
        """Sum of squares, those of the prior included."""
        return self._squares(x) + (0.0 if self.weights is None else float(self.weights @ (x - self.center) ** 2))

    def linearize(self, x):
        """The Gauss-Newton model."""
        norms, positions, shares, _ = self.split(x)
        sides = list(self._sides(norms, positions))
        weights = [shares, 1.0 - shares][: len(sides)]
        blocks = [sum(w * side[i] for w, side in zip(weights, sides)) for i in (1, 2)]
        if len(sides) > 1:
            blocks.append(sides[0][0] - sides[1][0])
        residual, p = self.residual(x), self.start.Y.shape[1]
        units = np.concatenate(blocks, axis=1)
        J = [
            np.column_stack([units * np.tile(self.start.jumps[:, k], len(blocks)), self._linear(k, p)])
            for k in range(p)
        ]
        A, g = sum(j.T @ j for j in J), sum(j.T @ residual[:, k] for k, j in enumerate(J))
        A.flat[:: len(A) + 1] += RIDGE * np.trace(A) / len(A)
        if self.weights is not None:
            A.flat[:: len(A) + 1] += self.weights
            g += self.weights * (x - self.center)
        return DenseNormalEquations(A, g)

    def _linear(self, k, p):
        """Columns of the linear part for output k of p."""
        block = np.zeros((len(self.Z), self.Z.shape[1], p))
        block[:, :, k] = self.Z
        return block.reshape(len(self.Z), -1)

    def network(self, x):
        """The network with linear units behind, see `with_linear_units`."""
        norms, positions, shares, linear = self.split(x)
        sides = np.where(shares >= 0.5, 1.0, -1.0)
        start, p = self.start, linear.shape[1]
        # Units of the other orientation leave a linear part.
        linear = linear + ((sides < 0) * np.vstack([start.normals, positions])) @ start.jumps
        low, rate = self.ends
        outgoing = start.jumps / norms[:, None] / rate
        constant = linear[-1] - low * rate * outgoing.sum(axis=0)
        weights = np.column_stack([start.normals * norms * sides, linear[:-1]]), np.vstack([outgoing, np.eye(p)])
        biases = np.concatenate([positions * norms * sides + low, np.zeros(p)]), constant
        activation = with_linear_units(Architecture((self.m, p), self.g, "identity")).activation
        return FeedforwardNetwork(weights, biases, activation, "identity")


def fit_near_center(oracle, units, names, std, rng):
    """A network of far units with the activation of `names` that fits best near the center, and whether it explains it.

    ``std`` (m_L,) is the standard deviation of the outputs' errors. Raises NotIdentified if the signs of the units are
    undetermined.
    """
    U = design_points(units.normals.T, units.positions, _ROWS * (3 * len(units) + oracle.n_inputs + 1), 1.0, rng)
    U = oracle.representable(U)
    Y = oracle(U)
    _, x, fit = min((_best_norms(units, U, Y, name) for name in names), key=lambda found: found[0])
    network = fit.network(x)
    n = int(NOISY_OUTPUTS * network.n_parameters / network.n_outputs)
    U = oracle.representable(design_points(units.normals.T, units.positions, n, 1.0, rng))
    network, residual = _fitted(network, U, oracle(U), std, oracle)
    return _without_linear_units(network, fit), residual < _UNEXPLAINED


def _best_norms(units, U, Y, name):
    """Relative residual, parameters and `_NormFit` of an activation: the best of several starts."""
    scale = np.std(Y, axis=0)
    errors = np.maximum(units.position_errors, _MIN_POSITION_ERROR)
    start = _Start(units.normals.T, units.positions, errors, units.jumps / scale, U, Y / scale)
    fit = _NormFit(start, get_activation(name))
    starts = [_minimized(fit.with_prior(x), x, _FIRST_STEPS) for x in map(fit.first, _STARTS)]
    x = min(starts, key=lambda r: r.cost).x
    for _ in range(ROUNDS):
        x = _minimized(fit.with_prior(x), x, _FIRST_STEPS).x
    result = _minimized(fit, x, _LAST_STEPS)
    x = result.x.copy()
    x[-fit.Z.shape[1] * len(scale) :] *= np.tile(scale, fit.Z.shape[1])
    fit = replace(fit, start=replace(start, jumps=units.jumps, Y=Y))
    return np.sqrt(result.cost / Y.size), x, fit


def _minimized(fit, x, max_iter):
    with np.errstate(over="ignore", invalid="ignore"):
        return levenberg_marquardt(fit.cost, fit.linearize, x, max_iter=max_iter, ftol=FTOL)


def _fitted(network, U, Y, std, oracle):
    """A network after a polish, and its root mean square residual over the outputs' errors."""
    stop = lambda _: oracle.budget.out_of_time  # noqa: E731
    residual, std_of = np.inf, oracle.accuracy.std_of(U, Y)
    for _ in range(_POLISHES):
        network = polish_network(network, U, Y, max_iter=_POLISH_STEPS, noise=std, callback=stop)[0]
        before, residual = residual, float(np.sqrt(np.mean(((network(U) - Y) / std_of) ** 2)))
        if residual < _UNEXPLAINED or residual > _LESS * before:
            break
    return network, residual


def _without_linear_units(network, fit):
    """The network whose units are reflected so that no linear part remains."""
    (W, A), (b, c) = network.weights, network.biases
    p = A.shape[1]
    linear, offset = W[:, -p:] @ A[-p:], b[-p:] @ A[-p:]
    W, b, A = W[:, :-p], b[:-p], A[:-p]
    signs = np.ones(len(b))
    if fit.reflects:  # v g(-z) = v g(z) - v z
        terms = np.einsum("im,mp->ipm", W, A).reshape(-1, len(b))
        signs = _signs(terms, terms.sum(axis=1) + 2.0 * linear.ravel())
    biases = [b * signs, c + offset + (b * (signs < 0)) @ A]
    return FeedforwardNetwork([W * signs, A], biases, fit.g.name, "identity")


def _signs(terms, target):
    """Signs (m,) with ``terms @ signs = target``, as nearly as errors of outputs allow."""
    for tol in _SIGN_TOLS:
        try:
            signs = solve_signs(terms, target, tol * np.abs(terms).max() * np.sqrt(terms.shape[1]))
        except UndecidedSignsError:
            continue
        if len(signs):
            return signs[np.argmin(np.linalg.norm(signs @ terms.T - target, axis=1))].astype(float)
    raise NotIdentified(
        "profiles",
        "signs",
        f"{terms.shape[1]} units were detected, but the linear part does not determine their signs.",
    )
