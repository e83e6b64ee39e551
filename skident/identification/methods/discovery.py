"""Saturating networks of unknown depth and widths: candidates with one more hidden layer at a time."""

import time
from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.pruning import prune_to, redundant_units
from skident.network import FeedforwardNetwork, PartlyLinear, get_activation
from skident.oracle import NotIdentified, OutOfBudgetError
from skident.oracle.clipping import detect_clipped_inputs

from ..attempt import Attempt, design_where_units_vary, polished_attempt
from ..constants import COARSE, COST_MARGIN
from ..saturating.downstream import fit_smallest_downstream
from ..saturating.noisy import find_noisy_network, queries_of_noisy_network
from ..saturating.separate_inputs import steps_of_sequence
from .hidden_coordinates import ROUTE as hidden_coordinates_route
from .hidden_coordinates import square_view, two_layers_in_hidden_coordinates
from .saturating import FEW_UNITS, View, exact_view, fit_view, vertices_suffice
from .second_layer import ROUTE as second_layer_route
from .second_layer import second_layer_from_faces, second_layer_from_fit

_POLISHABLE = 1e-4  # relative residual that errors of the first layer may leave and the polish removes
_POLISHABLE_NOISY = 1e-2  # `_POLISHABLE` with noise
_NO_DEEPER = 1e-7  # error below which no deeper network is tried: rounding of a polish
_SPARE_UNITS = 8  # units above `max_neurons` of a fit that is polished and pruned again (tuned on 4-3-4-1 networks)
_MAX_ERROR = 1e-3  # error above which a network of unknown widths is no result
_MOST_FITTED = 40  # first-layer units up to which layers behind more of them than inputs are fitted: else local minima
_SMALL_SEARCH = 60  # parameters that set the number of starts for two hidden layers (budget)
_DEEP_SEARCH = 30  # `_SMALL_SEARCH` for more hidden layers
_PRUNED_NOISE = 10.0  # error over the noise up to which redundant units are removed
_WORSE = 3.0  # factor by which the error may grow when redundant units are removed

AGAIN = "first layer again"
VARIANTS = ("", AGAIN)


@dataclass(frozen=True)
class _Candidate:
    """A network that may explain the outputs."""

    network: FeedforwardNetwork
    residual: float
    method: str


class UnknownWidths:
    """The smallest network with one to three hidden layers that explains the outputs, one more layer at a time."""

    name = "unknown widths"

    def refuses(self, problem):
        """See `Method`."""
        hidden, strategy = problem.activations[0], problem.options.strategy
        if get_activation(hidden).saturating and strategy != "hessian":
            return None
        return (
            "layer_widths='auto' recovers units that saturate (tanh, sigmoid, erf), and with outputs at large inputs "
            f"those that grow linearly (softplus, gelu, silu, elu, ...); got activation={hidden!r}, "
            f"strategy={strategy!r}. Give layer_widths."
        )

    def run(self, problem, step, state):
        """See `Method`; None if nothing saturates, `NotIdentified` if no network explains the outputs."""
        first = state.first_layer.find(problem, None, again=step.variant == AGAIN)
        if first is None:
            return None
        problem = problem.allowing(len(first.biases))
        best = _noisy_network(problem, first) or _best_network(problem, first)
        if best is not None and problem.widths not in (None, tuple(best.network.layer_widths)):
            return None
        if best is not None and best.error <= max(problem.accepted_error, _MAX_ERROR):
            return best
        m_1, max_neurons = len(first.biases), problem.options.max_neurons
        if _too_wide(problem, first):
            raise NotIdentified(
                "search",
                "wide",
                f"the first layer has {m_1} units, more than the {problem.oracle.n_inputs} inputs, and the outputs do "
                "not determine the layers behind it: the model has more than two hidden layers, or a second one that "
                f"is too wide for {problem.oracle.n_inputs} inputs. Give layer_widths and input_range to fit the "
                "function near the data.",
                final=True,
            )
        seen = f"{m_1} units in the first layer" + (" alone" if m_1 > max_neurons else "")
        limit = f" The search was stopped by max_seconds={problem.oracle.budget.max_seconds}."
        stopped = limit if problem.out_of_search_time else ""
        raise NotIdentified(
            "search",
            "unexplained",
            f"layer_widths='auto': no network with at most max_neurons={max_neurons} hidden units in one to three "
            f"hidden layers explains the outputs ({seen}; parallel ones look like one). Check the activations, raise "
            f"max_neurons or n_starts, or give layer_widths.{stopped}",
        )


METHOD = UnknownWidths()


def _noisy_network(problem, first):
    """The attempt of one hidden layer and one output with large errors; None if it does not apply or explain these."""
    oracle, accuracy = problem.oracle, problem.oracle.accuracy
    applies = problem.activations[1] == "identity" and oracle.n_outputs == 1 and not oracle.restricted
    applies &= oracle.response != "predict_proba" and not accuracy.exact and accuracy.is_plausible
    affordable = COST_MARGIN * queries_of_noisy_network(*first.weights.shape) < oracle.budget.queries_left
    if not applies or accuracy.relative_error < COARSE or not affordable:
        return None
    with problem.log.stage("one hidden layer (noisy outputs)", oracle) as entry:
        found = find_noisy_network(oracle, first, problem.activations[0], problem.rng)
        entry["residual"] = None if found is None else found.scale
    if found is None:
        return None
    error, method = problem.held_out.error_of(found.network), "saturation, noisy outputs"
    return Attempt(found.network, error, "polish", found.scale, method, minimal=True, sample=found.sample)


def _best_network(problem, first):
    """The candidate with the smallest error, polished and without redundant units; None if all have too many units."""
    best, max_neurons = None, problem.options.max_neurons
    try:
        for candidate in _candidates(problem, first) if len(first.biases) <= max_neurons else ():
            if candidate is None or sum(candidate.network.layer_widths[:-1]) > max_neurons + _SPARE_UNITS:
                continue
            attempt = minimal_attempt(problem, candidate.network, candidate.residual, candidate.method)
            small = sum(attempt.network.layer_widths[:-1]) <= max_neurons
            if small and (best is None or attempt.error < best.error):
                best = attempt
            if attempt.error <= max(problem.accepted_error, _NO_DEEPER):
                break
    except OutOfBudgetError:
        if best is None:
            raise
    return best


def _candidates(problem, first):
    """Networks that may explain the outputs, with one more hidden layer at a time."""
    m_1, m_L = len(first.biases), problem.oracle.n_outputs
    one_layer = yield from _one_hidden_layer(problem, first, m_1, m_L)
    given = problem.shallow and not problem.discover
    if given or (one_layer and vertices_suffice(replace(problem, widths=(m_1, m_L)))):
        return
    linear = problem.activations[1] == "identity"  # else rounding near the limits of the output hides ranks
    if linear:
        yield _of(second_layer_from_faces(problem, first), second_layer_route)
    where = "stem" if m_1 <= FEW_UNITS else "vertices"
    view = exact_view(problem, first, None) or View(where, first)
    if view.second_width is not None:
        yield _of(two_layers_in_hidden_coordinates(problem, view), hidden_coordinates_route)
        yield from _two_hidden_layers(problem, view, m_1, m_L)
    elif (square := square_view(problem, first)) is not None:
        yield _of(two_layers_in_hidden_coordinates(problem, square), hidden_coordinates_route)
    _refuse_separate_inputs(problem, first)
    if not linear:
        yield _of(second_layer_from_faces(problem, first), second_layer_route)
    yield _of(second_layer_from_fit(problem, first), second_layer_route)
    if _too_wide(problem, first):
        return
    # Outputs behind an activation with unknown bounds are a hidden layer of as many units.
    most = replace(problem.options, max_neurons=min(problem.options.max_neurons, 2 * m_1))
    bounded = replace(problem, widths=(m_1, m_1, m_L, m_L), options=most)
    for behind in ((m_L,), (1, m_L)) if linear and vertices_suffice(bounded) else ():
        yield from _more_hidden_layers(bounded, View("vertices", first), (m_1, *behind, m_L), (len(behind),))
    # Behind a second layer of known width, or with one of unknown width.
    known = () if view.second_width is None else (1,)
    for n_behind in (2,) if known else (1, 2):
        widths = m_1, view.second_width or 1, *[1] * (n_behind - 1), m_L
        yield from _more_hidden_layers(problem, view, widths, known)


def _too_wide(problem, first):
    """Whether fits of layers behind the first one, beyond those of faces, would take minutes and fail."""
    return len(first.biases) > max(problem.oracle.n_inputs, _MOST_FITTED)


def _refuse_separate_inputs(problem, first):
    """Refuse a first layer whose units read separate steps of a sequence, once shallow networks do not explain it.

    Clipped inputs look the same: each of them ends at borders of its own.
    """
    n_steps = steps_of_sequence(first.weights)
    if n_steps is None:
        return
    if np.isfinite(detect_clipped_inputs(problem.oracle)).any():
        raise NotIdentified("model", "clipped inputs", "the model clips its inputs.", final=True)
    raise NotIdentified(
        "model",
        "recurrent",
        f"the first layer reads {n_steps} separate groups of inputs, as the steps of a sequence: a recurrent network "
        "(GRU, LSTM), which is not identified. If it is a feedforward network, give layer_widths.",
        final=True,
    )


def _one_hidden_layer(problem, first, m_1, m_L):
    """The network of one hidden layer, if exact outputs at vertices are linear in the units' signs; whether they are.

    Only errors of the first layer can be the cause then if its polish fails: steep units.
    """
    stage = "one hidden layer (vertices)"
    network, residual = fit_view(problem, View("vertices", first), (m_1, m_L), stage, m_1 * m_L)
    exact = problem.held_out.noise_std is None
    if residual <= max(problem.fit_tol, 0.0 if exact else _POLISHABLE_NOISY):  # errors of logits differ from row to row
        yield _Candidate(network, residual, "saturation, vertices")
    return residual <= problem.fit_tol and exact


def _two_hidden_layers(problem, view, m_1, m_L):
    widths = m_1, view.second_width, m_L
    network, residual = fit_view(problem, view, widths, "two hidden layers (interior)", _SMALL_SEARCH)
    polishable = _POLISHABLE if problem.held_out.noise_std is None else _POLISHABLE_NOISY
    if residual <= max(problem.fit_tol, view.tol, polishable):
        yield _Candidate(network, residual, "saturation, interior")


def _of(found, route):
    """The candidate of a `RecoveredNetwork`; None if there is none."""
    return None if found is None else _Candidate(found.network, found.residual, route)


def _more_hidden_layers(problem, view, widths, exact):
    """Networks of at least these widths, `exact` ones of layers (from 0)."""
    at_least = problem.architecture(widths)
    if sum(widths[:-1]) > problem.options.max_neurons or problem.out_of_time:
        return
    with problem.log.stage(f"{len(widths) - 1} hidden layers ({view.where})", problem.oracle, unit="starts") as entry:
        network, residual = fit_smallest_downstream(
            problem.oracle,
            view.first,
            view.where,
            at_least,
            problem.rng,
            exact=exact,
            max_neurons=problem.options.max_neurons + _SPARE_UNITS - widths[0],
            search=problem.search(_DEEP_SEARCH, max(problem.fit_tol, view.tol), entry["progress"]),
        )
        entry["residual"] = residual
    if network is not None:
        yield _Candidate(network, residual, f"saturation, {view.where}")


def minimal_attempt(problem, network, residual, method):
    """Polish, remove redundant units, and polish again, as far as time allows."""
    found = polished_attempt(problem, network, residual, "polish", method)
    if isinstance(get_activation(found.network.activations[0]), PartlyLinear):  # linear units pass values on
        return found
    try:
        return _without_redundant_units(problem, found)
    except OutOfBudgetError:  # they stay
        return found


def _without_redundant_units(problem, found):
    """The attempt with fewer units and polished again, if that explains the outputs as well; else as it is."""
    U, deadline = design_where_units_vary(found.network), problem.oracle.budget.deadline
    redundant = redundant_units(found.network, U, deadline=deadline)
    tol, noise = problem.options.tol, problem.held_out.relative_noise
    if not any(redundant):
        return replace(found, minimal=time.perf_counter() <= deadline)
    if found.error > max(tol, _PRUNED_NOISE * noise):
        return found
    widths = tuple(m - r for m, r in zip(found.network.layer_widths, (*redundant, 0), strict=True))
    network, residual = prune_to(found.network, U, found.network(U), widths, tol=problem.fit_tol, deadline=deadline)
    smaller = polished_attempt(problem, network, residual, "polish", found.method)
    return smaller if smaller.error <= max(tol, _WORSE * found.error) else found
