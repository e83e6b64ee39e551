"""False `exact_` of `TensorReLURegressor`, missing units without a warning, extrapolation."""

from __future__ import annotations

import time
import warnings

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident import TensorReLURegressor

SEEDS = seed_ranges.HONESTY_EXACT[750:1000]  # cases were written on the 250 before these
FEW_UNITS, RARE_UNITS = seed_ranges.HONESTY_REPRODUCERS[200:210], seed_ranges.HONESTY_REPRODUCERS[210:220]
FAR_ROWS = seed_ranges.HONESTY_REPRODUCERS[220:230]
ROWS = 1_000_000  # samples are drawn at seed + this
N_NEW = 20_000
WRONG = 1e-6  # error relative to the standard deviation of y
# No region without a training row has a larger share of new rows, over the number of training rows, with
# probability .999: (1 - 6.9 / n)^n = .001.
SHARE = 6.9
KINDS = ("rare unit", "near-duplicate units", "offset in y", "clipped", "guarded")


def units(rng, d, m, bias=1.0):
    """Unit-norm directions (m, d), biases and output weights of both signs."""
    W = rng.standard_normal((m, d))
    a = rng.choice([-1.0, 1.0], m) * np.exp(rng.uniform(np.log(0.5), np.log(2.0), m))
    return W / np.linalg.norm(W, axis=1, keepdims=True), bias * rng.standard_normal(m), a


def _between(values, n_above):
    """A number that so many of the values are above."""
    values = np.sort(values)[::-1]
    return 0.5 * (values[n_above - 1] + values[n_above])


def case(seed):
    """Kind, function and training samples: the deviation affects at least one training sample."""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(seed + ROWS)
    kind, d, m, n = KINDS[seed % len(KINDS)], rng.integers(2, 7), rng.integers(1, 6), rng.integers(300, 3001)
    X, (W, b, a) = rows.standard_normal((n, d)), units(rng, d, m)
    few = int(rng.integers(1, 10)) if rng.integers(2) else int(n * rng.uniform(0.01, 0.2))
    offset = 0.0
    if kind == "rare unit":
        b[0] = -_between(X @ W[0], min(few, 9))
        W[0], b[0] = (W[0], b[0]) if rng.integers(2) else (-W[0], -b[0])
    elif kind == "near-duplicate units":
        near = 10.0 ** rng.uniform(-8, -1)
        W, b, a = np.vstack([W, W[0] + near * rng.standard_normal(d)]), np.append(b, b[0]), np.append(a, rng.choice(a))
    elif kind == "offset in y":
        offset = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(3, 15)

    def network(Z):
        return np.maximum(Z @ W.T + b, 0.0) @ a

    high, edge, both = _between(network(X), few), _between(X[:, 0], few), rng.integers(2)
    low = -_between(-network(X), max(1, few // 2)) if both else -np.inf

    # Either a value that the network takes on no row, or 0, which it may take wherever its units are inactive.
    guard = 0.0 if seed // len(KINDS) % 2 else network(X).max() + 1.0

    def function(Z):
        y = network(Z)
        if kind == "clipped":
            y = np.clip(y, low, high)
        if kind == "guarded":
            y = np.where(Z[:, 0] > edge, guard, y)
        return y + offset

    return kind, function, X, rows


def errors_of(reg, function, Z):
    """Errors on new rows over the standard deviation of the function's values there."""
    target = function(Z)
    return np.abs(reg.predict(Z) - target) / np.std(target - target[0])


def fitted(X, y, **options):
    """The fit, the messages of its warnings, and its process time; None instead of a fit that was refused."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reg = TensorReLURegressor(random_state=0, **options).fit(X, y)
        except ValueError as error:
            if "y is constant" not in str(error):
                raise
            reg = None
    return reg, [str(w.message) for w in caught], time.process_time() - start


def check(seed):
    """Counts of one case."""
    kind, function, X, rows = case(seed)
    counts = dict.fromkeys(("exact", "false", "beyond", "missed", "refused"), 0)
    reg, _, seconds = fitted(X, function(X))
    counts["seconds"] = seconds
    if reg is None:
        counts["refused"] = 1
        return kind, counts
    error = errors_of(reg, function, rows.standard_normal((N_NEW, X.shape[1])))
    wrong = np.sqrt(np.mean(error**2)) > WRONG
    counts["exact"] = int(reg.exact_)
    counts["false"] = int(reg.exact_ and wrong)
    counts["beyond"] = int(reg.exact_ and np.mean(error > WRONG) > SHARE / len(X))
    counts["missed"] = int(not reg.exact_ and not wrong)
    return kind, counts


# -- reproducers -------------------------------------------------------------------------------------------------------


def few_units(seed):
    """Ten units in five dimensions: the error over that of least squares, and whether missing units are warned of."""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(seed + ROWS)
    (W, b, a), X, noise = units(rng, 5, 10, 0.5), rows.standard_normal((20_000, 5)), 0.05
    target = np.maximum(X @ W.T + b, 0.0) @ a
    level = noise * target.std()
    reg, said, seconds = fitted(X, target + level * rows.standard_normal(len(X)))
    Z = rows.standard_normal((N_NEW, 5))
    square = np.mean((reg.predict(Z) - np.maximum(Z @ W.T + b, 0.0) @ a) ** 2)
    warned = any("the fit lacks units" in message for message in said)
    return {
        "seed": seed,
        "units": reg.n_units_,
        "over floor": square / (level**2 * 60 / len(X)),
        "warned": warned,
        "seconds": seconds,
    }


def rare_units(seed):
    """Five units of eight inputs, far biases, no noise: is what is called exact right?"""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(seed + ROWS)
    (W, b, a), X = units(rng, 8, 5, 2.0), rows.standard_normal((10_000, 8))

    def function(Z):
        return np.maximum(Z @ W.T + b, 0.0) @ a

    reg, said, seconds = fitted(X, function(X))
    error, active = errors_of(reg, function, rows.standard_normal((N_NEW, 8))), np.sum(X @ W.T + b > 0, axis=0)
    return {
        "seed": seed,
        "fewest rows on a side": int(np.minimum(active, len(X) - active).min()),
        "units": reg.n_units_,
        "exact": reg.exact_,
        "wrong rows": int(np.sum(error > WRONG)),
        "warned": any("do not determine" in message for message in said),
        "seconds": seconds,
    }


def far_rows(seed):
    """Collinear inputs, a smooth function and noise: R^2 of 2000 new rows, one of which has an input of 0."""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(seed + ROWS)
    slopes = rng.uniform(0.5, 1.5, 3)

    def draw(n):
        size = rows.standard_normal(n)
        sizes = np.exp(0.2 * (size[:, None] + 0.15 * rows.standard_normal((n, 3))))
        return sizes, np.log(sizes) @ slopes

    (X, y), (Z, target) = draw(3000), draw(2000)
    reg, _, seconds = fitted(X, y + 0.1 * y.std() * rows.standard_normal(len(y)))
    Z[0, 2] = 0.0
    predicted, box, reg.input_box_ = reg.predict(Z), reg.input_box_, None
    unbounded = reg.predict(Z)
    target[0] = target.mean()
    scores = [1.0 - np.mean((p - target) ** 2) / np.var(target) for p in (predicted, unbounded)]
    return {
        "seed": seed,
        "R^2": scores[0],
        "R^2 without the box": scores[1],
        "clipped": box is not None,
        "seconds": seconds,
    }


@part("honesty", "relu", seeds=(seed_ranges.HONESTY_EXACT, seed_ranges.HONESTY_ROWS, seed_ranges.HONESTY_REPRODUCERS))
def run(trials=None, quick=False):
    """250 cases of the five kinds by turns, or 25, and ten seeds of each reproducer, or one."""
    trials = trials or (25 if quick else 250)
    rows = {kind: {"data": kind, "cases": 0} for kind in KINDS}
    for seed in SEEDS[:trials]:
        kind, counts = check(seed)
        for key, value in {"cases": 1, **counts}.items():
            rows[kind][key] = rows[kind].get(key, 0) + value
    for row in rows.values():
        print(f"honesty, ReLU: {row}", flush=True)
    result, n = {"rows": list(rows.values())}, 1 if quick else None
    for name, one, seeds in (
        ("few", few_units, FEW_UNITS),
        ("rare", rare_units, RARE_UNITS),
        ("far", far_rows, FAR_ROWS),
    ):
        result[name] = [one(seed) for seed in seeds[:n]]
        print(f"honesty, ReLU, {name}: {result[name]}", flush=True)
    return result


def tables(result):
    """Four tables."""
    header = ["data", "cases", "exact_", "false exact_", "wrong on more than 6.9 / n", "correct but not exact_"]
    keys = ("data", "cases", "exact", "false", "beyond", "missed", "refused", "seconds")
    parts = [[[row.get(key, 0) for key in keys] for row in result["rows"]]]
    cases = format_table([*header, "refused: y constant", "seconds"], parts[0])
    others = [
        format_table(list(result[name][0]), [list(row.values()) for row in result[name]])
        for name in ("few", "rare", "far")
    ]
    return "\n\n".join([cases, *others])
