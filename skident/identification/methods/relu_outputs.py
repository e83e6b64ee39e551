"""ReLU networks behind outputs with limits (tanh, sigmoid, erf): the network before them, where values are precise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.network import FeedforwardNetwork, change_outputs
from skident.oracle import NotIdentified, Oracle

from ..activation.outputs import inverse
from ..attempt import max_error_over_deviation
from ..problem import HeldOut
from . import relu

__all__ = ["METHOD", "OUTPUTS"]

OUTPUTS = ("tanh", "sigmoid", "erf")
_LARGEST = 4.0  # value before the activation up to which rounding of the outputs costs it three digits at most
_MIN_HELD_OUT = 20  # held-out samples with such values


class ReLUBeforeOutputs:
    """Activation boundaries of the values before the outputs' activation; beyond `_LARGEST` they count as lost."""

    name = "activation boundaries before the outputs' activation"

    def refuses(self, problem):
        """See `Method`."""
        return relu.METHOD.refuses(replace(problem, activations=(problem.activations[0], "identity")))

    def run(self, problem, step, state):
        """See `Method`; the error is that of the outputs themselves."""
        inner = _before(problem)
        found = relu.METHOD.run(inner, step, state)
        network = change_outputs(found.network, inner.oracle.output_center, inner.oracle.output_scale)
        network = FeedforwardNetwork(
            network.weights, network.biases, network.activations[0], output_activation=problem.activations[1]
        )
        error = max_error_over_deviation(problem.held_out.outputs, network(problem.held_out.inputs))
        return replace(found, network=network, error=error, sample=None)


METHOD = ReLUBeforeOutputs()


def _before(problem):
    """The problem of the network before the outputs' activation."""
    oracle, held_out, name = problem.oracle, problem.held_out, problem.activations[1]

    def box(X):
        return inverse(name, np.asarray(oracle.raw_outputs(X), dtype=float).reshape(len(X), -1), 0.0)[0]

    place = {"center": oracle.center, "scale": oracle.scale, "budget": oracle.budget}
    before = Oracle(box, oracle.n_inputs, input_range=oracle.input_range, **place)
    before.output_bounds = (np.full(oracle.n_outputs, -_LARGEST), np.full(oracle.n_outputs, _LARGEST))
    Z = inverse(name, oracle.output_center + oracle.output_scale * held_out.outputs, 0.0)[0]
    precise = np.all(np.abs(Z) < _LARGEST, axis=1)
    if precise.sum() < _MIN_HELD_OUT:
        raise NotIdentified(
            "activation boundaries",
            "saturated",
            f"only {precise.sum()} of {len(Z)} outputs keep clear of the limits of {name}. Give rows X where more do.",
        )
    U, Z = held_out.inputs[precise], before.standardize_outputs(Z[precise])
    accuracy = before.measure_accuracy(U, Z, np.random.RandomState(0))
    return replace(
        problem,
        oracle=before,
        activations=(problem.activations[0], "identity"),
        held_out=HeldOut(U, Z, accuracy),
    )
