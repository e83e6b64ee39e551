"""How a quadratic DenseNet is fitted to standardised data: the paper's form, linear readouts, skorch."""

from __future__ import annotations

import copy

import numpy as np
import torch

from skident.optim import give_up_when_slow
from skident.training.net import Training, fit_module

from .layer_regression import RIDGES, can_regress, n_columns, regress_top_layer
from .linear_fits import fit_linear
from .problem import Fit, Problem, copy_layers, minimise
from .solvers import set_trainable

__all__ = ["fit_auto", "fit_skorch", "fit_sum", "found_twice"]

EXACT = 1e-10  # relative loss from which the data are explained
_ALL_FOUND = 1e-20  # from which the layers added to a given start are found too, however small their alpha
_HOPEFUL = 1e-2  # relative loss from which the hidden biases are let free
_PATIENCE = 30  # steps in which the loss must halve
_SETTLED = 8  # the same where a layer above is still to come


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
    result = minimise(
        problem,
        module,
        problem.x,
        y,
        weights=weights,
        l2=l2,
        max_iter=20 if exact else 100,
        target=1e-28 * len(y),
        callback=give_up_when_slow(_PATIENCE, 0.0),
    )
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
        minimise(
            problem, net, problem.x[:n], y[:n], weights=w[:n], max_iter=30, callback=give_up_when_slow(_SETTLED, 0.0)
        )

    if layers[0] > 2:  # fitted with other weights of the rows
        lower = _cut(problem, module, layers[0] - 1)
        settle(lower, len(y))
        copy_layers(lower, module)
    for layer in layers:
        n = min(len(y), max(8 * problem.n_weights, 4 * n_columns(problem, layer)))
        net = _cut(problem, module, layer)
        regress_top_layer(net, lower, problem.x[:n], y[:n], w[:n], problem.fixed, ridge)
        if layer < layers[-1]:
            settle(net, n)
        copy_layers(net, module)
        lower = net


def _cut(problem, module, layer):
    """The layers 2, ..., `layer` of a module in the sum form."""
    kept = {name: getattr(problem, name)[: layer - 1] for name in ("widths", "connections", "alphas")}
    net = Problem(**{**vars(problem), **kept, "start": None}).build("sum")
    copy_layers(module, net)
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
        result = minimise(
            problem,
            module,
            x[:n],
            y[:n],
            weights=w[:n],
            l2=l2,
            max_iter=limit,
            target=1e-26 * scale,
            callback=give_up_when_slow(_PATIENCE, 0.0),
        )
        loss = result.cost / scale
        history += [cost / scale for cost in result.history]
        converged = result.status != "max_iter"
        if not loss < _HOPEFUL or l2:
            break
    return loss, history, converged


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
    """Relative squared error of `fit_sum` on held-out rows, from new starts.

    Its polynomials may explode between rows, which generalised cross-validation does not see.
    """
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
        Arguments of `skident.training.net.Training`, and ``callbacks``.

    Returns
    -------
    Fit
        ``net`` is the skorch net.
    """
    kwargs = {"batch_norm": batch_norm} if readout == "linear" else {}
    module = problem.build(readout, **kwargs)
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    seed = int(problem.rng.randint(2**31 - 1))
    options = {name: value for name, value in training.items() if name != "callbacks"}
    settings = Training(seed=seed, one_cycle=True, clip=5.0, **options)
    x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    net = fit_module(module, x, y, criterion, settings, callbacks=training["callbacks"])
    module.eval()
    history = [float(loss) for loss in net.history[:, "train_loss"]]
    if not np.isfinite(history[-1]):
        raise FloatingPointError(module)
    return Fit(module, [history[-1]], history, initial, l2=training["weight_decay"], net=net)
