"""Certificates of fits with output weights of one sign, without and with a ridge, by the number of samples."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table
from registry import part
from skident import QuadraticNetRegressor

FIRST_SEED = seed_ranges.LANDSCAPE_ONE_SIGN.start
PER_ROW = 1000  # seeds
SIZES = {"8 to 200": 0, "d / 2 to d (d + 1) / 2 + 2 d + 3": 1}
TERMS = ((False, False), (True, False), (False, True), (True, True))  # constant, linear
SCALES = 3.0  # of columns in every seventh case: 1e-3 to 1e3


def case(seed, few):
    """Inputs, targets, and options of the regressor."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 13 if few else 9))
    low, high = (max(3, d // 2), d * (d + 1) // 2 + 2 * d + 4) if few else (8, 200)
    X, W = rng.standard_normal((int(rng.integers(low, high)), d)), rng.standard_normal((2, d))
    if seed % 7 == 0:
        X = X * 10.0 ** rng.uniform(-SCALES, SCALES, d)
    squares, noise = (X @ W.T) ** 2, rng.standard_normal(len(X))
    y = (squares.sum(axis=1), squares @ [1.0, -1.0], noise)[seed % 3] + 0.1 * noise * (seed % 2)
    constant, linear = TERMS[(seed // 6) % 4]
    options = {
        "output_signs": "negative" if seed % 5 == 0 else "positive",
        "alpha": (0.0, 0.0, 1e-3, 0.1)[(seed // 24) % 4],
        "fit_intercept": constant,
        "fit_linear": linear,
    }
    return X, y, options


@part("landscape", "one_sign", seeds=seed_ranges.LANDSCAPE_ONE_SIGN)
def run(trials=None, quick=False):
    trials = trials or (24 if quick else 480)
    rows = []
    for name, few in SIZES.items():
        outcomes = {False: [], True: []}
        seconds = {False: 0.0, True: 0.0}
        for seed in range(FIRST_SEED + PER_ROW * few, FIRST_SEED + PER_ROW * few + trials):
            X, y, options = case(seed, few)
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", (ConvergenceWarning, UserWarning))
                certificate = QuadraticNetRegressor(**options).fit(X, y).certificate_
            penalized = options["alpha"] > 0
            outcomes[penalized].append(certificate.status)
            seconds[penalized] += time.process_time() - start
        for penalized, found in outcomes.items():
            counts = [found.count(status) for status in ("global", "undecided")]
            others = len(found) - sum(counts)
            rows.append([name, "yes" if penalized else "no", len(found), *counts, others, seconds[penalized]])
            print(f"one_sign: {rows[-1]}", flush=True)
    return {"rows": rows}


def tables(result):
    header = ["samples", "ridge", "fits", "global", "undecided", "other", "seconds in total"]
    return format_table(header, result["rows"])
