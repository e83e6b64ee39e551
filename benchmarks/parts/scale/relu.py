"""ReLU networks of the size that people train on MNIST, deep ones, and wide ones with one output."""

from __future__ import annotations

from parts.scale.networks import SEEDS, Row, measure, table
from registry import part
from seed_ranges import SCALE_CURVE

SMALL = {"queries": 60_000, "seconds": 5.0, "mb": 250.0}
HUGE = {"queries": 420_000, "seconds": 90.0, "mb": 600.0, "error": 1e-7, "limit": 600.0}
ROWS = [
    Row((784, 64, 32, 10), **SMALL),
    Row((784, 128, 64, 10), **SMALL),
    Row((784, 256, 128, 10), queries=130_000, seconds=15.0, mb=300.0),
    Row((64, 32, 32, 10), trained=True, seconds=10.0),
    Row((784, 64, 32, 10), probabilities=True, **SMALL),
    Row((64, 32, 32, 10), trained=True, probabilities=True, seconds=10.0),
    Row((64, 50, 30, 10), trained=True, probabilities=True, seconds=10.0),
    Row((784, 128, 64, 10), trained=True, **SMALL),
    Row((20, 30, 30, 10), queries=20_000, seconds=3.0),
    Row((64, 100, 100, 10), queries=90_000, seconds=15.0),
]
LARGE = [
    Row((784, 512, 512, 10), right=4, trials=5, **HUGE),
    Row((784, 512, 512, 10), trained=True, right=3, trials=3, **HUGE),
    Row((784, 64, 32, 10), trained=True, **SMALL),
    Row((64, 100, 50, 10), sklearn=True, probabilities=True, right=8, seconds=30.0),
    Row((784, 128, 64, 10), probabilities=True, **SMALL),
]
DEEP = [
    Row((20, 12, 10, 8, 8, 8, 4), right=7, queries=200_000, seconds=60.0),
    Row((16, 16, 16, 16, 16, 16, 4), right=7, queries=200_000, seconds=60.0),
    Row((8, 8, 8, 8, 8, 8, 8, 8, 8, 4), right=7, queries=200_000, seconds=60.0),
]
CURVE = [Row((8, *(8,) * depth, 4), right=3, trials=3) for depth in range(3, 9)]
CURVE += [Row((16, *(16,) * depth, 4), right=3, trials=3) for depth in range(2, 6)]
ONE_OUTPUT = [
    Row((64, 64, 32, 1), right=8),
    Row((30, 128, 128, 1), right=5, trials=5),
]
FIRST_LARGE, FIRST_DEEP, FIRST_ONE_OUTPUT, FIRST_QUICK = 200, 300, 400, 900  # seeds, after the first of the range
FIRST_CURVE = SCALE_CURVE.start - SEEDS.start


class _Rows:
    """Networks recovered per row, with queries, seconds and memory."""

    def __init__(self, rows, first):
        self.rows, self.first = rows, first

    def run(self, trials, quick):
        """Measure the rows, or one small network."""
        if quick:
            return measure([Row((64, 32, 16, 10))], FIRST_QUICK, 1)
        return measure(self.rows, self.first, trials)

    @staticmethod
    def tables(result):
        """One row per kind of network."""
        return table(result)


part("scale", "relu", seeds=SEEDS)(_Rows(ROWS, 0))
part("scale", "large", seeds=SEEDS)(_Rows(LARGE, FIRST_LARGE))
part("scale", "deep", seeds=SEEDS)(_Rows(DEEP, FIRST_DEEP))
part("scale", "deep_curve", seeds=SCALE_CURVE)(_Rows(CURVE, FIRST_CURVE))
part("scale", "one_output", seeds=SEEDS)(_Rows(ONE_OUTPUT, FIRST_ONE_OUTPUT))
