"""Saturating networks: the first layer at large inputs, then a fit of the layers after it."""

import functools
import math
from dataclasses import dataclass, replace

from skident.network import get_activation
from skident.oracle import NotIdentified, OutOfBudgetError

from ..attempt import polished_attempt
from ..constants import FEW_OUTPUTS
from ..saturating.biases import find_first_biases, gradient_step
from ..saturating.downstream import fit_downstream
from ..saturating.first_layer import FirstLayer, refuse_surplus

_AMPLIFICATION = 1e4  # residual of biases from gradients over the error of the gradients (measured on random networks)
_GOOD_RESIDUAL = 2e-8  # relative residual of biases from gradients that is rounding of differences
_REPEATS = 2  # further sets of points for biases from gradients (budget)
_MIN_TOL = 1e-6  # residual that biases from gradients leave: they are known to about 1e-8
_MAX_TOL = 1e-5  # `_MIN_TOL` if an offset of the outputs is rounded too
_FIT_FAILED = 1e-3  # relative residual from which the fit to vertices, not the polish, limits the error
_VALUES_PER_PARAMETER = 2.0  # values at vertices per parameter of the remaining layers (overdetermined twice)
FEW_UNITS = 12  # width up to which a first layer has so few vertices that its biases are fitted too


@dataclass(frozen=True)
class View:
    """Where the layers after the first one are observed: vertices, interior or stem of the cube of its signs.

    `second_width`: if gradients determine it; `tol`: residual that the errors of the first layer may leave.
    """

    where: str
    first: FirstLayer
    second_width: int | None = None
    tol: float = 0.0


@dataclass(frozen=True)
class _Variant:
    """How a step observes the layers after the first one."""

    vertices_first: bool = False  # vertices need directions only, and several outputs leave few local minima there
    search_again: bool = False  # recover the first layer again
    exact_biases: bool = True  # first-layer biases from gradients, also for several outputs
    stem: bool = False  # fit first-layer biases too, also for more than `FEW_UNITS` units


_VARIANTS = {
    "vertices if they suffice": _Variant(vertices_first=True),
    "exact biases": _Variant(stem=True),
    "first layer again": _Variant(search_again=True, exact_biases=False),
    "first-layer biases fitted": _Variant(stem=True),
    "vertices again": _Variant(),
}
DETECTED_UNITS = "as many units as were detected"


def variants(n_attempts):
    """Names of the variants of so many steps; the last two take turns."""
    names = [*_VARIANTS]
    return (names[:3] + names[3:] * n_attempts)[:n_attempts]


class Saturation:
    """The first layer at large inputs, a fit of the layers after it, then the polish."""

    name = "saturation"

    def refuses(self, problem):
        """See `Method`."""
        hidden = problem.activations[0]
        if get_activation(hidden).saturating:
            return None
        return (
            f"strategy='saturation' needs an activation that saturates (tanh, sigmoid, erf), got {hidden!r}; use "
            "options=IdentifierOptions(strategy='hessian')."
        )

    def run(self, problem, step, state):
        """See `Method`; None if the first layer has fewer units than given, or nothing fits the layers after it."""
        if step.variant == DETECTED_UNITS:
            return _with_detected_units(problem, state)
        return _recover(problem, state.first_layer, _VARIANTS[step.variant])


METHOD = Saturation()


def _recover(problem, first_layer, variant):
    """First layer, the layers after it, polish; None if units are missing or no fit succeeds."""
    widths = problem.widths
    rough = variant.vertices_first and _vertices_may_suffice(problem)
    first = first_layer.find(problem, widths[0], precise=not rough, again=variant.search_again)
    if first is not None and len(first.biases) > widths[0]:  # one unit, recovered roughly, may look like two
        first = first_layer.find(problem, widths[0])
    if first is None or len(first.biases) < widths[0]:
        return None
    near = "options=IdentifierOptions(extractor=EntangledWeightExtractor(first_layer='hessian'))"
    refuse_surplus(first, widths, f"stay near the data with {near}.")
    view = _choose_view(problem, first, variant)
    n_parameters = problem.architecture(widths[1:]).n_parameters(widths[0])
    network, residual = fit_view(problem, view, widths, f"rest of the network ({view.where})", n_parameters)
    if network is None:
        return None
    stage = "vertices" if residual > max(_FIT_FAILED, 10.0 * problem.fit_tol) else "polish"
    return polished_attempt(problem, network, residual, stage, f"saturation, {view.where}")


def _with_detected_units(problem, state):
    """A network with as many first-layer units as were detected, if these are fewer than given; else None."""
    first, best = state.first_layer.find(problem, problem.widths[0]), None
    n_detected = 0 if first is None else len(first.biases)
    if not 0 < n_detected < problem.widths[0]:
        return None
    fewer = replace(problem, widths=(n_detected, *problem.widths[1:]))
    for name in variants(2):
        try:
            attempt = _recover(fewer, state.first_layer, _VARIANTS[name])
        except OutOfBudgetError:
            if best is None:
                raise
            break
        except NotIdentified:
            break
        if attempt is not None and (best is None or attempt.error < best.error):
            best = attempt
        if best is not None and best.error < problem.accepted_error:
            break
    return best


def fit_view(problem, view, widths, stage, n_parameters):
    """A network of given widths fitted to a view, and its residual; None if every start was given up."""
    with problem.log.stage(stage, problem.oracle, unit="starts") as entry:
        search = problem.search(n_parameters, max(problem.fit_tol, view.tol), entry["progress"])
        if len(widths) == 2 and problem.activations[1] == "identity":  # linear: every start ends at the same minimum
            search = replace(search, n_starts=1)
        architecture = problem.architecture(widths)
        network, residual = fit_downstream(problem.oracle, view.first, view.where, architecture, problem.rng, search)
        entry["residual"] = residual
    return network, residual


def _several_outputs(problem):
    """Whether vertices leave few local minima."""
    return problem.widths[-1] >= FEW_OUTPUTS or len(problem.widths) == 2


def _choose_view(problem, first, variant):
    """Where to observe the layers after the first one.

    Vertices need directions only. They suffice if several outputs leave few local minima. With one or two outputs, or
    after a failure, gradients make the first layer exact, so that the rest can be observed anywhere. With few vertices,
    everything is fitted at once.
    """
    if variant.vertices_first and _vertices_may_suffice(problem):
        return View("vertices", first)
    view = None
    if variant.exact_biases or not _several_outputs(problem):
        view = exact_view(problem, first, problem.widths[1])
    if view is None:
        stem = problem.widths[0] <= FEW_UNITS or variant.stem
        view = View("stem" if stem else "vertices", first)
    return view


def _vertices_may_suffice(problem):
    """Whether vertices leave few local minima, and the polish or gradients can determine the first layer's biases.

    Trained classifiers are too steep for the polish alone.
    """
    wide = problem.widths[0] > problem.oracle.n_inputs
    return _several_outputs(problem) and not (wide and problem.oracle.response == "predict_proba")


def vertices_suffice(problem):
    """Whether there are enough vertices to determine the layers after the first one."""
    m, D = problem.widths[0], problem.oracle.n_inputs
    n_vertices = 2.0 * sum(math.comb(m - 1, k) for k in range(min(m, D)))
    n_values = n_vertices * problem.oracle.n_independent_outputs(problem.widths[-1])
    return n_values >= _VALUES_PER_PARAMETER * problem.architecture(problem.widths[1:]).n_parameters(m)


def exact_view(problem, first, second_width):
    """The view from the interior, with first-layer biases from gradients; None if these do not determine them."""
    with problem.log.stage("first-layer biases (gradients)", problem.oracle) as entry:
        search = functools.partial(
            find_first_biases,
            problem.oracle,
            activation=problem.activations[0],
            rng=problem.rng,
            n_next=second_width,
            noise=problem.held_out.relative_noise,
        )
        exact, width, residual = search(first)
        accuracy = problem.held_out.accuracy
        rounding = accuracy.relative_error / gradient_step(accuracy) if accuracy.exact else 0.0
        good = max(_GOOD_RESIDUAL, _AMPLIFICATION * rounding)
        for _ in range(_REPEATS):
            if width is None or residual < good:
                break
            again = search(exact)  # other points: a unit may hardly contribute to the null space of some
            exact, width, residual = again if again[2] < residual else (exact, width, residual)
        entry["residual"] = residual if residual < float("inf") else None
    tol = min(max(_MIN_TOL, 10.0 * _AMPLIFICATION * rounding), _MAX_TOL)
    return None if width is None else View("interior", exact, width, max(residual, tol))
