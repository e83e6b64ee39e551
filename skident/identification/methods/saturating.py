"""Identification from far away: the first layer where it saturates, then what follows it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from skident.oracle import NotIdentified, OutOfBudgetError

from ..saturating.biases import find_first_biases, gradient_step
from ..saturating.downstream import fit_downstream, prefers_small_starts
from ..saturating.first_layer import FirstLayer, find_first_layer
from ..saturating.stated_widths import refuse_surplus
from ..saturating.tails import norms_from_tails
from ..solve import polished_attempt

__all__ = ["FEW_UNITS", "FirstLayerSearch", "View", "by_saturation", "by_shown_units", "exact_view", "fit_behind"]

_FEW_OUTPUTS = 3  # below, vertices alone leave too many local minima
_LOST = 1e4  # residual of shifts from gradients beside the error of the differences
_SHARP, _REPEATS = 2e-8, 2  # residual of shifts from gradients that is as good as exact, and tries to get there
_NEAR = 1e-4  # misfit on edges of a network that needs no more than the last digits
_DETERMINED = 2.0  # answers at vertices for every parameter of the rest
FEW_UNITS = 12  # of a first layer: so few have too few vertices


class FirstLayerSearch:
    """The first layer from far away, searched once for all attempts, or again where it is too rough."""

    def __init__(self):
        self._found, self._precise = None, False

    def find(self, inquiry, n_units, *, precise=True, again=False):
        """The first layer, or None where nothing saturates.

        Parameters
        ----------
        inquiry : Inquiry
        n_units : int or None
        precise : bool, default=True
            Whether lengths and shifts are wanted as exact as they come.
        again : bool, default=False
            Whether to search from scratch.

        Returns
        -------
        FirstLayer or None

        Raises
        ------
        BlackBoxError
            If the black box cannot be asked far away.
        """
        if again or self._found is None or (precise and not self._precise):
            self._found = None
            try:
                with inquiry.log.stage("first layer (saturation)", inquiry.oracle, n_units, "units") as entry:
                    self._found = find_first_layer(
                        inquiry.oracle,
                        activation=inquiry.activations[0],
                        n_units=n_units,
                        rng=inquiry.rng,
                        noise=inquiry.fresh.sigma,
                        precise=precise,
                        callback=entry["progress"],
                    )
                    entry.update(self._found.queries)
                self._precise = precise
            except NotIdentified:
                return None
        return self._found

    def keep(self, first):
        """Remember units that are known more precisely by now.

        Parameters
        ----------
        first : FirstLayer
        """
        self._found, self._precise = first, True


@dataclass(frozen=True)
class View:
    """How to look at what follows the first layer.

    Attributes
    ----------
    way : {"vertices", "edges", "interior", "stem"}
    first : FirstLayer
        As exact as that needs.
    second_width : int or None
        Where gradients tell it.
    roughness : float
        Misfit that the first layer's errors may leave.
    """

    way: str
    first: FirstLayer
    second_width: int | None = None
    roughness: float = 0.0


def by_saturation(inquiry, earlier, *, layers, attempt=0):
    """First layer from far away, the rest behind it, then the polish.

    Parameters
    ----------
    inquiry : Inquiry
        With known widths.
    earlier : list of Attempt
    layers : FirstLayerSearch
    attempt : int, default=0

    Returns
    -------
    Attempt or None
        None where that cannot work.

    Raises
    ------
    ValueError
        If there are more first-layer units than asked for.
    """
    widths = inquiry.widths
    rough = attempt == 0 and _vertices_may_do(inquiry)
    first = layers.find(inquiry, widths[0], precise=not rough, again=attempt == 2)
    if first is not None and len(first.biases) > widths[0]:  # one unit, seen roughly, may look like two
        first = layers.find(inquiry, widths[0])
    if first is None or len(first.biases) < widths[0]:
        return None
    refuse_surplus(first, widths, "stay near the data with extractor=EntangledWeightExtractor(first_layer='hessian').")
    view = _view_behind(inquiry, first, attempt)
    n_parameters = inquiry.architecture(widths[1:]).n_parameters(widths[0])
    network, misfit = fit_behind(inquiry, view, widths, f"rest of the network ({view.way})", n_parameters)
    if network is None:
        return None
    stage = "vertices" if misfit > max(1e-3, 10.0 * inquiry.fit_tolerance) else "polish"
    near = view.way == "edges" and misfit < _NEAR
    return polished_attempt(inquiry, network, misfit, stage, f"saturation, {view.way}", near=near)


def by_shown_units(inquiry, earlier, *, layers):
    """As many first-layer units as show far away, where these are fewer than asked for: the others may do nothing.

    Parameters
    ----------
    inquiry : Inquiry
        With known widths.
    earlier : list of Attempt
    layers : FirstLayerSearch

    Returns
    -------
    Attempt or None
        None where all units show, or none does, or nothing fits behind them.

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked.
    """
    first, best = layers.find(inquiry, inquiry.widths[0]), None
    n_shown = 0 if first is None else len(first.biases)
    if not 0 < n_shown < inquiry.widths[0]:
        return None
    fewer = replace(inquiry, widths=(n_shown, *inquiry.widths[1:]))
    for attempt in (0, 1):
        try:
            found = by_saturation(fewer, earlier, layers=layers, attempt=attempt)
        except OutOfBudgetError:
            if best is None:
                raise
            break
        except NotIdentified:
            break
        if found is not None and (best is None or found.error < best.error):
            best = found
        if best is not None and best.error < inquiry.accepted_error:
            break
    return best


def fit_behind(inquiry, view, widths, stage, n_parameters):
    """A network of given widths behind the first layer, and its misfit.

    Parameters
    ----------
    inquiry : Inquiry
    view : View
    widths : tuple of int
    stage : str
        Its name.
    n_parameters : int
        On which the number of random starts depends.

    Returns
    -------
    network : FeedforwardNetwork or None
        None where every start was given up.
    misfit : float
    """
    with inquiry.log.stage(stage, inquiry.oracle, unit="starts") as entry:
        search = inquiry.search(n_parameters, max(inquiry.fit_tolerance, view.roughness), entry["progress"])
        architecture = inquiry.architecture(widths)
        network, misfit = fit_downstream(inquiry.oracle, view.first, view.way, architecture, inquiry.rng, search)
        entry["residual"] = misfit
    return network, misfit


def _many_outputs(inquiry):
    """Whether vertices leave few local minima."""
    return inquiry.widths[-1] >= _FEW_OUTPUTS or len(inquiry.widths) == 2


def _view_behind(inquiry, first, attempt):
    """How to look at what follows the first layer.

    Vertices need no more than directions. They suffice where several outputs leave few local minima; with one or two,
    or after a failure, the first layer is made exact so that the rest can be asked anywhere. Where it cannot be, the
    edges tell the shifts once the vertices have told the rest; that comes first where small starts can find several
    hidden layers there. And where there are few vertices, everything is fitted at once.
    """
    if attempt == 0 and _vertices_may_do(inquiry):
        return View("vertices", first)
    view = None
    if attempt != 2 or not _many_outputs(inquiry):
        view = exact_view(inquiry, first, inquiry.widths[1])
    if view is None:
        first = _with_better_lengths(inquiry, first)
        soon = _many_outputs(inquiry) or (attempt == 0 and prefers_small_starts(inquiry.architecture()))
        edges = attempt < 3 and (soon or attempt == 2) and _enough_vertices(inquiry)
        stem = inquiry.widths[0] <= FEW_UNITS or attempt % 2
        view = View("edges" if edges else "stem" if stem else "vertices", first)
    return view


def _with_better_lengths(inquiry, first):
    """Where what follows is steep, lengths read off the shape of a step are wrong; those from tails are not."""
    if inquiry.fresh.sigma is not None:
        return first
    return norms_from_tails(inquiry.oracle, first, inquiry.activations[0], inquiry.rng)


def _vertices_may_do(inquiry):
    """Whether vertices leave few local minima, and the first layer's shifts can be left to the polish or to gradients.

    Trained classifiers are too steep for the polish alone.
    """
    wide = inquiry.widths[0] > inquiry.oracle.n_inputs
    return _many_outputs(inquiry) and not (wide and inquiry.oracle.response == "predict_proba")


def _enough_vertices(inquiry):
    """Whether there are so many vertices that they may determine the rest of the network."""
    m, D = inquiry.widths[0], inquiry.oracle.n_inputs
    n_answers = (
        2.0
        * sum(math.comb(m - 1, k) for k in range(min(m, D)))
        * inquiry.oracle.n_independent_outputs(inquiry.widths[-1])
    )
    return n_answers >= _DETERMINED * inquiry.architecture(inquiry.widths[1:]).n_parameters(m)


def exact_view(inquiry, first, second_width):
    """The view from inside, first-layer shifts from gradients; None where these do not tell them.

    Parameters
    ----------
    inquiry : Inquiry
    first : FirstLayer
    second_width : int or None

    Returns
    -------
    View or None
    """
    with inquiry.log.stage("first-layer shifts (gradients)", inquiry.oracle) as entry:
        search = functools.partial(
            find_first_biases,
            inquiry.oracle,
            activation=inquiry.activations[0],
            rng=inquiry.rng,
            n_next=second_width,
            noise=inquiry.fresh.noise,
        )
        exact, found, residual = search(first)
        if found is None and inquiry.fresh.sigma is None and inquiry.widths_allow_shifts(first):
            # Where what follows is steep, lengths read off the shape of a step are wrong.
            exact, found, residual = search(_with_better_lengths(inquiry, first))
        accuracy = inquiry.fresh.accuracy
        of_rounding = accuracy.relative_error / gradient_step(accuracy) if accuracy.exact else 0.0
        sharp = max(_SHARP, _LOST * of_rounding)
        for _ in range(_REPEATS):
            if found is None or residual < sharp:
                break
            again = search(exact)  # other points; sometimes a unit hardly shows in the null space of some
            exact, found, residual = again if again[2] < residual else (exact, found, residual)
        entry["residual"] = residual if residual < float("inf") else None
    # Shifts are good to some 1e-8 at best, and an exact rest leaves no less; more, where an offset is rounded too.
    left = min(max(1e-6, 10.0 * _LOST * of_rounding), 1e-5)
    return None if found is None else View("interior", exact, found, max(residual, left))
