"""Services that raise, or return NaN or a sentinel value, outside a range: what `input_range` alone recovers."""

from __future__ import annotations

import warnings

import numpy as np

import seed_ranges
from common import format_table, make_identifier
from registry import part
from skident.datasets import make_network

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 6_000  # of this part's seeds
SHAPES = ((4, 8, 1), (6, 12, 2), (5, 8, 6, 2), (4, 6, 4, 1))
LIMITS = ("10", "5", "3", "per input", "asymmetric")
BEYOND = ("raises", np.nan, 0.0, -1.0)
LIMIT, BAR = 120.0, 36


def _bounds(kind, D, rng):
    """Bounds (low, high), (D,) each."""
    if kind == "per input":
        return -rng.uniform(3.0, 8.0, D), rng.uniform(3.0, 8.0, D)
    low, high = (-3.0, 8.0) if kind == "asymmetric" else (-float(kind), float(kind))
    return np.full(D, low), np.full(D, high)


def service(network, low, high, beyond):
    """The network within a range; beyond it, it raises, or returns a value."""

    def box(X):
        outside = np.any((low > X) | (high < X), axis=1)
        if beyond == "raises":
            if outside.any():
                raise ValueError("input out of range")
            return network(X)
        return np.where(outside[:, None], beyond, network(X))

    return box


def fit_one(activation, sizes, limits, beyond, seed):
    """How one fit ends, with its message, if it is not exact."""
    rng = np.random.default_rng(seed)
    names = {"activation": activation, "output_activation": "identity"}
    network = make_network(sizes, bias_scale=0.5, random_state=seed, **names)
    low, high = _bounds(limits, sizes[0], rng)
    X = rng.standard_normal((200, sizes[0])).clip(low, high)
    identifier = make_identifier(
        service(network, low, high, beyond),
        layer_widths="auto",
        input_range=(low, high),
        max_seconds=LIMIT,
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exact = identifier.fit(X).report_.exact
        except ValueError as error:
            return "refused", str(error)
    wrong = exact and np.abs(identifier.network_(X) - network(X)).max() > 1e-6 * np.ptp(network(X))
    outcome = "wrong" if wrong else "exact" if exact else "not exact"
    return outcome, "" if exact else " ".join(str(w.message) for w in caught)


@part("everyday", "ranged_services", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """ReLU and tanh, four shapes, five kinds of limits; `trials` limits their number."""
    cases = [(a, s, k) for k in LIMITS for s in SHAPES for a in ("relu", "tanh")]
    rows = []
    for i, (activation, sizes, limits) in enumerate(cases[: 4 if quick else trials]):
        beyond = BEYOND[(i // 2 + i // 8) % len(BEYOND)]  # every kind with every activation, and most limits
        outcome, message = fit_one(activation, sizes, limits, beyond, FIRST_SEED + OFFSET + i)
        network = f"{activation} {'-'.join(map(str, sizes))}"
        rows.append(
            {"network": network, "limits": limits, "beyond": str(beyond), "outcome": outcome, "message": message[:300]}
        )
    n_exact = sum(row["outcome"] == "exact" for row in rows)
    return {"ranged_services": {"rows": rows, "exact": n_exact, "bar": BAR}}


def tables(result):
    """Exact networks by shape, and the others with their limits."""
    found, groups = result["ranged_services"], {}
    for row in found["rows"]:
        groups.setdefault(row["network"], []).append(row)
    rows = [
        [
            network,
            f"{sum(r['outcome'] == 'exact' for r in some)} of {len(some)}",
            "; ".join(f"{r['outcome']} ({r['limits']})" for r in some if r["outcome"] != "exact"),
        ]
        for network, some in groups.items()
    ]
    head = f"{found['exact']} of {len(found['rows'])} exact (bar {found['bar']})"
    return head + "\n\n" + format_table(["network", "exact", "others (limits)"], rows)
