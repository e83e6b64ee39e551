"""Two and three hidden layers of equal width with few outputs: trained regressors and random networks."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from parts.identification.trials import Case, aggregated, identify, line, notes, table
from registry import part
from skident.fitting.design import design_points
from skident.network import FeedforwardNetwork

ROWS = 2000  # held-out inputs from N(0, I)
ALLOWS = 1e-6  # smallest over largest singular value of the Jacobian from which on weights are determined to 1e-10
ERROR = 1e-10
PER_PARAMETER = {"queries per parameter": 60.0}
SECONDS, SECONDS_OF_WIDE, SECONDS_OF_RANDOM = 150.0, 600.0, 40.0  # `max_seconds`, on a clock


def _seed(seed):
    return seed_ranges.PATCHES.start + seed % 100


def _measured(function, X, truth, seed, max_seconds=SECONDS, **options):
    """`identify` with the queries that it took for every parameter and output."""
    U = np.random.default_rng(seed).standard_normal((ROWS, truth.n_inputs))
    names = {"activation": truth.activation, "max_seconds": max_seconds}
    trial, _ = identify(function, X, truth, U, seed=seed, **names, **options)
    trial["queries per parameter"] = trial["queries"] * truth.n_outputs / truth.n_parameters
    return trial


def regressor_trial(data, hidden, solver, seed, *, told=True, max_seconds=SECONDS, seeds=seed_ranges.PATCHES):
    """scikit-learn's regressor, trained on standardized inputs and targets."""
    seed = seeds.start + seed % 100
    if data == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        X, y = make_friedman1(1000, n_features=10, random_state=seed)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options = {"activation": "tanh", "solver": solver, "max_iter": 400, "random_state": seed}
        mlp = MLPRegressor(hidden_layer_sizes=hidden, **options).fit(X, y)
    truth = FeedforwardNetwork.from_sklearn(mlp)
    widths = truth.layer_widths if told else "auto"
    return _measured(mlp.predict, X, truth, seed, max_seconds, layer_widths=widths)


def random_network(seed):
    """Inputs and widths from 3 to 12, one output, sd of biases from .1 to 2, weight scale from .3 to 5."""
    rng = np.random.default_rng(seed)
    sizes = (*rng.integers(3, 13, 3), 1)
    bias_scale, scale = np.exp(rng.uniform(np.log([0.1, 0.3]), np.log([2.0, 5.0])))
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    biases = [bias_scale * rng.standard_normal(b) for _, b in pairs]
    return FeedforwardNetwork(weights, biases, rng.choice(["tanh", "sigmoid", "erf"]))


def condition(network):
    """Smallest over largest singular value of the Jacobian by the parameters, columns of length 1, where units move."""
    U = design_points(*(part[0] for part in (network.weights, network.biases)), 3 * network.n_parameters, 1.0, _rng())
    reads, slopes, Y = [], [], U
    for W, b, g in zip(network.weights, network.biases, network.activations, strict=True):
        reads.append(np.column_stack([Y, np.ones(len(Y))]))
        Y, slope = g.jet(Y @ W + b, 1)
        slopes.append(slope)
    back, columns = np.ones((len(U), 1)), []  # d f / d y of one output, from the last layer to the first
    for W, read, slope in zip(network.weights[::-1], reads[::-1], slopes[::-1], strict=True):
        back = back * slope
        columns.append((read[:, :, None] * back[:, None]).reshape(len(U), -1))
        back = back @ W.T
    J = np.concatenate(columns, axis=1)
    s = np.linalg.svd(J / np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny), compute_uv=False)
    return float(s[-1] / s[0])


def _rng():
    return np.random.RandomState(0)


def random_trial(seed):
    """A random network with given widths, and how well its outputs determine it."""
    seed = _seed(seed)
    truth = random_network(seed)
    X = np.random.default_rng(seed + 1).standard_normal((300, truth.n_inputs))
    options = {"layer_widths": truth.layer_widths, "parameters": None, "max_seconds": SECONDS_OF_RANDOM}
    return _measured(truth, X, truth, seed, **options) | {"condition": condition(truth)}


def few_trial(sizes, seed):
    """A random network of few inputs and wider layers: weight scale from .5 to 3, sd of biases from .1 to 1."""
    seed = seed_ranges.FEW_INPUTS.start + seed % 100
    rng = np.random.default_rng(seed)
    bias_scale, scale = np.exp(rng.uniform(np.log([0.1, 0.5]), np.log([1.0, 3.0])))
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    truth = FeedforwardNetwork(weights, [bias_scale * rng.standard_normal(b) for _, b in pairs], "tanh")
    X = np.random.default_rng(seed + 100).standard_normal((300, truth.n_inputs))
    return _measured(truth, X, truth, seed, layer_widths=truth.layer_widths)


def _few_rows():
    for sizes in ((2, 6, 5, 1), (3, 6, 5, 1), (4, 8, 8, 1), (3, 12, 12, 1), (4, 12, 12, 1), (3, 16, 16, 1)):
        name = f"{sizes[0]} inputs, ({sizes[1]}, {sizes[2]}), random"
        yield Case(name, functools.partial(few_trial, sizes), 9, 10, PER_PARAMETER, seconds=1800.0)


def _regressor_rows():
    for hidden, seconds in (((16, 16), 5.0), ((32, 32), 20.0)):
        for data in ("diabetes", "friedman1"):
            for solver in ("adam", "lbfgs"):
                trial = functools.partial(regressor_trial, data, hidden, solver)
                bars = {"median seconds": seconds, **PER_PARAMETER}
                yield Case(f"MLPRegressor {hidden}, {data}, {solver}", trial, 9, 10, bars, seconds=1800.0)


def _unknown_rows():
    for data in ("diabetes", "friedman1"):
        for solver in ("adam", "lbfgs"):
            trial = functools.partial(regressor_trial, data, (16, 16), solver, told=False)
            yield Case(f"(16, 16), {data}, {solver}, unknown widths", trial, 8, 10, seconds=1800.0)


def planted_trial(seed):
    """Widths (12, 10, 8, 1), ten inputs, weights of variance 1 / inputs of the unit, biases of deviation 0.3."""
    seed = seed_ranges.THREE_LAYERS.start + seed % 100
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise((10, 12, 10, 8, 1)))
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    truth = FeedforwardNetwork(weights, [0.3 * rng.standard_normal(b) for _, b in pairs], "tanh")
    X = np.random.default_rng(seed + 500).standard_normal((300, 10))
    return _measured(truth, X, truth, seed, layer_widths=truth.layer_widths)


def _three_rows():
    yield Case("planted (12, 10, 8, 1), 10 inputs", planted_trial, 9, 10, {"median seconds": 10.0}, seconds=1800.0)
    for data, solver, needed in (("friedman1", "adam", 4), ("diabetes", "adam", 4), ("friedman1", "lbfgs", None)):
        trial = functools.partial(regressor_trial, data, (16, 16, 16), solver, seeds=seed_ranges.THREE_LAYERS)
        yield Case(f"MLPRegressor (16, 16, 16), {data}, {solver}", trial, needed, 5, seconds=3600.0)


def _wide_rows():
    for width, needed, seconds in ((50, 4, 60.0), (64, 3, 120.0)):
        trial = functools.partial(regressor_trial, "friedman1", (width, width), "adam", max_seconds=SECONDS_OF_WIDE)
        yield Case(f"({width}, {width}), friedman1", trial, needed, 5, {"max seconds": seconds}, seconds=3600.0)


class Networks:
    """Rows of one kind, as `run_parts` takes them; of a quick run the first one of `quick_rows`."""

    def __init__(self, rows, quick_rows=None):
        self.rows, self.quick_rows = rows, rows if quick_rows is None else quick_rows

    def run(self, trials, quick):
        """All rows; of a quick run one, once."""
        rows = list(self.quick_rows())[:1] if quick else list(self.rows())
        return {"rows": [case.run(1 if quick else trials) for case in rows]}

    def tables(self, result):
        """One table."""
        extra = [("queries per parameter, maximum", lambda row: row["queries per parameter"])]
        return f"{table(result['rows'], extra=extra)}\n\n{notes(result['rows'])}"


class RandomPart:
    """A hundred random networks in two groups: weights determined or undetermined by the outputs."""

    def run(self, trials, quick):
        """All of them; of a quick run the first three."""
        n = 3 if quick else (100 if trials is None else trials)
        done = [random_trial(k) for k in range(n)]
        groups = {True: [], False: []}
        for trial in done:
            groups[trial["condition"] >= ALLOWS].append(trial)
        rows = [self._row(told, group) for told, group in groups.items() if group]
        for row in rows:
            print(line(row), flush=True)
        conditions = [[t["seed"], t["condition"], t["error"], t["exact"]] for t in done]
        return {"rows": rows, "conditions": conditions}

    def _row(self, told, group):
        needed = int(np.ceil(0.9 * len(group))) if told else None
        name = f"condition {'of at least' if told else 'below'} {ALLOWS:.0e}"
        row = {"case": name, "trials": len(group), "wanted": len(group), **aggregated(group), "needed": needed}
        met = None if needed is None else bool(row["successes"] >= needed and row["false_claims"] == 0)
        return {**row, "bars": {}, "met": met, "failures": [t for t in group if not t["success"]]}

    def tables(self, result):
        """The two groups, and the networks that were not identified though determined."""
        text = f"{table(result['rows'], first='Jacobian')}\n\n{notes(result['rows'])}"
        missed = [c for c in result["conditions"] if c[1] >= ALLOWS and (c[2] is None or c[2] > ERROR)]
        return text + (f"\n\n{format_table(['seed', 'condition', 'error', 'exact'], missed)}" if missed else "")


for name, networks in {
    "regressors": Networks(_regressor_rows),
    "unknown": Networks(_unknown_rows),
    "wide": Networks(_wide_rows, quick_rows=_regressor_rows),
    "three": Networks(_three_rows),
    "few": Networks(_few_rows),
    "random": RandomPart(),
}.items():
    part("patches", name, seeds=(seed_ranges.PATCHES, seed_ranges.FEW_INPUTS, seed_ranges.THREE_LAYERS))(networks)
