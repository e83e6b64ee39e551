"""Recovery of planted ReLU networks with known and unknown width, and its cost."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import seed_ranges
from cases.relu_samples import FIRST_SEED, fit_and_measure, floor, planted, relative_error
from common import format_table
from registry import part
from skident import TensorReLURegressor

N_TRIALS = 10
SIZES = ((5, 5), (10, 5), (10, 10), (20, 10))
CASES = [  # d, m, n, noise, options, units known
    *((d, m, 10_000, 0.0, {}, True) for d, m in SIZES),
    *((d, m, 10_000, 0.1, {}, True) for d, m in SIZES),
    *((d, m, 10_000, 0.1, {}, False) for d, m in (*SIZES, (20, 5), (30, 10))),
    (10, 5, 100_000, 0.0, {"polish": False}, True),
    (20, 10, 1_000_000, 0.0, {"polish": False}, True),
    (5, 8, 100_000, 0.0, {"order": 2}, True),
    (5, 8, 100_000, 0.1, {"order": 2}, False),
    (20, 20, 20_000, 0.1, {}, True),
]
STREAMED = (20, 10, 10**7, 0.1)


def _case(d, m, n, noise, options, known, n_trials):
    trials = []
    for seed in range(FIRST_SEED, FIRST_SEED + n_trials):
        trials.append(fit_and_measure(planted(d, m, n, noise, seed), n_units=m if known else None, **options))
    return {"d": d, "m": m, "n": n, "noise": noise, "options": options, "known": known, "trials": trials}


def _anonymous_bytes():
    """Anonymous memory of this process; None if the system does not report it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("RssAnon"))


class _Peak:
    """The highest memory until it ends, above that at its start."""

    def __enter__(self):
        gc.collect()
        self.start = self.highest = _anonymous_bytes()
        self.open = self.start is not None
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self):
        while self.open:
            self.highest = max(self.highest, _anonymous_bytes())
            time.sleep(0.02)

    def __exit__(self, *_):
        self.open = False
        self.thread.join()

    @property
    def rise(self):
        return None if self.start is None else self.highest - self.start


def _written(folder, d, m, n, noise):
    """The sample in files, written in blocks."""
    _, _, held_out, target, network = planted(d, m, 10, 0.0, FIRST_SEED)
    X = np.lib.format.open_memmap(Path(folder) / "X.npy", "w+", np.float64, (n, d))
    y = np.lib.format.open_memmap(Path(folder) / "y.npy", "w+", np.float64, (n,))
    rng, spread = np.random.default_rng(FIRST_SEED), noise * np.std(target)
    for start in range(0, n, 2**17):
        rows = rng.standard_normal((min(2**17, n - start), d))
        X[start : start + len(rows)] = rows
        y[start : start + len(rows)] = network(rows)[:, 0] + spread * rng.standard_normal(len(rows))
    X.flush()
    y.flush()
    return held_out, target


def _streamed(d, m, n, noise):
    with tempfile.TemporaryDirectory() as folder:
        held_out, target = _written(folder, d, m, n, noise)
        X, y = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in "Xy")
        with _Peak() as peak:
            start, wall = time.process_time(), time.perf_counter()
            reg = TensorReLURegressor(n_units=m, random_state=0).fit(X, y)
            seconds, wall = time.process_time() - start, time.perf_counter() - wall
        error = relative_error(reg.predict(held_out), target)
    return {"d": d, "m": m, "n": n, "noise": noise, "error": error, "floor": floor(d, m, n, noise), "seconds": seconds,
            "wall": wall, "bytes": peak.rise}  # fmt: skip


@part("relu", "targets", seeds=(seed_ranges.RELU, seed_ranges.RELU_ROWS))
def run(trials, quick):
    cases = CASES[1:2] if quick else CASES
    n_trials = trials or (2 if quick else N_TRIALS)
    d, m, n, noise = STREAMED
    return {
        "cases": [_case(*case, n_trials) for case in cases],
        "streamed": _streamed(d, m, 10**5 if quick else n, noise),
    }


def _row(case):
    errors = np.array([t["error"] for t in case["trials"]])
    seconds = [t["seconds"] for t in case["trials"]]
    weights = [t["tensor_weights"] for t in case["trials"] if t["tensor_weights"] is not None]
    limit = floor(case["d"], case["m"], case["n"], case["noise"])
    good = int(np.sum(errors <= (3.0 * limit if case["noise"] else 1e-12)))
    name = ", ".join(f"{k}={v}" for k, v in case["options"].items()) or "-"
    return [
        f"({case['d']}, {case['m']})", case["n"], case["noise"], name, case["known"],
        f"{good} of {len(errors)}", float(np.median(errors)), float(errors.max()),
        float(errors.max() / limit) if limit else None,
        f"{sum(t['n_units'] == case['m'] for t in case['trials'])} of {len(errors)}",
        float(np.median(weights)) if weights else None, float(np.max(weights)) if weights else None,
        float(np.median(seconds)), float(np.max(seconds)), sum(bool(t["warnings"]) for t in case["trials"]),
    ]  # fmt: skip


def tables(result):
    header = [
        "(d, m)", "rows", "noise", "options", "m given", "good", "MSE, median", "MSE, max", "max / floor", "m right",
        "tensors: weights, median", "max", "s, median", "max", "warned",
    ]  # fmt: skip
    s = result["streamed"]
    memory = "not measured" if s["bytes"] is None else f"{s['bytes'] / 1e9:.2f} GB above the data"
    return "\n".join(
        [
            "MSE on 5000 clean held-out samples, relative to the variance of f. Good: at most 1e-12 without noise, "
            "three times the floor 0.01 m (d + 1) / n with it. Seconds are processor time.",
            "",
            format_table(header, [_row(case) for case in result["cases"]]),
            "",
            f"From a file of {s['n']:,} rows, (d, m) = ({s['d']}, {s['m']}), noise {s['noise']}: "
            f"{s['seconds']:.0f} s of the processor, {s['wall']:.0f} s in all, {memory}, "
            f"MSE {s['error']:.1e} ({s['error'] / s['floor']:.2f} times the floor).",
        ]
    )
