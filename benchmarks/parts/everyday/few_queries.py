"""Whether a tenth more `max_queries` than the unlimited call needs leads to the same outcome: ten kinds of models."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier

import seed_ranges
from common import format_table, make_identifier
from registry import part
from skident.datasets import make_network
from skident.oracle import NotIdentified

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 5_000  # of this part's seeds
SEEDS_PER_KIND, BAR = 4, 38


def _plain(activation, *sizes, output=lambda Y: Y, **options):
    def case(seed):
        names = {"activation": activation, "output_activation": "identity"}
        network = make_network(sizes, bias_scale=0.5, random_state=seed, **names)
        return lambda Z: output(network(Z)), np.random.default_rng(seed).standard_normal((200, sizes[0])), options

    return case


def _linear(seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((5, 2))
    return lambda Z: Z @ W + 1.0, rng.standard_normal((200, 5)), {}


def _regressor(kind, **options):
    def case(seed):
        X = np.random.default_rng(seed).standard_normal((200, 4))
        return kind(**options).fit(X, np.sin(X[:, 0]) + X[:, 1]).predict, X, {}

    return case


def _classifier(seed):
    X = np.random.default_rng(seed).standard_normal((300, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)
    model = MLPClassifier((8,), activation="relu", max_iter=100, random_state=seed).fit(X, y)
    return model.predict_proba, X, {"response_method": "predict_proba"}


KINDS = {
    "ReLU 4-6-1": _plain("relu", 4, 6, 1),
    "ReLU 6-8-5-2": _plain("relu", 6, 8, 5, 2),
    "tanh 5-8-1": _plain("tanh", 5, 8, 1),
    "tanh 6-8-4-1, widths given": _plain("tanh", 6, 8, 4, 1, layer_widths=(8, 4, 1)),
    "softplus 5-6-1": _plain("softplus", 5, 6, 1),
    "classifier 4-8-3, ReLU": _classifier,
    "linear": _linear,
    "random forest": _regressor(RandomForestRegressor, n_estimators=20, random_state=0),
    "nearest neighbors": _regressor(KNeighborsRegressor),
    "tanh 5-6-1 in float32": _plain("tanh", 5, 6, 1, output=lambda Y: Y.astype(np.float32)),
}


def _outcome(case, seed, max_queries=None):
    """Exact, not exact, or the noun of the refusal; and the rows that the model received."""
    box, X, options = case(seed)
    received = []

    def counted(Z):
        received.append(len(Z))
        return box(Z)

    identifier = make_identifier(
        counted, max_queries=max_queries, random_state=0, **{"layer_widths": "auto", **options}
    )
    try:
        outcome = "exact" if identifier.fit(X).report_.exact else "not exact"
    except NotIdentified as error:
        outcome = f"refused: {error.reason}"
    return outcome, sum(received)


@part("everyday", "few_queries", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Four seeds per kind; each model without a limit, then with a tenth more queries than that took."""
    rows = []
    for k, (name, case) in enumerate(KINDS.items()):
        for i in range(min(trials or SEEDS_PER_KIND, 1 if quick else SEEDS_PER_KIND)):
            seed = FIRST_SEED + OFFSET + SEEDS_PER_KIND * k + i
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                free, n_queries = _outcome(case, seed)
                limited, _ = _outcome(case, seed, int(1.1 * n_queries))
            rows.append({"model": name, "queries": n_queries, "free": free, "limited": limited})
    return {"few_queries": {"rows": rows, "same": sum(row["free"] == row["limited"] for row in rows), "bar": BAR}}


def tables(result):
    """Results by kind of model."""
    found, groups = result["few_queries"], {}
    for row in found["rows"]:
        groups.setdefault(row["model"], []).append(row)
    rows = [
        [
            model,
            f"{min(queries):,} to {max(queries):,}",
            ", ".join(sorted({r["free"] for r in some})),
            f"{same} of {len(some)}",
        ]
        for model, some in groups.items()
        for queries, same in [([r["queries"] for r in some], sum(r["free"] == r["limited"] for r in some))]
    ]
    head = f"{found['same']} of {len(found['rows'])} have the same outcome (bar {found['bar']})"
    return f"{head}\n\n" + format_table(["model", "queries without a limit", "outcome", "same with the limit"], rows)
