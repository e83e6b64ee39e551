"""Two traced modules run side by side: how alike their units answer on the same inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import fx


def similarities_on(inputs, modules, symmetry):
    """Correlations of all units of two modules over the rows of X, and over positions.

    Parameters
    ----------
    inputs : sequence of two tuples of torch.Tensor
        X as each of the modules wants it.
    modules : sequence of two torch.fx.GraphModule
    symmetry : Symmetry
        Theirs.

    Returns
    -------
    list of dict
        One a space, as `Matching.similarities` gives them; summed over the nodes where units of the space appear.

    Raises
    ------
    ValueError
        If X does not go through a module, or an answer is not finite.
    """
    found = [{} for _ in symmetry.sizes]
    runs = [_Run(module, X, f"model_{letter}") for module, X, letter in zip(modules, inputs, "ab")]
    for nodes in zip(*(module.graph.nodes for module in modules)):
        answers = [run.step(node) for run, node in zip(runs, nodes)]
        axis, entries = symmetry.values.get(nodes[0].name, (None, ()))
        for start, space, factor in entries:
            units = slice(start, start + symmetry.sizes[space])
            A, B = (_standardised(answer.movedim(axis, 0)[units]) for answer in answers)
            character = frozenset({factor} if factor is not None and symmetry.factors[factor].sign else ())
            found[space][character] = found[space].get(character, 0.0) + A @ B.T
    return found


def _standardised(answers):
    """Answers (m, n) of units with mean zero and norm one; zeros where they never change."""
    Z = answers.reshape(len(answers), -1).double().numpy()
    Z = Z - Z.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.divide(Z, norms, out=np.zeros_like(Z), where=norms > 1e-12 * max(norms.max(), 1e-300))


class _Run:
    """A module run node by node."""

    def __init__(self, module, X, name):
        self._name = name
        self._interpreter = fx.Interpreter(module)
        self._interpreter.args_iter = iter(X)

    @torch.no_grad()
    def step(self, node):
        """What the next node gives; values that no later node needs are forgotten."""
        run = self._interpreter
        try:
            run.env[node] = value = run.run_node(node)
        except Exception as error:  # whatever the module's own code raises
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(f"X does not go through {self._name}, at node {node.name!r}: {reason}") from error
        for needless in run.user_to_last_uses.get(node, ()):
            del run.env[needless]
        if isinstance(value, torch.Tensor) and not torch.isfinite(value).all():
            raise ValueError(f"{self._name} gives answers on X that are not finite, at node {node.name!r}.")
        return value
