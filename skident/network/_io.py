"""Networks in safetensors files: arrays ``weights.0``, ``biases.0``, ...; activations as metadata."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

from .activations import ACTIVATIONS, Clip, LeakyReLU, clip, is_built_in, leaky_relu
from .partly_linear import PartlyLinear, partly_linear

_FORMAT = "skident.FeedforwardNetwork"
_VERSION = 1  # of the file layout; `load` refuses others


def save(network, path):
    """Write a network to a safetensors file; ValueError if an activation is not built in."""
    path = checked_path(path)
    arrays = {f"weights.{layer}": W for layer, W in enumerate(network.weights)}
    arrays |= {f"biases.{layer}": b for layer, b in enumerate(network.biases)}
    metadata = {
        "format": _FORMAT,
        "format_version": str(_VERSION),
        "activation": network.activation if network.n_layers == 1 else _written(network.activations[0]),
        "output_activation": _written(network.activations[-1]),
    }
    try:
        Path(path).write_bytes(serialized(arrays, metadata))  # save_file makes files that only their owner can read
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def checked_path(path):
    """The path as str, with its folder checked."""
    path = Path(os.fspath(path))
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}.")
    return str(path)


def load(path):
    """Arguments of `FeedforwardNetwork` from a file that `save` wrote; ValueError if it is another or damaged file."""
    path = checked_path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            _check_metadata(path, metadata)
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or damaged: {error}") from error
    n_layers = len(arrays) // 2
    expected = [f"{kind}.{layer}" for kind in ("weights", "biases") for layer in range(n_layers)]
    if not n_layers or set(arrays) != set(expected):
        raise ValueError(f"{path} must hold weights.0, biases.0, weights.1, ... in pairs, got {sorted(arrays)}.")
    if any(array.dtype != np.float64 for array in arrays.values()):
        raise ValueError(f"{path} must hold float64 arrays, got {sorted({str(a.dtype) for a in arrays.values()})}.")
    ordered = [arrays[name] for name in expected]
    activations = (_read(metadata[name]) for name in ("activation", "output_activation"))
    return ordered[:n_layers], ordered[n_layers:], *activations


def _written(activation):
    """Name of an activation in a file: its own, ``leaky_relu(0.01)`` with its slope, ``clip[[0.0], [1.0]]``."""
    if isinstance(activation, Clip):
        return f"clip{json.dumps([activation.low, activation.high])}"
    if isinstance(activation, PartlyLinear):
        return f"partly_linear({_written(activation.base)}, {activation.n_linear})"
    if isinstance(activation, LeakyReLU):
        return f"leaky_relu({activation.negative_slope!r})"
    if not is_built_in(activation):
        raise ValueError(
            f"only the activations {sorted(ACTIVATIONS)}, leaky_relu and clip can be saved, got a custom "
            f"{activation.name!r}."
        )
    return activation.name


def _read(name):
    """The activation of a name by `_written`."""
    if name.startswith("clip["):
        return clip(*json.loads(name.removeprefix("clip")))
    if partly := re.fullmatch(r"partly_linear\((.+), (\d+)\)", name):
        return partly_linear(_read(partly[1]), int(partly[2]))
    slope = re.fullmatch(r"leaky_relu\(([-+.\de]+)\)", name)
    return name if slope is None else leaky_relu(slope[1])


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
