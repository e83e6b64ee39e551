"""Does the library learn hierarchical targets, and what does training all layers together give?

    python benchmarks/bench_hierarchical.py                     about 15 minutes on one idle core
    python benchmarks/bench_hierarchical.py --quick             small versions, prints only
    python benchmarks/bench_hierarchical.py --part wide --device cuda --cifar FOLDER

Parts: `recovery` (planted targets: errors, seconds, kernels beside), `algorithm1`, `correction` (feature errors against
alpha; the question of Figure 9 of Allen-Zhu and Li, 2020), `layerwise` (Figure 6's question), `signs` (Theorem 4),
`tables` (digits, breast cancer, regression tables; Figure 12's question), `wide` (a wide network on digits, and on
CIFAR-10 where FOLDER holds data_batch_1.npz with the arrays "data" and "labels": nothing is downloaded). Errors are
squared and relative to the variance, on 20 000 fresh rows; seconds are processor time of one fit.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import _seeds
import numpy as np
from _common import format_table, run_parts
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_friedman1,
    make_friedman2,
    make_regression,
)
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.datasets import make_hierarchical_target
from skident.hierarchical import backward_feature_correction
from skident.metrics import feature_recovery_error

FIRST_SEED = _seeds.HIERARCHICAL.start
CASES = {  # d, widths, widths of the learner, N, trials, bar, seconds
    "L=3, d=8": (8, (3, 2), (3, 2), 2000, 5, 1e-8, 10),
    "L=3, d=16": (16, (3, 2), (3, 2), 3000, 5, 1e-8, 10),
    "L=3, d=30": (30, (4, 2), (4, 2), 5000, 5, 1e-8, 10),
    "L=4, d=16, one unit more": (16, (3, 2, 2), (4, 3, 3), 5000, 10, 1e-6, 20),
}
ALPHAS = (0.3, 0.1, 0.04, 0.02, 0.01)
SETTINGS = {"device": "cpu", "cifar": None}


def _data(seed, n_features, widths, n_samples, **kwargs):
    target = make_hierarchical_target(n_features, widths, random_state=seed, **kwargs)
    X, fresh = target.sample(n_samples, seed), target.sample(20_000, seed + 100_000)
    return target, X, target(X), fresh, target(fresh)


def _error(model, fresh, fresh_y):
    return float(np.mean((model.predict(fresh) - fresh_y) ** 2) / fresh_y.var())


def _timed(function, *args, **kwargs):
    """What a function gives, and its processor time."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = function(*args, **kwargs)
    return result, time.process_time() - start


def _best_kernel(X, y, fresh, fresh_y):
    """Lowest error of kernel ridge regression, tuned on the test rows."""
    X, y = X[:2000], y[:2000]
    errors = []
    for gamma in (0.003, 0.01, 0.03, 0.1):
        for alpha in (1e-4, 1e-2, 1.0):
            for kernel in ({"kernel": "rbf"}, {"kernel": "poly", "degree": 4}, {"kernel": "poly", "degree": 8}):
                model = KernelRidge(gamma=gamma, alpha=alpha, coef0=1.0, **kernel).fit(X, y)
                errors.append(_error(model, fresh[:5000], fresh_y[:5000]))
    return min(errors)


def recovery(trials, quick):
    rows = []
    for name, (d, widths, learner, n, number, bar, seconds) in CASES.items():
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or number)):
            target, X, y, fresh, fresh_y = _data(seed, d, widths, n)
            net, spent = _timed(HierarchicalQuadraticNet(learner, random_state=seed).fit, X, y)
            row = {"case": name, "N": n, "seed": seed, "error": _error(net, fresh, fresh_y), "seconds": spent}
            row |= {"bar": bar, "seconds_bar": seconds, "starts": len(net.restart_losses_)}
            features = target.features(fresh, 2), net.transform(fresh, layer=2)
            row["feature_error"] = feature_recovery_error(*features)
            if "d=16" in name and seed == FIRST_SEED and not quick:
                row["kernel"] = _best_kernel(X, y, fresh, fresh_y)
            print(f"recovery: {name}, seed {seed}: {row['error']:.1e}, {spent:.1f} s", flush=True)
            rows.append(row)
    return {"rows": rows}


def _recovery_tables(result):
    header = ["target", "N", "bar", "worst error", "median error", "worst S_2 error", "below the bar"]
    header += ["most seconds", "kernel ridge, best"]
    rows = []
    for name in dict.fromkeys(r["case"] for r in result["rows"]):
        some = [r for r in result["rows"] if r["case"] == name]
        errors, kernels = [r["error"] for r in some], [r["kernel"] for r in some if "kernel" in r]
        good = sum(r["error"] <= r["bar"] and r["seconds"] <= r["seconds_bar"] for r in some)
        row = [name, some[0]["N"], some[0]["bar"], max(errors), float(np.median(errors))]
        row += [max(r["feature_error"] for r in some), f"{good} of {len(some)}", max(r["seconds"] for r in some)]
        rows.append([*row, min(kernels) if kernels else None])
    return format_table(header, rows)


def algorithm1(trials, quick):
    rows = []
    for kappa in (1.0,) if quick else (1.0, 2.0):
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 3)):
            target, X, y, fresh, fresh_y = _data(seed, 16, (3, 2), 5000, kappa=kappa)
            net = HierarchicalQuadraticNet((3, 2), solver="algorithm1", random_state=seed)
            net, spent = _timed(net.fit, X, y)
            features = target.features(fresh, 2), net.transform(fresh, layer=2)
            row = {"kappa": kappa, "seed": seed, "error": _error(net, fresh, fresh_y), "widths": net.widths_}
            row |= {"feature_error": feature_recovery_error(*features), "seconds": spent, "epochs": net.n_iter_}
            row["spectrum"] = {layer: s[:6] for layer, s in net.spectrum_.items()}
            print(f"algorithm1: kappa {kappa}, seed {seed}: {row['error']:.1e}, {net.widths_}", flush=True)
            rows.append(row)
    return {"rows": rows}


def _algorithm1_tables(result):
    header = ["kappa", "seed", "error", "S_2 error", "widths found (3, 2)", "epochs", "seconds"]
    names = ("kappa", "seed", "error", "feature_error", "widths", "epochs", "seconds")
    return format_table(header, [[r[name] for name in names] for r in result["rows"]])


def correction(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 4)):
        errors = {"after 2": [], "after 3": [], "joint": []}
        for a in ALPHAS:
            alphas = (1.0, a, a * a)
            target, X, y, fresh, _ = _data(seed, 12, (3, 2, 2), 5000, alphas=alphas, kappa=1.0)
            truth, net = target.features(fresh, 2), None
            for depth, name in zip((2, 3, 4), errors):
                new = HierarchicalQuadraticNet((3, 2, 2), alphas=alphas, readout="sum", n_starts=5, random_state=seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    net = new.fit_layers(X, y, depth=depth, start=net)
                errors[name].append(feature_recovery_error(truth, net.transform(fresh, layer=2)))
        print(f"correction: seed {seed}: {errors}", flush=True)
        rows.append({"seed": seed, "alphas": ALPHAS, "errors": errors})
    target, X, y, fresh, fresh_y = _data(FIRST_SEED, 12, (3, 2, 2), 5000, alphas=(1.0, 0.3, 0.1), kappa=1.0)
    net = HierarchicalQuadraticNet((3, 2, 2), alphas=(1.0, 0.3, 0.1), readout="sum", random_state=0)
    test = {"X_test": fresh, "y_test": fresh_y, "target": target}
    found, _ = _timed(backward_feature_correction, net, X, y, **test)
    return {"rows": rows, "protocol": found.rows, "table": str(found).splitlines()}


def _correction_tables(result):
    header = ["seed", "slope, S_2 after <= 2", "slope, S_2 after <= 3"]
    header += [f"{name}, a = {', '.join(map(str, ALPHAS))}" for name in ("S_2 after <= 3", "S_2 after joint training")]
    rows = []
    for r in result["rows"]:
        # Slopes of the three smallest: higher orders of a show at the others.
        slopes = [np.polyfit(np.log(ALPHAS[2:]), np.log(r["errors"][n][2:]), 1)[0] for n in ("after 2", "after 3")]
        lists = [", ".join(f"{e:.0e}" for e in r["errors"][name]) for name in ("after 3", "joint")]
        rows.append([r["seed"], *slopes, *lists])
    return format_table(header, rows) + "\n\n```\n" + "\n".join(result["table"]) + "\n```"


def layerwise(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 5)):
        target, X, y, fresh, fresh_y = _data(seed, 16, (3, 2), 3000, alphas=(1.0, 0.3))
        net = HierarchicalQuadraticNet((3, 2), alphas=(1.0, 0.3), readout="sum", random_state=seed)
        found, _ = _timed(backward_feature_correction, net, X, y, X_test=fresh, y_test=fresh_y, target=target)
        rows.append({"seed": seed, "layerwise": found.error("layerwise", 3), "joint": found.error("all", 2)})
        print(f"layerwise: seed {seed}: {rows[-1]}", flush=True)
    return {"rows": rows}


def _layerwise_tables(result):
    rows = [[r["seed"], r["layerwise"], r["joint"]] for r in result["rows"]]
    return format_table(["seed", "layer by layer, no correction", "then all layers together"], rows)


def signs(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 5)):
        target = make_hierarchical_target(16, (3, 2), random_state=seed)
        (X, y), (fresh, fresh_y) = target.sample_signs(5000, seed), target.sample_signs(20_000, seed + 100_000)
        clf = HierarchicalQuadraticNetClassifier((3, 2), loss="theorem4", offset_column=0, random_state=seed)
        clf, spent = _timed(clf.fit, X, y)
        row = {"seed": seed, "ours": 1 - clf.score(fresh, fresh_y), "seconds": spent}
        for name, other in (("SVC", [SVC(C=C) for C in (1.0, 10.0)]), ("HGB", [HistGradientBoostingClassifier()])):
            row[name] = min(1 - model.fit(X, y).score(fresh, fresh_y) for model in other)
        print(f"signs: {row}", flush=True)
        rows.append(row)
    return {"rows": rows}


def _signs_tables(result):
    header = ["seed", "ours", "SVC", "HistGradientBoosting", "seconds"]
    return format_table(header, [[r[k] for k in ("seed", "ours", "SVC", "HGB", "seconds")] for r in result["rows"]])


def tables(trials, quick):
    """Cross-validated scores, of one fold in five if quick."""
    classes = {"digits": load_digits, "breast cancer": load_breast_cancer}
    regressions = {
        "friedman1, N=1000, noise 1": lambda: make_friedman1(1000, noise=1.0, random_state=FIRST_SEED),
        "friedman2, N=1000, noise 20": lambda: make_friedman2(1000, noise=20.0, random_state=FIRST_SEED),
        "diabetes": lambda: load_diabetes(return_X_y=True),
        "linear, N=500, d=10, noise 10": lambda: make_regression(
            500, 10, n_informative=5, noise=10.0, random_state=FIRST_SEED
        ),
    }
    rows = []
    for name, load in classes.items():
        X, y = load(return_X_y=True)
        others = {
            "ReLU perceptron": make_pipeline(
                StandardScaler(), MLPClassifier(hidden_layer_sizes=(32, 16), random_state=0)
            ),
            "kernel": make_pipeline(StandardScaler(), SVC(C=10.0)),
        }
        folds = list(StratifiedKFold(5, shuffle=True, random_state=FIRST_SEED).split(X, y))[: 1 if quick else None]
        rows.append(_scored(name, X, y, HierarchicalQuadraticNetClassifier(random_state=0), others, folds))
    for name, load in regressions.items():
        X, y = load()
        others = {"kernel": make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=0.1, gamma=0.05))}
        folds = list(KFold(5, shuffle=True, random_state=FIRST_SEED).split(X, y))[: 1 if quick else None]
        rows.append(_scored(name, X, y, HierarchicalQuadraticNet(random_state=0), others, folds))
    return {"rows": rows}


def _fit_and_score(model, X, y, train, test):
    return model.fit(X[train], y[train]).score(X[test], y[test])


def _scored(name, X, y, ours, others, folds):
    row = {"table": name}
    for label, model in {"ours": ours, **others}.items():
        fits = [_timed(_fit_and_score, model, X, y, a, b) for a, b in folds]
        row[label], row[f"{label} seconds"] = float(np.mean([s for s, _ in fits])), max(t for _, t in fits)
    print(f"tables: {row}", flush=True)
    return row


def _tables_tables(result):
    header = ["table", "quadratic network", "seconds a fold", "ReLU perceptron", "SVC or kernel ridge"]
    keys = ("table", "ours", "ours seconds", "ReLU perceptron", "kernel")
    return format_table(header, [[r.get(k) for k in keys] for r in result["rows"]])


def wide(trials, quick):
    """A wide quadratic network; --device cuda runs it on a GPU."""
    sets = {"digits": load_digits(return_X_y=True)}
    note = "CIFAR-10 was skipped: no folder was given by --cifar, or it lacks the files; nothing is downloaded."
    cifar = _cifar(SETTINGS["cifar"])
    if cifar is not None:
        sets["CIFAR-10, 10 000 images"], note = cifar, ""
    rows = []
    for name, (X, y) in sets.items():
        for seed in range(1 if quick else trials or 3):
            order = np.random.RandomState(FIRST_SEED + seed).permutation(len(X))
            test, train = np.split(order, [len(X) // 5])
            for widths in ((32, 16), (512, 256)):
                clf = HierarchicalQuadraticNetClassifier(
                    widths, device=SETTINGS["device"], dtype="float32", max_epochs=5 if quick else 40, random_state=seed
                )
                start = time.perf_counter()
                clf.fit(X[train], y[train])
                row = {"table": name, "widths": widths, "device": SETTINGS["device"], "seed": seed}
                rows.append(row | {"score": clf.score(X[test], y[test]), "seconds": time.perf_counter() - start})
                print(f"wide: {rows[-1]}", flush=True)
    print(note)
    return {"rows": rows, "note": note}


def _cifar(folder):
    """Images and labels of the first batch, from an .npz file with ``data`` and ``labels``; None if there is none."""
    path = None if folder is None else Path(folder) / "data_batch_1.npz"
    if path is None or not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as content:
        return content["data"].astype(float), np.asarray(content["labels"])


def _wide_tables(result):
    header = ["table", "widths", "device", "accuracy", "seconds"]
    keys = ("table", "widths", "device", "score", "seconds")
    return format_table(header, [[r[k] for k in keys] for r in result["rows"]]) + f"\n\n{result['note']}"


PARTS = {
    name: SimpleNamespace(run=globals()[name], tables=globals()[f"_{name}_tables"])
    for name in ("recovery", "algorithm1", "correction", "layerwise", "signs", "tables", "wide")
}

if __name__ == "__main__":
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--device", default="cpu")
    own.add_argument("--cifar", default=None)
    given, rest = own.parse_known_args()
    SETTINGS.update(vars(given))
    sys.argv[1:] = rest
    run_parts("hierarchical", PARTS, __doc__.splitlines()[0])
