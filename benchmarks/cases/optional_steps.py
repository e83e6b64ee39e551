"""Optional steps (rescues, repairs, special cases) of identification and estimators, with what leaves them out."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Step:
    """A step, which `replacements` by "module:attribute" below `skident.` leave out.

    Attributes
    ----------
    rows : str
        The step may serve the rows whose names contain one of these words, separated by "|"; "" is all.
    """

    name: str
    rows: str
    replacements: dict[str, Callable]


def _refuses(*_, **__):
    from skident.oracle import NotIdentified

    raise NotIdentified("ablation", "unexplained", "the step is left out")


def _always(value):
    return lambda *_, **__: value


def _plain_relu(problem):
    return importlib.import_module("skident.identification.methods.relu")._shallow(problem, "relu")


_METHODS, _ENGINE = "identification.methods", "identification.piecewise"
_MANY, _SECOND = "identification.piecewise.many_layers", "identification.methods.second_layer"
_SMOOTH = "tanh|sigmoid|erf|logistic"
_PLACES = {  # name: rows, places and what stands there instead
    "second layer from faces": (_SMOOTH, {f"{_SECOND}:_faces_apply": _always(False)}),
    "second layer by fits": (_SMOOTH, {f"{_SECOND}:_fit_design": _always(None)}),
    "three layers in hidden coordinates": (
        _SMOOTH,
        {f"{_METHODS}.discovery:two_layers_in_hidden_coordinates": _always(None)},
    ),
    "joint fit to noisy outputs": (_SMOOTH, {f"{_METHODS}.discovery:_noisy_network": _always(None)}),
    "maxout": ("relu", {f"{_METHODS}.relu:_maxout": _refuses}),
    "automatic leaky reading": ("relu", {f"{_METHODS}.relu:_relu_or_leaky": _plain_relu}),
    "lines where the first layer is active": ("relu", {f"{_ENGINE}.engine:orthant_lines": _always(None)}),
    "units refuted by later lines": ("relu", {f"{_ENGINE}.engine:LayerUnits.drop_refuted": _always(False)}),
    "critical points of all layers first": ("relu", {f"{_METHODS}.relu:_has_shared_critical_points": _always(False)}),
    "short lines to unseen weights": ("relu", {f"{_MANY}.units:complete_unit": _always(False)}),
}
STEPS = {name: Step(name, rows, places) for name, (rows, places) in _PLACES.items()}


def _first(place=0):
    return lambda *arguments, **_: arguments[place]


_SUM = "widths auto|sum"
_ESTIMATOR_PLACES = {  # of hierarchical, samples, fitting, landscape and saddle
    "posterior's units as a start": ("widths auto", {"hierarchical.automatic_widths:_Posterior.exact": _always(None)}),
    "sums of degree 16 and 32": ("widths auto", {"hierarchical.automatic_widths:_deep": _always(None)}),
    "regression layer by layer": (_SUM, {"hierarchical.sum_fits:regressable_layers": _always([])}),
    "second ridge of the regression": (_SUM, {"hierarchical.sum_fits:RIDGES": (1e-7,)}),
    "start from terms of degree two": (_SUM, {"hierarchical.sum_fits:start_from_degree_two": _always(None)}),
    "three hopeless starts end": ("sum", {"hierarchical.model_selection:_HOPELESS": None}),
    "first fold far behind ends": ("sum", {"hierarchical.model_selection:_FAR_BEHIND": np.inf}),
    "selected penalty": ("sum", {"hierarchical.model_selection:with_selected_penalty": _first(2)}),
    "ridge instead of layers": ("sum", {"hierarchical.linear_readout_fits:prefers_ridge": _always(False)}),
    "corrected tensors": ("ReLU", {"samples.tensor_stage:correct": _first(1)}),
    "quadratic control variate": ("ReLU", {"samples.tensor_stage:_quadratic_part": _always(None)}),
    "wide fit as a rival": ("ReLU", {"samples.learning:_from_wide_fit": lambda sample, fit, *_: (fit, False)}),
    "wide fit as a start": ("ReLU", {"samples.learning:_wider_start": _first(1)}),
    "missing units": ("ReLU", {"samples.learning:add_missing_units": _first(1)}),
    "mean of plausible networks": ("ReLU", {"samples.penalized_fit:_closest_to_mean": _first(1)}),
    "new starts at the end": ("samples", {"samples.passive.width_selection:_afresh": _first()}),
    "replaced units": ("samples", {"fitting.width_search:_with_replaced_units": _first(1)}),
    "Newton steps in the form": ("quadratic", {"landscape.descent:_Descent.polish_in_form": _always(None)}),
    "Newton steps in the weights": ("quadratic", {"landscape.descent:_Descent.polish_in_weights": _always(None)}),
    "convex finish": ("quadratic", {"landscape.descent:_MAX_REMAINING": np.inf}),
    "escapes": ("quadratic", {"landscape.descent:_Descent.escape": _always(False)}),
    "bound at a nearby minimizer": ("quadratic", {"landscape.lower_bounds:polished_form": _first(1)}),
    "integers and balls": ("quadratic", {"landscape.lower_bounds:exact_least_loss": _always(None)}),
    "depth two as a start": (
        "escape",
        {"saddle.escape_search:_best_single_unit": lambda starts, *_: starts[0][:, None]},
    ),
    "polished escapes": ("escape", {"saddle.escape_search:_polish": _first()}),
}
ESTIMATOR_STEPS = {name: Step(name, rows, places) for name, (rows, places) in _ESTIMATOR_PLACES.items()}


@contextmanager
def left_out(step):
    """Leave a step out within the block; nothing for None."""
    saved = [] if step is None else [(t, name, vars(t)[name], new) for t, name, new in _targets(step)]
    for target, name, _, new in saved:
        setattr(target, name, staticmethod(new) if isinstance(target, type) else new)
    try:
        yield
    finally:
        for target, name, old, _ in saved:
            setattr(target, name, old)


def leave_out(name):
    """Replace the step's functions in this process; nothing for ""."""
    places = {step: list(_targets(STEPS[step])) for step in STEPS if name}  # all are imported, as in `watched`
    for target, attribute, replacement in places[name] if name else ():
        setattr(target, attribute, replacement)


def watched():
    """A set to which each step, from now on, adds its name when it runs in this process."""
    ran = set()
    for step in STEPS.values():
        for target, attribute, _ in _targets(step):
            setattr(target, attribute, _noted(getattr(target, attribute), step.name, ran))
    return ran


def _noted(function, name, ran):
    @functools.wraps(function)
    def noted(*arguments, **options):
        ran.add(name)
        return function(*arguments, **options)

    return noted


def _targets(step):
    """(object, attribute, replacement) of each place."""
    for place, replacement in step.replacements.items():
        module, attribute = place.split(":")
        *path, last = attribute.split(".")
        target = importlib.import_module(f"skident.{module}")
        for part in path:
            target = getattr(target, part)
        if not hasattr(target, last):
            raise AttributeError(f"the step {step.name!r} leaves out {place}, which is not there")
        yield target, last, replacement
