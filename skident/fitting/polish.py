"""The last step: all weights and shifts fitted to rounding error or noise, on inputs where every unit can be seen."""

from __future__ import annotations

import numpy as np

from skident.budget import MemoryLimitError
from skident.network import change_outputs, output_units
from skident.optim import give_up_when_slow
from skident.oracle import OutOfBudgetError, above_rounding

from .design import design_points, points_for_deep_units
from .least_squares import minimise, weighted_problem

__all__ = ["NOISY_ANSWERS", "polish_from_oracle", "polish_network"]

_AGAIN, _GAINED = 4, 0.7  # polishes more of a thorough one, and the part of the misfit that the last one leaves
_CLOSE = 1e-4  # relative misfit below which a slow iteration may still be converging
_EXACT = 1e-15  # relative misfit that leaves nothing to gain
_SETTLED = 1e-13  # below it, a step that does not gain a factor of ten is rounding
_NEAR = 0.1  # relative misfit below which a start is so close that steps need little damping
_DAMPING, _LITTLE, _LEAST = 1e-3, 1e-4, 1e-10  # the first one from afar; of a close start's squared misfit; at least
NOISY_ANSWERS = 10.0  # a parameter
# Answers a parameter in all rounds so far; spread and near of the fresh inputs. The last round is for noise only.
_ROUNDS = ((1.2, 0.5, 0.0), (1.5, 1.0, 0.5), (NOISY_ANSWERS, 1.0, 0.5))
# More where they cost little, or save conjugate gradients many steps.
_GENEROUS = ((1.75, 0.5, 0.0), (2.5, 1.0, 0.5), (NOISY_ANSWERS, 1.0, 0.5))
_THOROUGH = ((NOISY_ANSWERS, 1.0, 0.5),)
_FRUGAL = range(600, 3001)  # numbers of parameters
# Beyond them a start that misses rows of the last but one kind by less than this has them straight away.
_STRAIGHT, _PROBED = 0.03, 40
_STRAIGHT_ROUNDS = ((1.5, 1.0, 0.5), (NOISY_ANSWERS, 1.0, 0.5))
_NOISY_FTOL = 1e-5  # of a cost of about one an answer: what is left to gain is small beside one a parameter


def polish_network(network, U, Y, *, max_iter=60, dense_limit=3000, factor_limit=8000, callback=None, noise=None):
    """Levenberg-Marquardt on all weights and shifts: ``sum_np ((f_p(u_n) - Y_np) / sigma_p)^2`` is minimised.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
        About 1.5 to 2 scalar answers a parameter or more.
    max_iter : int, default=60
    dense_limit, factor_limit : int, default=3000, 8000
        See `NetworkLeastSquares`: beyond the first, one factorisation for several steps; beyond both, conjugate
        gradients with one preconditioner block a unit.
    callback : callable, default=None
        ``callback(n_iter)`` after every step; True ends the iteration. Long steps end with the time of a
        `skident.budget.time_limit`.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute: the sigma above, which makes the fit the maximum
        likelihood one for Gaussian noise. The iteration then ends at the minimum, where the parameters' steps are small
        beside their standard errors, and not at a relative misfit of 1e-15. None: sigma is 1 or, where the output is
        linear, the standard deviation of the answers.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit on (U, Y); relative to the standard deviations of Y where the output is linear.
    n_iter : int

    Notes
    -----
    From close starts the first damping is in proportion to the squared misfit, which is enough for quadratic
    convergence, also where the parameters are not all determined (Yamashita and Fukushima, 2001).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.fitting.polish import polish_network
    >>> truth = make_network((4, 3, 2), random_state=0)
    >>> rough = FeedforwardNetwork([W + 0.01 for W in truth.weights], truth.biases, "tanh", "tanh")
    >>> U = np.random.default_rng(0).standard_normal((60, 4))
    >>> _, misfit, _ = polish_network(rough, U, truth(U))
    >>> print(misfit < 1e-14)
    True
    """
    # Outputs of different units, or with a large offset, would hide in each other's rounding.
    offset, unit = output_units(Y, network.output_activation)
    network, Y = change_outputs(network, -offset / unit, 1.0 / unit), (Y - offset) / unit
    sigma = above_rounding(None if noise is None else noise / unit, Y)
    noisy = sigma is not None
    weight = 1.0 if sigma is None else sigma.max() / sigma
    problem = weighted_problem(network, U, Y, weight, dense_limit=dense_limit, factor_limit=factor_limit)
    total = max(float(np.sum(problem.Y**2)), np.finfo(float).tiny)
    good = _CLOSE**2 * total + (4.0 * Y.size * sigma.max() ** 2 if noisy else 0.0)
    start = problem.flatten(network.weights, network.biases)
    slow, previous = give_up_when_slow(12, good), [np.inf]

    def stop(n_iter, cost):
        settled = not noisy and cost < _SETTLED**2 * total and cost > 0.1 * previous[0]
        previous[0] = cost
        ended = callback is not None and callback(n_iter)
        return settled or slow(n_iter, cost) or bool(ended)

    result = minimise(
        problem,
        start,
        max_iter=max_iter,
        target=_EXACT**2 * total,
        ftol=_NOISY_FTOL if noisy else 1e-3,
        damping=_DAMPING if noisy else _first_damping(problem.cost(start), total),
        callback=stop,
    )
    weights, biases = problem.unflatten(result.x)
    polished = network.with_parameters(weights, biases)
    misfit = np.linalg.norm(polished(U) - Y) / max(np.linalg.norm(Y), np.finfo(float).tiny)
    return change_outputs(polished, offset, unit), float(misfit), result.n_iter


def _first_damping(cost, total):
    """For a start of this cost, beside that of the answers themselves."""
    return max(_LITTLE * cost / total, _LEAST) if cost < _NEAR**2 * total else _DAMPING


def polish_from_oracle(oracle, network, rng, log, *, noise=None, thorough=False):
    """Polish on inputs chosen for the purpose: near the centre first, then where every unit bends.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        Of standardised inputs.
    rng : numpy.random.RandomState
    log : StageLog
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute. Where there is some, a last round asks for 10 answers
        a parameter in all and fits them together: the parameters' errors fall with the root of their number.
    thorough : bool, default=False
        Whether to ask for as many at once, also without noise: for a network that agreed with fewer answers and not
        elsewhere, as where most units of a deeper layer are saturated at most inputs.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit of the last round. Later rounds are left out where an earlier one failed, or
        where time, questions or memory are used up; infinite where that is before the first one.

    Notes
    -----
    A shallow network with linear output starts in the second round: its start is good wherever its units are. Beyond
    3000 parameters, where rounds are dear, a start that is close to the answers has one round only.
    """
    asked, rounds, misfit = _Asked(oracle), _THOROUGH if thorough else _rounds(network), np.inf
    if not thorough and network.n_parameters >= _FRUGAL.stop:
        with log.stage("polish", oracle) as entry:
            if not asked.more(_design(network, 1.0, 0.0, rng), _PROBED):
                return network, misfit
            entry["residual"] = start = asked.misfit(network)
        rounds = _STRAIGHT_ROUNDS if start < _STRAIGHT else rounds
    told_a_row = oracle.n_independent_outputs(network.n_outputs)
    for answers, spread, near in rounds:
        n = int(answers * network.n_parameters / told_a_row) + oracle.n_inputs - len(asked.U)
        if answers == NOISY_ANSWERS and asked.Y is not None and above_rounding(noise, asked.Y) is None:
            break
        with log.stage("polish", oracle) as entry:

            def progress(done, show=entry["progress"]):
                show(done)
                return oracle.clock.out_of_time

            draw = _thorough_design(network, rng) if thorough else _design(network, spread, near, rng)
            if not asked.more(draw, max(n, 0)):
                break
            try:
                network, misfit = _polished(network, asked, _AGAIN if thorough else 0, callback=progress, noise=noise)
            except MemoryLimitError as error:
                oracle.refusal = str(error)
                break
            entry["residual"] = misfit
        if misfit > _CLOSE + 4.0 * asked.noise_left(noise, network.output_activation):
            break
    return network, misfit


def _polished(network, asked, n_more, **options):
    """A network after one polish and more of them while they pay, and its misfit."""
    network, misfit, _ = polish_network(network, asked.U, asked.Y, **options)
    for _ in range(n_more):
        before = misfit
        network, misfit, _ = polish_network(network, asked.U, asked.Y, **options)
        if misfit > _GAINED * before:
            break
    return network, misfit


class _Asked:
    """Inputs asked so far, their answers, and how well they are explained."""

    def __init__(self, oracle):
        self.oracle = oracle
        self.U, self.Y = np.empty((0, oracle.n_inputs)), None

    def more(self, draw, n):
        """Ask n rows more, drawn as `Oracle.query_precise` takes them; False where the budget does not allow it."""
        try:
            U, Y = self.oracle.query_precise(draw, n)
        except OutOfBudgetError as error:
            self.oracle.refusal = str(error)
            return False
        self.U, self.Y = np.concatenate([self.U, U]), Y if self.Y is None else np.concatenate([self.Y, Y])
        return True

    def misfit(self, network):
        """Relative root mean square misfit; relative to the standard deviations where the output is linear."""
        offset, unit = output_units(self.Y, network.output_activation)
        off, total = np.linalg.norm((network(self.U) - self.Y) / unit), np.linalg.norm((self.Y - offset) / unit)
        return float(off) / max(float(total), np.finfo(float).tiny)

    def noise_left(self, noise, output_activation):
        """Relative root mean square misfit that the noise leaves of a perfect fit."""
        offset, unit = output_units(self.Y, output_activation)
        Y = (self.Y - offset) / unit
        sigma = above_rounding(None if noise is None else noise / unit, Y)
        return 0.0 if sigma is None else float(np.sqrt(len(Y) * np.sum(sigma**2)) / np.linalg.norm(Y))


def _design(network, spread, near, rng):
    """`design_points` of the network's first layer, as `Oracle.query_precise` draws them."""
    W, b = network.weights[0], network.biases[0]
    return lambda n, factor: design_points(W, b, n, factor * spread, rng, near)


def _thorough_design(network, rng):
    """`design_points`, and where there are deeper layers as many points at which their units move."""
    draw = _design(network, 1.0, 0.5, rng)
    if len(network.weights) < 3:
        return draw
    return lambda n, factor: np.concatenate([draw(n - n // 2, factor), points_for_deep_units(network, n // 2, rng)])


def _rounds(network):
    shallow = len(network.weights) == 2 and network.output_activation == "identity"
    rounds = _ROUNDS if network.n_parameters in _FRUGAL else _GENEROUS
    return rounds[1:] if shallow else rounds
