"""Where questions have to stay near the data: what the answers can tell is foreseen, and the function is all of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.random_starts import StartLimits, fit_from_random_starts, random_network
from skident.fitting.standard_errors import jacobian_spectrum
from skident.linalg import n_free_entries
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import BlackBoxError, OutOfBudgetError

from ..hessians.subspace import n_visible
from ..input_range import fresh_rows
from ..solve import Attempt, worst_error

__all__ = ["Foreseen", "by_function", "foresee"]

_TOLD = 1e-6  # singular value, beside the largest, from which on a combination of parameters counts as determined
_ENOUGH = 0.5  # part of the parameters that is worth looking for
_ALL = 0.95  # part of the answers that all tell something else: more would tell more
_SPECTRUM = 1500  # answers of which the spectrum is taken, which takes seconds
_NEAREST = 0.5  # standard deviations from the centre: rows for the spectrum lie from there to the border
_QUICK, _QUICK_STEPS = 300, 10  # answers of a provisional fit, and its steps
_FLAT = 0.3, 1.0, 0.03  # sizes of a start that is nearly linear: weights of the first layer, of others, and shifts
_ANSWERS, _STEPS = (3000, 9000), 200  # of the fits that follow
_FEWEST, _BETTER = 50, 0.5  # rows of a fit, and part of the error that it has to leave for another to follow
_HELD_OUT = 0.2  # part of the answers that no fit sees
_SPREAD = 1.2  # of rows that are none of the data, in standard deviations
_STARTS = 12  # of small networks
_DENSE = 800  # parameters up to which Gauss-Newton matrices are formed
_SHARE = 0.75  # of `max_seconds`


@dataclass(frozen=True)
class Foreseen:
    """What answers that may be asked determine of a network of the widths looked for.

    Attributes
    ----------
    network : FeedforwardNetwork
        A provisional fit.
    spectrum : ndarray
        Of its Jacobian at rows in the range, see `jacobian_spectrum`.
    """

    network: FeedforwardNetwork
    spectrum: np.ndarray

    @property
    def n_told(self):
        """How many combinations of parameters are determined within a factor of 1e6 of the best one."""
        return int(np.sum(self.spectrum > _TOLD))

    @property
    def share(self):
        """Part of the parameters that this is; as large as can be seen where every answer tells something else."""
        return self.n_told / self.network.n_parameters

    @property
    def told(self):
        """Whether it is worth while to look for the parameters."""
        return self.share >= _ENOUGH or self.n_told >= _ALL * len(self.spectrum)

    def __str__(self):
        return (
            f"answers within input_range determine about {self.n_told} of the {self.network.n_parameters} parameters "
            f"({self.share:.0%}) of such a network to within a factor of 1e6 of the best determined one"
        )


def foresee(inquiry):
    """What the answers will tell, before they are asked; None where there is nothing to warn of.

    The spectrum of the Jacobian of a random network of the widths looked for, at rows of all distances from the data to
    the border of the range, costs no question. Where that leaves most parameters open, it is taken again of a
    provisional fit to 300 answers: how steep the network is decides how much of it shows.

    Parameters
    ----------
    inquiry : Inquiry

    Returns
    -------
    Foreseen or None
        None where questions may go far out, answers are noisy or probabilities, widths are to be found, at least half
        of the parameters are determined and Hessians may show them, or questions or time do not suffice for the look.
    """
    oracle, extractor = inquiry.oracle, inquiry.pipeline.extractor
    near = oracle.input_range is not None and extractor.first_layer == "hessian" and oracle.response == "predict"
    smooth = get_activation(inquiry.activations[0]).saturating and inquiry.fresh.sigma is None
    if not near or not smooth or inquiry.widths is None or len(inquiry.widths) < 2:
        return None
    rng = np.random.RandomState(0)
    guess = random_network(oracle.n_inputs, inquiry.architecture(), rng)
    shown = inquiry.shallow or n_visible(inquiry.architecture()) <= n_free_entries(oracle.n_inputs)
    if shown and Foreseen(guess, _spectrum(inquiry, guess, rng)).share >= _ENOUGH:
        return None
    try:
        with inquiry.log.stage("provisional fit", oracle) as entry:
            U, Y = oracle.query_precise(_draw(inquiry, rng), _QUICK)
            stopping = Stopping(max_iter=_QUICK_STEPS, deadline=oracle.clock.share(_SHARE))
            network, entry["residual"] = fit_network(_flat_start(inquiry, rng), U, Y, stopping, dense_limit=_DENSE)
    except (BlackBoxError, OutOfBudgetError):
        return None
    foreseen = Foreseen(network, _spectrum(inquiry, network, rng))
    return None if shown and foreseen.told else foreseen


def by_function(inquiry, earlier, *, foreseen):
    """The function near the data, by a network whose parameters the answers leave open.

    Parameters
    ----------
    inquiry : Inquiry
    earlier : list of Attempt
    foreseen : Foreseen
        The fits begin with its network.

    Returns
    -------
    Attempt
        Never called exact, with the Jacobian's ``spectrum`` and the share ``determined`` as evidence. Of the
        provisional fit where time or questions allow for no more.

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked.

    Notes
    -----
    Levenberg-Marquardt on 3000 and then 9000 answers, each from the best network so far (up to 800 parameters
    from random starts), as judged by a fifth of the
    answers that no fit sees; a fit that does not better it is the last one.
    """
    oracle, network, least, asked = inquiry.oracle, foreseen.network, np.inf, []
    for n in _ANSWERS:
        n_rows = min(n // oracle.n_outputs - sum(len(U) for U, _ in asked), _questions_left(oracle))
        if n_rows < _FEWEST or inquiry.search_is_over:
            break
        with inquiry.log.stage("function near the data", oracle) as entry:
            try:
                asked.append(oracle.query_precise(_draw(inquiry, inquiry.rng), n_rows))
            except OutOfBudgetError:
                break
            found, error = _fitted(network, asked, inquiry)
            entry["residual"] = error
        much_better = error < _BETTER * least
        if error < least:
            network, least = found, error
        if not much_better or least < inquiry.accepted_error:
            break
    seen = Foreseen(network, _spectrum(inquiry, network, np.random.RandomState(0)))
    error = worst_error(inquiry.fresh.answers, network(inquiry.fresh.inputs))
    evidence = {"determined": seen.share, "spectrum": seen.spectrum}
    # Whether fewer units would do is open as well.
    said = {"minimal": True, "caveat": str(seen), "evidence": evidence}
    return Attempt(network, error, "range", min(least, error), "function near the data", **said)


def _questions_left(oracle):
    most = oracle.clock.max_queries
    return np.inf if most is None else most - oracle.n_queries


def _fitted(network, asked, inquiry):
    """A network fitted to four answers in five, and its relative maximum error on the others."""
    deadline = inquiry.oracle.clock.share(_SHARE)
    U, Y = (np.concatenate(parts) for parts in zip(*asked, strict=True))
    held = np.arange(len(U)) % round(1.0 / _HELD_OUT) == 0
    stopping = Stopping(max_iter=_STEPS, target=0.01 * inquiry.accepted_error, patience=20, gain=0.9, deadline=deadline)
    if network.n_parameters > _DENSE:
        found, _ = fit_network(network, U[~held], Y[~held], stopping, dense_limit=_DENSE, inner_tol=0.1)
    else:  # few units end in local minima: others from random starts

        def answers(n):
            return U[~held][:n], Y[~held][:n]

        limits = StartLimits(_STARTS, deadline, inquiry.limits.n_jobs, tol=inquiry.fit_tolerance)
        found, _ = fit_from_random_starts(
            answers, inquiry.oracle.n_inputs, inquiry.architecture(), inquiry.rng, limits=limits
        )
        found, _ = fit_network(found, U[~held], Y[~held], stopping, dense_limit=_DENSE)
    return found, worst_error(Y[held], found(U[held]))


def _draw(inquiry, rng):
    """Rows of the data's domain, as `Oracle.query_precise` draws them."""
    rows = inquiry.oracle.from_inputs(inquiry.X)
    return lambda n, factor: fresh_rows(rows[rng.permutation(len(rows))[: n // 2]], _SPREAD, rng, n, factor)


def _flat_start(inquiry, rng):
    """A random network that is nearly linear."""
    start, (first, others, shifts) = random_network(inquiry.oracle.n_inputs, inquiry.architecture(), rng), _FLAT
    weights = [(others if layer else first) * W for layer, W in enumerate(start.weights)]
    return start.with_parameters(weights, [shifts / 0.3 * b for b in start.biases])


def _spectrum(inquiry, network, rng):
    """Of the Jacobian at rows in the range, near the centre and as far as its border."""
    oracle = inquiry.oracle
    n = min(_SPECTRUM, int(1.5 * network.n_parameters)) // oracle.n_outputs + 1
    distances = np.exp(rng.uniform(*np.log([min(_NEAREST, oracle.reach), oracle.reach]), (n, 1)))
    return jacobian_spectrum(network, oracle.clip_to_range(distances * rng.uniform(-1.0, 1.0, (n, oracle.n_inputs))))
