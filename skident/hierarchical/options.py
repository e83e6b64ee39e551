"""Options of a fit: which layers, which form and solver, how many starts and steps."""

from dataclasses import dataclass, field
from typing import Any

from skident.base.progress import StageLog

from .solvers import LEAST_SQUARES

STOCHASTIC = ("adam", "sgd")  # solvers


@dataclass(frozen=True)
class LayerPlan:
    """Which layers a fit has, and where they begin."""

    depth: int | None = None  # the last layer; None is L
    fixed: tuple = ()  # layers whose weights stay as they are in `start`
    start: Any = None  # a fitted estimator, whose layers are the initial values; or None


@dataclass(frozen=True)
class Method:
    """Form of the network and solver."""

    solver: str  # "lm", "lbfgs", "adam", "sgd" or "algorithm1"
    readout: str  # "auto", "sum" or "linear"

    @property
    def stochastic(self):
        """Whether skorch trains all layers together, in batches."""
        return self.solver in STOCHASTIC

    @property
    def by_skorch(self):
        """Whether skorch trains, so that float32 suffices."""
        return self.stochastic or self.solver == "algorithm1"

    @property
    def clips(self):
        """Whether the network's inputs are clipped, and each activation is followed by batch norm."""
        return self.stochastic and self.readout == "linear"


@dataclass(frozen=True)
class SolverOptions:
    """How often, how long and by what least squares problems are solved."""

    solver: str = "lm"  # "lm" or "lbfgs"
    n_starts: int = 6  # maximum number of starts
    max_iter: int | None = None  # maximum number of steps per start; None uses each fit's own
    log: StageLog = field(default_factory=StageLog)  # receives one line per start
    patience: int = 15  # steps of a fit of the sum form in which the loss must halve

    @property
    def minimize(self):
        """`fit_least_squares` or `fit_least_squares_by_lbfgs`."""
        return LEAST_SQUARES[self.solver]

    def n_steps(self, usual):
        """`usual`, or `max_iter` if that is less."""
        return min(self.max_iter or usual, usual)
