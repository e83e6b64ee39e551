"""A start of the paper's sum form without random weights: layer upon layer by regression."""

from __future__ import annotations

import dataclasses

from .layer_regression import can_regress, n_columns, regress_top_layer
from .problem import copy_layers
from .solvers import set_trainable

__all__ = ["regress_layers", "regressable_layers"]

# Where a layer above is still to come: steps at most, and those in which the loss must halve.
_STEPS, _SETTLED = 30, 8


def regressable_layers(problem, search):
    """The new layers, where `regress_top_layer` can give each of them its weights.

    Parameters
    ----------
    problem : Problem
    search : Search

    Returns
    -------
    list of int
        Empty where one of them needs a search.
    """
    known = 0 if problem.start is None else len(problem.start.widths)
    new = list(range(known + 2, problem.architecture.depth + 1))
    plain = search.solver == "lm" and problem.architecture.curvature is None
    return new if plain and new and can_regress(problem.architecture, new, len(problem.x)) else []


def regress_layers(problem, search, module, rows, ridge):
    """Give new layers their weights one after the other, all trained layers fitted together after each.

    Parameters
    ----------
    problem : Problem
    search : Search
    module : QuadraticDenseNet
        Sum form, of all layers; changed.
    rows : WeightedRows
    ridge : float
        Of `regress_top_layer`.

    Returns
    -------
    QuadraticDenseNet
        The module.
    """
    kind, layers, lower = problem.architecture, regressable_layers(problem, search), None
    if layers[0] > 2:  # fitted with other weights of the rows
        lower = _cut(problem, module, layers[0] - 1)
        search.minimise(lower, rows, max_iter=search.steps(_STEPS), patience=_SETTLED)
        copy_layers(lower, module)
    for layer in layers:
        some = rows.first(max(8 * kind.n_weights, 4 * n_columns(kind, layer)))
        net = _cut(problem, module, layer)
        regress_top_layer(net, lower, some, problem.fixed, ridge)
        if layer < layers[-1]:
            search.minimise(net, some, max_iter=search.steps(_STEPS), patience=_SETTLED)
        copy_layers(net, module)
        lower = net
    return module


def _cut(problem, module, layer):
    """The layers 2, ..., `layer` of a module in the sum form, all but the fixed ones to be trained."""
    lower = dataclasses.replace(problem, architecture=problem.architecture.up_to(layer), start=None)
    net = lower.build("sum")
    copy_layers(module, net)
    set_trainable(net, fixed=problem.fixed)
    return net
