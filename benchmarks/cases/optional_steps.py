"""Optional steps of identification (rescues, repairs, retries, special cases), each with what leaves it out."""

from __future__ import annotations

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


_PIECEWISE, _METHODS = "identification.piecewise", "identification.methods"
STEPS = {
    step.name: step
    for step in (
        Step(
            "units of nearby points", "relu", {f"{_PIECEWISE}.deep.network:add_units_of_nearby_points": _always(False)}
        ),
        Step("maxout before the deep search", "relu", {f"{_METHODS}.relu:_maxout": _refuses}),
        Step(
            "automatic leaky reading",
            "relu",
            {
                f"{_METHODS}.relu:_relu_or_leaky": lambda p: importlib.import_module(
                    f"skident.{_METHODS}.relu"
                )._shallow(p, "relu")
            },
        ),
    )
}


def leave_out(name):
    """Replace the step's functions in this process; nothing for ""."""
    for place, replacement in (STEPS[name].replacements if name else {}).items():
        module, attribute = place.split(":")
        *path, last = attribute.split(".")
        target = importlib.import_module(f"skident.{module}")
        for part in path:
            target = getattr(target, part)
        if not hasattr(target, last):
            raise AttributeError(f"the step {name!r} leaves out {place}, which is not there")
        setattr(target, last, replacement)
