"""Tanh and sigmoid networks with two and three hidden layers, whose first layer is not wider than the input."""

from __future__ import annotations

from parts.scale.networks import SEEDS, Row, measure, table
from registry import part

TWO_LAYERS = [
    Row(widths, activation=activation, gain=gain, right=right, queries=queries, seconds=seconds, error=1e-12)
    for widths, steep, queries, seconds in [
        ((64, 64, 64, 10), 10, 100_000, 5.0),
        ((784, 128, 64, 10), 9, 200_000, 15.0),
    ]
    for activation in ("tanh", "sigmoid")
    for gain, right in ((1.0, 10), (1.5, steep))
]
THREE_LAYERS = [
    Row((20, 16, 12, 8, 5), activation="tanh", right=8, error=1e-10, seconds=120.0),
    Row((20, 16, 12, 8, 5), activation="tanh", gain=1.5, right=0, error=1e-10),
    Row((40, 40, 30, 20, 10), activation="tanh", right=7, error=1e-10, seconds=120.0),
    Row((64, 64, 64, 64, 10), activation="tanh", right=5, error=1e-10, seconds=120.0),
]
ONE_OUTPUT = [
    Row((20, 16, 12, 1), activation="tanh"),
    Row((64, 48, 24, 1), activation="tanh", right=9),
    Row((20, 16, 16, 1), activation="tanh", right=0),
]
ROWS = TWO_LAYERS + THREE_LAYERS + ONE_OUTPUT
FIRST, FIRST_QUICK = 500, 920  # seeds, after the first of the range


@part("scale", "saturating", seeds=SEEDS)
class Saturating:
    """Networks recovered per row, with queries, seconds and memory."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows, or one small network."""
        if quick:
            return measure([Row((12, 8, 6, 4), activation="tanh")], FIRST_QUICK, 1)
        return measure(ROWS, FIRST, trials)

    @staticmethod
    def tables(result):
        """One row per kind of network."""
        return table(result)
