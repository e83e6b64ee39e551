"""A start of the paper's sum form without random weights: layer upon layer by regression."""

from __future__ import annotations

import dataclasses

from .layer_regression import can_regress, n_columns, regress_top_layer
from .problem import copy_layers
from .solvers import set_trainable

__all__ = ["regress_layers", "regressable_layers"]

_SETTLED = 8  # steps in which the loss must halve where a layer above is still to come


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
    layers, lower = regressable_layers(problem, search), None
    if layers[0] > 2:  # fitted with other weights of the rows
        lower = _settle(problem, search, _cut(problem, module, layers[0] - 1), rows)
        copy_layers(lower, module)
    for layer in layers:
        kind = problem.architecture
        some = rows.first(max(8 * kind.n_weights, 4 * n_columns(kind, layer)))
        net = _cut(problem, module, layer)
        regress_top_layer(net, lower, some, problem.fixed, ridge)
        if layer < layers[-1]:
            _settle(problem, search, net, some)
        copy_layers(net, module)
        lower = net
    return module


def _settle(problem, search, net, rows):
    """The network with all its trained layers fitted together, for the next layer to stand on."""
    set_trainable(net, fixed=problem.fixed)
    search.minimise(net, rows, max_iter=search.steps(30), patience=_SETTLED)
    return net


def _cut(problem, module, layer):
    """The layers 2, ..., `layer` of a module in the sum form."""
    lower = dataclasses.replace(problem, architecture=problem.architecture.up_to(layer), start=None)
    net = lower.build("sum")
    copy_layers(module, net)
    return net
