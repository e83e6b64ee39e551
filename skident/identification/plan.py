"""The plan: which methods, in which order, with which variants, and why; data that prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from skident.fitting.directions_at_saturation import EXPONENTIAL_RATES
from skident.linalg import n_free_entries
from skident.network import get_activation
from skident.oracle import NotIdentified

from .hessians.subspace import n_visible
from .methods import (
    asymptotes,
    discovery,
    hessians,
    hidden_coordinates,
    linear,
    near_data,
    range_fit,
    relu,
    relu_limit,
    saturating,
    second_layer,
)
from .problem import Problem


class Method(Protocol):
    """A way to recover a network."""

    name: str

    def refuses(self, problem: Problem) -> str | None:
        """Why the method cannot work on a problem, for the user; None if it can."""

    def run(self, problem: Problem, step: Step, state):
        """Recover a network: an `Attempt`, or None if this step does not apply; raises `NotIdentified`."""


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes
    ----------
    method : Method
    variant : str
        What distinguishes this step from others of the same method.
    reason : str
        Why the method was chosen.
    fallback : bool
        Whether the step is made only if the others explain nothing, even after a refusal.
    """

    method: Method
    variant: str = ""
    reason: str = ""
    fallback: bool = False

    def __str__(self):
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.method.name}{variant}: {self.reason}"


def plan(problem):
    """Choose the steps for a problem; `NotIdentified` if its options exclude every method."""
    hidden, strategy = problem.activations[0], problem.options.strategy
    if hidden == "identity" and strategy == "auto" and not linear.METHOD.refuses(problem):
        return _steps(problem, linear.METHOD, "the outputs are linear, as without hidden units")
    if hidden in relu.ACTIVATIONS:
        steps = _steps(problem, relu.METHOD, f"{hidden} networks are determined by their activation boundaries")
        return [*_linear_first(problem), *steps]
    if problem.oracle.output_bounds is not None:
        reason = f"the outputs are clipped: the {hidden} network is recovered strictly between the plateaus"
        return _steps(problem, range_fit.METHOD, reason)
    if strategy == "saturation" and (refusal := saturating.METHOD.refuses(problem)):
        raise NotIdentified("plan", "options", refusal)
    if strategy == "auto" and asymptotes.METHOD.applies(problem) and not problem.pipeline.first:
        return _far_out(problem)
    alone = problem.discover or not get_activation(hidden).smooth
    limit = [] if strategy != "auto" or problem.pipeline.first else _relu_limit(problem, alone)
    if limit and alone:
        return limit
    if refusal := asymptotes.METHOD.refuses(problem):
        raise NotIdentified("plan", "options", refusal)
    if problem.prediction is not None:
        reason = "input_range keeps queries where neither outputs nor Hessians determine most of the weights"
        return _steps(problem, near_data.METHOD, reason)
    near = problem.pipeline.first or not get_activation(hidden).saturating
    if problem.widths is None and near and problem.oracle.input_range is not None:
        return _steps(problem, range_fit.METHOD, "input_range excludes the outputs far out, which count units")
    if problem.discover:
        steps = _steps(problem, discovery.METHOD, _reason(problem), discovery.VARIANTS)
        steps = [*_linear_first(problem), *steps]
        near = "units that do not saturate may explain the outputs in one hidden layer"
        one_layer = problem.activations[1] == "identity"
        return [*steps, Step(hessians.METHOD, hessians.CENTER, near, fallback=True)] if one_layer else steps
    try:
        steps = _given_widths(problem)
    except NotIdentified:
        if not limit:
            raise
        return limit
    return [*limit, *(replace(step, fallback=not problem.shallow) for step in steps)] if limit else steps


def _linear_first(problem):
    """A linear fit of logits: lost ones bend as activation boundaries and curved units do; few queries decide."""
    logits = problem.oracle.response == "predict_proba"
    logits &= problem.detected is not None or problem.oracle.precision.kind == "decimals"
    return [Step(linear.METHOD, "", "logits may be linear")] if logits else []


def _steps(problem, method, reason, variants=("",)):
    """Steps of one method, at most `n_attempts`; `NotIdentified` if it refuses the problem."""
    if refusal := method.refuses(problem):
        raise NotIdentified("plan", "options", refusal)
    return [Step(method, variant, reason) for variant in variants[: problem.options.n_attempts]]


def _hessians(problem, reason):
    """Steps of the Hessian pipeline: at the center, at the inflection point, near the center."""
    return [Step(hessians.METHOD, variant, reason) for variant in hessians.variants(problem.options.n_attempts)]


def _far_out(problem):
    """Steps for units that are linear at large inputs: asymptotes, then Hessians if they exist and widths are given."""
    reason = f"{problem.activations[0]} is linear at large inputs, where every unit of one hidden layer varies alone"
    alone = problem.discover or not get_activation(problem.activations[0]).smooth
    first = Step(asymptotes.METHOD, asymptotes.ALONE if alone else "", reason)
    return [first] if alone else [first, *_hessians(problem, reason)]


def _relu_limit(problem, alone):
    """The step of units that are linear at large inputs, if it applies."""
    reason = f"{problem.activations[0]} networks tend to ReLU networks at large inputs"
    return (
        [Step(relu_limit.METHOD, asymptotes.ALONE if alone else "", reason)]
        if relu_limit.METHOD.applies(problem)
        else []
    )


def _given_widths(problem):
    """Steps for given widths or one hidden layer: saturation, faces, Hessians, whichever apply."""
    options, reason = problem.options, _reason(problem)
    near, names = _hessians(problem, reason), saturating.variants(options.n_attempts)
    far = [Step(saturating.METHOD, variant, reason) for variant in names]
    can_saturate = get_activation(problem.activations[0]).saturating and not problem.shallow
    far_first = can_saturate and options.strategy == "auto" and not problem.pipeline.first
    fits = problem.shallow or n_visible(problem.architecture()) <= n_free_entries(problem.oracle.n_inputs)
    if options.strategy == "saturation" and can_saturate:
        steps = far
    elif problem.shallow or (len(problem.widths) <= 3 and (fits or not far_first)):
        steps = ([*far[:2], *near] if far_first else near)[: options.n_attempts]
    elif far_first:
        steps = far
    else:
        raise NotIdentified("plan", "options", hessians.METHOD.refuses(problem))
    if problem.oracle.input_range is not None and not get_activation(problem.activations[0]).saturating:
        steps.append(Step(range_fit.METHOD, "", "within input_range, fits explain what Hessians leave"))
    if _shows_far_steps(problem):
        first = Step(discovery.METHOD, "", "far units are steps, which noise does not hide")
        steps = [first, *(replace(step, fallback=True) for step in steps)]
    steps = _with_hidden_coordinates(problem, _with_faces(problem, steps))
    if any(step.method is saturating.METHOD for step in steps):
        units = Step(saturating.METHOD, saturating.DETECTED_UNITS, "fewer units vary than layer_widths states", True)
        steps.append(units)
    return steps


def _shows_far_steps(problem):
    """Whether one hidden layer of saturating units is counted far out, where noise hides derivatives near the data."""
    hidden, output = problem.activations
    noisy = problem.held_out.noise_std is not None and output == "identity" and problem.oracle.response == "predict"
    free = problem.options.strategy == "auto" and not problem.pipeline.first and problem.oracle.reach == float("inf")
    return problem.shallow and noisy and free and hidden in EXPONENTIAL_RATES


def _with_hidden_coordinates(problem, steps):
    """The steps after one in hidden coordinates, which needs no random starts, if that applies."""
    other = problem.options.strategy == "hessian" or problem.pipeline.first
    if other or not hidden_coordinates.applies(problem):
        return steps
    reason = "the outputs of a first layer with at most D units are coordinates in which one hidden layer remains"
    return [Step(hidden_coordinates.METHOD, "", reason), *steps]


def _with_faces(problem, steps):
    """The steps with one on faces: first, or after the first step if vertices are likely to suffice."""
    if problem.options.strategy == "hessian" or problem.pipeline.first or not second_layer.applies(problem):
        return steps
    faces = Step(second_layer.METHOD, "", steps[0].reason)
    return [faces, *steps] if second_layer.is_cheapest(problem) else [steps[0], faces, *steps[1:]]


def _reason(problem):
    """Why the steps for saturating or smooth activations are those that they are."""
    name, strategy = problem.activations[0], problem.options.strategy
    if strategy != "auto":
        return f"strategy={strategy!r} was given"
    if not get_activation(name).saturating:
        return f"{name} does not saturate, so that Hessians have to determine its units"
    if problem.pipeline.first:
        return "stages were given, or units do not saturate within the input range"
    if problem.shallow and not problem.discover:
        return f"{name} saturates, and a fit of scales and biases recovers the rest of one hidden layer"
    if not problem.discover and second_layer.applies(problem) and second_layer.is_cheapest(problem):
        return f"{name} saturates at large inputs, and faces of the cube of its outputs determine the second layer"
    return f"{name} saturates at large inputs"
