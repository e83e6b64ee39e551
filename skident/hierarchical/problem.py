"""The problem that is fitted, options of a fit, one attempt from one start, and the resulting fit."""

import copy
import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from skident.base.progress import StageLog
from skident.training.net import WeightedLoss

from .architecture import DenseNetArchitecture
from .modules import QuadraticDenseNet
from .scaling import InputScaling, TargetScaling
from .solvers import LEAST_SQUARES, WeightedSamples

STOCHASTIC = ("adam", "sgd")  # solvers


@dataclass(frozen=True)
class Problem:
    """Standardized data and the architecture to fit to them."""

    x: torch.Tensor  # (n, d)
    y: torch.Tensor  # (n, o), or (n,) of integers for classes
    architecture: DenseNetArchitecture
    input_scaling: InputScaling
    target_scaling: TargetScaling
    rng: np.random.RandomState  # of starts and batches
    x0: torch.Tensor | None = None  # the offset column (n, 1) of Theorem 4, unscaled
    start: QuadraticDenseNet | None = None  # layers that it has begin at its weights
    fixed: tuple = ()  # layers whose weights stay
    # all layers are fitted at once; if not, l2="auto" is 0 for the sum, to compare what lower layers learn alone
    whole: bool = True
    weights: torch.Tensor | None = None  # of the samples, (n, 1), with mean one

    def build(self, readout, scaling=None, *, batch_norm=False, direct=None):
        """A module on x's device: the weights of `start` where it has them, else random.

        `scaling` are those in which the module is to be fitted to y; None is y's own.
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
            copy_layers((scaling or TargetScaling()).to_standardized_(old), module)
        return module.to(self.x.device)

    @property
    def moments(self):
        """``E x^2``, (d,)."""
        return self.mean(self.x**2).cpu()

    def mean(self, values):
        """Weighted mean of values (n, k) over the samples, (k,)."""
        return (values if self.weights is None else self.weights * values).mean(dim=0)

    @property
    def sample_weights(self):
        """The weights as an array (n,), or None."""
        return None if self.weights is None else self.weights[:, 0].cpu().numpy()

    def samples(self, y=None, factors=None):
        """The samples for least squares, with other targets if given; `factors` (n, 1) multiply the residuals."""
        roots = None if self.weights is None else self.weights.sqrt()
        both = [part for part in (roots, factors) if part is not None]
        return WeightedSamples(self.x, self.y if y is None else y, math.prod(both) if both else None)

    def variance(self):
        """Weighted mean over the samples of the squared distance of the targets to their mean."""
        return float(self.mean((self.y - self.mean(self.y)) ** 2).sum())

    def relative_error(self, squares):
        """Weighted mean of squared errors (n,) over the samples, relative to the variance of the targets."""
        return float(np.average(squares, weights=self.sample_weights)) / self.variance()

    def with_targets(self, criterion):
        """Targets and criterion of a training by skorch: a `WeightedLoss` and pairs with weights if there are any."""
        if self.weights is None:
            return self.y, criterion
        return (self.y, self.weights[:, 0]), functools.partial(WeightedLoss, criterion)

    def generator(self):
        """A new torch generator, seeded from `rng`."""
        return torch.Generator().manual_seed(self.seed())

    def seed(self):
        """The next seed from `rng`."""
        return int(self.rng.randint(2**31 - 1))

    def part(self, indices):
        """The same problem on the samples with these indices."""
        x0 = None if self.x0 is None else self.x0[indices]
        weights = None if self.weights is None else self.weights[indices] / self.weights[indices].mean()
        return dataclasses.replace(self, x=self.x[indices], y=self.y[indices], x0=x0, weights=weights)


@dataclass(frozen=True)
class Attempt:
    """The module that one start led to."""

    module: QuadraticDenseNet
    initial: QuadraticDenseNet  # the module at the start
    loss: float
    history: list
    converged: bool = True


@dataclass(frozen=True)
class Distillation:
    """Record of a run of Algorithm 1."""

    spectrum: dict  # singular values when layer l was distilled, by l
    stages: list  # `epoch`, `objective` and `event` of each change, with details of the event


@dataclass(frozen=True)
class Fit:
    """A fitted module in the problem's units, and how it was obtained."""

    module: Any  # QuadraticDenseNet or DistilledQuadraticNet
    initial: QuadraticDenseNet | None  # the module at the start
    restart_losses: list  # of each start: squared error relative to the variance, or cross-entropy
    history: list  # the chosen start's loss after each step or epoch
    converged: bool = True
    # final squared error of all samples, relative to the variance; NaN for other forms than the sum
    loss: float = float("nan")
    exact: bool = False  # whether the sum is the target, see `is_exact`
    error: float = float("nan")  # estimated relative squared error on new data; NaN if not estimated
    squares: Any = None  # (n,): squared errors of samples left out by thirds, in order; None if not estimated
    l2: float = 0.0
    # inputs are clipped to the samples' range widened by this fraction at either end; None is no clipping
    margin: float | None = None
    sharpness: float | None = None  # v of Theorem 4
    skorch_net: Any = None  # skorch.NeuralNet, if skorch trained
    predictor: Any = None  # predicts instead of `module`, in the problem's units, if not None
    distillation: Distillation | None = None  # of Algorithm 1
    input_noise: float = 0.0  # standard deviation of the noise on inputs in training
    noise_selection: Any = None  # how held-out samples selected it

    @property
    def finite(self):
        """Whether any start ended with a finite loss; if not, `module` is the first that overflowed."""
        return any(math.isfinite(loss) for loss in self.restart_losses)


@torch.no_grad()
def copy_layers(old, new):
    """Copy offset and the weights of common layers, readouts and direct part from one network to another."""
    for name in ("weights", "biases", *(("readouts",) if old.readout == new.readout == "linear" else ())):
        for source, target in zip(getattr(old, name), getattr(new, name)):
            target.copy_(source)
    for source, target in zip(old.norms, new.norms):
        target.load_state_dict(source.state_dict())
    new.offset.copy_(old.offset)
    new.moments.copy_(old.moments)
    for source, target in zip(old.signs, new.signs):
        target.copy_(source)
    if old.direct is not None and new.direct is not None:
        new.direct.copy_(old.direct)


@torch.no_grad()
def exploding_layer(module, x):
    """The first layer whose squared features are not finite; if all are, the layer with the largest."""
    squared = module.squared(x)
    for layer, features in squared.items():
        if not bool(torch.isfinite(features**2).all()):
            return layer
    return max(squared, key=lambda layer: float(squared[layer].abs().max()))


def require_finite(fit, x):
    """The fit, if its loss is finite; else ValueError with the layer at which it overflowed on x (n, d)."""
    if fit.finite:
        return fit
    raise ValueError(
        f"the loss exploded (it is not finite), first at layer {exploding_layer(fit.module, x)} of layers 2, ..., "
        f"{len(fit.module.connections) + 1}. Lower learning_rate, take fewer layers, or remove outliers from X."
    )


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
