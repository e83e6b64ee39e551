"""Requirements on identification, extraction and the power method, with measured values."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import seed_ranges
from common import BlackBox, format_table, format_value, make_identifier, run_module, stopwatch, summary, unit_inputs
from registry import part
from skident import EntangledWeightExtractor, NetworkIdentifier
from skident.datasets import make_network, make_pyramidal_network
from skident.linalg import find_rank_one, svec_outer
from skident.metrics import false_positive_rate, parameter_error, recovery_rate, relative_max_error
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.TARGETS.start
TANH = {"activation": "tanh", "output_activation": "tanh"}


def _row(case, trials, bars, needed=None):
    """One line: every trial's measurements against the bars; `needed` of the trials must pass (all by default).

    `bars` maps a measurement's name to ``(relation, bound)`` with relation "<=" or ">=".
    """
    met = [all(t[k] <= b if rel == "<=" else t[k] >= b for k, (rel, b) in bars.items()) for t in trials]
    needed = len(trials) if needed is None else min(needed, len(trials))
    worst = {k: (max if rel == "<=" else min)(t[k] for t in trials) for k, (rel, _) in bars.items()}
    row = {
        "case": case,
        "bar": ", ".join(f"{k} {rel} {format_value(b)}" for k, (rel, b) in bars.items()),
        "needed": needed,
        "trials": len(trials),
        "passed_trials": int(sum(met)),
        "passed": sum(met) >= needed,
        "worst": worst,
        "seconds": summary([t["seconds"] for t in trials]),
        "queries": max(t.get("queries", 0) for t in trials),
        "failures": [t for t, ok in zip(trials, met, strict=True) if not ok],
    }
    print(_line(row), flush=True)
    return row


def _line(row):
    worst = ", ".join(f"{k} {format_value(v)}" for k, v in row["worst"].items())
    verdict = "pass" if row["passed"] else "FAIL"
    trials = f"{row['passed_trials']} of {row['trials']} trials"
    return f"{verdict}: {row['case']}: bar {row['bar']}; worst {worst}; {trials}"


# -- planted networks, from function values only -----------------------------------------------------------------------


def _planted(n_inputs, widths, seed):
    network = make_network((n_inputs, *widths), bias_scale=0.05, random_state=seed)
    X, held_out = np.random.default_rng(seed).standard_normal((2, 5000, n_inputs))
    box = BlackBox(network)
    with stopwatch() as clock:
        identifier = make_identifier(box, layer_widths=widths, **TANH, random_state=seed).fit(X[:500])
    return {
        "error": relative_max_error(network(held_out), identifier.predict(held_out)),
        "seconds": clock.seconds,
        "queries": box.rows,
        "seed": seed,
    }


def planted_rows(quick):
    cases = [(20, (20, 5), 10, 10.0), (20, (20, 12, 5), 10, 10.0), (50, (40, 10), 3, 90.0), (50, (50, 30, 10), 2, 90.0)]
    for n_inputs, widths, n_seeds, seconds in cases[:2] if quick else cases:
        n_seeds = 2 if quick else n_seeds
        trials = [_planted(n_inputs, widths, FIRST_SEED + k) for k in range(n_seeds)]
        bars = {"error": ("<=", 1e-10), "seconds": ("<=", seconds)}
        needed = 9 if n_seeds == 10 else None
        yield _row(f"D={n_inputs}, widths {widths}, function values only", trials, bars, needed)


# -- extraction alone --------------------------------------------------------------------------------------------------


def extraction_trial(n_inputs, n_neurons, contraction, seed, exact):
    """Recovery and false positives of the default extractor; peak memory of this whole process."""
    import resource

    network = make_pyramidal_network(n_inputs, 3, 10, n_neurons, contraction=contraction, random_state=seed)
    box = network if exact else BlackBox(network)
    extractor = EntangledWeightExtractor(
        box, layer_widths=network.layer_widths, **TANH, center=np.zeros(n_inputs), random_state=seed
    )
    with warnings.catch_warnings(), stopwatch() as clock:
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(unit_inputs(n_inputs))
    true = np.hstack(network.entangled_weights(np.zeros(n_inputs))).T
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "recovery": recovery_rate(true, extractor.components_),
        "false_positives": false_positive_rate(true, extractor.components_),
        "seconds": clock.seconds,
        "memory_gb": peak * (1 if sys.platform == "darwin" else 1024) / 1e9,
        "queries": extractor.n_queries_ if exact else box.rows,
        "seed": seed,
    }


def _in_subprocess(*arguments):
    """`extraction_trial` in a process of its own, so that its peak memory is its own."""
    done = run_module("parts.entangled_weights.targets", json.dumps(arguments))
    return json.loads(done.stdout.splitlines()[-1])


def extraction_rows(quick):
    small = {"recovery": (">=", 1.0), "false_positives": ("<=", 0.0), "seconds": ("<=", 15.0)}
    large = {"recovery": (">=", 0.99), "false_positives": ("<=", 0.01), "seconds": ("<=", 60.0)}
    large["memory_gb"] = ("<=", 4.0)
    for exact, name in ((True, "exact derivatives"), (False, "finite differences"))[: 1 if quick else 2]:
        trials = [_in_subprocess(50, 200, 0.6, FIRST_SEED + k, exact) for k in range(1 if quick else 3)]
        yield _row(f"extraction, D=50, m=200, L=3, c=0.6, {name}", trials, small)
    if quick:
        return
    for exact, name, n_seeds in ((True, "exact derivatives", 2), (False, "finite differences", 1)):
        trials = [_in_subprocess(100, 400, 0.5, FIRST_SEED + k, exact) for k in range(n_seeds)]
        yield _row(f"extraction, D=100, m=400, L=3, c=0.5, {name}", trials, large)


# -- the power method --------------------------------------------------------------------------------------------------


def _power(seed, n_features=20, n_vectors=60):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n_vectors, n_features))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    basis, _ = np.linalg.qr(svec_outer(a).T)
    with stopwatch() as clock:
        search = find_rank_one(basis, n_features, rng=np.random.RandomState(seed))
    found = recovery_rate(a, search.vectors, radius=1e-7) * n_vectors
    return {"found": round(found), "seconds": clock.seconds, "seed": seed}


def power_rows(quick):
    _power(seed_ranges.TARGETS_WARM_UP.start)  # the first call loads libraries
    trials = [_power(FIRST_SEED + k) for k in range(3 if quick else 20)]
    bars = {"found": (">=", 60), "seconds": ("<=", 0.3)}
    yield _row("d=20, 60 random unit vectors, exact span, to 1e-7", trials, bars)


# -- trained scikit-learn networks, from predict alone -----------------------------------------------------------------


def _data(name, standardised):
    """Inputs and targets: as loaded, or standardized (digits: pixels in [0, 1])."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return (X / X.std(axis=0), (y - y.mean()) / y.std()) if standardised else (X, y)
    X, digit = load_digits(return_X_y=True)
    live = X.std(axis=0) > 0.5
    return X[:, live] / (16.0 if standardised else 1.0), np.eye(10)[digit]


def _trained(name, n_hidden, standardised, solver, seed, max_iter):
    X, Y = _data(name, standardised)
    mlp = MLPRegressor(
        hidden_layer_sizes=(n_hidden,), activation="tanh", solver=solver, max_iter=max_iter, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(X, Y)
    box = BlackBox(mlp.predict)
    with warnings.catch_warnings(), stopwatch() as clock:
        warnings.simplefilter("ignore", ConvergenceWarning)
        identifier = NetworkIdentifier(box, random_state=seed).fit(X)
    truth = FeedforwardNetwork.from_sklearn(mlp)
    same = identifier.network_.layer_widths == truth.layer_widths
    return {
        "weight_error": parameter_error(truth, identifier.network_) if same else float("inf"),
        "seconds": clock.seconds,
        "queries": box.rows,
        "seed": seed,
        "widths": identifier.network_.layer_widths,
        "claimed_exact": identifier.report_.exact,
        "training_r2": mlp.score(X, Y),
    }


def trained_rows(quick):
    bars = {"weight_error": ("<=", 1e-6), "seconds": ("<=", 10.0), "queries": ("<=", 100_000)}
    cases = [("diabetes", 8), ("diabetes", 16), ("digits", 20)]
    for name, n_hidden in cases[:1] if quick else cases:
        for standardised in (False, True):
            for solver in ("adam", "lbfgs"):
                max_iter, n_seeds = (300, 3) if name == "diabetes" else (50, 2)
                seeds = range(FIRST_SEED, FIRST_SEED + (1 if quick else n_seeds))
                trials = [_trained(name, n_hidden, standardised, solver, s, max_iter) for s in seeds]
                scale = "rescaled data" if standardised else "data as loaded"
                yield _row(f"{name} MLP, {n_hidden} hidden, {solver}, {scale}, from predict only", trials, bars)


@part("entangled_weights", "targets", seeds=(seed_ranges.TARGETS, seed_ranges.TARGETS_WARM_UP))
def run(trials=None, quick=False):
    """All targets; the number of trials is part of them, so `trials` is not used."""
    rows = []
    for group in (power_rows, planted_rows, trained_rows, extraction_rows):
        rows += list(group(quick))
    return {"rows": rows}


def tables(result):
    header = ["target", "bar", "measured (worst)", "trials passed", "seconds max", "seconds median", "queries", "met"]
    rows = []
    for r in result["rows"]:
        # An infinite error (another architecture was recovered) is stored as null.
        worst = ", ".join(
            f"{k} {'inf' if v is None else format_value(v)}" for k, v in r["worst"].items() if k != "seconds"
        )
        passed = f"{r['passed_trials']} of {r['trials']} ({r['needed']} needed)"
        line = [r["case"], r["bar"], worst, passed, r["seconds"]["max"], r["seconds"]["median"]]
        rows.append([*line, r["queries"] or None, "pass" if r["passed"] else "**FAIL**"])
    return format_table(header, rows)


if __name__ == "__main__":
    print(json.dumps(extraction_trial(*json.loads(sys.argv[1]))))
