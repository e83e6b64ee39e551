"""What is fitted, where a start of it led, and what a fit gives."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .architecture import DenseNetArchitecture
from .modules import QuadraticDenseNet
from .units import InputUnits, TargetUnits

__all__ = ["Attempt", "Distillation", "Fit", "Problem", "copy_layers"]


@dataclass(frozen=True)
class Problem:
    """Standardised data and the architecture to fit to them.

    Attributes
    ----------
    x : Tensor (n, d)
    y : Tensor (n, o), or (n,) of integers for classes
    architecture : DenseNetArchitecture
    input_units : InputUnits
        Of x.
    target_units : TargetUnits
        Of y.
    rng : RandomState
        Of starts and batches.
    x0 : Tensor (n, 1) or None
        The offset column of Theorem 4, as it is.
    start : QuadraticDenseNet or None
        Layers that it has begin at its weights.
    fixed : tuple of int
        Layers whose weights stay.
    whole : bool
        Whether all layers are fitted at once; if not, weights without a given `l2` are not shrunk, since what lower
        layers learn alone is to be measured.
    """

    x: torch.Tensor
    y: torch.Tensor
    architecture: DenseNetArchitecture
    input_units: InputUnits
    target_units: TargetUnits
    rng: np.random.RandomState
    x0: torch.Tensor | None = None
    start: QuadraticDenseNet | None = None
    fixed: tuple = ()
    whole: bool = True

    def build(self, readout, units=None, *, batch_norm=False, direct=None):
        """A module with new random weights where `start` has none.

        Parameters
        ----------
        readout : {"sum", "linear"}
        units : TargetUnits, default=None
            In which the module is to be fitted to y; None is y's own.
        batch_norm, direct : bool
            As for `QuadraticDenseNet`.

        Returns
        -------
        QuadraticDenseNet
            Beside x.
        """
        kind = self.architecture
        module = QuadraticDenseNet(
            kind.n_features,
            kind.widths,
            kind.connections,
            n_outputs=kind.n_outputs,
            alphas=kind.alphas,
            readout=readout,
            direct=direct,
            curvature=kind.curvature,
            batch_norm=batch_norm,
            moments=self.moments,
            dtype=self.x.dtype,
            generator=self.generator(),
        )
        if self.start is not None:
            old = copy.deepcopy(self.start).to("cpu", self.x.dtype)
            copy_layers((units or TargetUnits()).enter_(old), module)
        return module.to(self.x.device)

    @property
    def moments(self):
        """``E x^2``, (d,)."""
        return (self.x**2).mean(dim=0).cpu()

    def generator(self):
        """A new stream of torch's, drawn from `rng`.

        Returns
        -------
        torch.Generator
        """
        return torch.Generator().manual_seed(self.seed())

    def seed(self):
        """The next seed of `rng`.

        Returns
        -------
        int
        """
        return int(self.rng.randint(2**31 - 1))

    def part(self, rows):
        """The same problem on some rows.

        Parameters
        ----------
        rows : ndarray of int

        Returns
        -------
        Problem
        """
        x0 = None if self.x0 is None else self.x0[rows]
        return dataclasses.replace(self, x=self.x[rows], y=self.y[rows], x0=x0)


@dataclass(frozen=True)
class Attempt:
    """One start, and where it led.

    Attributes
    ----------
    module : QuadraticDenseNet
    initial : QuadraticDenseNet
        What it was at the start.
    loss : float
    history : list of float
    converged : bool
    """

    module: QuadraticDenseNet
    initial: QuadraticDenseNet
    loss: float
    history: list
    converged: bool = True


@dataclass(frozen=True)
class Distillation:
    """What Algorithm 1 saw on its way.

    Attributes
    ----------
    spectrum : dict of int to ndarray
        Singular values when layer l was distilled.
    stages : list of dict
        ``epoch``, ``objective`` and ``event`` of everything that happened, plus what the event adds.
    """

    spectrum: dict
    stages: list


@dataclass(frozen=True)
class Fit:
    """A fitted module, in the problem's units, and how it came about.

    Attributes
    ----------
    module : QuadraticDenseNet or DistilledQuadraticNet
    initial : QuadraticDenseNet or None
        What it started from.
    restart_losses : list of float
        Of every start: squared error relative to the variance, or cross-entropy.
    history : list of float
        The chosen start's loss after every step or epoch.
    converged : bool
    loss : float
        Squared error of all rows at the end, relative to the variance; NaN for other forms than the sum.
    exact : bool
        Whether the paper's form is the target, see `is_exact`.
    error : float
        Estimated relative squared error on new data; NaN where nobody asked.
    l2 : float
    margin : float or None
        Inputs are clipped at the range of the rows widened by this share at either end; None is no clipping.
    sharpness : float or None
        v of Theorem 4.
    skorch_net : skorch.NeuralNet or None
        Where skorch trained.
    distillation : Distillation or None
        Of Algorithm 1.
    input_noise : float
        Standard deviation of the noise that inputs had in training.
    rehearsed : Rehearsed or None
        Where held-out rows chose it.
    """

    module: Any
    initial: QuadraticDenseNet | None
    restart_losses: list
    history: list
    converged: bool = True
    loss: float = float("nan")
    exact: bool = False
    error: float = float("nan")
    l2: float = 0.0
    margin: float | None = None
    sharpness: float | None = None
    skorch_net: Any = None
    distillation: Distillation | None = None
    input_noise: float = 0.0
    rehearsed: Any = None

    @property
    def finite(self):
        """Whether any start ended with a finite loss; if not, `module` is where the first one exploded."""
        return any(math.isfinite(loss) for loss in self.restart_losses)


@torch.no_grad()
def copy_layers(old, new):
    """Give a network the weights of the layers that another one has, and its offset.

    Parameters
    ----------
    old : QuadraticDenseNet
    new : QuadraticDenseNet
        Changed. Readouts and the direct part are taken over where both have them.
    """
    for name in ("weights", "biases", *(("readouts",) if old.readout == new.readout == "linear" else ())):
        for source, target in zip(getattr(old, name), getattr(new, name)):
            target.copy_(source)
    for source, target in zip(old.norms, new.norms):
        target.load_state_dict(source.state_dict())
    new.offset.copy_(old.offset)
    new.moments.copy_(old.moments)
    if old.direct is not None and new.direct is not None:
        new.direct.copy_(old.direct)
