"""Whether columns of a DataFrame in another order, or with other names, are used by name or refused."""

from __future__ import annotations

import functools
import re
import warnings

import numpy as np
import pandas
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import EntangledWeightExtractor, NetworkCompressor, NetworkIdentifier, NetworkVerifier, verify_same

FIRST_SEED = seed_ranges.EVERYDAY.start
NAMES = list("abcdef")
TOLERANCE = 1e-4  # of the outputs' standard deviation: by position, outputs are off by about one
CHANGES = {
    "swapped": lambda frame: frame[["b", "a", *NAMES[2:]]],
    "reversed": lambda frame: frame[NAMES[::-1]],
    "reversed, one renamed": lambda frame: frame[NAMES[::-1]].rename(columns={"c": "z"}),
    "extra": lambda frame: frame.assign(z=frame["a"] + frame["b"]),
}


def _identified(model, frame):
    return NetworkIdentifier(model, random_state=0).fit(frame)


def _aligned(model, frame):
    return _identified(lambda Z: model.predict(pandas.DataFrame(Z, columns=NAMES)), frame)


def _accepted(*audits):
    """No result if one of several audits or fits accepts its frame, which is wrong."""
    for audit in audits:
        try:
            audit()
        except ValueError:
            continue
        return None
    raise ValueError("all refused")


def _audited(model, frame):
    return _accepted(
        lambda: verify_same(model.predict, model, frame, random_state=0),
        lambda: verify_same(lambda Z: model.predict(np.asarray(Z)), model, frame, random_state=0),
        lambda: NetworkVerifier(model, random_state=0).fit(frame),
    )


WRAPS = {
    "estimator": _identified,
    "bound method": lambda model, frame: _identified(model.predict, frame),
    "partial": lambda model, frame: _identified(functools.partial(model.predict), frame),
    "function": lambda model, frame: _identified(lambda Z: model.predict(Z), frame),
    "function that aligns columns": _aligned,
    "frozen": lambda model, frame: _identified(FrozenEstimator(model), frame),
    "pipeline of frozen": lambda model, frame: _identified(make_pipeline(FrozenEstimator(model)), frame),
    "audit": _audited,
    "compressor": lambda model, frame: NetworkCompressor(model, tol=1e-6, random_state=0).fit(frame),
    "extractor": lambda model, frame: _accepted(lambda: EntangledWeightExtractor(model.predict).fit(frame)),
}


def outcome(wrap, change, seed):
    """By name, refused, or wrong."""
    rng = np.random.RandomState(seed)
    frame = pandas.DataFrame(rng.standard_normal((200, 6)) * rng.uniform(0.5, 2.0, 6), columns=NAMES)
    y = np.tanh(frame.to_numpy() @ rng.standard_normal(6)) + frame["a"]
    mlp = MLPRegressor(hidden_layer_sizes=(5,), activation="tanh", solver="lbfgs", max_iter=300, random_state=rng)
    model, changed = make_pipeline(StandardScaler(), mlp).fit(frame, y), CHANGES[change](frame)
    try:
        found = WRAPS[wrap](model, changed)
    except ValueError as error:
        return "refused" if re.search("feature|NaN|all refused", str(error)) else "wrong"
    if found is None or not set(NAMES) <= set(changed):
        return "wrong"
    truth = model.predict(changed[NAMES])
    return "by name" if np.abs(found.predict(changed) - truth).max() <= TOLERANCE * truth.std() else "wrong"


@part("everyday", "columns", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Every way to pass a model with every change of the columns, a network each; `trials` limits their number."""
    cases = [(wrap, change) for wrap in WRAPS for change in CHANGES]
    cases = cases[: (8 if quick else None) if trials is None else trials]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [outcome(*case, FIRST_SEED + i) for i, case in enumerate(cases)]
    return {"columns": [{"model": w, "change": c, "outcome": o} for (w, c), o in zip(cases, found, strict=True)]}


def tables(result):
    """Markdown."""
    rows = result["columns"]
    right = sum(row["outcome"] != "wrong" for row in rows)
    found = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["change"]] = row["outcome"]
    head = f"Columns of X that differ from those of the training: {right} of {len(rows)} used by name or refused"
    return (
        head
        + "\n\n"
        + format_table(["model", *CHANGES], [[m, *(f.get(c, "") for c in CHANGES)] for m, f in found.items()])
    )
