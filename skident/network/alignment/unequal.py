"""Match units of two traced modules of unequal widths or depths by their outputs on the same inputs."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from .graph import symmetry_of
from .unit_outputs import Run, standardized


@dataclass(frozen=True)
class _Layer:
    """A layer's name, its units' outputs (m, n) less their mean over their norm, and whether signs are free."""

    name: str
    outputs: np.ndarray
    signed: bool


def matched_layers(inputs, modules):
    """Pairs of layers with a match of their units, and the symmetry of the second module.

    Returns a list of (name in a, name in b or None, order (m_a,), residuals (m_a,), signs (m_a,)), one per layer of a:
    unit i of a is unit ``order[i]`` of b, -1 without one. A residual is the share of the deviation of a unit's outputs
    that a multiple of its partner leaves. Layers keep their order; what they explain together is largest.
    """
    symmetries = [symmetry_of(module) for module in modules]
    a, b = (
        _layers(module, symmetry, X, f"model_{letter}")
        for module, symmetry, X, letter in zip(modules, symmetries, inputs, "ab", strict=True)
    )
    pairs = {(i, j): _matched(one, other) for i, one in enumerate(a) for j, other in enumerate(b)}
    best = np.zeros((len(a) + 1, len(b) + 1))
    for i, j in sorted(pairs):
        best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], best[i, j] + np.sum(pairs[i, j][1] ** 2))
    rows, i, j = [], len(a), len(b)
    while i:
        if j and best[i, j] == best[i, j - 1]:
            j -= 1
            continue
        i, m = i - 1, len(a[i - 1].outputs)
        if best[i + 1, j] == best[i, j]:
            rows.append((a[i].name, None, np.full(m, -1), np.ones(m), np.ones(m)))
            continue
        j -= 1
        order, correlation = pairs[i, j]
        residuals = np.sqrt(np.maximum(1.0 - correlation**2, 0.0))
        rows.append((a[i].name, b[j].name, order, residuals, np.where(correlation < 0.0, -1.0, 1.0)))
    return rows[::-1], symmetries[1]


def _layers(module, symmetry, X, name):
    """The layers of a module in the order of its graph: units as the last operation on them gives them."""
    run, outputs, signed = Run(module, X, name), {}, {}
    for node in module.graph.nodes:
        value = run.step(node)
        axis, entries = symmetry.values.get(node.name, (None, ()))
        for start, space, factor in entries:
            outputs[space] = standardized(value.movedim(axis, 0)[start : start + symmetry.sizes[space]])
            signed[space] = factor is not None and symmetry.factors[factor].sign
    return [_Layer(symmetry.names[space], outputs[space], signed[space]) for space in outputs]


def _matched(a, b):
    """For every unit of a, its partner among those of b (-1: none), and the correlation of their outputs."""
    C = a.outputs @ b.outputs.T
    C = C if a.signed and b.signed else np.maximum(C, 0.0)
    order, correlation = np.full(len(C), -1), np.zeros(len(C))
    rows, columns = linear_sum_assignment(-(C**2))
    order[rows], correlation[rows] = columns, C[rows, columns]
    return order, correlation
