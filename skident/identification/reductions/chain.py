"""A chain of reductions: each that accepts a problem makes it simpler, and the last one applied is undone first."""

from dataclasses import dataclass, replace

from .one_output import OneOutput
from .span import FirstLayerSpan

_REDUCTIONS = (
    OneOutput,
    FirstLayerSpan,
)  # each accepts a problem, or returns None; applies to it; inverts an attempt; prints


@dataclass(frozen=True)
class Chain:
    """Reductions with the problems that they were applied to; `problem` is the last, simplest one."""

    problem: object
    applied: tuple = ()

    @property
    def names(self):
        """What was reduced, in turn."""
        outputs = [box.reduction for box in self.problem.oracle.outputs]
        return [str(reduction) for reduction in (*outputs, *(reduction for reduction, _ in self.applied))]

    def invert(self, result):
        """The result of the first problem from one of the last."""
        best = result.best
        for reduction, before in reversed(self.applied):
            best = reduction.invert(before, best)
        return replace(result, best=best)


def reduced(problem):
    """The `Chain` of all reductions that accept a problem, or what the ones before leave of it."""
    chain = Chain(problem)
    for kind in _REDUCTIONS:
        reduction = kind.accepts(chain.problem)
        if reduction is not None:
            chain = Chain(reduction.apply(chain.problem), (*chain.applied, (reduction, chain.problem)))
    return chain
