"""Default calls on torch networks that return float32: hidden ReLU layers, smooth activations, softmax classifiers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import seed_ranges
from cases.float32_models import Case, black_box
from common import format_table
from registry import part

from .fits import measured_fit

NETWORKS, QUICK = 10, 1
MAX_ERROR = 3e-6  # over the outputs' standard deviation
MAX_PROBABILITY_ERROR = 1e-5
LEAST, MOST = 0.90, 0.99  # coverage of 1.96 standard errors


@dataclass(frozen=True)
class Row:
    """Networks of one shape, and how many of ten must have the right widths and the error; seconds and queries."""

    widths: tuple[int, ...]
    activation: str
    trained: bool | None = None  # None: every other one
    n_right: int = 9
    n_accurate: int = 9
    seconds: float | None = None
    queries: int | None = None
    softmax: bool = False
    breast_cancer: bool = False
    limit: float = 1500.0  # max_seconds of a fit, for a machine with other work

    @property
    def name(self):
        """Shape, activation and training."""
        trained = {True: "trained", False: "initialized", None: "both"}[self.trained]
        data = " on breast cancer" * self.breast_cancer
        return f"{self.activation} {'-'.join(map(str, self.widths))}{' softmax' * self.softmax}, {trained}{data}"

    def case(self, seed):
        """The case of a seed."""
        trained = seed % 2 == 1 if self.trained is None else self.trained
        return Case(self.widths, self.activation, trained, softmax=self.softmax, breast_cancer=self.breast_cancer)


ROWS = {
    "one_layer": [
        Row((10, 32, 1), "relu", False, 9, 9, 10.0),
        Row((10, 32, 1), "relu", True, 9, 9, 10.0),
        Row((30, 100, 1), "relu", False, 8, 8, 40.0),
        Row((30, 100, 1), "relu", True, 8, 8, 40.0),
    ],
    "deep": [
        Row((20, 32, 16, 1), "relu", None, 8, 9, 30.0, 1_000_000),
        Row((20, 32, 16, 3), "relu", None, 8, 9, 30.0, 1_000_000),
        Row((20, 64, 32, 1), "relu", None, 7, 8, 90.0, 3_000_000),
        Row((13, 64, 64, 1), "relu", None, 6, 7, 120.0, 5_000_000),
    ],
    "tanh": [
        Row((10, 16, 1), "tanh", None, 10, 10),
        Row((10, 16, 8, 3), "tanh", None, 9, 9),
        Row((10, 16, 16, 1), "tanh", None, 8, 8),
        Row((17, 64, 64, 6), "tanh", None, 7, 7, limit=5000.0),
    ],
    "growing": [
        Row((10, 32, 1), "gelu", None, 9, 9),
        Row((10, 32, 1), "silu", None, 9, 9),
        Row((10, 32, 1), "softplus", None, 9, 9),
    ],
    "classifiers": [
        Row((64, 32, 10), "relu", True, 8, 8, softmax=True),
        Row((30, 16, 2), "relu", True, 8, 8, softmax=True, breast_cancer=True),
        Row((30, 100, 2), "relu", True, 8, 8, softmax=True, breast_cancer=True),
    ],
}
FIRST = {name: seed_ranges.PRECISION.start + 100 * i for i, name in enumerate(ROWS)}


def _trial(row, seed):
    model, X, truth = black_box(row.case(seed), seed)
    return {"seed": seed} | measured_fit(model, X, truth, softmax=row.softmax, seconds=row.limit)


def _register(name):
    @part("precision", name, seeds=seed_ranges.PRECISION)
    class Rows:
        @staticmethod
        def run(trials, quick):
            n = QUICK if quick else trials or NETWORKS
            rows = ROWS[name][:1] if quick else ROWS[name]
            return {"rows": [_measured(row, FIRST[name] + 20 * i, n) for i, row in enumerate(rows)]}

        @staticmethod
        def tables(result):
            return rows_table(result["rows"])

    return Rows


def _measured(row, first_seed, n):
    trials = []
    for seed in range(first_seed, first_seed + n):
        trials.append(_trial(row, seed))
        print(row.name, trials[-1], flush=True)
    limit = MAX_PROBABILITY_ERROR if row.softmax else MAX_ERROR
    bars = {"right": row.n_right, "accurate": row.n_accurate, "seconds": row.seconds, "queries": row.queries}
    return {"name": row.name, "bars": bars, "max_error": limit, "trials": trials}


def rows_table(rows):
    """Counts of successes per row, errors, seconds, queries and coverage; bars in parentheses."""
    return format_table(
        ["models", "widths", "error", "median error", "median s", "max s", "max queries", "coverage", "false"],
        [_cells(row) for row in rows],
    )


def _cells(row):
    trials, bars = row["trials"], row["bars"]
    found = [t for t in trials if t["error"] is not None]
    accurate = [t for t in found if t["error"] <= row["max_error"]]
    n_false = sum(t["exact"] or (t["agrees"] and t not in accurate) for t in found)
    known = sum(t["with_stderr"] for t in found)
    return [
        row["name"],
        f"{sum(t['right'] for t in trials)} of {len(trials)} ({bars['right']})",
        f"{len(accurate)} of {len(trials)} ({bars['accurate']})",
        float(np.median([t["error"] for t in found])) if found else None,
        float(np.median([t["seconds"] for t in trials])),
        _with_bar(max(t["seconds"] for t in trials), bars["seconds"], "{:.3g}"),
        _with_bar(max(t["queries"] or 0 for t in trials), bars["queries"], "{:,}"),
        sum(t["covered"] for t in found) / known if known else None,
        n_false,
    ]


def _with_bar(value, bar, form):
    text = form.format(value)
    return text if bar is None else f"{text} ({form.format(bar)})"


for _name in ROWS:
    _register(_name)
