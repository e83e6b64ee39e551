"""Activation detection, output functions and slopes of leaky ReLU, with default settings."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import erf, expit, softmax

import seed_ranges
from common import BlackBox, format_table
from registry import part
from skident import NetworkIdentifier
from skident.identification.activation import detect_activation
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import Oracle

N_ROWS = 200
GROWING = ("softplus", "gelu", "gelu_tanh", "mish", "hardswish", "selu")  # beside silu and elu
# What it is -> its function, and what it is called. Sigmoid is of the class of tanh, leaky units of that of relu.
HIDDEN = {
    "tanh": (np.tanh, "tanh"),
    "sigmoid": (expit, "tanh"),
    "erf": (erf, "erf"),
    "hard tanh": (lambda z: np.clip(z, -1.0, 1.0), "hard_tanh"),
    "step": (lambda z: np.where(z > 0, 1.0, 0.0), "step"),
    "relu": (lambda z: np.maximum(z, 0.0), "relu"),
    "leaky relu": (lambda z: np.where(z > 0, z, 0.1 * z), "relu"),
    "softplus": (lambda z: np.logaddexp(0.0, z), "softplus"),
    "gelu": (lambda z: 0.5 * z * (1.0 + erf(z / np.sqrt(2.0))), "gelu"),
    "silu": (lambda z: z * expit(z), "silu"),
    "elu": (lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))), "elu"),
    "sin": (np.sin, "sin"),
    "linear": (lambda z: z, "identity"),
    "quadratic": (np.square, "quadratic"),
}
OUTPUTS = {
    "identity": lambda z: z,
    "tanh": np.tanh,
    "sigmoid": expit,
    "softmax": lambda z: softmax(z, axis=1),
}


@dataclass(frozen=True)
class Sizes:
    """Widths that a random network may have, hidden ones and outputs, both ends included."""

    hidden: tuple[int, int] = (4, 19)
    outputs: tuple[int, int] = (1, 3)


def random_parameters(rng, depth, sizes):
    """Weights and biases of a random network."""
    widths = [rng.randint(3, 16), *rng.randint(sizes.hidden[0], sizes.hidden[1] + 1, size=depth)]
    widths.append(rng.randint(sizes.outputs[0], sizes.outputs[1] + 1))
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(widths, widths[1:])]
    return weights, [0.5 * rng.standard_normal(m) for m in widths[1:]]


def function_of(weights, biases, hidden, output=OUTPUTS["identity"]):
    """The network as a function."""

    def outputs(X):
        for W, b in zip(weights[:-1], biases[:-1]):
            X = hidden(X @ W + b)
        return output(X @ weights[-1] + biases[-1])

    return outputs


def detect(box, n_inputs, seed):
    """Detected activations of a function, and the number of queries."""
    counted = BlackBox(box)
    detected = detect_activation(Oracle(counted, n_inputs), np.random.RandomState(seed % 10))
    return detected, counted.rows


def judged(name, wanted, doubt):
    """Whether a detection is right, wrong, or doubted (several activations remain)."""
    return "doubted" if doubt else "right" if name == wanted else "wrong"


def counts(detections, rows, seconds):
    """Columns of a row: counts of outcomes, queries and seconds."""
    shares = {kind: sum(v == kind for v in detections) for kind in ("right", "wrong", "doubted")}
    return {
        "trials": len(detections),
        **shares,
        "queries": float(np.median(rows)),
        "most queries": int(max(rows)),
        "seconds": float(np.median(seconds)),
    }


class Hidden:
    """Hidden activations behind linear outputs."""

    def run(self, trials, quick):
        """All activations, at one hidden layer and at two."""
        n, rows = 2 if quick else 20 if trials is None else trials, []
        for depth in (1, 2):
            for number, (name, (g, wanted)) in enumerate(HIDDEN.items()):
                first = seed_ranges.ACTIVATIONS.start + 20 * (number + len(HIDDEN) * (depth - 1))
                found = [self.trial(g, wanted, depth, seed) for seed in range(first, first + n)]
                rows.append({"activation": name, "hidden layers": depth, **counts(*zip(*found))})
        return {"rows": rows}

    def trial(self, g, wanted, depth, seed):
        """Detection of the activations of one network."""
        weights, biases = random_parameters(np.random.RandomState(seed), depth, Sizes())
        start = time.process_time()
        detected, n_queries = detect(function_of(weights, biases, g), len(weights[0]), seed)
        return judged(detected.name, wanted, detected.doubt), n_queries, time.process_time() - start

    def tables(self, result):
        """One row per activation, with columns for both depths."""
        header = ["activation"]
        header += [
            f"{n} layer{'s' * (n > 1)}: {kind}"
            for n in (1, 2)
            for kind in ("right", "wrong", "undetermined", "queries")
        ]
        rows = []
        for name in HIDDEN:
            of = [r for r in result["rows"] if r["activation"] == name]
            cells = [(f"{r['right']} of {r['trials']}", r["wrong"], r["doubted"], r["queries"]) for r in of]
            rows.append([name, *[cell for part in cells for cell in part]])
        return format_table(header, rows)


class Outputs:
    """Activations of outputs, behind tanh and ReLU units."""

    def run(self, trials, quick):
        """All outputs, behind one hidden layer and two of either kind of units."""
        n, rows = 2 if quick else 12 if trials is None else trials, []
        cases = [(units, depth, output) for units in ("tanh", "relu") for depth in (1, 2) for output in OUTPUTS]
        for number, (units, depth, output) in enumerate(cases):
            first = seed_ranges.ACTIVATIONS.start + 800 + 12 * number
            found = [self.trial(units, depth, output, seed) for seed in range(first, first + n)]
            detections, n_queries, seconds, hidden = zip(*found)
            row = {"hidden units": f"{units}, {depth} layer{'s' * (depth > 1)}", "output": output}
            named = {f"hidden {kind}": sum(h == kind for h in hidden) for kind in ("right", "wrong")}
            rows.append(row | counts(detections, n_queries, seconds) | named)
        return {"rows": rows}

    def trial(self, units, depth, output, seed):
        """Detection of the activations of one network."""
        sizes = Sizes(outputs=(2, 4)) if output == "softmax" else Sizes()
        weights, biases = random_parameters(np.random.RandomState(seed), depth, sizes)
        start = time.process_time()
        g, wanted = HIDDEN[units]
        detected, n_queries = detect(function_of(weights, biases, g, OUTPUTS[output]), len(weights[0]), seed)
        detection = judged(detected.output.name, output, detected.output.doubt)
        return detection, n_queries, time.process_time() - start, judged(detected.name, wanted, detected.doubt)

    def tables(self, result):
        """One row per kind of network."""
        header = ["hidden units", "output", "right", "wrong", "undetermined", "hidden units right", "wrong", "queries"]
        keys = ("wrong", "doubted", "hidden right", "hidden wrong", "queries")
        of = lambda r: [r["hidden units"], r["output"], f"{r['right']} of {r['trials']}"]  # noqa: E731
        return format_table(header, [[*of(r), *(r[key] for key in keys)] for r in result["rows"]])


def leaky(rng):
    """Leaky units of a random slope."""
    return leaky_relu(rng.uniform(0.01, 0.5))


class Slopes:
    """Networks with one hidden layer of units of this activation, identified as functions."""

    activations = {
        "leaky relu, slope 0.01 to 0.5": leaky,
        "hard tanh": lambda rng: "hard_tanh",
    } | {name: lambda rng, name=name: name for name in ("silu", "elu", *GROWING)}

    def run(self, trials, quick):
        """All activations."""
        n, rows = 1 if quick else 10 if trials is None else trials, []
        for number, (name, draw) in enumerate(self.activations.items()):
            first = seed_ranges.ACTIVATIONS.start + 700 + 20 * number
            found = [self.trial(draw, seed, (5, 8) if quick else (5, 30)) for seed in range(first, first + n)]
            rows.append({"activation": name, "trials": found})
        return {"rows": rows}

    def trial(self, draw, seed, hidden):
        """One network, with unknown activation and width."""
        rng = np.random.RandomState(seed)
        weights, biases = random_parameters(rng, 1, Sizes(hidden))
        network = FeedforwardNetwork(weights, biases, draw(rng), "identity")
        box, X = BlackBox(lambda X: network(X)), rng.standard_normal((N_ROWS, network.n_inputs))
        record = {"seed": seed, "units": network.layer_widths[0]}
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                identifier = NetworkIdentifier(box, layer_widths="auto", random_state=seed % 10).fit(X)
            record |= {"exact": identifier.report_.exact, **errors(network, identifier.network_, rng)}
        except ValueError as error:
            record |= {"exact": False, "failed": str(error)[:200]}
        return record | {"seconds": time.process_time() - start, "queries": box.rows / network.n_parameters}

    def tables(self, result):
        """Networks identified to 1e-9, by activation."""
        header = [
            "units",
            "outputs and weights to 1e-9",
            "exact",
            "maximum error of outputs",
            "of weights",
            "of slopes",
        ]
        header += ["queries / P, median", "median seconds", "maximum"]
        rows = []
        for row in result["rows"]:
            found, n = [t for t in row["trials"] if "error" in t], len(row["trials"])
            close = sum(max(t["error"], t["weight_error"], t["slope_error"] or 0.0) < 1e-9 for t in found)
            worst = [
                max((t[key] for t in found if t[key] is not None), default=None)
                for key in ("error", "weight_error", "slope_error")
            ]
            seconds = [t["seconds"] for t in row["trials"]]
            rows.append(
                [row["activation"], f"{close} of {n}", f"{sum(t['exact'] for t in found)} of {n}", *worst]
                + [float(np.median([t["queries"] for t in found])), float(np.median(seconds)), max(seconds)]
            )
        return format_table(header, rows)


def errors(network, found, rng):
    """Errors of outputs on held-out samples, of weights and of a slope; ValueError for another architecture."""
    U = rng.standard_normal((2000, network.n_inputs))
    Y = network(U)
    error = float(np.max(np.abs(found(U) - Y) / np.abs(Y - Y.mean(axis=0)).max(axis=0)))
    slope_error = None
    if network.activation == "leaky_relu" == found.activation:
        slope_error = abs(network.activations[0].negative_slope - found.activations[0].negative_slope)
        found = FeedforwardNetwork(found.weights, found.biases, network.activations[0], "identity")
    return {"error": error, "weight_error": parameter_error(network, found), "slope_error": slope_error}


for name, cases in (("hidden", Hidden()), ("outputs", Outputs()), ("slopes", Slopes())):
    part("activations", name, seeds=seed_ranges.ACTIVATIONS)(cases)
