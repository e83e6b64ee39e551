"""Audits that were once wrong without a warning: quantized models, float32 references, cast inputs, low power.

Every reproducer has twenty networks; the rows of unchanged and changed networks are those of `parts.audit`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import seed_ranges
from cases.changed_networks import as_it_is, in_another_order, one_weight, random_network, single_precision
from common import format_table
from parts.audit import N_ROWS
from registry import part
from skident.audit import verify_same
from skident.cli import main
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

SEEDS = seed_ranges.HONESTY_REPRODUCERS[:200]
_EACH = 20  # seeds of a reproducer


def quantized(A, low=-128, high=127):
    """Numbers rounded to a grid of 8 bits whose step depends on the largest of them."""
    scale = max(np.abs(A).max(), np.finfo(float).tiny) / high
    return np.clip(np.rint(A / scale), low, high) * scale


def dynamically_quantized(network):
    """Weights and, with a scale per batch, activations in 8 bits: what a runtime makes of a network."""
    weights = [quantized(W) for W in network.weights]

    def outputs(X):
        H = X
        for W, b, g in zip(weights, network.biases, network.activations, strict=True):
            H = g(quantized(H) @ W + b)
        return H.astype(np.float32)

    return outputs


def quantize_file(source, destination):
    """A float32 ONNX file quantized by onnxruntime."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # a hint at preprocessing otherwise
    quantize_dynamic(source, destination, weight_type=QuantType.QInt8)


def _data(network, rng):
    return rng.standard_normal((N_ROWS, network.n_inputs))


def _weight_by(network, rng, factor):
    weights = [np.array(W) for W in network.weights]
    layer = rng.randint(len(weights))
    place = tuple(rng.randint(k) for k in weights[layer].shape)
    weights[layer][place] *= factor
    return network.with_parameters(weights, network.biases)


def emulated(seed, folder):
    """Dynamic quantization emulated in NumPy, against its source."""
    network, rng = random_network(seed)
    return verify_same(dynamically_quantized(network), network, _data(network, rng), random_state=seed)


def of_onnxruntime(seed, folder):
    """Dynamic quantization by onnxruntime, against its float32 source."""
    network, rng = random_network(seed)
    network.to_onnx(folder / "source.onnx", dtype="float32")
    quantize_file(folder / "source.onnx", folder / "int8.onnx")
    return verify_same(folder / "int8.onnx", folder / "source.onnx", _data(network, rng), random_state=seed)


def same_quantized_file(seed, folder):
    """A copy of the quantized file."""
    network, rng = random_network(seed)
    network.to_onnx(folder / "source.onnx", dtype="float32")
    quantize_file(folder / "source.onnx", folder / "int8.onnx")
    shutil.copy(folder / "int8.onnx", folder / "copy.onnx")
    return verify_same(folder / "copy.onnx", folder / "int8.onnx", _data(network, rng), random_state=seed)


def identified(seed, folder):
    """A network that ``skident identify`` recovered from a float32 file with given widths, against this file."""
    rng = np.random.RandomState(seed)
    sizes = (rng.randint(3, 9), rng.randint(3, 9), rng.randint(1, 3))
    network = make_network(sizes, bias_scale=0.5, output_activation="identity", random_state=seed)
    network.to_onnx(folder / "source.onnx", dtype="float32")
    data, got = folder / "X.csv", folder / "got.onnx"
    np.savetxt(data, _data(network, rng), delimiter=",")
    with contextlib.redirect_stdout(io.StringIO()):
        widths = ",".join(str(m) for m in sizes[1:])
        options = ["--data", str(data), "--widths", widths, "--output", str(got), "--quiet"]
        code = main(["identify", f"{folder}/source.onnx", *options])
    return verify_same(got, folder / "source.onnx", _data(network, rng), random_state=seed) if code == 0 else None


def rounded_reference(seed, folder):
    """A network in double precision against a file with its weights in float32."""
    network, rng = random_network(seed)
    single = network.with_parameters(*([a.astype(np.float32) for a in p] for p in (network.weights, network.biases)))
    single.save(folder / "source.safetensors")
    return verify_same(
        lambda X: network(X),
        FeedforwardNetwork.load(folder / "source.safetensors"),
        _data(network, rng),
        random_state=seed,
    )


def cast_inputs(seed, folder):
    """A model that rounds its inputs to float32 and computes in double precision."""
    network, rng = random_network(seed)
    return verify_same(lambda X: network(X.astype(np.float32)), network, _data(network, rng), random_state=seed)


def cast_and_changed(seed, folder):
    """The same with one weight changed by 10 %."""
    network, rng = random_network(seed)
    changed = _weight_by(network, rng, 1.1)
    return verify_same(lambda X: changed(X.astype(np.float32)), network, _data(network, rng), random_state=seed)


def too_noisy(seed, folder):
    """One weight changed by 1 % behind noise of 5 % of the outputs' deviation."""
    network, rng = random_network(seed)
    changed, noise = _weight_by(network, rng, 1.01), 0.05 * network(_data(network, rng)).std(axis=0)
    return verify_same(
        lambda X: changed(X) + noise * rng.standard_normal((len(X), len(noise))),
        network,
        _data(network, rng),
        random_state=seed,
    )


def too_few_decimals(seed, folder):
    """One weight changed by 1 % behind outputs that are rounded to a quarter of their deviation or more."""
    network, rng = random_network(seed)
    changed, deviation = _weight_by(network, rng, 1.01), network(_data(network, rng)).std()
    scale = 0.25 / deviation
    network, changed = (_scaled(n, scale) for n in (network, changed))
    return verify_same(lambda X: changed(X).round(0), network, _data(network, rng), random_state=seed)


def _scaled(network, scale):
    """The network with its outputs times a number."""
    weights, biases = [*network.weights[:-1], scale * network.weights[-1]], list(network.biases)
    return network.with_parameters(weights, [*biases[:-1], scale * biases[-1]])


def quantized_with_tol(seed, folder):
    """The emulated quantization with a tolerance of half the deviation, which was chosen."""
    network, rng = random_network(seed)
    return verify_same(dynamically_quantized(network), network, _data(network, rng), tol=0.5, random_state=seed)


def noisy(network, rng):
    """The network behind noise of 0.1 % of its outputs' deviation."""
    noise = 1e-3 * network(_data(network, rng)).std(axis=0)
    return lambda X: network(X) + noise * rng.standard_normal((len(X), len(noise))), set()


OUTCOMES = ("the same", "the quantized reference", "different", "undecided", "none")
REPRODUCERS = {  # what must be said; twenty seeds of its own each
    "int8 by onnxruntime, against its source": (of_onnxruntime, "the quantized reference"),
    "int8 emulated, against its source": (emulated, "the quantized reference"),
    "int8 file, against a copy": (same_quantized_file, "the same"),
    "identified from a float32 file, against this file": (identified, "the same"),
    "double precision, against a float32 file": (rounded_reference, "the same"),
    "inputs cast to float32": (cast_inputs, "the same"),
    "inputs cast to float32, one weight changed by 10 %": (cast_and_changed, "different"),
    "1 % change behind noise of 5 %": (too_noisy, "undecided"),
    "1 % change behind too few decimals": (too_few_decimals, "undecided or different"),
    "int8 emulated, tol=0.5": (quantized_with_tol, "the same"),
}
ROWS = {  # required verdict, trials
    "as it is": (as_it_is, "the same", 40),
    "units in another order": (in_another_order, "the same", 40),
    "float32": (single_precision, "the same", 40),
    "noise of 0.1 %": (noisy, "the same or undecided", 40),
    "one weight changed by 1e-6": (one_weight, "different", 100),
}


@part("honesty", "audit", seeds=seed_ranges.HONESTY_REPRODUCERS)
def run(trials, quick):
    """Verdicts of all cases."""
    found = []
    for number, (name, (audit, wanted)) in enumerate(REPRODUCERS.items()):
        seeds = SEEDS[number * _EACH : (number + 1) * _EACH]
        found.append(_case(name, audit, wanted, seeds[: 2 if quick else trials]))
    for name, (change, wanted, n) in ROWS.items():
        found.append(_case(name, _of_bench(change), wanted, SEEDS[: 2 if quick else trials or n]))
    return {"rows": found}


def _of_bench(change):
    def audit(seed, folder):
        network, rng = random_network(seed)
        return verify_same(change(network, rng)[0], network, _data(network, rng), random_state=seed)

    return audit


def _case(name, audit, wanted, seeds):
    """How often each outcome occurred."""
    outcomes, named, start = [], 0, time.process_time()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            report = audit(seed, Path(folder))
        outcomes.append("none" if report is None else report.verdict)
        named += report is not None and "dynamic quantization" in str(report)
    counts = {v: outcomes.count(v) for v in OUTCOMES}
    seconds = (time.process_time() - start) / max(len(outcomes), 1)
    row = {
        "case": name,
        "wanted": wanted,
        "trials": len(outcomes),
        "right": sum(counts[v] for v in wanted.split(" or ")),
        **counts,
    }
    row |= {"dynamic quantization named": named, "seconds": seconds}
    print("   ", row, flush=True)
    return row


def tables(result):
    """One table."""
    header = ["model", "correct verdict", "reported", *OUTCOMES[:-1], "not identified"]
    header += ["dynamic quantization reported", "processor seconds per audit"]
    keys = (*OUTCOMES, "dynamic quantization named", "seconds")
    rows = [[r["case"], r["wanted"], f"{r['right']} of {r['trials']}", *(r[k] for k in keys)] for r in result["rows"]]
    return format_table(header, rows)
