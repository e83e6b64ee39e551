"""Local deviations on a share of 0.001 to 0.01 of N(0, I), and rare ReLU outputs: false `exact`, stated shares."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from cases.random_networks import random_network
from common import format_table
from registry import part
from skident import NetworkIdentifier

CASES, QUICK = 80, 8
SECONDS = 15.0  # per fit
KINDS = ("bump", "slab", "ball", "rare ReLU output")
WRAPPERS = ("callable", "torch module", "estimator")
SEEDS = seed_ranges.EVERYDAY[7_000 : 7_000 + CASES]
_MANY = 1_000_000  # samples of N(0, I) that measure the true share
_FAR = (1.0, 3.0, 30.0)  # spreads at which a rare ReLU output is compared
_TOL = 1e-7  # ten times the tolerance of NetworkIdentifier
_FAR_TOL = 1e-4  # beyond three standard deviations, where errors of weights grow


def _distance(kind, rng, D):
    center, u = 0.5 * rng.standard_normal(D), rng.standard_normal(D)
    u, t = u / np.linalg.norm(u), rng.uniform(-1.5, 1.5)
    return {
        "bump": lambda V: np.abs(V - center).sum(axis=1),
        "slab": lambda V: np.abs(V @ u - t),
        "ball": lambda V: np.linalg.norm(V - center, axis=1),
    }[kind]


def case(seed):
    """Kind, true function, and samples X."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    D, activation = int(rng.integers(4, 11)), ("relu", "tanh")[seed // len(KINDS) % 2]
    f, X = random_network(activation, (D, int(rng.integers(4, 12)), 1), seed), rng.standard_normal((200, D))
    Z = rng.standard_normal((200_000, D))
    if kind == "rare ReLU output":
        low = np.quantile(f(rng.uniform(1.0, 3.0) * Z), 10.0 ** rng.uniform(-5.0, -2.0))
        return kind, activation, lambda V: np.maximum(f(V) - low, 0.0), X
    distance = _distance(kind, rng, D)
    r = np.quantile(distance(Z), 10.0 ** rng.uniform(-3.0, -2.0))
    height = (lambda d: np.maximum(r - d, 0.0)) if kind == "bump" else (lambda d: 0.3 * (d < r))
    return kind, activation, lambda V: f(V) + height(distance(V))[:, None], X


def wrapped(function, how):
    """The function as a callable, a torch module or a fitted estimator."""
    if how == "torch module":
        import torch

        class Module(torch.nn.Module):
            def forward(self, X):
                return torch.from_numpy(function(X.detach().numpy().astype(float)))

        return Module()
    return function if how == "callable" else type("Model", (), {"predict": lambda self, V: function(np.asarray(V))})()


def trial(seed):
    """One case: the outcome, the true share on which the network differs, and the share stated."""
    kind, activation, function, X = case(seed)
    row = {"kind": kind, "activation": activation, "how": WRAPPERS[seed % len(WRAPPERS)], "exact": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = NetworkIdentifier(wrapped(function, row["how"]), random_state=0, max_seconds=SECONDS).fit(X)
        except ValueError:
            return row | {"stated": None, "share": None, "queries": None, "false_exact": False}
    rng, shares = np.random.default_rng(seed), []
    for spread in _FAR if kind == KINDS[-1] else _FAR[:1]:
        V = spread * rng.standard_normal((_MANY, X.shape[1]))
        Y = function(V)
        tol = (_TOL if spread <= _FAR[1] else _FAR_TOL) * np.abs(Y - Y.mean()).max()
        shares.append(float(np.mean(np.abs(model.network_(V) - Y) > tol)))
    report = model.report_
    false = report.exact and (shares[0] > report.undetected_share or max(shares[1:], default=0.0) > 0.0)
    row |= {"exact": bool(report.exact), "stated": report.undetected_share, "share": shares[0]}
    return row | {"queries": model.n_queries_, "false_exact": bool(false)}


@part("everyday", "undetected", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Networks with a local deviation, and networks whose ReLU output is rarely 0."""
    return {"undetected": [trial(seed) for seed in SEEDS[: trials or (QUICK if quick else CASES)]]}


def tables(result):
    """Outcomes per kind."""
    rows = []
    for kind in KINDS:
        cases = [r for r in result["undetected"] if r["kind"] == kind]
        exact = [r for r in cases if r["exact"]]
        stated = f"{np.median([r['stated'] for r in exact]):.3f}" if exact else ""
        rows.append([kind, len(cases), len(exact), stated, sum(r["false_exact"] for r in cases)])
    head = ["kind", "cases", "exact", "median stated share", "exact with a share below the true one"]
    return format_table(head, rows) + "\n\nA rare ReLU output must be exact at 1, 3 and 30 standard deviations.\n"
