"""Queries that must stay near the data: what outputs determine there, and a fit of the function."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.random_starts import StartLimits, fit_from_random_starts, random_network
from skident.fitting.standard_errors import jacobian_spectrum
from skident.linalg import n_free_entries
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import BlackBoxError, OutOfBudgetError

from ..attempt import Attempt, max_error_over_deviation
from ..hessians.subspace import n_visible
from ..query_points import held_out_points

_DETERMINED = 1e-6  # singular value, relative to the largest, from which a combination of parameters is determined
_MIN_SHARE = 0.5  # share of determined parameters from which recovering them is worthwhile
_FULL_RANK = 0.95  # share of the outputs that are independent, from which more outputs would determine more
_SPECTRUM_OUTPUTS = 1500  # outputs of the spectrum (budget: seconds)
_MIN_DISTANCE = 0.5  # distance of points for the spectrum from the center, in standard deviations
_PROVISIONAL_QUERIES = 300  # samples of a provisional fit (budget)
_PROVISIONAL_STEPS = 10  # steps of that fit (budget)
_START_FIRST = 0.3  # size of first-layer weights of a nearly linear start
_START_OTHERS = 1.0  # size of other weights
_START_BIASES = 0.03  # size of biases
_FIT_OUTPUTS = (3000, 9000)  # outputs of the fits (budget)
_FIT_STEPS = 200  # steps of the fits (budget)
_MIN_SAMPLES = 50  # samples below which no further fit is made
_IMPROVEMENT = 0.5  # share of the error that a fit may leave for another one to follow
_HELD_OUT = 0.2  # share of the samples that the fits do not use
_SPREAD = 1.2  # standard deviations of samples that are not from X
_STARTS = 12  # random starts of small networks (budget)
_DENSE = 800  # parameters up to which Gauss-Newton matrices are formed (memory)
_TIME_SHARE = 0.75  # share of `max_seconds` for the fits (budget)


@dataclass(frozen=True)
class Prediction:
    """What outputs within the input range determine: a provisional fit, and the spectrum of its Jacobian."""

    network: FeedforwardNetwork
    spectrum: np.ndarray

    @property
    def n_determined(self):
        """Number of combinations of parameters that are determined within a factor of 1e6 of the best one."""
        return int(np.sum(self.spectrum > _DETERMINED))

    @property
    def share(self):
        """Share of determined parameters; a lower bound if all outputs are independent."""
        return self.n_determined / self.network.n_parameters

    @property
    def suffices(self):
        """Whether recovering the parameters is worthwhile."""
        return self.share >= _MIN_SHARE or self.n_determined >= _FULL_RANK * len(self.spectrum)

    def __str__(self):
        return (
            f"outputs within input_range determine about {self.n_determined} of the {self.network.n_parameters} "
            f"parameters ({self.share:.0%}) of such a network to within a factor of 1e6 of the best determined one"
        )


def predict_determined(problem):
    """What outputs within the input range will determine; None if that suffices, or far queries are allowed.

    The spectrum of the Jacobian of a random network, at points up to the border of the range, costs no query. If it
    leaves most parameters undetermined, the spectrum of a provisional fit to 300 samples decides: it depends on how
    steep the network is.
    """
    oracle, extractor = problem.oracle, problem.pipeline.extractor
    near = oracle.input_range is not None and extractor.first_layer == "hessian" and oracle.response == "predict"
    smooth = get_activation(problem.activations[0]).saturating and problem.held_out.noise_std is None
    if not near or not smooth or problem.widths is None or len(problem.widths) < 2:
        return None
    rng = np.random.RandomState(0)
    guess = random_network(oracle.n_inputs, problem.architecture(), rng)
    visible = problem.shallow or n_visible(problem.architecture()) <= n_free_entries(oracle.n_inputs)
    if visible and Prediction(guess, _spectrum(problem, guess, rng)).share >= _MIN_SHARE:
        return None
    try:
        with problem.log.stage("provisional fit", oracle) as entry:
            U, Y = oracle.query_precise(_draw(problem, rng), _PROVISIONAL_QUERIES)
            stopping = Stopping(max_iter=_PROVISIONAL_STEPS, deadline=oracle.budget.share(_TIME_SHARE))
            network, entry["residual"] = fit_network(_flat_start(problem, rng), U, Y, stopping, dense_limit=_DENSE)
    except (BlackBoxError, OutOfBudgetError):
        return None
    prediction = Prediction(network, _spectrum(problem, network, rng))
    return None if visible and prediction.suffices else prediction


class NearData:
    """The function near the data, by a network whose parameters the outputs leave undetermined.

    Levenberg-Marquardt on 3,000 and then 9,000 outputs, each from the best network so far (up to 800 parameters from
    random starts); a fit that does not improve the error on held-out samples is the last one.
    """

    name = "function near the data"

    def refuses(self, problem):
        """See `Method`."""
        return None if problem.prediction is not None else "the outputs determine the weights."

    def run(self, problem, step, state):
        """See `Method`; never called exact, with the ``spectrum`` and the share ``determined`` as evidence."""
        warnings.warn(
            f"{problem.prediction}: the function is recovered there, the weights remain undetermined.",
            ConvergenceWarning,
            stacklevel=5,  # fit, its search, solve
        )
        oracle, network, least, samples = problem.oracle, problem.prediction.network, np.inf, []
        for n_outputs in _FIT_OUTPUTS:
            n = min(n_outputs // oracle.n_outputs - sum(len(U) for U, _ in samples), oracle.budget.queries_left)
            if n < _MIN_SAMPLES or problem.out_of_search_time:
                break
            with problem.log.stage(self.name, oracle) as entry:
                try:
                    samples.append(oracle.query_precise(_draw(problem, problem.rng), n))
                except OutOfBudgetError:
                    break
                fitted, error = _fitted(network, samples, problem)
                entry["residual"] = error
            improved = error < _IMPROVEMENT * least
            if error < least:
                network, least = fitted, error
            if not improved or least < problem.accepted_error:
                break
        left = Prediction(network, _spectrum(problem, network, np.random.RandomState(0)))
        error = problem.held_out.error_of(network)
        evidence = {"determined": left.share, "spectrum": left.spectrum}
        # Whether fewer units would suffice is undetermined as well.
        said = {"minimal": True, "caveat": str(left), "evidence": evidence}
        return Attempt(network, error, "range", min(least, error), self.name, **said)


METHOD = NearData()


def _fitted(network, samples, problem):
    """A network fitted to four samples in five, and its relative maximum error on the others."""
    deadline = problem.oracle.budget.share(_TIME_SHARE)
    U, Y = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    held = np.arange(len(U)) % round(1.0 / _HELD_OUT) == 0
    stopping = Stopping(
        max_iter=_FIT_STEPS, target=0.01 * problem.accepted_error, patience=20, gain=0.9, deadline=deadline
    )
    if network.n_parameters > _DENSE:
        found, _ = fit_network(network, U[~held], Y[~held], stopping, dense_limit=_DENSE, inner_tol=0.1)
    else:  # small networks end in local minima: random starts

        def first(n):
            return U[~held][:n], Y[~held][:n]

        limits = StartLimits(_STARTS, deadline, problem.options.n_jobs, tol=problem.fit_tol)
        architecture, D = problem.architecture(), problem.oracle.n_inputs
        found, _ = fit_from_random_starts(first, D, architecture, problem.rng, limits=limits)
        found, _ = fit_network(found, U[~held], Y[~held], stopping, dense_limit=_DENSE)
    return found, max_error_over_deviation(Y[held], found(U[held]))


def _draw(problem, rng):
    """Samples of X and around them, as `Oracle.query_precise` draws them."""
    rows = problem.oracle.from_inputs(problem.X)
    return lambda n, factor: held_out_points(rows[rng.permutation(len(rows))[: n // 2]], _SPREAD, rng, n, factor)


def _flat_start(problem, rng):
    """A random network that is nearly linear."""
    start = random_network(problem.oracle.n_inputs, problem.architecture(), rng)
    weights = [(_START_OTHERS if layer else _START_FIRST) * W for layer, W in enumerate(start.weights)]
    return start.with_parameters(weights, [_START_BIASES / 0.3 * b for b in start.biases])


def _spectrum(problem, network, rng):
    """Spectrum of the Jacobian at points in the range, from near the center to its border."""
    oracle = problem.oracle
    n = min(_SPECTRUM_OUTPUTS, int(1.5 * network.n_parameters)) // oracle.n_outputs + 1
    distances = np.exp(rng.uniform(*np.log([min(_MIN_DISTANCE, oracle.reach), oracle.reach]), (n, 1)))
    return jacobian_spectrum(network, oracle.clip_to_range(distances * rng.uniform(-1.0, 1.0, (n, oracle.n_inputs))))
