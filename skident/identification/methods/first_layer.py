"""The first layer at large inputs, recovered once for all steps that share it."""

from dataclasses import replace

import numpy as np

from skident.fitting.directions_at_saturation import EXPONENTIAL_RATES, correct_directions
from skident.oracle import NotIdentified

from ..constants import MIN_OUTPUTS
from ..saturating.first_layer import find_first_layer

# From which directions of groups of units, corrected, need far fewer queries than those of single ones.
_MANY_INPUTS = 200


class FirstLayerCache:
    """The first layer recovered so far; recovered again if it is not precise enough."""

    def __init__(self):
        self._layer, self._precise = None, False

    def find(self, problem, n_units, *, precise=True, again=False):
        """The first layer with `n_units` units (None: unknown), None if nothing saturates.

        `precise`: norms and biases as exact as possible; `again`: discard what was recovered.
        """
        if again or self._layer is None or (precise and not self._precise):
            self._layer = _in_groups(problem, n_units) if precise and not again else None
            try:
                if self._layer is None:
                    self._layer = _searched(problem, n_units, precise)
                self._precise = precise
            except NotIdentified:
                return None
        return self._layer


def _searched(problem, n_units, precise):
    with problem.log.stage("first layer (saturation)", problem.oracle, n_units, "units") as entry:
        layer = find_first_layer(
            problem.oracle,
            activation=problem.activations[0],
            n_units=n_units,
            rng=problem.rng,
            noise=problem.held_out.noise_std,
            precise=precise,
            callback=entry["progress"],
        )
        entry.update(layer.queries)
    return layer


def _in_groups(problem, n_units):
    """The first layer by groups of units, with corrected directions; None if it does not apply, or units are missing.

    About a third of the queries of single units if there are many inputs.
    """
    oracle, name = problem.oracle, problem.activations[0]
    exact = problem.held_out.noise_std is None and oracle.response == "predict" and not oracle.restricted
    if not exact or name not in EXPONENTIAL_RATES or oracle.n_inputs < _MANY_INPUTS or oracle.n_outputs < MIN_OUTPUTS:
        return None
    try:
        layer = _searched(problem, n_units, False)
        if len(layer.biases) > oracle.n_inputs:
            return None
        with problem.log.stage("first layer (directions)", oracle):
            weights = correct_directions(oracle, layer.weights, layer.biases, name, problem.rng)
    except NotIdentified:
        return None
    # Far out, where the units bend, their pre-activations stay.
    biases = layer.biases + np.sum((layer.weights - weights) * layer.points.T, axis=0)
    return replace(layer, weights=weights, biases=biases)
