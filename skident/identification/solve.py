"""Run the methods of a plan in order until a recovered network explains the outputs."""

from dataclasses import dataclass, field

from skident.budget import MemoryLimitError
from skident.oracle import NotIdentified, OutOfBudgetError

from .attempt import Attempt
from .methods.first_layer import FirstLayerCache

_NOT_APPLICABLE = "does not apply"
_USELESS = 0.1  # error of a network of unknown depth from a fallback, above which it explains too little


@dataclass
class State:
    """What the steps of one plan share: earlier attempts, and the first layer recovered so far."""

    attempts: list = field(default_factory=list)
    first_layer: FirstLayerCache = field(default_factory=FirstLayerCache)


@dataclass(frozen=True)
class Result:
    """What all steps recovered.

    Attributes
    ----------
    best : Attempt
    tried : list of (Step, str)
        Steps that were run, and how each ended.
    failures : list of NotIdentified
    """

    best: Attempt
    tried: list
    failures: list

    @property
    def n_attempts(self):
        """Number of steps that applied."""
        return sum(end != _NOT_APPLICABLE for _, end in self.tried)


def solve(problem, steps):
    """Run one step after the other until a network explains the outputs; `NotIdentified` if none recovers any."""
    state, tried, failures, end = State(), [], [], None
    for step in steps:
        if _explained(problem, state) or (problem.out_of_time and (state.attempts or step.fallback)):
            break
        if end is not None and (not step.fallback or end.stage == "model" or end.final):
            continue
        try:
            attempt = step.method.run(problem, step, state)
            tried.append((step, _NOT_APPLICABLE if attempt is None else f"error {attempt.error:.1e}"))
            guess = step.fallback and problem.discover  # which a refusal says more than
            useless = attempt is None or (guess and attempt.error > _USELESS)
            state.attempts += [] if useless else [attempt]
        except OutOfBudgetError as error:
            if not state.attempts:
                raise (_out_of_budget(error, problem) if end is None else end) from error
            tried.append((step, str(error)))
            break
        except NotIdentified as error:  # what earlier steps recovered stays
            tried.append((step, str(error)))
            failures.append(error)
            end = error if end is None else end  # a fallback's says less
    if not state.attempts:
        raise end if end is not None else _no_first_layer(problem)
    return Result(min(state.attempts, key=lambda attempt: attempt.error), tried, failures)


def _explained(problem, state):
    return any(attempt.error < problem.accepted_error for attempt in state.attempts)


def _no_first_layer(problem):
    """The error if no step applies."""
    units = "any" if problem.widths is None else problem.widths[0]
    return NotIdentified(
        "first layer",
        "units",
        f"the first layer does not show {units} units where the model should saturate: layer_widths or "
        f"activation={problem.activations[0]!r} are probably wrong. Set layer_widths='auto', or "
        "options=IdentifierOptions(extractor=EntangledWeightExtractor(first_layer='hessian')).",
    )


def _out_of_budget(error, problem):
    """The error if the budget ends before any network was recovered."""
    done = ", ".join(f"{stage.name} ({stage.seconds:.2g} s)" for stage in problem.log.stages)
    last = problem.log.unfinished
    named = isinstance(error, MemoryLimitError)  # the error itself says what to do
    remedy = "" if named else " Raise max_seconds or max_queries, or give layer_widths."
    return NotIdentified(
        last or "search",
        "budget",
        f"{error}, and no network was recovered until then, with {problem.oracle.n_queries} queries; "
        f"finished: {done or 'nothing'}"
        f"{'' if last is None else f'; then in: {last}'}.{remedy}",
        final=True,
    )
