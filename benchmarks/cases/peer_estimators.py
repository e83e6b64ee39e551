"""Estimators outside scikit-learn for the benchmark of tables, if installed: xRFM, LightGBM, XGBoost and EBM."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.multioutput import MultiOutputRegressor
from sklearn.preprocessing import StandardScaler

SECONDS = 30  # of a fit, after which a peer is left out


def peers(n_targets, classes, seed):
    """Name to estimator of those that are installed, and a line for each that is not."""
    found, notes = {}, []
    try:
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

        kind = ExplainableBoostingClassifier if classes else ExplainableBoostingRegressor
        if n_targets == 1:
            found["EBM"] = kind(n_jobs=1, outer_bags=4, random_state=seed)
    except ImportError:
        notes.append("EBM: interpret-core is not installed.")
    try:
        import xrfm  # noqa: F401

        found["xRFM"] = Recursive(classes, seed)
    except ImportError:
        notes.append("xRFM: xrfm is not installed.")
    return found | _boosters(n_targets, classes, seed, notes), notes


def _boosters(n_targets, classes, seed, notes):
    """LightGBM and XGBoost with their default parameters and one thread; appends a note for each that is missing."""
    found, options = {}, {"n_jobs": 1, "random_state": seed}
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor

        model = (LGBMClassifier if classes else LGBMRegressor)(verbose=-1, **options)
        found["LightGBM"] = MultiOutputRegressor(model) if n_targets > 1 else model
    except ImportError:
        notes.append("LightGBM: lightgbm is not installed.")
    try:
        from xgboost import XGBClassifier, XGBRegressor

        found["XGBoost"] = (XGBClassifier if classes else XGBRegressor)(**options)
    except ImportError:
        notes.append("XGBoost: xgboost is not installed.")
    return found


class Recursive(BaseEstimator):
    """xRFM as its authors' page uses it: a fifth of the samples validate, inputs and targets are standardized."""

    def __init__(self, classes=False, seed=0):
        self.classes, self.seed = classes, seed

    def fit(self, X, y):
        """Fit."""
        import torch
        from xrfm import xRFM

        self.inputs_ = StandardScaler().fit(X)
        y = np.asarray(y)
        if self.classes:
            self.classes_, codes = np.unique(y, return_inverse=True)
            targets = codes
        else:
            self.targets_ = StandardScaler().fit(y.reshape(len(y), -1))
            targets = self.targets_.transform(y.reshape(len(y), -1)).astype(np.float32)
        order = np.random.RandomState(self.seed).permutation(len(y))
        held, rest = order[: len(y) // 5], order[len(y) // 5 :]
        rows = self.inputs_.transform(X).astype(np.float32)
        metric = "accuracy" if self.classes else "mse"
        with torch.random.fork_rng(devices=[]), _silent():
            torch.manual_seed(self.seed)
            self.model_ = xRFM(device="cpu", tuning_metric=metric, time_limit_s=SECONDS)
            parts = [torch.as_tensor(A[i].copy()) for i in (rest, held) for A in (rows, targets)]
            self.model_.fit(*parts)
        return self

    def predict(self, X):
        """Predict."""
        import torch

        with _silent():
            found = np.asarray(self.model_.predict(torch.as_tensor(self.inputs_.transform(X).astype(np.float32))))
        if self.classes:
            return self.classes_[found.reshape(-1).astype(int)]
        found = self.targets_.inverse_transform(found.reshape(len(X), -1).astype(np.float64))
        return found[:, 0] if found.shape[1] == 1 else found


@contextlib.contextmanager
def _silent():
    """Suppress the output and progress bars of xRFM."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


@contextlib.contextmanager
def limited(seconds):
    """TimeoutError when it takes longer, of the processor; where there are signals."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_):
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
