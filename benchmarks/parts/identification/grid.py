"""Limits of identification: one property at a time varied around a base case."""

from __future__ import annotations

import functools

import numpy as np

import seed_ranges
from parts.identification.trials import Case, notes, planted, table
from registry import part
from skident.datasets import make_network

BASE = {"n_inputs": 20, "widths": (16, 10, 5), "bias_scale": 0.5, "activation": "tanh", "noise": 0.0}
FACTORS = {
    "base case": [{}],
    "inputs": [{"n_inputs": D} for D in (10, 40)],
    "hidden layers": [{"widths": w} for w in ((16, 5), (16, 12, 8, 5), (18, 14, 11, 8, 5))],
    "first layer": [{"widths": (m, 10, 5)} for m in (8, 20, 40, 60)],
    "outputs": [{"widths": (16, 10, m)} for m in (1, 2, 10)],
    "biases": [{"bias_scale": s} for s in (0.05, 1.0)],
    "activation": [{"activation": a} for a in ("sigmoid", "erf")],
    "noise": [{"noise": s} for s in (1e-6, 1e-4, 1e-3)],
}
_TIMES_NOISE = 10.0  # relative maximum error, in units of the noise, at which a network counts as identified


class Noisy:
    """Outputs with Gaussian noise, in units of their own standard deviations."""

    def __init__(self, level, network, seed):
        self.rng = np.random.default_rng(seed)
        X = self.rng.standard_normal((2000, network.n_inputs))
        self.scale = level * network(X).std(axis=0)

    def __call__(self, Y):
        return Y + self.scale * self.rng.standard_normal(Y.shape)


def standardized_error(truth, model):
    """Root mean square of error / standard error over all parameters; about 1 if the standard errors are right."""
    true = truth.align_to(model.network_)
    weights, biases = model.stderr_
    found = [*model.network_.weights, *model.network_.biases]
    gaps = [(a - b) / s for a, b, s in zip(found, [*true.weights, *true.biases], [*weights, *biases], strict=True)]
    return float(np.sqrt(np.mean(np.concatenate([gap.ravel() for gap in gaps]) ** 2)))


def _trial(settings, seed):
    s = {**BASE, **settings}
    D, widths, noise = s["n_inputs"], s["widths"], s["noise"]
    names = {"activation": s["activation"], "output_activation": s["activation"]}
    options = {"bias_scale": s["bias_scale"], "names": names, "max_seconds": 300.0}
    if not noise:
        return planted(D, widths, seed, **options)[0]
    truth = make_network((D, *widths), bias_scale=s["bias_scale"], random_state=seed, **names)
    options |= {"output_map": Noisy(noise, truth, seed), "error": _TIMES_NOISE * noise, "parameters": None}
    trial, model = planted(D, widths, seed, **options)
    if model is not None and trial["success"] and model.stderr_ is not None:
        trial["standardised error"] = standardized_error(truth, model)
    return trial | {"success": bool(trial["success"] and not trial["exact"])}


def _name(settings):
    words = {"n_inputs": "D = {}", "widths": "widths {}", "bias_scale": "biases of sd {}", "noise": "noise {:g}"}
    return ", ".join(words.get(key, "{}").format(value) for key, value in settings.items()) or "as it is"


@part("identification", "grid", seeds=seed_ranges.IDENTIFICATION)
def run(trials=None, quick=False):
    """Every factor; five seeds each, or as many as a row's time allows."""
    rows = []
    n_seeds = trials if trials is not None else 1 if quick else 5
    for factor, values in FACTORS.items():
        for settings in values[:1] if quick else values:
            case = Case(f"{factor}: {_name(settings)}", functools.partial(_trial, settings), n_seeds=5, seconds=40.0)
            rows.append(case.run(n_seeds))
    return {"base": BASE, "times_noise": _TIMES_NOISE, "rows": rows}


def tables(result):
    extra = [("error / standard error", lambda r: r.get("median standardised error"))]
    return f"{table(result['rows'], 'varied: value', extra)}\n\n{notes(result['rows'])}"
