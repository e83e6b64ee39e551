"""The first layer at large inputs, recovered once for all steps that share it."""

from __future__ import annotations

from skident.oracle import NotIdentified

from ..saturating.first_layer import find_first_layer

__all__ = ["FirstLayerCache"]


class FirstLayerCache:
    """The first layer recovered so far; recovered again if it is not precise enough."""

    def __init__(self):
        self._layer, self._precise = None, False

    def find(self, problem, n_units, *, precise=True, again=False):
        """The first layer with `n_units` units (None: unknown), None if nothing saturates.

        `precise`: norms and biases as exact as possible; `again`: discard what was recovered.
        """
        if again or self._layer is None or (precise and not self._precise):
            self._layer = None
            try:
                with problem.log.stage("first layer (saturation)", problem.oracle, n_units, "units") as entry:
                    self._layer = find_first_layer(
                        problem.oracle,
                        activation=problem.activations[0],
                        n_units=n_units,
                        rng=problem.rng,
                        noise=problem.held_out.noise_std,
                        precise=precise,
                        callback=entry["progress"],
                    )
                    entry.update(self._layer.queries)
                self._precise = precise
            except NotIdentified:
                return None
        return self._layer

    def keep(self, layer):
        """Store a first layer that is known more precisely."""
        self._layer, self._precise = layer, True
