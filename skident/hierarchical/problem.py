"""What is fitted, what a fit gives, and the one way to minimise."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from .architecture import n_parameters
from .modules import QuadraticDenseNet
from .solvers import fit_lbfgs, fit_least_squares

__all__ = ["Fit", "Problem", "copy_layers", "minimise"]


@dataclass
class Problem:
    """Standardised data and the architecture to fit to them.

    Attributes
    ----------
    x : Tensor (n, d)
    y : Tensor (n, o), or (n,) of integers for classes
    widths, connections, alphas : tuple
        Of layers 2, ..., L.
    n_outputs : int
    rng : RandomState
    options : dict
        ``solver``, ``l2``, ``n_init``, ``max_iter``, ``curvature``, ``verbose``.
    start : QuadraticDenseNet, default=None
        Layers that it has begin at its weights.
    fixed : tuple of int
        Layers whose weights stay.
    """

    x: torch.Tensor
    y: torch.Tensor
    widths: tuple
    connections: tuple
    alphas: tuple
    n_outputs: int
    rng: Any
    options: dict
    start: QuadraticDenseNet | None = None
    fixed: tuple = ()

    def build(self, readout, unit=1.0, offset=0.0, **kwargs):
        """A module with new random weights where `start` has none, for targets in `unit` around `offset`."""
        generator = torch.Generator().manual_seed(int(self.rng.randint(2**31 - 1)))
        module = QuadraticDenseNet(
            self.x.shape[1],
            self.widths,
            self.connections,
            n_outputs=self.n_outputs,
            alphas=self.alphas,
            readout=readout,
            curvature=self.options["curvature"],
            moments=(self.x**2).mean(dim=0).cpu(),
            dtype=self.x.dtype,
            generator=generator,
            **kwargs,
        )
        if self.start is not None:
            old = copy.deepcopy(self.start).to("cpu", self.x.dtype)
            with torch.no_grad():
                old.offset -= offset
            copy_layers(old.scale_output_(1.0 / unit), module)
        return module.to(self.x.device)

    @property
    def n_weights(self):
        return n_parameters(self.x.shape[1], self.widths, self.connections)

    def part(self, rows):
        """The same problem on some rows."""
        return Problem(**{**vars(self), "x": self.x[rows], "y": self.y[rows]})


@dataclass
class Fit:
    """A fitted module, in the problem's units, and how it came about.

    Attributes
    ----------
    module : QuadraticDenseNet or ScaledLogits
    restart_losses : list of float
        Of every start: squared error relative to the variance, or cross-entropy.
    history : list of float
        The chosen start's loss after every step or epoch.
    initial : QuadraticDenseNet or None
        What it started from, in the same units.
    converged : bool
    exact : bool
        Whether the paper's form explains the data to `EXACT`.
    error : float
        Estimated relative squared error on new data; NaN where nobody asked.
    """

    module: Any
    restart_losses: list
    history: list
    initial: Any
    converged: bool = True
    exact: bool = False
    error: float = float("nan")
    l2: float = 0.0
    net: Any = None
    extra: dict = field(default_factory=dict)


@torch.no_grad()
def copy_layers(old, new):
    for name in ("weights", "biases", *(("readouts",) if old.readout == new.readout == "linear" else ())):
        for source, target in zip(getattr(old, name), getattr(new, name)):
            target.copy_(source)
    for source, target in zip(old.norms, new.norms):
        target.load_state_dict(source.state_dict())
    new.offset.copy_(old.offset)
    new.moments.copy_(old.moments)
    if old.direct is not None and new.direct is not None:
        new.direct.copy_(old.direct)


def minimise(problem, module, x, y, *, weights=None, l2=0.0, max_iter=None, target=0.0, callback=None):
    """Weighted least squares by the problem's solver; the cost is a sum over rows."""
    limit = problem.options["max_iter"] or max_iter
    limit = min(limit, max_iter or limit)
    if problem.options["solver"] == "lm":
        result = fit_least_squares(
            module, x, y, weights=weights, l2=l2, max_iter=limit, target=target, callback=callback
        )
        if result.n_iter < limit and result.status == "max_iter":
            result.status = "stationary"  # the callback found it slow
        return result
    w = 1.0 if weights is None else weights
    result = fit_lbfgs(module, lambda: ((w * (module(x) - y)) ** 2).mean(), l2=l2 / y.shape[1], max_iter=8 * limit)
    result.cost *= y.numel()
    result.history = [y.numel() * value for value in result.history]
    return result
