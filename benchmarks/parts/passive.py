"""Networks recovered from samples by `PassiveNetworkIdentifier`, and `MLPRegressor` as the baseline."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from common import Countdown, format_table
from registry import part
from seed_ranges import PASSIVE
from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.fitting.batched_fits import parameters_of
from skident.fitting.scored_pruning import Scoring
from skident.fitting.width_search import SearchLimits, WidthSearchResult
from skident.metrics import parameter_error
from skident.network import Architecture, FeedforwardNetwork
from skident.samples.passive.whitened_table import Table
from skident.samples.passive.width_selection import units_above_noise

D, SHIFTS, NETWORKS = 10, 0.3, 10
PART_SECONDS = 1500.0  # after which no further network begins
FIT_SECONDS = 300.0
JITTER = 0.3
LBFGS = {"activation": "tanh", "solver": "lbfgs"}


def rows_of(kind, n, rng):
    """Inputs of unit variance."""
    if kind == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), (n, D))
    if kind == "Laplace":
        return rng.laplace(size=(n, D)) / np.sqrt(2)
    X = rng.standard_normal((n, D))
    if kind == "correlated":
        return X @ np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(D), np.arange(D)))).T
    if kind == "binary and continuous":
        X[:, :3] = np.sign(X[:, :3])
    return X


def planted(widths, activation, seed, per_parameter=10, kind="Gaussian"):
    """Network, samples and values: unit weight columns, biases N(0, 0.3^2), linear output."""
    truth = make_network(
        (D, *widths), bias_scale=SHIFTS, activation=activation, output_activation="identity", random_state=seed
    )
    rng = np.random.default_rng(seed + 500)
    X = rows_of(kind, per_parameter * truth.n_parameters, rng)
    return truth, X, truth(X), rng


def fitted(X, Y, activation, seed):
    """An identifier fitted to rows, and the seconds of the processor."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        identifier = PassiveNetworkIdentifier(
            activation=activation, max_work=None, max_seconds=FIT_SECONDS, random_state=seed
        )
        identifier.fit(X, Y)
    return identifier, time.process_time() - start


def compared(truth, identifier, held_out):
    """Widths, worst relative error of a parameter, worst relative error on held-out samples, claims."""
    right = identifier.layer_widths_ == truth.layer_widths
    values = truth(held_out)
    error = np.abs(identifier.network_(held_out) - values).max() / np.abs(values - values.mean(axis=0)).max()
    parameters = float(parameter_error(truth, identifier.network_)) if right else np.inf
    return {
        "right": right,
        "widths": identifier.layer_widths_,
        "parameters": parameters if right else None,
        "error": float(error),
        "exact": identifier.report_.exact,
        "false_exact": identifier.report_.exact and parameters > 1e-6,
    }


def summarised(case, networks, bar):
    """One case: how many met the bar, and the figures."""
    met = [n["right"] and max(n["parameters"], n["error"]) <= bar for n in networks]
    right = [n for n in networks if n["right"]]
    return {
        "case": case,
        "networks": len(networks),
        "right": len(right),
        "met": int(sum(met)),
        "median_parameters": float(np.median([n["parameters"] for n in right])) if right else None,
        "median_error": float(np.median([n["error"] for n in networks])),
        "false_exact": int(sum(n["false_exact"] for n in networks)),
        "seconds": float(np.median([n["seconds"] for n in networks])),
        "most_seconds": float(max(n["seconds"] for n in networks)),
        "all": networks,
    }


class Cases:
    """Cases of planted networks, in their order, as far as the time goes."""

    HEADER = (
        "case",
        "networks",
        "widths right",
        "met",
        "parameters",
        "held-out samples",
        "false exact",
        "seconds",
        "maximum seconds",
    )
    KEYS = ("case", "networks", "right", "met", "median_parameters", "median_error", "false_exact", "seconds",
            "most_seconds")  # fmt: skip

    def __init__(self, cases, first, bar=1e-10):
        self.cases, self.first, self.bar = cases, first, bar

    def run(self, trials, quick):
        clock, results = Countdown(PART_SECONDS), []
        for c, (case, widths, activation, kind) in enumerate(self.cases[:1] if quick else self.cases):
            networks = []
            for i in range(1 if quick else trials or NETWORKS):
                if clock.over and networks:
                    break
                seed = PASSIVE[self.first + 10 * c + i]
                truth, X, Y, rng = planted((4, 1) if quick else widths, activation, seed, kind=kind)
                identifier, seconds = fitted(X, Y, activation, seed)
                found = compared(truth, identifier, rows_of(kind, 2000, rng))
                networks.append({"seconds": seconds, **found})
                print(case, seed, networks[-1], flush=True)
            results.append(summarised(case, networks, self.bar))
        return {"cases": results}

    def tables(self, result):
        rows = [[one[key] for key in self.KEYS] for one in result["cases"]]
        return format_table(self.HEADER, rows)


class Noise:
    """Noise relative to the targets' deviation."""

    HEADER = ("noise", "networks", "widths right", "true widths score best", "widths with best score recovered",
              "error / (P s^2 / N)", "z of parameters", "s")  # fmt: skip

    def run(self, trials, quick):
        results = []
        for c, level in enumerate((0.1,) if quick else (0.01, 0.1)):
            networks = []
            for i in range(1 if quick else trials or NETWORKS):
                seed = PASSIVE[300 + 10 * c + i]
                truth, X, Y, rng = planted((4, 1) if quick else (8, 1), "tanh", seed)
                sigma = level * Y.std()
                noisy = Y + sigma * rng.standard_normal(Y.shape)
                identifier, seconds = fitted(X, noisy, "tanh", seed)
                networks.append({"seconds": seconds, **_noisy(truth, identifier, X, noisy, sigma, rng)})
                print(level, seed, networks[-1], flush=True)
            results.append({"noise": level, "networks": networks})
        return {"cases": results}

    def tables(self, result):
        rows = []
        for one in result["cases"]:
            n = one["networks"]
            z = [m["z"] for m in n if m["z"] is not None]
            rows.append([
                one["noise"], len(n), sum(m["right"] for m in n), sum(m["attainable"] for m in n),
                sum(m["as_from_truth"] for m in n), float(np.median([m["ratio"] for m in n])),
                float(np.median(z)) if z else None, float(np.median([m["seconds"] for m in n])),
            ])  # fmt: skip
        return format_table(self.HEADER, rows)


def _noisy(truth, identifier, X, noisy, sigma, rng):
    held_out, found = rng.standard_normal((4000, D)), identifier.network_
    right = found.layer_widths == truth.layer_widths
    squared = float(np.mean((found(held_out) - truth(held_out)) ** 2))
    z = None
    if right:
        aligned = truth.align_to(found)
        pairs = [*zip(found.weights, aligned.weights), *zip(found.biases, aligned.biases)]
        errors = [*identifier.stderr_[0], *identifier.stderr_[1]]
        z = float(np.sqrt(np.mean(np.concatenate([((a - b) / e).ravel() for (a, b), e in zip(pairs, errors)]) ** 2)))
    best = _from_truth(truth, X, noisy)
    return {
        "right": right,
        "widths": found.layer_widths,
        "ratio": squared / (truth.n_parameters * sigma**2 / len(X)),
        "z": z,
        "attainable": best == truth.layer_widths,
        "as_from_truth": best == found.layer_widths,
        "exact": identifier.report_.exact,
    }


def _from_truth(truth, X, noisy):
    """The widths that the criterion comes to from the true network."""
    table = Table(X, noisy, None, True)
    rows = table.rows(slice(None))
    start = Scoring(rows, 0.0).refit(Architecture.of(truth), parameters_of(table.in_whitened(truth))[None])
    return units_above_noise(
        WidthSearchResult(start, True, []), rows, SearchLimits(), np.random.RandomState(0)
    ).fitted.widths


class Trained:
    """`MLPRegressor` of tanh units fitted to diabetes, on bootstrap samples plus jitter."""

    def run(self, trials, quick):
        X0, y0 = load_diabetes(return_X_y=True)
        X0, y0 = StandardScaler().fit_transform(X0), (y0 - y0.mean()) / y0.std()
        clock, results = Countdown(PART_SECONDS), []
        for c, hidden in enumerate([(3,)] if quick else [(8,), (8, 5)]):
            networks = []
            for i in range(1 if quick else trials or NETWORKS):
                if clock.over and networks:
                    break
                seed = PASSIVE[340 + 10 * c + i]
                mlp = MLPRegressor(hidden_layer_sizes=hidden, **LBFGS, max_iter=300, random_state=seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    truth = FeedforwardNetwork.from_sklearn(mlp.fit(X0, y0))
                rng = np.random.default_rng(seed + 500)
                X = _around(X0, 20 * truth.n_parameters, rng)
                identifier, seconds = fitted(X, truth(X), "tanh", seed)
                networks.append({"seconds": seconds, **compared(truth, identifier, _around(X0, 2000, rng))})
                print(hidden, seed, networks[-1], flush=True)
            results.append(summarised(f"diabetes, {hidden}", networks, 1e-6))
        return {"cases": results}

    def tables(self, result):
        return Cases((), 0).tables(result)


def _around(X, n, rng):
    return X[rng.integers(len(X), size=n)] + JITTER * rng.standard_normal((n, X.shape[1]))


class Baselines:
    """`MLPRegressor` (lbfgs) with the true width, the best of ten fits, on the rows of the first case."""

    HEADER = ("seed", "held-out samples, best of 10", "parameters, best of 10", "s, all 10")

    def run(self, trials, quick):
        clock, rows = Countdown(PART_SECONDS), []
        for i in range(1 if quick else trials or NETWORKS):
            if clock.over and rows:
                break
            seed = PASSIVE[i]
            truth, X, Y, rng = planted((8, 1), "tanh", seed)
            start, fits = time.process_time(), []
            for s in range(2 if quick else 10):
                exactly = {"alpha": 0.0, "tol": 1e-12, "max_iter": 5000, "max_fun": 10**6}
                mlp = MLPRegressor(hidden_layer_sizes=(8,), **LBFGS, **exactly, random_state=s)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    fits.append(mlp.fit(X, Y[:, 0]))
            best = FeedforwardNetwork.from_sklearn(min(fits, key=lambda mlp: mlp.loss_))
            held_out = rng.standard_normal((2000, D))
            values = truth(held_out)
            error = np.abs(best(held_out) - values).max() / np.abs(values - values.mean()).max()
            seconds = time.process_time() - start
            rows.append([seed, float(error), float(parameter_error(truth, best)), seconds])
            print(rows[-1], flush=True)
        return {"rows": rows}

    def tables(self, result):
        return format_table(self.HEADER, result["rows"])


_OTHERS = ("sigmoid", "erf", "softplus", "sin", "gelu")
_INPUTS = ("uniform", "Laplace", "correlated", "binary and continuous")
for name, cases in {
    "one_layer": Cases([("tanh, (8, 1)", (8, 1), "tanh", "Gaussian")], 0),
    "activations": Cases([(f"{a}, (8, 1)", (8, 1), a, "Gaussian") for a in _OTHERS], 20),
    "two_layers": Cases(
        [("tanh, (6, 4, 1)", (6, 4, 1), "tanh", "Gaussian"), ("tanh, (8, 5, 2)", (8, 5, 2), "tanh", "Gaussian")], 80
    ),  # fmt: skip
    "outputs": Cases([("tanh, (8, 3)", (8, 3), "tanh", "Gaussian")], 10),
    "inputs": Cases([(f"tanh, (8, 1), {kind}", (8, 1), "tanh", kind) for kind in _INPUTS], 100),
    "noise": Noise(),
    "trained": Trained(),
    "baselines": Baselines(),
}.items():
    part("passive", name, seeds=PASSIVE)(cases)
