"""How often `stderr_` of `PassiveNetworkIdentifier` covers the true parameter, with given and unknown widths."""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table
from registry import part
from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.network import get_activation

ACTIVATIONS = ("tanh", "sigmoid", "softplus", "gelu")
# Widths, inputs, noise relative to the targets' deviation; ten samples per parameter.
KINDS = [((4, 1), 3, 0.01), ((4, 1), 4, 0.1), ((6, 1), 4, 0.03), ((8, 1), 4, 0.01), ((5, 1), 5, 0.1),
         ((3, 2, 1), 3, 0.01), ((6, 1), 5, 0.1), ((4, 2), 4, 0.03), ((4, 1), 6, 0.01), ((5, 1), 3, 0.03)]  # fmt: skip
NETWORKS, PER_PARAMETER, SHIFTS = 20, 10, 0.3
LEAST, MOST = 0.90, 0.99


def planted(kind, activation, seed):
    """A network, and noisy samples of it."""
    widths, D, noise = kind
    truth = make_network(
        (D, *widths), bias_scale=SHIFTS, activation=activation, output_activation="identity", random_state=seed
    )
    rng = np.random.default_rng(seed + 1_000_000)
    X = rng.standard_normal((PER_PARAMETER * truth.n_parameters, D))
    Y = truth(X)
    return truth, X, Y + noise * Y.std() * rng.standard_normal(Y.shape)


def z_scores(truth, found, stderr):
    """Errors over standard errors of the parameters that are not named as undetermined, and how many are.

    Of another number of units, those of the first layer are matched one to one, with their outgoing weights where they
    lead to the outputs; of another number of layers, nothing is.
    """
    if truth.layer_widths == found.layer_widths:
        aligned = truth.align_to(found)
        parts = [*zip(found.weights, aligned.weights, stderr[0]), *zip(found.biases, aligned.biases, stderr[1])]
    elif len(truth.weights) == len(found.weights) > 1:
        parts = _matched(truth, found, stderr)
    else:
        return np.zeros(0), 0
    errors = np.concatenate([(a - b).ravel() for a, b, _ in parts])
    scale = np.concatenate([s.ravel() for _, _, s in parts])
    known = np.isfinite(scale)
    return np.abs(errors[known] / scale[known]), int(np.sum(~known))


def _matched(truth, found, stderr):
    A, B = (np.vstack([net.weights[0], net.biases[0]]) for net in (found, truth))
    signs = (1, -1) if get_activation(found.activation).symmetry in ("odd", "point") else (1,)
    costs = np.array([np.sum((A[:, :, None] - sign * B[:, None, :]) ** 2, axis=0) for sign in signs])
    i, j = linear_sum_assignment(costs.min(axis=0))
    turn = np.array(signs)[np.argmin(costs[:, i, j], axis=0)]
    parts = [
        (found.weights[0][:, i], truth.weights[0][:, j] * turn, stderr[0][0][:, i]),
        (found.biases[0][i], truth.biases[0][j] * turn, stderr[1][0][i]),
    ]
    if len(found.weights) == 2:
        parts.append((found.weights[1][i], truth.weights[1][j] * turn[:, None], stderr[0][1][i]))
    return parts


def _network(kind, activation, given, seed):
    truth, X, Y = planted(kind, activation, seed)
    identifier = PassiveNetworkIdentifier(
        truth.layer_widths if given else "auto", activation=activation, max_seconds=None, random_state=seed
    )
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        identifier.fit(X, Y[:, 0] if Y.shape[1] == 1 else Y)
    seconds = time.process_time() - start
    z, named = z_scores(truth, identifier.network_, identifier.stderr_)
    return {
        "widths": truth.layer_widths,
        "found": identifier.layer_widths_,
        "covered": int(np.sum(z <= 1.96)),
        "determined": len(z),
        "named": named,
        "resampled": identifier.report_.n_resampled,
        "exact": identifier.report_.exact,
        "seconds": seconds,
    }


@part("honesty", "coverage", seeds=seed_ranges.HONESTY_COVERAGE)
def run(trials, quick):
    """Coverage of 1.96 standard errors, over all parameters that are not named as undetermined."""
    rows = []
    for a, activation in enumerate(ACTIVATIONS[:1] if quick else ACTIVATIONS):
        for given in (True, False):
            networks = []
            for i in range(2 if quick else trials or NETWORKS):
                seed = seed_ranges.HONESTY_COVERAGE[200 * a + 100 * (not given) + i]
                networks.append(_network(KINDS[i % len(KINDS)], activation, given, seed))
                print(activation, given, seed, networks[-1], flush=True)
            rows.append(_summarised(activation, given, networks))
    return {"rows": rows}


def _summarised(activation, given, networks):
    covered, determined = (sum(n[key] for n in networks) for key in ("covered", "determined"))
    coverage = covered / max(determined, 1)
    return {
        "activation": activation,
        "widths": "given" if given else "not given",
        "networks": len(networks),
        "right": sum(n["found"] == n["widths"] for n in networks),
        "determined": determined,
        "named": sum(n["named"] for n in networks),
        "coverage": coverage,
        "met": LEAST <= coverage <= MOST,
        "exact": sum(n["exact"] for n in networks),
        "seconds": float(np.median([n["seconds"] for n in networks])),
        "all": networks,
    }


def tables(result):
    """One table."""
    bar = f"{LEAST:g} to {MOST:g}"
    header = ["activation", "layer_widths", "networks", "widths right", "parameters determined",
              "named as undetermined", "coverage of 1.96 stderr_", bar, "called exact", "s"]  # fmt: skip
    keys = ("activation", "widths", "networks", "right", "determined", "named", "coverage", "met", "exact", "seconds")
    return format_table(header, [[row[key] for key in keys] for row in result["rows"]])
