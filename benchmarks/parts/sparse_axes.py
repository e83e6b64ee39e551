"""40 samples, 60 columns, one of which matters: R^2 on 2,000 new samples."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LassoCV, RidgeCV

import seed_ranges
from common import format_table
from registry import part
from skident import QuadraticNetRegressor, TensorReLURegressor

FIRST_SEED = seed_ranges.BETTER_MODELS.start
OFFSET, N, D, NEW = 500, 40, 60, 2000
NOISES = (0.1, 0.5)


def _models():
    return {
        "QuadraticNetRegressor": QuadraticNetRegressor(random_state=0),
        "TensorReLURegressor": TensorReLURegressor(random_state=0),
        "ridge": RidgeCV(np.logspace(-3, 3, 13)),
        "lasso": LassoCV(cv=5, random_state=0),
    }


@part("tables", "sparse_axes", seeds=seed_ranges.BETTER_MODELS)
def run(trials, quick):
    rows = []
    for noise in NOISES:
        for trial in range(trials or (2 if quick else 20)):
            rng = np.random.default_rng(FIRST_SEED + OFFSET + trial)
            X, new = rng.standard_normal((N, D)), rng.standard_normal((NEW, D))
            y = X[:, 0] + noise * rng.standard_normal(N)
            row = {"noise": noise}
            for name, model in _models().items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    row[name] = float(model.fit(X, y).score(new, new[:, 0]))
            rows.append(row)
    return {"rows": rows}


def tables(result):
    lines = []
    for noise in NOISES:
        some = [row for row in result["rows"] if row["noise"] == noise]
        spread = {k: np.quantile([r[k] for r in some], [0.5, 0.1, 0.9]) for k in _models()}
        lines.append([noise, len(some), *[f"{m:.2f} ({a:.2f} to {b:.2f})" for m, a, b in spread.values()]])
    return format_table(["noise", "cases", *_models()], lines)
