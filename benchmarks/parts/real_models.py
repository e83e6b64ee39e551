"""The default call on models as people have them: networks recovered, other models refused by name."""

from __future__ import annotations

import time
import warnings
from functools import partial
from unittest import mock

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from cases.real_models import (
    BOOSTING,
    CALIBRATED,
    CONNECTIONS,
    DEPLOYED,
    MAX_ERROR,
    MAX_POOLING,
    NETWORKS,
    OTHERS,
    TANH_CONNECTIONS,
    WIDE,
)
from common import format_table
from registry import part
from skident import NetworkIdentifier

MODELS, QUICK = 10, 1  # per kind
_DEPLOYED = 5  # per kind of deployed models
FIRST_SEED = seed_ranges.REAL_MODELS.start
SECONDS = 20.0  # max_seconds of a fit
SECONDS_WIDE = 60.0  # the same for wide networks
FIRST_SENTENCE = 200  # characters
REFUSED_IN = 5.0  # processor seconds
_ROWS = 1000  # on which outputs are compared


def _trial(make, seed, seconds=SECONDS):
    """How the default call ended, with which message, error, seconds and queries."""
    model, X = make(seed)
    began, fitted, said = time.process_time(), None, ""
    # Budgets count processor seconds, so that other work on the machine changes no outcome.
    with warnings.catch_warnings(record=True) as caught, mock.patch("time.perf_counter", time.process_time):
        warnings.simplefilter("always")
        try:
            fitted = NetworkIdentifier(model, random_state=seed, max_seconds=seconds).fit(X)
            said = " ".join(str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning))
        except ValueError as error:
            said = str(error)
    trial = {"seed": seed, "seconds": time.process_time() - began, "said": said[:FIRST_SENTENCE]}
    if fitted is None:
        return trial | {"outcome": "refused", "error": None, "queries": None}
    outcome = "exact" if fitted.report_.exact else "agrees" if fitted.report_.agrees else "warned"
    return trial | {"outcome": outcome, "error": _error(fitted, model, X, seed), "queries": fitted.n_queries_}


def _error(fitted, model, X, seed):
    """Largest error over the outputs' standard deviation, on rows three standard deviations wide."""
    frame, X = X, np.asarray(X)
    rows = X.mean(axis=0) + 3.0 * X.std(axis=0) * np.random.RandomState(seed).standard_normal((_ROWS, X.shape[1]))
    if isinstance(model, torch.nn.Module):
        truth = model(torch.as_tensor(rows)).numpy()
    else:
        rows = rows if frame is X else type(frame)(rows, columns=frame.columns)
        method = next((name for name in ("predict_proba", "predict") if hasattr(model, name)), "__call__")
        truth = np.asarray(_detached(getattr(model, method)(rows)))
    found = fitted.predict_proba(rows) if hasattr(fitted, "classes_") else fitted.predict(rows)
    return float(np.abs(np.reshape(found, np.shape(truth)) - truth).max() / np.std(truth))


def _detached(Y):
    return Y.detach() if isinstance(Y, torch.Tensor) else Y


def _trials(make, first, n, seconds=SECONDS):
    return [_trial(make, seed, seconds) for seed in range(first, first + n)]


class _Recovered:
    """Ten models per kind of a table, which the default call should recover."""

    def __init__(self, kinds, seconds=SECONDS):
        self.kinds, self.seconds = kinds, seconds

    def run(self, trials, quick):
        """Outcomes per kind, all on the same seeds."""
        n, names = (QUICK if quick else trials or MODELS), [*self.kinds][: 3 if quick else None]
        rows = [
            {"name": name, "trials": _said(name, _trials(self.kinds[name], FIRST_SEED, n, self.seconds))}
            for name in names
        ]
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """Outcomes per kind; wrong in silence: exact or agreeing, without a warning, and not right."""
        header = ["model", "exact and right", "warned", "refused", "wrong in silence", "largest error"]
        return format_table([*header, "median s", "max s"], [_network_row(row) for row in result["rows"]])


_register = partial(part, "real_models", seeds=seed_ranges.REAL_MODELS)
_register("networks")(_Recovered(NETWORKS))
_register("connections")(_Recovered(CONNECTIONS))
_register("tanh_connections")(_Recovered(TANH_CONNECTIONS))
_register("max_pooling")(_Recovered(MAX_POOLING))
_register("wide")(_Recovered(WIDE, SECONDS_WIDE))


def _network_row(row):
    trials = row["trials"]
    right = [t for t in trials if t["outcome"] == "exact" and t["error"] < MAX_ERROR]
    silent = [t for t in trials if t["outcome"] in ("exact", "agrees") and not t["error"] < MAX_ERROR]
    seconds = [t["seconds"] for t in trials]
    counts = [sum(t["outcome"] == outcome for t in trials) for outcome in ("warned", "refused")]
    errors = [t["error"] for t in right]
    return [
        row["name"],
        f"{len(right)} of {len(trials)}",
        *counts,
        len(silent),
        max(errors) if errors else None,
        float(np.median(seconds)),
        max(seconds),
    ]


class _Refused:
    """Ten models per kind of a table that are no feedforward networks, on other seeds than the networks."""

    def __init__(self, kinds):
        self.kinds = kinds

    def run(self, trials, quick):
        """Outcomes and messages per kind."""
        n, rows = (QUICK if quick else trials or MODELS), []
        for name in [*self.kinds][: 3 if quick else None]:
            make, noun = self.kinds[name]
            rows.append({"name": name, "noun": noun, "trials": _said(name, _trials(make, FIRST_SEED + 500, n))})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """Refusals with the noun in the first 200 characters, within five seconds."""
        header = ["model", "noun", "refused by name", "not refused", "max s"]
        return format_table(header, [_other_row(row) for row in result["rows"]])


_register("others")(_Refused(OTHERS))
_register("boosting")(_Refused(BOOSTING))


class _Deployed:
    """Models in other number formats, clipped, and called in other ways, each with the error that it may have."""

    @staticmethod
    def run(trials, quick):
        """Five models per kind."""
        n, rows = (QUICK if quick else trials or _DEPLOYED), []
        for name in [*DEPLOYED][: 3 if quick else None]:
            make, tol = DEPLOYED[name]
            rows.append({"name": name, "tol": tol, "trials": _said(name, _trials(make, FIRST_SEED, n))})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """Outcomes per kind; wrong in silence: exact or agreeing, with a larger error than the format allows."""
        outcomes = ("exact", "agrees", "warned", "refused")
        header = ["model", "error allowed", *outcomes, "wrong in silence", "largest error", "median s", "max s"]
        rows = []
        for row in result["rows"]:
            trials, tol = row["trials"], row["tol"]
            claimed = [t["error"] for t in trials if t["outcome"] in ("exact", "agrees")]
            counts = [sum(t["outcome"] == outcome for t in trials) for outcome in outcomes]
            seconds = [t["seconds"] for t in trials]
            wrong, largest = sum(not error < tol for error in claimed), max(claimed, default=None)
            rows.append([row["name"], tol, *counts, wrong, largest, float(np.median(seconds)), max(seconds)])
        return format_table(header, rows)


_register("deployed")(_Deployed)


class _Calibrated(_Refused):
    """Models that are recovered, or refused by name."""

    @staticmethod
    def tables(result):
        """Networks that are right, and refusals with the noun in the first 200 characters, whatever they take."""
        rows = []
        for row in result["rows"]:
            trials = row["trials"]
            right = sum(t["outcome"] == "exact" and t["error"] < MAX_ERROR for t in trials)
            named = sum(t["outcome"] == "refused" and row["noun"] in t["said"].partition(". ")[0] for t in trials)
            silent = sum(t["outcome"] in ("exact", "agrees") and not t["error"] < MAX_ERROR for t in trials)
            others, slowest = len(trials) - right - named - silent, max(t["seconds"] for t in trials)
            rows.append([row["name"], right, named, others, silent, slowest])
        header = ["classifier inside", "exact and right", "refused by name", "otherwise", "wrong in silence", "max s"]
        return format_table(header, rows)


_register("calibration")(_Calibrated(CALIBRATED))


def _other_row(row):
    trials = row["trials"]
    refused = [t for t in trials if t["outcome"] == "refused"]
    named = [t for t in refused if row["noun"] in t["said"].partition(". ")[0] and t["seconds"] < REFUSED_IN]
    others = len(trials) - len(refused)
    return [row["name"], row["noun"], f"{len(named)} of {len(trials)}", others, max(t["seconds"] for t in trials)]


def _said(name, trials):
    print(name, [(t["outcome"], t["error"], round(t["seconds"], 1)) for t in trials], flush=True)
    return trials
