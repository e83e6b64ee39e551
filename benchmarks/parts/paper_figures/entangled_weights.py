"""Figures 3 to 8 of Fiedler, Fornasier, Klock, Rauchensteiner (2021), at half their size."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import Countdown, format_table, unit_inputs
from registry import part
from skident import EntangledWeightExtractor, NetworkCompletion
from skident.datasets import make_network, make_pyramidal_network
from skident.linalg import svec_outer
from skident.metrics import false_positive_rate, recovery_rate, relative_max_error, subspace_distance

FIRST_SEED = seed_ranges.PAPER_FIGURES.start
RADII = (0.001, 0.01, 0.1, 1.0, 10.0)
SHAPES = tuple((n_layers, m) for n_layers in (2, 3, 4) for m in (100, 200))
SIZES = {(30, 4): (60, 90, 120, 150), (30, 8): (60, 120, 180, 240, 300), (50, 4): (100, 150, 200, 250)}  # (D, m_L): m


def _found(n_inputs, n_outputs, n_layers, m, radius, seed):
    """Subspace distance, recovery and false positives of Algorithms 1 and 2."""
    network = make_pyramidal_network(n_inputs, n_layers, n_outputs, m, contraction=0.5, random_state=seed)
    center = np.zeros(n_inputs)
    extractor = EntangledWeightExtractor(
        network, layer_widths=network.layer_widths, center=center, first_layer="hessian", radius=radius, max_iter=150,
        random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(unit_inputs(n_inputs))
    true = np.hstack(network.entangled_weights(center)).T
    return {
        "distance": subspace_distance(svec_outer(true).T, extractor.subspace_),
        "recovery": recovery_rate(true, extractor.components_),
        "false_positives": false_positive_rate(true, extractor.components_),
    }


@part("paper_figures", "distributions", seeds=seed_ranges.PAPER_FIGURES)
class Distributions:
    """Figures 3 to 5: D = 50, m_L = 10, c = 0.5, by depth, size, and radius of the inputs."""

    @staticmethod
    def run(trials=None, quick=False):
        left, rows = Countdown(20 if quick else 400), []
        for radius in RADII[1:2] if quick else RADII:
            for n_layers, m in SHAPES[:1] if quick else SHAPES:
                if not left.over:
                    found = _found(50, 10, n_layers, m, radius, FIRST_SEED)
                    rows.append({"radius": radius, "layers": n_layers, "m": m, **found})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        header = ["radius", "layers", "m", "subspace distance", "recovery", "false positives"]
        return format_table(header, [list(row.values()) for row in result["rows"]])


@part("paper_figures", "dimensions", seeds=seed_ranges.PAPER_FIGURES)
class Dimensions:
    """Figures 6 and 7: three layers, c = 0.5, R = 0.01, by inputs, outputs and size."""

    @staticmethod
    def run(trials=None, quick=False):
        left, rows = Countdown(20 if quick else 300), []
        for (n_inputs, n_outputs), sizes in list(SIZES.items())[: 1 if quick else None]:
            for m in sizes[:1] if quick else sizes:
                if not left.over:
                    found = _found(n_inputs, n_outputs, 3, m, 0.01, FIRST_SEED + 10)
                    rows.append(
                        {"D": n_inputs, "m_L": n_outputs, "m": m, "m / (D m_L)": m / n_inputs / n_outputs, **found}
                    )
        return {"rows": rows}

    @staticmethod
    def tables(result):
        header = ["D", "m_L", "m", "m / (D m_L)", "subspace distance", "recovery", "false positives"]
        return format_table(header, [list(row.values()) for row in result["rows"]])


@part("paper_figures", "descent", seeds=seed_ranges.PAPER_FIGURES)
class Descent:
    """Figure 8: gradient descent on (18) from exact entangled weights, D = 20, widths (20, 5)."""

    @staticmethod
    def run(trials=None, quick=False):
        rows, rng = [], np.random.RandomState(FIRST_SEED + 20)
        network = make_network((20, 20, 5), random_state=FIRST_SEED + 20)
        V = np.hstack(network.entangled_weights(np.zeros(20)))
        V /= np.linalg.norm(V, axis=0)
        X, held_out = (rng.standard_normal((n, 20)) / np.sqrt(20) for n in (1000, 5000))
        for epochs in (50, 100) if quick else (100, 300, 1000, 3000):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = NetworkCompletion(
                    network.layer_widths, activation="tanh", output_activation="tanh", solver="gd",
                    learning_rate=0.025 * 5, max_iter=epochs, random_state=0,
                ).fit(X @ V, network(X))  # fmt: skip
            error = relative_max_error(network(held_out), fitted.predict(held_out @ V))
            rows.append({"epochs": epochs, "misfit": fitted.residual_, "error": error})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        header = ["epochs", "residual on the samples", "relative maximum error, held-out"]
        return format_table(header, [list(row.values()) for row in result["rows"]])
