"""Identification from far away where widths and depth are not known: one hidden layer more at a time."""

from __future__ import annotations

from dataclasses import dataclass

from skident.fitting.pruning import prune_to, redundant_units
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ..saturating.downstream import fit_smallest_downstream
from ..solve import polished_attempt, where_units_move
from .saturating import FEW_UNITS, View, exact_view, fit_behind
from .second_layer import second_layer_on_patches

__all__ = ["by_discovery"]

_POLISHABLE, _POLISHABLE_NOISY = 1e-4, 1e-2  # misfit that an imperfect first layer may leave, and the polish mends
_EXACT = 1e-7  # error below which no deeper network is looked for
_SPARE = 8  # units above `max_neurons` that a fit may have before it is polished and pruned again
_EXPLAINED = 1e-3  # error above which a network of unknown widths is no answer at all


@dataclass(frozen=True)
class _Candidate:
    """A network that may explain the answers."""

    network: FeedforwardNetwork
    misfit: float
    route: str


def by_discovery(inquiry, earlier, *, layers, attempt=0):
    """The smallest network that explains the answers, widths and depth unknown.

    Parameters
    ----------
    inquiry : Inquiry
    earlier : list of Attempt
    layers : FirstLayerSearch
    attempt : int, default=0

    Returns
    -------
    Attempt or None
        None where nothing saturates.

    Raises
    ------
    ValueError
        If no network within `max_neurons` hidden units explains the answers.
    """
    first = layers.find(inquiry, None, again=attempt > 0)
    if first is None:
        return None
    m_1, limits, best = len(first.biases), inquiry.limits, None
    try:
        for candidate in _candidates(inquiry, first, layers) if m_1 <= limits.max_neurons else ():
            found = _minimal(inquiry, candidate)
            small = sum(found.network.layer_widths[:-1]) <= limits.max_neurons
            if small and (best is None or found.error < best.error):
                best = found
            if found.error <= max(inquiry.accepted_error, _EXACT):
                break
    except OutOfBudgetError:
        if best is None:
            raise
    if best is not None and best.error <= max(inquiry.accepted_error, _EXPLAINED):
        return best
    seen = f"{m_1} units in the first layer" + (" alone" if m_1 > limits.max_neurons else "")
    limit = f" The search was stopped by max_seconds={inquiry.oracle.clock.max_seconds}."
    stopped = limit if inquiry.search_is_over else ""
    raise NotIdentified(
        "search",
        "unexplained",
        f"layer_widths='auto': no network with at most max_neurons={limits.max_neurons} hidden units in one to three "
        f"hidden layers was found that explains the answers ({seen}). Check the activations, raise max_neurons or "
        f"n_starts, or give layer_widths.{stopped}",
    )


def _candidates(inquiry, first, layers):
    """Networks that may explain the answers, one hidden layer more at a time."""
    m_1, m_L = len(first.biases), inquiry.oracle.n_outputs
    yield from _one_hidden_layer(inquiry, first, m_1, m_L)
    way = "stem" if m_1 <= FEW_UNITS else "vertices"
    view = exact_view(inquiry, first, None) or View(way, first)
    if view.second_width is not None:
        yield from _two_hidden_layers(inquiry, view, m_1, m_L)
    yield from _two_hidden_layers_on_patches(inquiry, first, layers)
    # Behind a second layer of known width, or with one of unknown width.
    for n_behind in (1, 2) if view.second_width is None else (2,):
        if inquiry.out_of_time:
            break
        yield from _more_hidden_layers(inquiry, view, n_behind, m_1, m_L)


def _one_hidden_layer(inquiry, first, m_1, m_L):
    stage = "one hidden layer (vertices)"
    network, misfit = fit_behind(inquiry, View("vertices", first), (m_1, m_L), stage, m_1 * m_L)
    if misfit <= inquiry.fit_tolerance:
        yield _Candidate(network, misfit, "saturation, vertices")


def _two_hidden_layers(inquiry, view, m_1, m_L):
    widths = m_1, view.second_width, m_L
    network, misfit = fit_behind(inquiry, view, widths, "two hidden layers (interior)", 60)
    polishable = _POLISHABLE if inquiry.fresh.sigma is None else _POLISHABLE_NOISY
    near = misfit <= max(inquiry.fit_tolerance, view.roughness, polishable)
    if near and sum(widths[:-1]) <= inquiry.limits.max_neurons:
        yield _Candidate(network, misfit, "saturation, interior")


def _two_hidden_layers_on_patches(inquiry, first, layers):
    found = second_layer_on_patches(inquiry, first, layers)
    if found is not None and sum(found.network.layer_widths[:-1]) <= inquiry.limits.max_neurons:
        yield _Candidate(found.network, found.residual, "saturation, patches")


def _more_hidden_layers(inquiry, view, n_behind, m_1, m_L):
    at_least = inquiry.architecture((m_1, view.second_width or 1, *[1] * (n_behind - 1), m_L))
    if sum(at_least.widths[:-1]) > inquiry.limits.max_neurons:
        return
    with inquiry.log.stage(f"{n_behind + 1} hidden layers ({view.way})", inquiry.oracle, unit="starts") as entry:
        network, misfit = fit_smallest_downstream(
            inquiry.oracle,
            view.first,
            view.way,
            at_least,
            inquiry.rng,
            second_known=view.second_width is not None,
            max_neurons=inquiry.limits.max_neurons + _SPARE - m_1,
            search=inquiry.search(30, max(inquiry.fit_tolerance, view.roughness), entry["progress"]),
        )
        entry["residual"] = misfit
    if network is not None:
        yield _Candidate(network, misfit, f"saturation, {view.way}")


def _minimal(inquiry, candidate):
    """Polish, prune what turns out superfluous then, and polish again."""
    found = polished_attempt(inquiry, candidate.network, candidate.misfit, "polish", candidate.route)
    U = where_units_move(found.network)
    superfluous = redundant_units(found.network, U, deadline=inquiry.oracle.clock.deadline)
    tol, noise = inquiry.limits.tol, inquiry.fresh.noise
    if not any(superfluous) or found.error > max(tol, 10.0 * noise):
        return found
    widths = tuple(m - r for m, r in zip(found.network.layer_widths, (*superfluous, 0), strict=True))
    deadline = inquiry.oracle.clock.deadline
    network, misfit = prune_to(found.network, U, found.network(U), widths, tol=inquiry.fit_tolerance, deadline=deadline)
    smaller = polished_attempt(inquiry, network, misfit, "polish", candidate.route)
    return smaller if smaller.error <= max(tol, 3.0 * found.error) else found
