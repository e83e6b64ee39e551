"""Network completion: scales and biases from projections on the entangled weights, from several starts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skident.budget import check_deadline
from skident.budget import chunk_bytes as default_chunk_bytes
from skident.fitting.linear_units import reflection_slope
from skident.linalg import column_units, lapack
from skident.network import Architecture
from skident.network.calculus import forward, forward_jets, output_sensitivities
from skident.optim import DenseNormalEquations, SeparableProblem, best_of, levenberg_marquardt
from skident.oracle import NotIdentified

FTOL = 1e-6  # relative decrease of the cost that ends a completion: the polish that follows converges faster
_NAMES = {"T": "scales", "tau": "biases", "R": "rescales"}  # of the kinds of parameters


def mixing_matrices(blocks):
    """``C_l = V_l^+ V_{l+1}`` (m_l, m_{l+1}) by least squares between adjacent blocks ``Z_l = X V_l`` (n, m_l).

    ``V_{l+1} = V_l C_l`` (eq. (11)) gives ``Z_{l+1} = Z_l C_l``. The features are centered first.
    """
    mixings = []
    for left, right in zip(blocks[:-1], blocks[1:], strict=True):
        if len(left) <= left.shape[1]:
            raise ValueError(
                f"{len(left)} samples do not determine how {left.shape[1]} features mix into the next layer's; "
                f"at least {left.shape[1] + 1} are needed. Give more rows of X."
            )
        left, right = left - left.mean(axis=0), right - right.mean(axis=0)
        mixings.append(lapack.lstsq(left, right, rcond=None)[0])
    return mixings


@dataclass(frozen=True)
class CompletionProblem:
    """Eq. (18) in the features: which numbers are fixed, and which are the P parameters.

    The network is ``y_1 = g(T_1 z + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})`` with diagonal T, R;
    tau are the biases (the paper's shifts). `mixings` are the fixed C_l (m_l, m_{l+1}): L - 1 of them; or L - 2, and
    then the last layer's weights are all free instead of ``R_{L-1} C_{L-1} T_L``.
    """

    architecture: Architecture
    mixings: list[np.ndarray]

    @property
    def widths(self):
        """``(m_1, ..., m_L)``."""
        return self.architecture.widths

    @cached_property
    def activations(self):
        """One `Activation` per layer."""
        return self.architecture.activations

    @property
    def free_readout(self):
        """Whether the last layer's weights are all free."""
        return len(self.mixings) == len(self.widths) - 2

    @cached_property
    def slices(self):
        """Slices of the parameter vector by ``(kind, layer)``: T, tau, R (layer by layer) and W, the free readout."""
        sizes, L = {}, len(self.widths)
        for layer, m in enumerate(self.widths):
            if layer < L - 1 or not self.free_readout:
                sizes["T", layer] = m
            sizes["tau", layer] = m
            if layer < len(self.mixings):
                sizes["R", layer] = m
        if self.free_readout:
            sizes["W", L - 1] = self.widths[-2] * self.widths[-1]
        ends = np.cumsum(list(sizes.values()))
        return {key: slice(int(end) - size, int(end)) for (key, size), end in zip(sizes.items(), ends)}

    @cached_property
    def n_parameters(self):
        """P."""
        return max(where.stop for where in self.slices.values())

    def initial(self, scales=None, biases=None, output_scales=None):
        """Parameters (P,) of the paper's start ``T = R = 1, tau = 0``, but for what is given.

        First-layer scales and biases (m_1,); `output_scales`, per layer (m_l,), are the factors of y_l in the features:
        ``R_l = output_scales_l``, ``T_l = 1 / output_scales_l``.
        """
        params = np.zeros(self.n_parameters)
        for (kind, layer), where in self.slices.items():
            params[where] = 1.0 if kind in "TR" else 0.0
            if output_scales is not None and kind in "TR" and layer < len(output_scales):
                params[where] = output_scales[layer] if kind == "R" else 1.0 / output_scales[layer]
        if scales is not None:
            params[self.slices["T", 0]] = scales
        if biases is not None:
            params[self.slices["tau", 0]] = biases
        return params

    def with_readout(self, params, Z, Y):
        """The parameters (P,) with a free readout set by least squares, features Z (n, m_1) and outputs Y (n, m_L)."""
        if not self.free_readout:
            return params
        weights, biases = self.layers(params)
        y = forward(weights[:-1], biases[:-1], self.activations[:-1], Z)
        solution = lapack.lstsq(np.hstack([y, np.ones((len(y), 1))]), Y, rcond=None)[0]
        params = params.copy()
        params[self.slices["W", len(self.widths) - 1]] = solution[:-1].ravel()
        params[self.slices["tau", len(self.widths) - 1]] = solution[-1]
        return params

    def to_lists(self, params):
        """The parameters layer by layer: "scales", "biases", "rescales", and "readout" (m_{L-1}, m_L) if it is free."""
        lists = {name: [params[w] for (kind, _), w in self.slices.items() if kind == k] for k, name in _NAMES.items()}
        if self.free_readout:
            lists["readout"] = params[self.slices["W", len(self.widths) - 1]].reshape(self.widths[-2:])
        return lists

    def from_lists(self, lists):
        """The inverse of `to_lists`."""
        params = np.zeros(self.n_parameters)
        for (kind, layer), where in self.slices.items():
            params[where] = np.ravel(lists["readout"]) if kind == "W" else lists[_NAMES[kind]][layer]
        return params

    def layers(self, params):
        """Weights (m_{l-1}, m_l), the first diagonal, and biases (m_l,) of the network on the first block."""
        L = len(self.widths)
        biases = [params[self.slices["tau", layer]] for layer in range(L)]
        weights = [np.diag(params[self.slices["T", 0]])]
        for layer, C in enumerate(self.mixings):
            weights.append(params[self.slices["R", layer]][:, None] * C * params[self.slices["T", layer + 1]])
        if self.free_readout:
            weights.append(params[self.slices["W", L - 1]].reshape(self.widths[-2], self.widths[-1]))
        return weights, biases

    def residual(self, params, Z, Y):
        """``f(z_n; params) - y_n`` (n, m_L); not finite if the network overflows."""
        weights, biases = self.layers(params)
        y = Z
        with np.errstate(over="ignore", invalid="ignore"):
            for W, b, g in zip(weights, biases, self.activations, strict=True):
                y = g(y @ W + b)
        return y - Y

    def normal_equations(self, params, Z, Y, chunk_bytes=None):
        """``J^T J`` (P, P) and ``J^T r`` (P,) of the residual r, over chunks of samples with `chunk_bytes` of J."""
        A, g = np.zeros((self.n_parameters,) * 2), np.zeros(self.n_parameters)
        chunk_bytes = chunk_bytes or default_chunk_bytes()
        n = max(1, chunk_bytes // (8 * (self.n_parameters + max(self.widths)) * self.widths[-1]))
        for first in range(0, len(Z), n):
            J, r = self._jacobian(params, Z[first : first + n], Y[first : first + n])
            A += J.T @ J
            g += J.T @ r
        return A, g

    def _jacobian(self, params, Z, Y):
        """Jacobian (n m_L, P) and residual (n m_L,)."""
        weights, biases = self.layers(params)
        inputs, jets = forward_jets(weights, biases, self.activations, Z, order=1)
        B, _ = output_sensitivities(weights, jets)
        n, m_out = Y.shape
        J = np.zeros((n, m_out, self.n_parameters))
        J[:, :, self.slices["T", 0]] = B[0] * Z[:, None, :]
        for layer in range(len(self.widths)):
            J[:, :, self.slices["tau", layer]] = B[layer]
        for layer, C in enumerate(self.mixings):
            R, T = params[self.slices["R", layer]], params[self.slices["T", layer + 1]]
            y = inputs[layer + 1]
            J[:, :, self.slices["T", layer + 1]] = B[layer + 1] * ((y * R) @ C)[:, None, :]
            back = (B[layer + 1] * T).reshape(n * m_out, -1) @ C.T
            J[:, :, self.slices["R", layer]] = back.reshape(n, m_out, -1) * y[:, None, :]
        if self.free_readout:
            outer = inputs[-1][:, None, :, None] * B[-1][:, :, None, :]
            J[:, :, self.slices["W", len(self.widths) - 1]] = outer.reshape(n, m_out, -1)
        return J.reshape(n * m_out, -1), (jets[-1][0] - Y).ravel()


def solve_completion(problem, Z, Y, params, *, max_iter=200, tol=1e-14):
    """Levenberg-Marquardt on eq. (18) from `params` (P,) to a relative residual `tol`; ``O(n m_L P^2)`` per step."""
    return levenberg_marquardt(
        lambda w: float(np.sum(problem.residual(w, Z, Y) ** 2)),
        lambda w: DenseNormalEquations(*problem.normal_equations(w, Z, Y)),
        params,
        max_iter=max_iter,
        target=tol**2 * float(np.sum(Y**2)),
        ftol=FTOL,
    )


# Relative residual below which a start has ended in the right valley. Entangled weights of deeper networks are
# approximate, and so is their best residual; the directions of one hidden layer are exact.
_GOOD_RESIDUAL = 1e-2
_GOOD_RESIDUAL_ONE_LAYER = 1e-6  # `_GOOD_RESIDUAL` for one hidden layer
_SPREAD_ONE_LAYER = 0.5  # standard deviation of the starts' pre-activations: units far from linear, none saturated


@dataclass(frozen=True)
class Completed:
    """A solution of eq. (18): weights (m_{l-1}, m_l), the first diagonal, and biases (m_l,), on the features as given.

    `history` is the objective step by step, `stopped` whether it ended for lack of steps, `residual` the relative root
    mean square at the end, in the units of the search.
    """

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    history: list[float]
    n_iter: int
    stopped: bool = False
    residual: float | None = None


def _has_one_hidden_layer(problem):
    """Whether the outputs are free linear combinations of one hidden layer: variable projection solves that."""
    return problem.free_readout and len(problem.widths) == 2 and problem.activations[-1].name == "identity"


def completion_starts(problem, blocks, given, n_starts, rng):
    """Starts (scales (m_1,), biases (m_1,), output scales per block or None) for features (n, m_l) in `blocks`.

    The given start (scales, biases), or else the paper's ``T = R = 1, tau = 0`` (not for one hidden layer); then
    centered pre-activations of unit variance; then the same with random scales. `n_starts` in all.
    """
    m, one_layer = problem.widths[0], _has_one_hidden_layer(problem)
    if given is not None:
        yield *given, None
    elif not one_layer:
        yield np.ones(m), np.zeros(m), None
    stds = [column_units(Z)[1] for Z in blocks]
    for k in range(n_starts - (given is not None or not one_layer)):
        check_deadline()
        factors = 1.0 if k == 0 else np.exp(rng.standard_normal(m))
        scales = (_SPREAD_ONE_LAYER if one_layer else 1.0) / stds[0] * factors
        yield scales, -scales * blocks[0].mean(axis=0), [1.0 / scales, *stds[1:]]


def best_completion(problem, Z, Y, starts, *, max_iter, tol, log):
    """The best `Completed` of several starts by Levenberg-Marquardt, until one ends with a small residual.

    Features Z (n, m_1) of the first block, outputs Y (n, m_L); `max_iter` steps per start, which stops at the relative
    residual `tol`. Raises NotIdentified if no start gives finite outputs.
    """
    units = _Units.of(problem, Z, Y)
    U, V = units.standardized(Z, Y)
    total = max(np.sum(V**2), np.finfo(float).tiny)
    good = max(_GOOD_RESIDUAL_ONE_LAYER if _has_one_hidden_layer(problem) else _GOOD_RESIDUAL, 2.0 * tol)

    def solutions():
        for scales, biases, output_scales in starts:
            start = scales * units.std, biases + scales * units.mean, output_scales
            weights, biases, result = _solve(problem, U, V, start, max_iter, tol)
            log.say(f"{result.n_iter} steps, relative residual {np.sqrt(result.cost / total):.2e}")
            yield weights, biases, result

    (weights, biases, result), _ = best_of(
        solutions(),
        cost=lambda solution: solution[2].cost,
        enough=lambda costs: np.sqrt(costs[-1] / total) < good,
    )
    if not np.isfinite(result.cost):
        raise NotIdentified("completion", "diverged", "no start gives finite outputs; scale the features.")
    residual, stopped = float(np.sqrt(result.cost / total)), result.status == "max_iter" and result.n_iter >= max_iter
    return Completed(*units.undo(weights, biases), result.history, max(1, result.n_iter), stopped, residual)


def _solve(problem, U, V, start, max_iter, tol):
    """Weights, biases and the solver's result from one start."""
    scales, biases, output_scales = start
    if _has_one_hidden_layer(problem):
        return fit_hidden_layer(U, V, problem.activations[0], scales, biases, max_iter=max_iter, tol=tol)
    params = problem.with_readout(problem.initial(scales, biases, output_scales), U, V)
    result = solve_completion(problem, U, V, params, max_iter=max_iter, tol=tol)
    return *problem.layers(result.x), result


def fit_hidden_layer(Z, Y, activation, scales, biases, *, max_iter=200, tol=1e-14):
    """Weights, biases and solver's result of one hidden layer on features Z (n, m), linear outputs Y (n, m_L).

    Minimizes ``min_c sum_n ||y_n - c_0 - sum_i c_i g(a_i z_ni + b_i)||^2`` over scales a and biases b by variable
    projection. Directions have no sign, but softplus, gelu, silu and relu units do: ``g(z) - g(-z) = z``. For them a
    first round has the features themselves as columns too, which absorb the lines of wrong signs; then signs are
    corrected. `tol` is relative to the standard deviation of Y.
    """
    m, fixed = Z.shape[1], np.ones((len(Z), 1))
    target = tol**2 * float(np.sum((Y - Y.mean(axis=0)) ** 2))

    def separable(fixed):
        def columns(x):
            value, slope = activation.jet(Z * x[:m] + x[m:], 1)[:2]
            return np.hstack([fixed, value]), np.hstack([slope * Z, slope])

        return SeparableProblem(columns, Y, np.tile(fixed.shape[1] + np.arange(m), 2))

    def minimized(problem, start):
        options = {"max_iter": max_iter, "target": target, "ftol": FTOL}
        return levenberg_marquardt(problem.cost, problem.linearize, start, **options)

    x = np.concatenate([scales, biases])
    if np.isclose(reflection_slope(activation), 1.0):
        problem = separable(np.hstack([fixed, Z]))
        x = minimized(problem, x).x
        x = _without_reflections(x, problem.fit(x).coefficients, m)
    problem = separable(fixed)
    result = minimized(problem, x)
    coefficients = problem.fit(result.x).coefficients
    return [np.diag(result.x[:m]), coefficients[1:]], [result.x[m:], coefficients[0]], result


def _without_reflections(x, coefficients, m):
    """The same units, reflected if that removes their line ``-a c z`` from the coefficients of (1, Z, units)."""
    line, c = coefficients[1 : 1 + m], coefficients[1 + m :]
    reflected = np.linalg.norm(line + x[:m, None] * c, axis=1) < np.linalg.norm(line, axis=1)
    return x * np.tile(np.where(reflected, -1.0, 1.0), 2)


@dataclass(frozen=True)
class _Units:
    """Mean and standard deviation of every feature of the first block, and of every output."""

    mean: np.ndarray
    std: np.ndarray
    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, problem, Z, Y):
        # A linear last layer absorbs any offset and scale, but starts have outputs of order one.
        linear = problem.activations[-1].name == "identity"
        return cls(*column_units(Z), *(column_units(Y) if linear else (0.0, 1.0)))

    def standardized(self, Z, Y):
        return (Z - self.mean) / self.std, (Y - self.offset) / self.scale

    def undo(self, weights, biases):
        """Weights and biases of the network on features and outputs as given."""
        first = weights[0] / self.std[:, None]
        weights, biases = [first, *weights[1:]], [biases[0] - self.mean @ first, *biases[1:]]
        return [*weights[:-1], weights[-1] * self.scale], [*biases[:-1], biases[-1] * self.scale + self.offset]
