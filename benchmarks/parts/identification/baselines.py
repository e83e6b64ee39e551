"""Baselines that learn the network from as many samples as its identification queries."""

from __future__ import annotations

import time

import numpy as np
import torch

import seed_ranges
from cases.trained_regressors import regression_data, trained_regressor
from common import format_table
from parts.identification.trials import FIRST_SEED, TANH, identify, planted
from registry import part
from skident.datasets import make_network
from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.random_starts import random_network
from skident.metrics import relative_max_error, relative_mse
from skident.network import Architecture, FeedforwardNetwork

PLANTED = ((20, (20, 5)), (20, (16, 12, 8, 5)), (50, (30, 20, 10)))
STARTS = {"Adam": 3, "Levenberg-Marquardt": 5}
SECONDS = 20.0  # of each method, all its starts together
_BATCH = 128
_EXACT = 1e-9  # relative residual of a start that recovered the network


def adam(truth, U, Y, seed, seconds):
    """The true architecture trained in torch, rate falling from 0.01 to 0: best of 3 starts, and their residuals."""
    torch.set_num_threads(1)
    unit = Y.std(axis=0) if truth.output_activation == "identity" else np.ones(Y.shape[1])
    offset = Y.mean(axis=0) if truth.output_activation == "identity" else np.zeros(Y.shape[1])
    inputs, outputs = torch.from_numpy(U), torch.from_numpy((Y - offset) / unit)
    fits = []
    for start in range(STARTS["Adam"]):
        rng = np.random.RandomState(1000 * seed + start)
        net = random_network(truth.n_inputs, Architecture.of(truth), rng)
        module = net.to_torch()
        loss = _train(module, inputs, outputs, seconds / STARTS["Adam"], rng)
        fits.append((np.sqrt(loss / torch.mean(outputs**2).item()), module))
    residuals = [residual for residual, _ in fits]
    best = fits[int(np.argmin(residuals))][1]
    return lambda X: best(torch.from_numpy(X)).detach().numpy() * unit + offset, residuals


def _train(module, inputs, outputs, seconds, rng):
    """Mean squared error after that much processor time."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    start, progress = time.process_time(), 0.0
    while progress < 1.0:
        for rows in np.array_split(rng.permutation(len(inputs)), max(1, len(inputs) // _BATCH)):
            optimizer.zero_grad()
            torch.mean((module(inputs[rows]) - outputs[rows]) ** 2).backward()
            optimizer.step()
        progress = (time.process_time() - start) / seconds
        optimizer.param_groups[0]["lr"] = 1e-2 * max(0.0, 1.0 - progress)
    with torch.no_grad():
        return float(torch.mean((module(inputs) - outputs) ** 2))


def levenberg_marquardt(truth, U, Y, seed, seconds):
    """All weights and biases from random starts: best of 5, or of those within the time limit, and their residuals."""
    fits, began = [], time.process_time()
    for start in range(STARTS["Levenberg-Marquardt"]):
        if start and time.process_time() - began > seconds:
            break
        rng = np.random.RandomState(1000 * seed + start)
        net = random_network(truth.n_inputs, Architecture.of(truth), rng)
        fits.append(fit_network(net, U, Y, Stopping(max_iter=300, patience=30, gain=0.9)))
    residuals = [residual for _, residual in fits]
    return fits[int(np.argmin(residuals))][0], residuals


BASELINES = {"Adam": adam, "Levenberg-Marquardt": levenberg_marquardt}


def _planted_case(D, widths, seed):
    trial, model = planted(D, widths, seed, max_seconds=300.0)
    return trial, model, make_network((D, *widths), bias_scale=0.5, random_state=seed, **TANH)


def _diabetes_case(seed):
    mlp, X = trained_regressor("diabetes", (8, 5), "adam", seed)
    truth = FeedforwardNetwork.from_sklearn(mlp)
    held_out = np.random.default_rng(seed).standard_normal((5000, truth.n_inputs))
    options = {"layer_widths": truth.layer_widths, "activation": "tanh", "max_seconds": 300.0}
    trial, model = identify(mlp.predict, regression_data("diabetes")[0], truth, held_out, seed=seed, **options)
    return trial, model, truth


def _compare(make, seed, seconds):
    """Errors on held-out inputs and seconds, by method."""
    trial, model, truth = make(seed)
    rng = np.random.default_rng(seed + 10_000)
    U, held_out = rng.standard_normal((trial["queries"], truth.n_inputs)), rng.standard_normal((5000, truth.n_inputs))
    Y, found = truth(held_out), {}
    if model is not None:
        found["identified"] = model.network_(held_out), trial["seconds"], []
    for name, fit in BASELINES.items():
        start = time.process_time()
        network, residuals = fit(truth, U, truth(U), seed, seconds)
        found[name] = network(held_out), time.process_time() - start, residuals
    return {
        name: {
            "max": relative_max_error(Y, y),
            "mse": relative_mse(Y, y),
            "seconds": s,
            "queries": trial["queries"],
            "misfits": residuals,
        }
        for name, (y, s, residuals) in found.items()
    }


@part(
    "identification",
    "baselines",
    seeds=(seed_ranges.IDENTIFICATION, seed_ranges.IDENTIFICATION_ROWS, seed_ranges.IDENTIFICATION_STARTS),
)
def run(trials=None, quick=False):
    """Three seeds of every case; nothing is tuned to a seed."""
    trials = trials or (1 if quick else 3)
    cases = {f"D={D}, {w}": lambda seed, D=D, w=w: _planted_case(D, w, seed) for D, w in PLANTED}
    cases["diabetes MLP, (8, 5) hidden, adam"] = _diabetes_case
    rows = []
    for name, make in list(cases.items())[: 1 if quick else None]:
        seconds = 3.0 if quick else SECONDS
        results = [_compare(make, FIRST_SEED + k, seconds) for k in range(trials)]
        for method in ("identified", *BASELINES):
            values = [r[method] for r in results if method in r]
            rows.append({"case": name, "method": method, "trials": len(values), **_medians(values)})
            print(f"{name}: {method}: {rows[-1]}", flush=True)
    return {"rows": rows, "seconds_limit": SECONDS, "starts": STARTS}


def _medians(values):
    medians = {key: float(np.median([v[key] for v in values])) for key in ("max", "mse", "seconds", "queries")}
    residuals = [residual for v in values for residual in v["misfits"]]
    exact = sum(bool(residual < _EXACT) for residual in residuals)
    errors = [v["max"] for v in values]
    return medians | {"best": min(errors), "worst": max(errors), "starts": len(residuals), "exact_starts": exact}


def tables(result):
    header = ["network", "method", "relative max error", "best", "worst", "exact starts", "seconds", "queries"]
    names = {"Adam": f"Adam, best of {result['starts']['Adam']} starts"}
    n_starts = result["starts"]["Levenberg-Marquardt"]
    names["Levenberg-Marquardt"] = f"Levenberg-Marquardt, best of {n_starts} starts"
    rows = []
    for r in result["rows"]:
        starts = f"{r['exact_starts']} of {r['starts']}" if r["starts"] else None
        line = [r["case"], names.get(r["method"], r["method"]), r["max"], r["best"], r["worst"], starts]
        rows.append([*line, r["seconds"], int(r["queries"])])
    return format_table(header, rows)
