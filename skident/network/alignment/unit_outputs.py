"""Correlate the units of two traced modules by their outputs on the same inputs."""

import numpy as np
import torch
from torch import fx

from skident.budget.constants import CONSTANT_TOL


def similarities_on(inputs, modules, symmetry):
    """Correlations of all units of two modules over the rows of X, and over positions.

    `inputs` holds X as each module takes it. Returns one dict per space, as `Matching.similarities`, summed over the
    nodes at which units of the space appear. ValueError if a module raises on X or returns outputs that are not finite.
    """
    correlations = [{} for _ in symmetry.sizes]
    runs = [Run(module, X, f"model_{letter}") for module, X, letter in zip(modules, inputs, "ab")]
    for nodes in zip(*(module.graph.nodes for module in modules)):
        outputs = [run.step(node) for run, node in zip(runs, nodes)]
        axis, entries = symmetry.values.get(nodes[0].name, (None, ()))
        for start, space, factor in entries:
            units = slice(start, start + symmetry.sizes[space])
            A, B = (standardized(Y.movedim(axis, 0)[units]) for Y in outputs)
            character = frozenset({factor} if factor is not None and symmetry.factors[factor].sign else ())
            correlations[space][character] = correlations[space].get(character, 0.0) + A @ B.T
    return correlations


def standardized(outputs):
    """Outputs (m, n) of units with mean zero and norm one; zeros if they are constant."""
    Z = outputs.reshape(len(outputs), -1).double().numpy()
    Z = Z - Z.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.divide(Z, norms, out=np.zeros_like(Z), where=norms > CONSTANT_TOL * max(norms.max(), 1e-300))


class Run:
    """Run a module node by node."""

    def __init__(self, module, X, name):
        self._name = name
        self._interpreter = fx.Interpreter(module)
        self._interpreter.args_iter = iter(X)

    @torch.no_grad()
    def step(self, node):
        """Value of the next node; values that no later node needs are released."""
        run = self._interpreter
        try:
            run.env[node] = value = run.run_node(node)
        except Exception as error:  # any error of the module's own code
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(f"X does not go through {self._name}, at node {node.name!r}: {reason}") from error
        for needless in run.user_to_last_uses.get(node, ()):
            del run.env[needless]
        if isinstance(value, torch.Tensor) and not torch.isfinite(value).all():
            raise ValueError(f"{self._name} returns outputs on X that are not finite, at node {node.name!r}.")
        return value
