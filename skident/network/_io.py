"""Networks in safetensors files: arrays ``weights.0``, ``biases.0``, ...; activations as metadata."""

import itertools
import json
import re

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

from .activations import ACTIVATIONS, Bounded, LeakyReLU, bounded, clip, is_built_in, leaky_relu
from .partly_linear import PartlyLinear, partly_linear
from .paths import checked_destination
from .tabulated import Tabulated, tabulated

_FORMAT = "skident.FeedforwardNetwork"
_VERSION = 1  # of the file layout; `load` refuses others
_MAX_LEVELS = 8  # of partly linear activations of partly linear activations: one per linear skip connection
_LONGEST_NAME = 64  # letters of an activation without bounds


def save(network, path):
    """Write a network to a safetensors file; ValueError if an activation is not built in."""
    path = checked_destination(path)
    arrays = {f"weights.{layer}": W for layer, W in enumerate(network.weights)}
    arrays |= {f"biases.{layer}": b for layer, b in enumerate(network.biases)}
    metadata = {
        "format": _FORMAT,
        "format_version": str(_VERSION),
        "activation": network.activation if network.n_layers == 1 else _written(network.activations[0]),
        "output_activation": _written(network.activations[-1]),
    }
    try:
        path.write_bytes(serialized(arrays, metadata))  # save_file makes files that only their owner can read
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def load(path):
    """Arguments of `FeedforwardNetwork` from a file that `save` wrote; ValueError if it is another or damaged file."""
    path = checked_destination(path)
    if path.suffix.lower() == ".nnet":
        return _load_nnet(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata, kinds = file.metadata() or {}, {name: file.get_slice(name).get_dtype() for name in file.keys()}
            _check_metadata(path, metadata)
            n_layers = len(kinds) // 2
            expected = [f"{kind}.{layer}" for kind in ("weights", "biases") for layer in range(n_layers)]
            if not n_layers or set(kinds) != set(expected):
                raise ValueError(f"{path} must hold weights.0, biases.0, weights.1, ... in pairs, got {sorted(kinds)}.")
            if set(kinds.values()) != {"F64"}:
                found = sorted({kind.replace("F", "float") for kind in kinds.values()})
                raise ValueError(f"{path} must hold float64 arrays, got {found}.")
            arrays = [file.get_tensor(name) for name in expected]
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or damaged: {error}") from error
    n_outputs = arrays[-1].size
    activations = _read(metadata["activation"], 1), _read(metadata["output_activation"], n_outputs)
    return arrays[:n_layers], arrays[n_layers:], *activations


def _load_nnet(path):
    """A network in the text format of ACAS Xu, its normalization in the first and the last layer."""
    try:
        lines = [line.split(",") for line in path.read_text().splitlines() if line.strip() and line[:2] != "//"]
        rows = [np.array([float(part) for part in line if part.strip()]) for line in lines]
        sizes, (mean, span), rows = [int(m) for m in rows[1]], rows[5:7], rows[7:]
        weights, biases, at = [], [], 0
        for n, m in itertools.pairwise(sizes):
            weights.append(np.array(rows[at : at + m]).reshape(m, n).T)
            biases.append(np.array(rows[at + m : at + 2 * m]).reshape(m))
            at += 2 * m
        if at != len(rows):
            raise ValueError(f"{len(rows)} lines of weights and biases where the widths {sizes} need {at}")
        # Means and ranges of the inputs, then those of all outputs; files without normalization have one number.
        mean, span = (np.pad(part, (0, max(0, sizes[0] + 1 - len(part))), "edge") for part in (mean, span))
        if not span.any():
            mean, span = np.zeros(sizes[0] + 1), np.ones(sizes[0] + 1)
        if not span.all():
            raise ValueError("a range of its normalization is 0")
        weights[0] = weights[0] / span[: sizes[0], None]
        biases[0] = biases[0] - mean[: sizes[0]] @ weights[0]
        weights[-1], biases[-1] = weights[-1] * span[-1], biases[-1] * span[-1] + mean[-1]
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is not an .nnet file, or damaged: {error}") from error
    return weights, biases, "relu" if len(weights) > 1 else "identity", "identity"


def _written(activation):
    """Name of an activation in a file: its own, ``leaky_relu(0.01)`` with its slope, ``clip[[0.0], [1.0]]``."""
    if isinstance(activation, Bounded):
        return f"{activation.base}{json.dumps([activation.low, activation.high])}"
    if isinstance(activation, PartlyLinear):
        return f"partly_linear({_written(activation.base)}, {activation.n_linear})"
    if isinstance(activation, LeakyReLU):
        return f"leaky_relu({activation.negative_slope!r})"
    if isinstance(activation, Tabulated):
        jet = activation.jet
        parts = [jet.edges, jet.coefficients.ravel(), jet.slopes, np.array([activation.error])]
        return f"tabulated{json.dumps([part.tolist() for part in parts])}"
    if not is_built_in(activation):
        raise ValueError(
            f"only the activations {sorted(ACTIVATIONS)}, leaky_relu, clip and tables can be saved, got a custom "
            f"{activation.name!r}."
        )
    return activation.name


def _read(name, n_bounds):
    """The activation of a name by `_written`; a clip has one bound for all units or `n_bounds`."""
    counts = []
    while partly := re.fullmatch(r"partly_linear\((.+), (\d{1,9})\)", name):
        name, n_bounds = partly[1], 1
        counts.append(int(partly[2]))
        if len(counts) > _MAX_LEVELS:
            raise ValueError(f"the file has an activation with more than {_MAX_LEVELS} levels of linear units.")
    activation = _read_bounded(name, n_bounds) if re.match(r"(clip|tanh|sigmoid|erf)\[", name) else name
    if name.startswith("tabulated["):
        activation = _read_table(name)
    if activation is name and len(name) > _LONGEST_NAME:
        raise ValueError(f"the file has the unknown activation {name[:_LONGEST_NAME]!r}...")
    if slope := re.fullmatch(r"leaky_relu\(([-+.\de]+)\)", name):
        activation = leaky_relu(slope[1])
    for n_linear in reversed(counts):
        activation = partly_linear(activation, n_linear)
    return activation


def _read_bounded(name, n_bounds):
    """A clip by ``clip[[low, ...], [high, ...]]``, or a bounded activation by ``tanh[[low, ...], [high, ...]]``."""
    base, bounds = _read_lists(name, 2)
    if any(len(bound) not in (1, n_bounds) for bound in bounds):
        raise ValueError(f"the file has a {base} of {max(map(len, bounds))} bounds where {n_bounds} fit.")
    return clip(*bounds) if base == "clip" else bounded(base, *bounds)


def _read_table(name):
    """A table by ``tabulated[edges, coefficients, slopes, [error]]``."""
    edges, coefficients, slopes, error = map(np.array, _read_lists(name, 4)[1])
    n = len(edges) - 1
    if n < 1 or not len(coefficients) or len(coefficients) % n or len(error) != 1:
        raise ValueError(f"the file has a table of {len(coefficients)} coefficients on {n} intervals.")
    return tabulated(edges, coefficients.reshape(n, -1), slopes, error[0])


def _read_lists(name, count):
    """What stands before the first bracket, and `count` lists of numbers behind it."""
    base, _, text = name.partition("[")
    try:
        lists = json.loads(f"[{text}", parse_int=float) if name.count("[") == 1 + count and "{" not in name else None
    except json.JSONDecodeError:
        lists = None
    are_lists = isinstance(lists, list) and [type(part) for part in lists] == [list] * count
    if not are_lists or any(type(value) is not float for part in lists for value in part):
        words = {2: "two", 4: "four"}[count]
        raise ValueError(f"the file has a {base} without {words} lists of numbers: {name[:_LONGEST_NAME]!r}...")
    return base, lists


def _check_metadata(path, metadata):
    if metadata.get("format") != _FORMAT:
        raise ValueError(
            f"{path} was not written by FeedforwardNetwork.save: its metadata must say format={_FORMAT!r}, got "
            f"{metadata.get('format')!r}."
        )
    if metadata.get("format_version") != str(_VERSION):
        raise ValueError(
            f"{path} has format version {metadata.get('format_version')!r}, this release reads {_VERSION}; a newer "
            "release may read it."
        )
    missing = {"activation", "output_activation"} - set(metadata)
    if missing:
        raise ValueError(f"{path} lacks the metadata entries {sorted(missing)}.")
