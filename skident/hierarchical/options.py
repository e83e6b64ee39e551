"""How a fit is made, as the estimators' parameters say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from skident.base.progress import StageLog

from .solvers import LEAST_SQUARES

__all__ = ["BY_EPOCHS", "LayerPlan", "Method", "Search"]

BY_EPOCHS = ("adam", "sgd")  # solvers


@dataclass(frozen=True)
class LayerPlan:
    """Which layers a fit has, and where they begin.

    Attributes
    ----------
    depth : int or None
        The last layer; None is L.
    fixed : tuple of int
        Layers whose weights stay as they are in `start`.
    start : estimator or None
        Fitted. Layers that it has begin at its weights.
    """

    depth: int | None = None
    fixed: tuple = ()
    start: Any = None


@dataclass(frozen=True)
class Method:
    """What is fitted, and by what.

    Attributes
    ----------
    solver : {"lm", "lbfgs", "adam", "sgd", "algorithm1"}
    readout : {"auto", "sum", "linear"}
    batch_norm : bool
    """

    solver: str
    readout: str
    batch_norm: bool = False

    @property
    def by_epochs(self):
        """Whether skorch trains all layers together, in batches."""
        return self.solver in BY_EPOCHS

    @property
    def by_skorch(self):
        """Whether skorch trains, so that float32 will do."""
        return self.by_epochs or self.solver == "algorithm1"

    @property
    def clips(self):
        """Whether the network sees its inputs clipped, and may have batch norm."""
        return self.by_epochs and self.readout == "linear"


@dataclass(frozen=True)
class Search:
    """How Levenberg-Marquardt and L-BFGS search for weights.

    Attributes
    ----------
    solver : {"lm", "lbfgs"}
    n_init : int
        Starts at most.
    max_iter : int or None
        Steps of a start at most, where a fit would take more.
    log : StageLog
        Told what every start ended with.
    """

    solver: str = "lm"
    n_init: int = 6
    max_iter: int | None = None
    log: StageLog = field(default_factory=StageLog)

    @property
    def minimise(self):
        """`fit_least_squares` or `fit_least_squares_by_lbfgs`."""
        return LEAST_SQUARES[self.solver]

    def steps(self, usual):
        """Steps of a stage that usually takes so many.

        Parameters
        ----------
        usual : int

        Returns
        -------
        int
        """
        return min(self.max_iter or usual, usual)
