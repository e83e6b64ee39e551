"""How a quadratic DenseNet is fitted to standardised data: the paper's form, linear readouts, skorch."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from skident.optim import give_up_when_slow

from .architecture import n_parameters
from .layer_regression import RIDGES, can_regress, n_columns, regress_top_layer
from .modules import QuadraticDenseNet
from .solvers import fit_lbfgs, fit_least_squares, set_trainable, warm_start_readout

__all__ = ["Fit", "Problem", "fit_auto", "fit_linear", "fit_skorch", "fit_sum", "found_twice"]

EXACT = 1e-10  # relative loss from which the data are explained
_ALL_FOUND = 1e-20  # from which the layers added to a given start are found too, however small their alpha
_HOPEFUL = 1e-2  # relative loss from which the hidden biases are let free
_PATIENCE = 30  # steps in which the loss must halve
_SETTLED = 8  # the same where a layer above is still to come
_L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)


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
            _copy_layers(old.scale_output_(1.0 / unit), module)
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
def _copy_layers(old, new):
    for name in ("weights", "biases", *(("readouts",) if old.readout == new.readout == "linear" else ())):
        for source, target in zip(getattr(old, name), getattr(new, name)):
            target.copy_(source)
    for source, target in zip(old.norms, new.norms):
        target.load_state_dict(source.state_dict())
    new.offset.copy_(old.offset)
    new.moments.copy_(old.moments)
    if old.direct is not None and new.direct is not None:
        new.direct.copy_(old.direct)


def _minimise(problem, module, x, y, *, weights=None, l2=0.0, max_iter=None, target=0.0, callback=None):
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


def robust_unit(y):
    """Median and 1.5 times the median distance from it; where that is zero, mean and standard deviation."""
    centre = y.median()
    unit = 1.5 * (y - centre).abs().median()
    return (float(centre), float(unit)) if unit > 1e-9 * y.std() else (float(y.mean()), float(y.std()))


def fit_sum(problem, l2=0.0, hopeless=None):
    """The paper's form, eq. (1.1), from random starts until one explains the data.

    Degree-2^L targets have heavy tails: a few rows carry most of the squared error, and a fit that follows them stalls.
    Where the target is in the class, weights change the way and not the end; so rows get the weight
    ``(1 + |y - median| / (2 unit))^-1.5`` until the data are explained, and one where they cannot be. Every start
    trains the weights on a part of the rows, then hidden biases too, and the rows in full at the end.

    Parameters
    ----------
    problem : Problem
        One output.
    l2 : float
        With a penalty there is nothing to explain exactly: rows have weight one.
    hopeless : float, default=None
        Three starts above this relative loss end the search.

    Returns
    -------
    Fit

    Raises
    ------
    FloatingPointError
        If no start has finite outputs.
    """
    centre, unit = robust_unit(problem.y)
    y = (problem.y - centre) / unit
    w = torch.ones_like(y) if l2 else (1.0 + y.abs() / 2.0) ** -1.5
    best, losses, done = None, [], EXACT if problem.start is None else _ALL_FOUND
    by_regression = _regressed_layers(problem, l2)
    for k in range(problem.options["n_init"]):
        module = problem.build("sum", unit, centre)
        regressed = bool(by_regression) and k < len(RIDGES)
        if regressed:
            _add_layers(problem, module, by_regression, y, w, RIDGES[k])
        initial = copy.deepcopy(module)
        loss, history, converged = _one_start(problem, module, y, w, l2, regressed)
        losses.append(loss)
        if problem.options["verbose"]:
            print(f"[hierarchical] start {k + 1}: relative loss {loss:.2e}")
        if best is None or loss < best[1]:
            best = module, loss, history, initial, converged
        if loss < done or found_twice(losses) or (hopeless and k >= 2 and min(losses) > hopeless):
            break
    module, loss, history, initial, converged = best
    if not np.isfinite(loss):
        raise FloatingPointError
    exact = loss < EXACT
    set_trainable(module, fixed=problem.fixed)
    weights = w if exact else None
    result = _minimise(problem, module, problem.x, y, weights=weights, l2=l2, max_iter=20 if exact else 100,
                       target=1e-28 * len(y), callback=give_up_when_slow(_PATIENCE, 0.0))
    variance = float(((y - y.mean()) ** 2).mean())
    with torch.no_grad():
        relative = float(((module(problem.x) - y) ** 2).mean()) / variance
        initial.scale_output_(unit)
        module.scale_output_(unit)
        module.offset += centre
    n, P = len(y), problem.n_weights
    error = relative / (1.0 - P / n) ** 2 if n > P else float("inf")
    history = [*history, *[cost / (n * variance) for cost in result.history]]
    converged = converged and result.status != "max_iter"
    return Fit(module, losses, history, initial, converged, exact, error, l2)


def found_twice(losses):
    """Whether the lowest loss was reached by two starts: another one would hardly find a lower one."""
    low = sorted(losses)[:2]
    return len(low) == 2 and low[0] > 1e-5 and low[1] < (1 + 1e-3) * low[0]


def _regressed_layers(problem, l2):
    """The new layers, where `regress_top_layer` can give each of them its weights; else none."""
    known = 0 if problem.start is None else len(problem.start.widths)
    new = range(known + 2, len(problem.widths) + 2)
    plain = problem.options["solver"] == "lm" and problem.options["curvature"] is None and not l2
    return list(new) if plain and new and can_regress(problem, new) else []


def _add_layers(problem, module, layers, y, w, ridge):
    """Weights of new layers one after the other by regression, all trained layers fitted together after each."""
    lower = None

    def settle(net, n):
        set_trainable(net, fixed=problem.fixed)
        _minimise(problem, net, problem.x[:n], y[:n], weights=w[:n], max_iter=30,
                  callback=give_up_when_slow(_SETTLED, 0.0))

    if layers[0] > 2:  # fitted with other weights of the rows
        lower = _cut(problem, module, layers[0] - 1)
        settle(lower, len(y))
        _copy_layers(lower, module)
    for layer in layers:
        n = min(len(y), max(8 * problem.n_weights, 4 * n_columns(problem, layer)))
        net = _cut(problem, module, layer)
        regress_top_layer(net, lower, problem.x[:n], y[:n], w[:n], problem.fixed, ridge)
        if layer < layers[-1]:
            settle(net, n)
        _copy_layers(net, module)
        lower = net


def _cut(problem, module, layer):
    """The layers 2, ..., `layer` of a module in the sum form."""
    kept = {name: getattr(problem, name)[: layer - 1] for name in ("widths", "connections", "alphas")}
    net = Problem(**{**vars(problem), **kept, "start": None}).build("sum")
    _copy_layers(module, net)
    return net


def _one_start(problem, module, y, w, l2, found=False):
    """Relative loss, its history, whether the last iteration ended by itself; `found`: no random weights."""
    x, history, loss, converged = problem.x, [], float("inf"), True
    phases = [({"weights", "offset"}, 6, 100), ({"weights", "biases", "offset"}, 8, 150)]
    # A given start has its biases: without them, a new layer would learn what they stand for.
    for kinds, rows, limit in phases if problem.start is None and not found else phases[1:]:
        n = min(len(x), max(rows * problem.n_weights, 400))
        set_trainable(module, kinds=kinds, fixed=problem.fixed)
        scale = float((w[:n] * (y[:n] - y[:n].mean())).square().sum())
        result = _minimise(
            problem, module, x[:n], y[:n], weights=w[:n], l2=l2, max_iter=limit, target=1e-26 * scale,
            callback=give_up_when_slow(_PATIENCE, 0.0),
        )
        loss = result.cost / scale
        history += [cost / scale for cost in result.history]
        converged = result.status != "max_iter"
        if not loss < _HOPEFUL or l2:
            break
    return loss, history, converged


def fit_linear(problem, l2="auto"):
    """Linear readouts and a direct part, started from ridge regression; l2 by 3-fold cross-validation.

    Returns
    -------
    Fit
        ``error`` is the cross-validated relative squared error.

    Raises
    ------
    FloatingPointError
        If no start has finite outputs.
    """
    grid = _L2_GRID if l2 == "auto" else (float(l2),)
    errors = _cross_validated(problem, grid)
    l2 = grid[int(np.argmin(errors))] if errors else 1e-2
    best, losses = None, []
    variance = float(((problem.y - problem.y.mean(dim=0)) ** 2).sum())
    for _ in range(min(2, problem.options["n_init"])):
        module = _start_linear(problem)
        initial = copy.deepcopy(module)
        result = _fit_from(problem, module, l2, 100)
        losses.append(result.cost / variance)
        if best is None or result.cost < best[1].cost:
            best = module, result, initial
    module, result, initial = best
    if not np.isfinite(result.cost):
        raise FloatingPointError
    history = [cost / variance for cost in result.history]
    error = min(errors) if errors else float("inf")
    return Fit(module, losses, history, initial, result.status != "max_iter", error=error, l2=l2)


def _start_linear(problem):
    module = problem.build("linear")
    if problem.start is None:
        with torch.no_grad():
            for W in module.weights:
                W *= 0.5
        warm_start_readout(module, problem.x, problem.y, 1e-2)
    return module


def _fit_from(problem, module, l2, max_iter):
    set_trainable(module, fixed=problem.fixed)
    return _minimise(
        problem, module, problem.x, problem.y, l2=l2, max_iter=max_iter, callback=give_up_when_slow(10, 0.0)
    )


def _cross_validated(problem, grid):
    """Relative squared error of every l2 tried, each from new starts; stops where it rose twice in a row.

    From the largest down, since polynomials that are hardly penalised may explode on the held-out rows. Empty where
    rows are too few.
    """
    n = len(problem.x)
    if n < 9 or (len(grid) == 1 and not problem.options.get("compare")):
        return [] if len(grid) > 1 else [float("inf")]
    folds = [part for part in np.array_split(np.arange(n), 3)]  # rows come in random order
    parts = [problem.part(np.setdiff1d(np.arange(n), fold)) for fold in folds]
    variance = float(((problem.y - problem.y.mean(dim=0)) ** 2).sum())
    errors = []
    for l2 in grid:
        total = 0.0
        for part, fold in zip(parts, folds):
            module = _start_linear(part)
            _fit_from(part, module, l2, 40)
            with torch.no_grad():
                error = float(((module(problem.x[fold]) - problem.y[fold]) ** 2).sum())
            total += error if np.isfinite(error) else float("inf")
        errors.append(total / variance)
        if len(errors) > 2 and errors[-1] > errors[-2] > errors[-3]:
            break
    return errors


def fit_auto(problem, l2):
    """The paper's form where it explains the data or predicts at least as well as linear readouts do."""
    penalty = 0.0 if l2 == "auto" else float(l2)
    try:
        found = fit_sum(problem, penalty, hopeless=0.02)
    except FloatingPointError:
        return fit_linear(problem, l2)
    if found.exact:
        return found
    problem.options["compare"] = True
    other = fit_linear(problem, l2)
    if found.error >= other.error:
        return other
    found.error = _cross_validated_sum(problem, penalty)
    return found if found.error < other.error else other


def _cross_validated_sum(problem, l2):
    """Relative squared error of `fit_sum` on held-out rows, from new starts: its polynomials may explode between rows,
    which generalised cross-validation does not see."""
    n, total = len(problem.x), 0.0
    for fold in np.array_split(np.arange(n), 3):
        part = problem.part(np.setdiff1d(np.arange(n), fold))
        part.options = {**problem.options, "n_init": min(2, problem.options["n_init"]), "verbose": 0}
        try:
            module = fit_sum(part, l2).module
        except FloatingPointError:
            return float("inf")
        with torch.no_grad():
            total += float(((module(problem.x[fold]) - problem.y[fold]) ** 2).sum())
    error = total / float(((problem.y - problem.y.mean()) ** 2).sum())
    return error if np.isfinite(error) else float("inf")


def fit_skorch(problem, *, readout, batch_norm, criterion, training):
    """Adam or SGD by skorch on all unfixed layers together.

    Parameters
    ----------
    problem : Problem
    readout : {"sum", "linear"}
    batch_norm : bool
    criterion : type
    training : dict
        Further arguments of `skident.training.net.fit_module`.

    Returns
    -------
    Fit
        ``net`` is the skorch net.
    """
    from skident.training.net import fit_module

    kwargs = {"batch_norm": batch_norm} if readout == "linear" else {}
    module = problem.build(readout, **kwargs)
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    seed = int(problem.rng.randint(2**31 - 1))
    net = fit_module(
        module, problem.x.cpu().numpy(), problem.y.cpu().numpy(), criterion=criterion, seed=seed, one_cycle=True,
        clip=5.0, **training,
    )
    module.eval()
    history = [float(loss) for loss in net.history[:, "train_loss"]]
    if not np.isfinite(history[-1]):
        raise FloatingPointError(module)
    return Fit(module, [history[-1]], history, initial, l2=training["weight_decay"], net=net)
