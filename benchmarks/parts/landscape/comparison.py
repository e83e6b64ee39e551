"""Both solvers of `QuadraticNetRegressor` against polynomial regression and Adam from random starts."""

from __future__ import annotations

import time

import numpy as np
import torch
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import QuadraticNetRegressor
from skident.datasets import make_planted_shallow

FIRST_SEED = seed_ranges.LANDSCAPE_COMPARISON.start
PLAIN = {"fit_intercept": False, "alpha": 0}
ADAM_STEPS = 2000


def _data(name, seed):
    """Training and held-out samples."""
    rng = np.random.RandomState(seed)
    if name.startswith("planted"):
        d, n = (10, 1000) if name == "planted d=10" else (50, 1000)
        X, y = make_planted_shallow(2 * n, d, d // 2, random_state=rng)
    elif name.startswith("random labels"):
        X, y = make_planted_shallow(2500, 50, 1, labels="random", random_state=rng)
        return X, y, None, None
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        X, y = (make_friedman1 if name == "friedman1" else make_friedman2)(600, noise=1.0, random_state=rng)
    order = rng.permutation(len(X))
    train, held_out = order[: len(X) // 2], order[len(X) // 2 :]
    return X[train], y[train], X[held_out], y[held_out]


class _Adam:
    """The same network (2 d units, linear terms) trained by full-batch Adam, the best of three starts."""

    def __init__(self, plain, seed):
        self.plain, self.seed = plain, seed

    def fit(self, X, y):
        self.center, self.scale = (0.0, 1.0) if self.plain else (X.mean(axis=0), X.std(axis=0))
        self.unit = (0.0, 1.0) if self.plain else (y.mean(), y.std())
        Z, t = torch.as_tensor((X - self.center) / self.scale), torch.as_tensor((y - self.unit[0]) / self.unit[1])
        generator, d = torch.Generator().manual_seed(self.seed), X.shape[1]
        v, best = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(d), np.inf
        for _ in range(3):
            W = (0.3 * torch.randn(2 * d, d, generator=generator, dtype=torch.float64) / d**0.5).requires_grad_()
            b = torch.zeros(d + 1, dtype=torch.float64, requires_grad=True)
            optimizer = torch.optim.Adam([W, b], lr=0.01)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ADAM_STEPS)
            for _ in range(ADAM_STEPS):
                optimizer.zero_grad()
                loss = 0.5 * torch.mean(((Z @ W.T) ** 2 @ v + Z @ b[:-1] + b[-1] - t) ** 2)
                loss.backward()
                optimizer.step()
                schedule.step()
            if loss.item() < best:
                best, self.W, self.b, self.v = loss.item(), W.detach(), b.detach(), v
        return self

    def predict(self, X):
        Z = torch.as_tensor((X - self.center) / self.scale)
        outputs = (Z @ self.W.T) ** 2 @ self.v + Z @ self.b[:-1] + self.b[-1]
        return self.unit[0] + self.unit[1] * outputs.numpy()


def _methods(plain, seed):
    options = PLAIN if plain else {}
    yield "convex", QuadraticNetRegressor(solver="convex", **options)
    yield "descent", QuadraticNetRegressor(solver="descent", **options)
    if plain:
        features, ridge = PolynomialFeatures(2, include_bias=False), Ridge(alpha=1e-10, fit_intercept=False)
        yield "polynomial + Ridge", make_pipeline(features, ridge)
    else:
        ridge = RidgeCV(np.logspace(-3, 5, 33))
        yield "polynomial + Ridge", make_pipeline(StandardScaler(), PolynomialFeatures(2), ridge)
        yield "linear RidgeCV", make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 5, 33)))
    yield "Adam, best of 3", _Adam(plain, seed)


@part("landscape", "comparison", seeds=seed_ranges.LANDSCAPE_COMPARISON)
def run(trials=None, quick=False):
    """Losses are per variance; planted and random labels are fitted without ridge and constant (Adam has one)."""
    rows = []
    names = ["planted d=10", "planted d=50", "random labels d=50", "diabetes", "friedman1", "friedman2"]
    for name in names[:1] if quick else names:
        for t in range(1 if quick else trials or 3):
            X, y, held_out, truth = _data(name, FIRST_SEED + t)
            plain = name.startswith(("planted", "random"))
            for method, model in _methods(plain, FIRST_SEED + t):
                start = time.process_time()
                model.fit(X, y)
                row = {"data": name, "method": method, "seed": FIRST_SEED + t, "seconds": time.process_time() - start}
                row["loss"] = np.mean((model.predict(X) - y) ** 2) / np.var(y)
                row["fresh"] = (
                    None if held_out is None else np.mean((model.predict(held_out) - truth) ** 2) / np.var(truth)
                )
                row["certified"] = model.certificate_.is_global if hasattr(model, "certificate_") else None
                rows.append(row)
                print(f"comparison: {name}, {method}: {row['loss']:.3g}, {row['seconds']:.2f} s", flush=True)
    return {"rows": rows, "adam_steps": ADAM_STEPS}


def tables(result):
    header = ["data", "method", "training error / variance", "on held-out samples", "seconds", "certified"]
    rows = []
    for data, method in dict.fromkeys((r["data"], r["method"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["data"], r["method"]) == (data, method)]
        loss, seconds = (float(np.median([r[key] for r in some])) for key in ("loss", "seconds"))
        score = None if some[0]["fresh"] is None else float(np.median([r["fresh"] for r in some]))
        certified = None if some[0]["certified"] is None else f"{sum(r['certified'] for r in some)} of {len(some)}"
        rows.append([data, method, loss, score, seconds, certified])
    return format_table(header, rows)
