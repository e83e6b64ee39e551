"""Read networks and black boxes from files, and write networks. Nothing is unpickled."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from skident.network import FeedforwardNetwork
from skident.network.paths import checked_destination, checked_source

__all__ = ["WRITTEN", "black_box_from", "check_destination", "network_from", "write_network"]

_NETWORKS = (".safetensors", ".onnx")
_SOURCES = {".c": "c", ".py": "python"}
_READ = (*_NETWORKS, ".nnet")
WRITTEN = (*_NETWORKS, *_SOURCES)


def network_from(path):
    """The network in a ``*.safetensors`` or ``*.nnet`` file, or in an ``*.onnx`` file."""
    if _suffix(path, _READ) == ".onnx":
        return FeedforwardNetwork.from_onnx(path)
    return FeedforwardNetwork.load(path)


def black_box_from(path):
    """The black box in a file, as `Oracle` takes it: a network, or the path of an ONNX model of any kind."""
    if _suffix(path, _READ) != ".onnx":
        return FeedforwardNetwork.load(path)
    if not checked_source(path).is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    return path


def write_network(network, path):
    """Write a network in the format of the path's suffix."""
    suffix = _suffix(path, WRITTEN)
    if suffix == ".onnx":
        network.to_onnx(path)
    elif suffix in _SOURCES:
        Path(path).write_text(network.to_source(_SOURCES[suffix]), encoding="utf-8")
    else:
        network.save(path)


def check_destination(path, endings=_NETWORKS):
    """Raise if nothing could be written to a path, before any work is done; None passes."""
    if path is None:
        return
    needed = {".onnx": "onnx", ".html": "pandas", ".htm": "pandas"}.get(_suffix(path, endings))
    if needed is not None and find_spec(needed) is None:
        raise ImportError(f"writing {path} needs {needed}, which is not installed.")
    checked_destination(path)


def _suffix(path, endings=_NETWORKS):
    suffix = Path(path).suffix.lower()
    if suffix not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}.")
    return suffix
