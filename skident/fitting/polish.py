"""Polish: all weights and biases fitted to rounding error or noise, on queries where every unit is active."""

import numpy as np

from skident.budget import MemoryLimitError
from skident.budget.constants import EXACT_RESIDUAL, FTOL, MIN_DAMPING, ROUNDS, SUM_ROUNDING, TINY, UNIFORM
from skident.network import change_outputs, output_scaling
from skident.optim import give_up_when_slow
from skident.oracle import OutOfBudgetError, above_rounding

from .design import design_points, points_for_deep_units
from .errors_of_fit import FitSample
from .least_squares import minimize, weighted_problem
from .robust_polish import robust_polish
from .rounding import rounding_std

_CLOSE = 1e-4  # relative residual below which a slow iteration may still be converging
_IDLE_STEPS = 12  # steps without progress after which a fit that is not close is given up
_NOISE_FACTOR = 4.0  # of the residual that the noise leaves of a perfect fit: more is no noise
_NEAR = 0.1  # relative residual below which a start is so close that steps need little damping
_DAMPING = 1e-3  # the first one from afar
_DAMPING_NEAR = 1e-4  # times the relative squared residual of a close start
_NOISY_FTOL = 1e-5  # with noise the cost is about one per output: what is left to gain is less than one per parameter
_REPEAT_GAIN = 0.7  # part of the residual that each has to leave at most, or it is the last
NOISY_OUTPUTS = 10.0  # outputs per parameter with noise: errors fall with the root of their number (budget)
# Outputs per parameter in all rounds so far; spread and near of the new inputs. The last round is for noise only.
_ROUNDS = ((1.2, 0.5, 0.0), (1.5, 1.0, 0.5), (NOISY_OUTPUTS, 1.0, 0.5))
# More outputs where they cost little, or save many steps of conjugate gradients.
_GENEROUS_ROUNDS = ((1.75, 0.5, 0.0), (2.5, 1.0, 0.5), (NOISY_OUTPUTS, 1.0, 0.5))
_THOROUGH_ROUNDS = ((NOISY_OUTPUTS, 1.0, 0.5),)
_FRUGAL_PARAMETERS = range(600, 3001)  # numbers of parameters for which `_ROUNDS` suffice
# Larger networks whose residual on `_PROBE_QUERIES` is below `_ONE_ROUND_RESIDUAL` skip the first round.
_ONE_ROUND_RESIDUAL = 0.03
_PROBE_QUERIES = 40  # budget: an estimate of the residual to about 10 %
_ONE_ROUND = ((1.5, 1.0, 0.5), (NOISY_OUTPUTS, 1.0, 0.5))
# Outputs per parameter of the weighted polish, by the number of parameters up to which a step is fast (budget).
_WEIGHTED_OUTPUTS = ((1000, 20.0), (3000, 10.0), (np.inf, 4.0))
_WIDE = 8.0  # distance of its farthest typical points, in standard deviations: their outputs determine the most
_FACTOR_LIMIT = 12_000  # parameters up to which one matrix is factored: 1.2 GB, a minute


def polish_network(network, U, Y, *, max_iter=60, callback=None, noise=None, **options):
    """Minimize ``sum_np ((f_p(u_n) - Y_np) / sigma_p)^2`` over all weights and biases by Levenberg-Marquardt.

    U (n, D) and Y (n, m_L) hold 1.5 to 2 scalar outputs per parameter or more. `options` are those of
    `weighted_problem`; with `scaled_first`, the first weights are a diagonal matrix and stay one.
    ``callback(n_iter)`` is called after every step and may end the iteration with True. `noise` is the standard
    deviation of every output, the sigma above (scalar or (m_L,)), which makes this the maximum likelihood fit; the
    iteration then ends when steps are small beside the standard errors. None: sigma is 1, or the standard deviation of
    Y if the output is linear. Returns the network, its relative root mean square residual (relative to standard
    deviations if the output is linear) and the number of steps.

    From close starts the first damping is proportional to the squared residual, which gives quadratic convergence even
    if the parameters are not all determined (Yamashita and Fukushima, 2001).
    """
    # Outputs of different scales, or with a large offset, would be lost in each other's rounding.
    offset, scale = output_scaling(Y, network.output_activation)
    network, Y = change_outputs(network, -offset / scale, 1.0 / scale), (Y - offset) / scale
    sigma = above_rounding(None if noise is None else noise / scale, Y)
    noisy = sigma is not None
    weight = 1.0 if sigma is None else sigma.max() / sigma
    problem = weighted_problem(network, U, Y, weight, **{"factor_limit": _FACTOR_LIMIT, **options})
    total = max(float(np.sum(problem.Y**2)), TINY)
    close = _CLOSE**2 * total + (_NOISE_FACTOR * Y.size * sigma.max() ** 2 if noisy else 0.0)
    start = problem.flatten(network.weights, network.biases)
    slow, previous = give_up_when_slow(_IDLE_STEPS, close), [np.inf]

    def stop(n_iter, cost):
        settled = not noisy and cost < SUM_ROUNDING**2 * total and cost > 0.1 * previous[0]
        previous[0] = cost
        ended = callback is not None and callback(n_iter)
        return settled or slow(n_iter, cost) or bool(ended)

    result = minimize(
        problem,
        start,
        max_iter=max_iter,
        target=EXACT_RESIDUAL**2 * total,
        ftol=_NOISY_FTOL if noisy else FTOL,
        damping=_DAMPING if noisy else _first_damping(problem.cost(start), total),
        callback=stop,
    )
    weights, biases = problem.unflatten(result.x)
    polished = network.with_parameters(weights, biases)
    residual = np.linalg.norm(polished(U) - Y) / max(np.linalg.norm(Y), TINY)
    return change_outputs(polished, offset, scale), float(residual), result.n_iter


def _first_damping(cost, total):
    """For a start of this cost, where that of the outputs themselves is `total`."""
    return max(_DAMPING_NEAR * cost / total, MIN_DAMPING) if cost < _NEAR**2 * total else _DAMPING


def polish_from_oracle(oracle, network, rng, log, *, noise=None, thorough=False):
    """Polish a network of standardized inputs on queries near the center first, then where every unit is active.

    Returns the network, its relative root mean square residual in the last round, and the `FitSample` of that round
    (None before the first). Later rounds are left out if an earlier one failed, or when time, queries or memory are
    exhausted; the residual is infinite if that happens before the first round. With `noise`, the standard deviation of
    every output, the last round is a `robust_polish` with 4 to 20 outputs per parameter, weighted by their rounding.
    `thorough` queries 10 per parameter at once, for a network that agreed with fewer outputs only, as happens when most
    units of a deeper layer are saturated at most inputs.

    A shallow network with linear output starts in the second round: its start is good wherever its units are. Beyond
    3000 parameters, where rounds are expensive, a start of small residual has one round only.
    """
    samples, rounds, residual = _Samples(oracle), _THOROUGH_ROUNDS if thorough else _rounds(network), np.inf
    fitted = None
    if not thorough and network.n_parameters >= _FRUGAL_PARAMETERS.stop:
        with log.stage("polish", oracle) as entry:
            if not samples.query(_design(network, 1.0, 0.0, rng), _PROBE_QUERIES):
                return network, residual, fitted
            entry["residual"] = start = samples.residual(network)
        rounds = _ONE_ROUND if start < _ONE_ROUND_RESIDUAL else rounds
    outputs_per_query = oracle.n_independent_outputs(network.n_outputs)
    for outputs, spread, near in rounds:
        n = int(outputs * network.n_parameters / outputs_per_query) + oracle.n_inputs - len(samples.U)
        if outputs == NOISY_OUTPUTS and samples.Y is not None and above_rounding(noise, samples.Y) is None:
            break
        last = outputs == NOISY_OUTPUTS and not thorough
        with log.stage("polish", oracle) as entry:

            def progress(done, show=entry["progress"]):
                show(done)
                return oracle.budget.out_of_time

            if last:
                network, fitted, entry["residual"] = _weighted_polish(oracle, network, noise, rng, progress)
                residual = residual if fitted is None else entry["residual"]
                break
            draw = _thorough_design(network, rng) if thorough else _design(network, spread, near, rng)
            if not samples.query(draw, max(n, 0)):
                break
            repeats = ROUNDS if thorough else 0
            try:
                network, residual = _polish_repeatedly(network, samples, repeats, callback=progress, noise=noise)
            except MemoryLimitError as error:
                oracle.exhausted = str(error)
                break
            entry["residual"], fitted = residual, samples.as_fitted(noise)
        if residual > _CLOSE + _NOISE_FACTOR * samples.noise_residual(noise, network.output_activation):
            break
    return network, residual, fitted


def _weighted_polish(oracle, network, noise, rng, callback):
    """The network polished on new outputs of known standard deviations, their `FitSample` or None, and residual."""
    samples, P = _Samples(oracle), network.n_parameters
    outputs = next(factor for most, factor in _WEIGHTED_OUTPUTS if most >= P)
    n = int(outputs * P / oracle.n_independent_outputs(network.n_outputs)) + oracle.n_inputs
    near = _design(network, 1.0, 0.5, rng)

    def draw(n, factor):
        wide = rng.standard_normal((n - n // 2, oracle.n_inputs)) * _WIDE ** rng.uniform(size=(n - n // 2, 1))
        return oracle.representable(oracle.clip_to_range(np.concatenate([factor * wide, near(n // 2, factor)])))

    if not samples.query(draw, n):
        return network, None, np.inf
    std = _std_of(oracle, network, samples, noise)
    try:
        network = robust_polish(network, samples.U, samples.Y, std, callback=callback).network
    except MemoryLimitError as error:
        oracle.exhausted = str(error)
        return network, None, np.inf
    return network, FitSample(samples.U, samples.Y, std), samples.residual(network)


def _std_of(oracle, network, samples, noise):
    """Standard deviations (n, m_L) of the errors of outputs: equal for every input, of digits, or of logits."""
    of_logits = UNIFORM * samples.errors[:, None]
    if not oracle.precision.is_relative:
        return np.broadcast_to(np.where(of_logits > 0.0, of_logits, noise), samples.Y.shape)
    linear = network.output_activation == "identity"
    center, scale = (oracle.output_center, oracle.output_scale) if linear else (0.0, 1.0)
    own = change_outputs(network, center, scale) if linear else network
    computed = rounding_std(own, samples.U, center=oracle.center, scale=oracle.scale, eps=oracle.precision.computed_eps)
    stored = UNIFORM * oracle.precision.eps * np.abs(center + scale * samples.Y)
    return np.maximum(np.hypot(np.hypot(computed, stored) / scale, of_logits), TINY)


def _polish_repeatedly(network, samples, repeats, **options):
    """A network after one polish, and up to `repeats` more while they reduce the residual; that residual."""
    network, residual, _ = polish_network(network, samples.U, samples.Y, **options)
    for _ in range(repeats):
        before = residual
        network, residual, _ = polish_network(network, samples.U, samples.Y, **options)
        if residual > _REPEAT_GAIN * before:
            break
    return network, residual


class _Samples:
    """Queries so far, U (n, D), their outputs, Y (n, m_L) or None, and bounds of the errors of logits (n,), else 0."""

    def __init__(self, oracle):
        self.oracle = oracle
        self.U, self.Y, self.errors = np.empty((0, oracle.n_inputs)), None, np.empty(0)

    def query(self, draw, n):
        """Query n inputs more, drawn as `Oracle.query_precise` takes them; False if the budget does not allow it."""
        try:
            U, Y, errors = self.oracle.query_precise_with_errors(draw, n)
        except OutOfBudgetError as error:
            self.oracle.exhausted = str(error)
            return False
        self.U, self.Y = np.concatenate([self.U, U]), Y if self.Y is None else np.concatenate([self.Y, Y])
        self.errors = np.concatenate([self.errors, errors])
        return True

    def residual(self, network):
        """Relative root mean square residual; relative to the standard deviations if the output is linear."""
        offset, scale = output_scaling(self.Y, network.output_activation)
        error, total = np.linalg.norm((network(self.U) - self.Y) / scale), np.linalg.norm((self.Y - offset) / scale)
        return float(error) / max(float(total), TINY)

    def as_fitted(self, noise):
        """The `FitSample` of a fit to all of these, with the given noise."""
        return FitSample(self.U, self.Y, np.ones(1) if noise is None else np.asarray(noise, dtype=float))

    def noise_residual(self, noise, output_activation):
        """Relative root mean square residual that the noise leaves of a perfect fit."""
        offset, scale = output_scaling(self.Y, output_activation)
        Y = (self.Y - offset) / scale
        sigma = above_rounding(None if noise is None else noise / scale, Y)
        return 0.0 if sigma is None else float(np.sqrt(len(Y) * np.sum(sigma**2)) / np.linalg.norm(Y))


def _design(network, spread, near, rng):
    """`design_points` of the network's first layer, as `Oracle.query_precise` draws them."""
    W, b = network.weights[0], network.biases[0]
    return lambda n, factor: design_points(W, b, n, factor * spread, rng, near)


def _thorough_design(network, rng):
    """`design_points`, and as many points at which deeper units are active if there are any."""
    draw = _design(network, 1.0, 0.5, rng)
    if len(network.weights) < 3:
        return draw
    return lambda n, factor: np.concatenate([draw(n - n // 2, factor), points_for_deep_units(network, n // 2, rng)])


def _rounds(network):
    shallow = len(network.weights) == 2 and network.output_activation == "identity"
    rounds = _ROUNDS if network.n_parameters in _FRUGAL_PARAMETERS else _GENEROUS_ROUNDS
    return rounds[1:] if shallow else rounds
