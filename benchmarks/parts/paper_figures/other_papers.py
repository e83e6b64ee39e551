"""Figures of three other papers: activations, escapes on the circle, backward feature correction on digits."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import erf
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNetClassifier, SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.hierarchical import backward_feature_correction

OWN_SEED = seed_ranges.PAPER_FIGURES.start + 100
B = 4.0
ACTIVATIONS = {  # Example 2.4 of Soltanolkotabi, Javanmard and Lee, as printed, and ReLU
    "softplus": lambda z: np.log1p(np.exp(B * z)) / B,
    "sigmoid": lambda z: 1.0 / (1.0 + np.exp(-B * z)),
    "erf": lambda z: np.sqrt(2.0) * erf(z / np.sqrt(2.0)),
    "tanh": np.tanh,
    "ReLU": lambda z: np.maximum(z, 0.0),
}


@part("paper_figures", "activations", seeds=seed_ranges.PAPER_FIGURES)
class Activations:
    """Figure 1 of Soltanolkotabi, Javanmard and Lee: their values, and Assumption 2.3 by differences."""

    @staticmethod
    def run(trials=None, quick=False):
        z, rows = np.linspace(-2.0, 2.0, 401), []
        for name, phi in ACTIVATIONS.items():
            bend = np.diff(phi(z), 2) / 0.01**2
            kind = "convex" if bend.min() > 0 else "odd" if np.allclose(bend, -bend[::-1], atol=1e-6) else "neither"
            rising = bool((np.diff(phi(z)) > 0).all())
            values, limit = phi(np.array([-2.0, 0.0, 2.0])), float(phi(np.array([50.0]))[0])
            rows.append({"name": name, "values": values, "rising": rising, "second": kind, "limit": limit})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        header = ["activation", "at -2", "at 0", "at 2", "strictly increasing", "second derivative", "at 50"]
        rows = [[r["name"], *r["values"], r["rising"], r["second"], r["limit"]] for r in result["rows"]]
        return format_table(header, rows)


@part("paper_figures", "circle", seeds=seed_ranges.PAPER_FIGURES)
class Circle:
    """Figures 5 and 6 of Bantzis, Simon and Jacot: eq. (6), and all runs of Figure 2 over time."""

    @staticmethod
    def run(trials=None, quick=False):
        xi = np.linspace(0.0, np.pi / 4, 2001)
        pairs = np.cos(xi + np.pi / 4) - np.cos(xi) + np.cos(xi - np.pi / 4) - np.cos(xi - np.pi / 2)
        speeds = np.abs(pairs)
        X, y = make_alternating_circle(8)
        rows = []
        for width in (8,) if quick else (4, 8, 32):
            for steps in (10, 40) if quick else (10, 25, 50, 100, 200, 400):
                analyzer = SaddleEscapeAnalyzer(
                    "gradient", depth=3, width=width, n_starts=100, max_iter=steps, fit_intercept=False,
                    random_state=OWN_SEED,
                ).fit(X, y)  # fmt: skip
                found = np.sort(analyzer.restart_speeds_)
                quartiles = np.quantile(found, [0.25, 0.5, 0.75])
                above = float(np.mean(found > np.sqrt(2) - 1 + 1e-6))
                rows.append({"width": width, "steps": steps, "quartiles": quartiles, "best": found[-1], "above": above})
        curve = {"maximum": speeds.max(), "at": [xi[i] for i in np.flatnonzero(speeds > speeds.max() - 1e-12)]}
        return {"curve": curve, "rows": rows}

    @staticmethod
    def tables(result):
        header = ["width", "steps", "speed, lower quartile", "median", "upper quartile", "best", "above sqrt(2) - 1"]
        rows = [[r["width"], r["steps"], *r["quartiles"], r["best"], r["above"]] for r in result["rows"]]
        at = ", ".join(f"{x:.4f}" for x in result["curve"]["at"])
        return f"Eq. (6): maximum {result['curve']['maximum']:.6f} at {at}.\n\n{format_table(header, rows)}"


@part("paper_figures", "digits", seeds=seed_ranges.PAPER_FIGURES)
class Digits:
    """The protocol of Figures 9, 10 and 14 of Allen-Zhu and Li, on scikit-learn's digits instead of CIFAR."""

    @staticmethod
    def run(trials=None, quick=False):
        X, y = load_digits(return_X_y=True)
        rows = []
        for seed in range(OWN_SEED, OWN_SEED + (1 if quick else trials or 1)):
            net = HierarchicalQuadraticNetClassifier(widths=(16, 16, 16), random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = backward_feature_correction(
                    net, X[: 400 if quick else None] / 16.0, y[: 400 if quick else None]
                )
            rows.append({"seed": seed, "rows": found.rows, "table": str(found).splitlines()})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        return "\n\n".join(
            f"Seed {r['seed']}, error rates:\n\n```\n" + "\n".join(r["table"]) + "\n```" for r in result["rows"]
        )
