"""Measure single identifications, aggregate them into rows with bars, format rows as tables."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import BlackBox, format_table, format_value, make_identifier
from skident.datasets import make_network
from skident.metrics import parameter_error, relative_max_error

FIRST_SEED = seed_ranges.IDENTIFICATION.start
TANH = {"activation": "tanh", "output_activation": "tanh"}
_N_HELD_OUT = 5000


def identify(function, X, truth, held_out, *, seed, error=1e-10, parameters=1e-6, **options):
    """Identify a function whose network is known; measure errors, time and queries.

    Parameters
    ----------
    function : callable
        (n, D) to the outputs; all that the identifier sees.
    X : ndarray of shape (n, D)
    truth : FeedforwardNetwork
        Without noise or rounding, of a classifier that of its centered logits.
    held_out : ndarray of shape (n, D)
        Inputs on which the two networks are compared.
    seed : int
    error : float
        Relative maximum error at which the network counts as identified.
    parameters : float or None
        Error of weights and biases, after alignment; None if only the function is compared.
    **options
        Of the identifier.

    Returns
    -------
    trial : dict
        ``seconds`` are processor time of this process, ``wall_seconds`` wall time.
    model : NetworkIdentifier or None
    """
    box = BlackBox(function)
    model = make_identifier(box, random_state=seed, **options)
    start, wall = time.process_time(), time.perf_counter()
    message = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X)
        except Exception as failure:  # counted as one, and the benchmark goes on
            model, message = None, f"{type(failure).__name__}: {failure}"
    trial = {"seed": seed, "success": False, "error": np.inf, "parameter_error": np.inf, "exact": False}
    trial |= {"seconds": time.process_time() - start, "wall_seconds": time.perf_counter() - wall, "queries": box.rows}
    trial["message"] = message or " ".join(str(w.message) for w in caught if w.category is ConvergenceWarning)
    if model is None:
        return trial, None
    report = model.report_
    trial |= {"exact": report.exact, "widths": model.layer_widths_, "route": report.route, "attempts": report.attempts}
    trial |= {"noise": report.noise, "error": relative_max_error(truth(held_out), model.network_(held_out))}
    if model.layer_widths_ == truth.layer_widths:
        trial["parameter_error"] = parameter_error(truth, model.network_)
    right = parameters is None or trial["parameter_error"] <= parameters
    trial["success"] = bool(trial["error"] <= error and right)
    return trial, model


def planted(n_inputs, widths, seed, *, bias_scale=0.5, output_map=None, names=TANH, **options):
    """`identify` a random network from its function values; `output_map` is applied to its outputs."""
    network = make_network((n_inputs, *widths), bias_scale=bias_scale, random_state=seed, **names)
    rng = np.random.default_rng(seed)
    X, held_out = rng.standard_normal((500, n_inputs)), rng.standard_normal((_N_HELD_OUT, n_inputs))
    function = network if output_map is None else lambda X: output_map(network(X))
    options = {"layer_widths": widths, **names, **options}
    return identify(function, X, network, held_out, seed=seed, **options)


@dataclass
class Case:
    """A row: `trial(seed) -> dict`, the required number of identified trials, and bounds on time, queries and errors.

    Attributes
    ----------
    needed : int or None
        Of `n_seeds`; in proportion if fewer were run; None where there is no bar.
    bars : dict of str to float
        Upper bounds on entries of `aggregated`.
    seconds : float
        Processor time after which no further trial of this row begins.
    """

    name: str
    trial: Callable[[int], dict]
    needed: int | None = None
    n_seeds: int = 10
    bars: dict = field(default_factory=dict)
    seconds: float = 120.0

    def run(self, n_seeds=None):
        """The row's record, printed as one line."""
        wanted = self.n_seeds if n_seeds is None else n_seeds
        start, trials = time.process_time(), []
        for k in range(wanted):
            if trials and time.process_time() - start > self.seconds:
                break
            trials.append(self.trial(FIRST_SEED + k))
        row = {"case": self.name, "trials": len(trials), "wanted": wanted, **aggregated(trials)}
        row["needed"] = None if self.needed is None else math.ceil(self.needed * len(trials) / self.n_seeds)
        row["bars"] = self.bars
        met = all(row[name] is not None and row[name] <= bound for name, bound in self.bars.items())
        row["met"] = None if self.needed is None else bool(row["successes"] >= row["needed"] and met)
        row["failures"] = [t for t in trials if not t["success"]]
        print(line(row), flush=True)
        return row


def aggregated(trials):
    """Successes, false claims, and medians and maxima of time, queries and errors of the trials."""
    seconds, queries = [t["seconds"] for t in trials], [t["queries"] for t in trials]
    good = [t["error"] for t in trials if t["success"]]
    values = {
        "successes": sum(t["success"] for t in trials),
        "false_claims": sum(t["exact"] and not t["success"] for t in trials),
        "called_exact": sum(t["exact"] for t in trials),
        "median seconds": float(np.median(seconds)),
        "max seconds": max(seconds),
        "median queries": int(np.median(queries)),
        "max queries": max(queries),
        "worst error": max(t["error"] for t in trials),
        "worst error identified": max(good, default=None),
        "max wall seconds": max(t["wall_seconds"] for t in trials),
    }
    for name in ("queries per parameter", "memory_gb"):
        if all(name in t for t in trials):
            values[name] = max(t[name] for t in trials)
    for name in ("standardised error", "r2"):
        known = [t[name] for t in trials if name in t]
        if known:
            values[f"median {name}"] = float(np.median(known))
    return values


def verdict(row):
    """ "pass", "**FAIL**", or "-" for a row without a bar."""
    return "-" if row["met"] is None else "pass" if row["met"] else "**FAIL**"


def bar(row):
    """Bars of a row as text."""
    needed = [] if row["needed"] is None else [f"{row['needed']} of {row['trials']}"]
    return ", ".join(needed + [f"{name} <= {format_value(bound)}" for name, bound in row["bars"].items()]) or "-"


def line(row):
    """A row in one line."""
    seeds = ", ".join(str(t["seed"]) for t in row["failures"])
    return (
        f"{verdict(row)}: {row['case']}: {row['successes']} of {row['trials']}, bar {bar(row)}; seconds "
        f"{format_value(row['median seconds'])} (max {format_value(row['max seconds'])}), queries "
        f"{format_value(row['median queries'])}, worst error {format_value(row['worst error'])}"
        + (f"; failed seeds {seeds}" if seeds else "")
    )


def table(rows, first="network", extra=()):
    """Rows as markdown; `extra` are pairs of a column's title and a function of a row."""
    header = [first, *[title for title, _ in extra], "bar", "identified", "seconds median", "max", "queries median"]
    header += ["worst error, identified", "worst error, all", "met"]
    lines = []
    for r in rows:
        # An infinite error (nothing came out) is stored as null.
        worst = np.inf if r["worst error"] is None else r["worst error"]
        cells = [r["case"], *[cell(r) for _, cell in extra], bar(r), f"{r['successes']} of {r['trials']}"]
        cells += [r["median seconds"], r["max seconds"], r["median queries"], r["worst error identified"]]
        lines.append([*cells, worst, verdict(r)])
    return format_table(header, lines)


def notes(rows):
    """Notes below a table: rows stopped by their time limit, and networks falsely called exact."""
    false = sum(r["false_claims"] for r in rows)
    total = sum(r["trials"] for r in rows)
    text = f"Called exact without being identified: {false} of {total} trials."
    cut = [f"{r['case']} ({r['trials']} of {r['wanted']} trials)" for r in rows if r["trials"] < r["wanted"]]
    return text + (f"\n\nCut short by their time limits: {'; '.join(cut)}." if cut else "")
