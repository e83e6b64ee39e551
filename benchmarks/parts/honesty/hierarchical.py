"""Hierarchical networks and the compressor: noise, claims after the last fit, false `exact_`, tolerances."""

from __future__ import annotations

import time
import warnings

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet, NetworkCompressor
from skident.datasets import make_hierarchical_target, make_network
from skident.network import FeedforwardNetwork

FIRST = seed_ranges.HONESTY_REPRODUCERS[400]
FIRST_EXACT, FIRST_COMPRESSOR = seed_ranges.HONESTY_EXACT[1500], seed_ranges.HONESTY_EXACT[2000]
N_HELD_OUT = 20_000
MOST = 1e-6  # error in standard deviations of the target above which `exact_` is false


def _rows_seed(seed):
    return seed + 1_000_000


def _fitted(model, X, y):
    """The fitted model, its warnings and its processor time."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(w.message) for w in caught], time.process_time() - start


def noise(seed):
    """True widths, noise of 0.3 standard deviations: error on new rows against the target without noise."""
    target = make_hierarchical_target(10, (3, 2), random_state=seed)
    X, held_out = target.sample(600, seed), target.sample(N_HELD_OUT, _rows_seed(seed))
    y, held_out_y = target(X), target(held_out)
    y = y + 0.3 * y.std() * np.random.RandomState(seed).standard_normal(len(y))
    row = {"seed": seed}
    for readout in ("auto", "sum"):
        net, _, seconds = _fitted(HierarchicalQuadraticNet((3, 2), readout=readout, random_state=seed), X, y)
        error = float(np.mean((net.predict(held_out) - held_out_y) ** 2) / held_out_y.var())
        row |= {f"{readout} R2": 1.0 - error, f"{readout} seconds": seconds}
    return row


def last_fit(seed):
    """One start, few rows, moved inputs: the search ends above 1e-2 and the last fit may reach the target."""
    target = make_hierarchical_target(8, (3, 2), random_state=seed)
    X, held_out = target.sample(220, seed) + 0.5, target.sample(N_HELD_OUT, _rows_seed(seed)) + 0.5
    net = HierarchicalQuadraticNet((3, 2), readout="sum", n_starts=1, random_state=seed)
    net, said, _ = _fitted(net, X, target(X))
    y = target(X)
    error = float(np.mean((net.predict(held_out) - target(held_out)) ** 2) / target(held_out).var())
    loss = float(np.mean((net.predict(X) - y) ** 2) / y.var())
    stale = not 0.1 * loss - 1e-25 <= net.restart_losses_[0] <= 10 * loss + 1e-25
    row = {"seed": seed, "error": error, "exact": net.exact_, "loss": loss, "recorded loss": net.restart_losses_[0]}
    warned = any("the solver stopped" in message for message in said)
    row["stale"] = stale or (net.exact_ != (error < MOST**2)) or (warned and error < 1e-11)
    return row


# -- false exact -------------------------------------------------------------------------------------------------------


def _offset(rng, X, f, n):
    return X, f + 10.0 ** rng.uniform(3, 15) * f.std()


def _clipped(rng, X, f, n):
    # Levels are of the training samples: a clip that none of them meets cannot be refuted by any fit.
    high = np.quantile(f[:n], 1 - rng.choice([2 / n, 5 / n, 0.02, 0.1]))
    low = np.quantile(f[:n], 0.05) if rng.rand() < 0.5 else -np.inf
    return X, np.clip(f, low, high)


def _near_duplicates(rng, X, f, n):
    X = X.copy()
    X[:, 0] = X[:, 1] + 10.0 ** -rng.uniform(3, 12) * rng.standard_normal(len(X))
    return X, f + (rng.rand() < 0.5) * np.abs(X[:, 1]) * f.std()


def _rare_category(rng, X, f, n):
    X = X.copy()
    X[:, 0] = rng.rand(len(X)) < rng.randint(2, 10) / n
    return X, f + X[:, 0] * np.sin(3 * X[:, 1]) * f.std()


def _rare_deviation(rng, X, f, n):
    z = X @ rng.standard_normal(X.shape[1])
    bend = np.maximum(z - np.sort(z[:n])[-rng.randint(2, 10)], 0.0)
    return X, f + f.std() * bend


def _as_it_is(rng, X, f, n):
    return X, f


def _no_target(rng, X, f, n):
    return X, np.abs(X[:, 0]) + np.sin(X[:, 1])


def _repeated(rng, X, f, n):
    X = X.copy()
    X[:n] = X[: max(10, n // rng.randint(3, 8))][rng.randint(0, max(10, n // 8), n)]
    X[:n] += (rng.rand() < 0.5) * 1e-9 * rng.standard_normal((n, X.shape[1]))
    return X, np.abs(X[:, 0]) + np.sin(X[:, 1])


def _small_noise(rng, X, f, n):
    return X, f + 10.0 ** -rng.uniform(4, 9) * f.std() * rng.standard_normal(len(f))


def _outlier(rng, X, f, n):
    y = f + 1e-3 * f.std() * np.abs(X[:, 0])
    y[rng.randint(n)] += 1e9 * f.std()
    return X, y


def _levels(rng, X, f, n):
    X = np.round(X * rng.uniform(0.5, 1.0))
    return X, np.abs(X[:, 0]) + np.sin(X[:, 1] + X[:, -1])


def _rounded_constant(rng, X, f, n):
    return X, 1e3 + rng.uniform(1e-13, 1e-12) * rng.standard_normal(len(f))


KINDS = (_as_it_is, _offset, _clipped, _near_duplicates, _rare_category, _rare_deviation, _no_target, _repeated)
KINDS += (_small_noise, _outlier, _levels, _rounded_constant)


def exact_case(seed):
    """A random target of a random kind, from few to many rows, and whether `exact_` is false."""
    rng = np.random.RandomState(seed)
    kind = KINDS[seed % len(KINDS)]
    d, widths = rng.randint(3, 9), [(2,), (2, 1), (3, 2), (2, 2, 1)][rng.randint(4)]
    target = make_hierarchical_target(d, widths, random_state=seed)
    widths = tuple(k + rng.randint(2) for k in widths)
    n = int(rng.choice([1.05, 1.3, 2.0, 4.0]) * 2 * d * sum(widths)) + 10
    X = np.vstack([target.sample(n, seed), target.sample(N_HELD_OUT, _rows_seed(seed))])
    X, y = kind(rng, X, target(X), n)
    net = HierarchicalQuadraticNet(widths, readout="sum", l2=0.0, n_starts=3, random_state=seed)
    row = {"seed": seed, "kind": kind.__name__.strip("_").replace("_", " "), "n": n}
    try:
        net, _, row["seconds"] = _fitted(net, X[:n], y[:n])
    except ValueError as refused:
        return row | {"exact": False, "refused": str(refused)[:80], "error": None, "false": False}
    held_out_y = y[n:]
    error = float(np.sqrt(np.mean((net.predict(X[n:]) - held_out_y) ** 2)) / held_out_y.std())
    return row | {"exact": net.exact_, "error": error, "false": net.exact_ and not error <= MOST}


# -- compressor --------------------------------------------------------------------------------------------------------


def compressor_case(seed):
    """A random network, few or many rows, outputs with an offset: the error on new rows over the tolerance."""
    rng = np.random.RandomState(seed)
    D, hidden = rng.randint(2, 8), rng.randint(8, 25)
    network = make_network(
        (D, hidden, rng.randint(1, 3)),
        activation=["tanh", "relu"][seed % 2],
        output_activation="identity",
        bias_scale=0.5,
        random_state=seed,
    )
    offset = network.biases[-1] + 10.0 ** rng.randint(0, 7) * (rng.rand() < 0.5)
    network = FeedforwardNetwork(network.weights, [*network.biases[:-1], offset], activation=network.activation)
    n, tol = int(rng.choice([40, 100, 400, 1000])), float(10.0 ** rng.uniform(-3, -1))
    X = rng.standard_normal((n + N_HELD_OUT, D))
    model, said, seconds = _fitted(NetworkCompressor(network, tol=tol, random_state=seed), X[:n], None)
    Y, held_out = network(X[:n]), network(X[n:])
    error = float(np.sqrt(np.mean(((model.network_(X[n:]) - held_out) / Y.std(axis=0)) ** 2)))
    row = {"seed": seed, "n": n, "tol": tol, "units": hidden, "kept": model.layer_widths_[0], "seconds": seconds}
    return row | {"claimed over tol": model.error_ / tol, "new over tol": error / tol, "warned": bool(said)}


PARTS = {
    "noise": (noise, FIRST, 10),
    "last fit": (last_fit, FIRST + 50, 10),
    "exact": (exact_case, FIRST_EXACT, 250),
    "compressor": (compressor_case, FIRST_COMPRESSOR, 50),
}


@part(
    "honesty",
    "hierarchical",
    seeds=(seed_ranges.HONESTY_EXACT, seed_ranges.HONESTY_ROWS, seed_ranges.HONESTY_REPRODUCERS),
)
def run(trials, quick):
    """All cases of all parts; the first two if quick."""
    result = {}
    for name, (case, first, number) in PARTS.items():
        seeds = range(first, first + (2 if quick else trials or number))
        result[name] = [case(seed) for seed in seeds]
        print(f"honesty of hierarchical networks: {name}, {len(seeds)} cases", flush=True)
    return result


def tables(result):
    """One table for each part."""
    rows = result["noise"]
    header = ["readout", "fits", "lowest R^2", "median R^2", "median seconds"]
    cells = []
    for readout in ("auto", "sum"):
        scores = [r[f"{readout} R2"] for r in rows]
        seconds = float(np.median([r[f"{readout} seconds"] for r in rows]))
        cells.append([readout, len(rows), min(scores), float(np.median(scores)), seconds])
    parts = [format_table(header, cells)]
    rows = result["last fit"]
    cells = [[len(rows), sum(r["exact"] for r in rows), sum(r["error"] < MOST**2 for r in rows)]]
    cells[0].append(sum(r["stale"] for r in rows))
    header = ["refits", "`exact_`", "error below 1e-6", "wrong claims"]
    parts.append(format_table(header, cells))
    cells = []
    for kind in dict.fromkeys(r["kind"] for r in result["exact"]):
        some = [r for r in result["exact"] if r["kind"] == kind]
        right = sum(r["error"] is not None and r["error"] <= MOST for r in some)
        cells.append([kind, len(some), sum(r["exact"] for r in some), right, sum(r["false"] for r in some)])
    header = [
        "target",
        "fits",
        "`exact_`",
        f"error below {MOST:g} sd on {N_HELD_OUT:,} held-out samples",
        "false `exact_`",
    ]
    parts.append(format_table(header, cells))
    cells = []
    for n in sorted({r["n"] for r in result["compressor"]}):
        some = [r for r in result["compressor"] if r["n"] == n]
        ratios = [r["new over tol"] for r in some]
        cells.append([n, len(some), sum(q <= 1 for q in ratios), float(np.median(ratios)), max(ratios)])
    header = ["samples", "networks", "error on held-out samples <= tol", "median of error / tol", "largest"]
    parts.append(format_table(header, cells))
    return "\n\n".join(parts)
