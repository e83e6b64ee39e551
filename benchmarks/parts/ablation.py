"""Each optional step left out: of identification on rows of `compare_versions.py`, of estimators on their own rows."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import seed_ranges
from cases.compared_rows import rows
from cases.estimator_rows import ROWS
from cases.optional_steps import ESTIMATOR_STEPS, STEPS, left_out
from common import FOLDER, format_table
from compare_versions import SCRATCH, Record, Version, compared
from registry import part

NETWORKS = 10  # of each row
RESCUED = 1 / 50  # of a row's networks, below which a step does not pay
SAVED = 0.1  # of the queries or of the processor time, from which it does


class WithoutStep(Version):
    """The working tree without a step; a fit in which the `full` version never runs it is the same."""

    def __init__(self, step, record, full):
        super().__init__(FOLDER.parent, step)
        self.record, self.full = record, full

    def fit(self, row, seed):
        """See `Version.fit`."""
        entry = self.record.fit(self.full, row, seed)
        same = self.option not in entry.get("steps", [self.option])
        return {k: v for k, v in entry.items() if k != "version"} if same else super().fit(row, seed)


def ablated(step, record, networks, some):
    """The step's figures over some rows: without it, and with it."""

    def one(row):
        full = Version(FOLDER.parent, "--watch")
        return compared(row, record, [WithoutStep(step.name, record, full), full], networks)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(one, some))
    pays = [r["row"] for r in results if r["won"] - r["lost"] >= max(1, RESCUED * r["networks"]) or _saves(r)]
    return {"step": step.name, "rows": results, "pays": pays}


def _saves(result):
    """Whether the step saves queries or time, where it made a difference: times of equal fits vary by more."""
    ratios = [result["query_ratio"], result["second_ratio"]]
    return result["differing"] > 0 and any(ratio is not None and ratio < 1 - SAVED for ratio in ratios)


@part("ablation", "steps", seeds=seed_ranges.COMPARED)
def run(trials, quick):
    """All steps; of a quick run the first, on the first row that it could serve."""
    record, results = Record(SCRATCH / "record.jsonl"), []
    for step in list(STEPS.values())[: 1 if quick else None]:
        some = [row for name, row in rows().items() if any(word in name for word in step.rows.split("|"))]
        results.append(ablated(step, record, 1 if quick else trials or NETWORKS, some[: 1 if quick else None]))
    return {"steps": results}


def tables(result):
    """One line a step."""
    head = ["step", "rows", "networks", "rescued", "lost", "rows on which it pays"]
    lines = [
        [
            step["step"],
            len(step["rows"]),
            *(sum(row[key] for row in step["rows"]) for key in ("networks", "won", "lost")),
            ", ".join(step["pays"]) or "none: it goes",
        ]
        for step in result["steps"]
    ]
    return format_table(head, lines)


class Estimators:
    """Optional steps of estimators from data, each left out on paired problems of the rows that it could serve."""

    SEEDS_PER_ROW, PROBLEMS = 500, 8

    def run(self, trials, quick):
        problems, measured = 1 if quick else trials or self.PROBLEMS, {}

        def fit(step, row, k):
            key = (step, row, k)
            if key not in measured:
                first = seed_ranges.ABLATION.start + self.SEEDS_PER_ROW * list(ROWS).index(row)
                with left_out(ESTIMATOR_STEPS.get(step)):
                    measured[key] = ROWS[row](first + k)
            return measured[key]

        results = []
        for name, step in list(ESTIMATOR_STEPS.items())[: 1 if quick else None]:
            some = [row for row in ROWS if any(row.startswith(word) for word in step.rows.split("|"))]
            for row in some[: 1 if quick else None]:
                pairs = [(fit(None, row, k), fit(name, row, k)) for k in range(problems)]
                results.append({"step": name, "row": row, **_compared(pairs)})
                print(results[-1], flush=True)
        return {"rows": results}

    def tables(self, result):
        head = [
            "step",
            "rows",
            "problems",
            "rescued",
            "lost",
            "largest error and time without it",
            "rows on which it pays",
        ]
        lines = []
        for name in dict.fromkeys(row["step"] for row in result["rows"]):
            some = [row for row in result["rows"] if row["step"] == name]
            counts = [sum(row[key] for row in some) for key in ("problems", "rescued", "lost")]
            largest = [max(row[key] for row in some) for key in ("error_ratio", "second_ratio")]
            pays = ", ".join(row["row"] for row in some if _pays(row))
            stays = pays or ("none: removed" if some[0].get("removed") else "none")
            lines.append([name, len(some), *counts, " x, ".join(f"{value:.3g}" for value in largest) + " x", stays])
        return format_table(head, lines)


def _pays(row):
    """Whether a step rescues problems, or without it errors or times are larger by a tenth."""
    rescues = row["rescued"] - row["lost"] >= max(1, RESCUED * row["problems"])
    return rescues or max(row["error_ratio"], row["second_ratio"]) > 1 / (1 - SAVED)


def _compared(pairs):
    """Problems solved with and not without a step, and the reverse; geometric mean of the ratios of errors; seconds."""
    solved = [tuple(bar is not None and error <= bar for error, _, bar in pair) for pair in pairs]
    ratios = [np.log((without[0] + 1e-12) / (full[0] + 1e-12)) for full, without in pairs]
    full, without = (sum(pair[i][1] for pair in pairs) for i in range(2))
    return {
        "problems": len(pairs),
        "rescued": sum(a and not b for a, b in solved),
        "lost": sum(b and not a for a, b in solved),
        "error_ratio": float(np.exp(np.mean(ratios))),
        "second_ratio": without / full,
    }


part("ablation", "estimators", seeds=seed_ranges.ABLATION)(Estimators())
