"""Optional steps of identification (rescues, repairs, retries, special cases), each with what leaves it out."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass


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
