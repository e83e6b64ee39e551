"""Networks and black boxes from files, and networks to files. Nothing is unpickled."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from skident.network import FeedforwardNetwork

__all__ = ["black_box_from", "check_destination", "n_inputs_of", "network_from", "write_network"]

_NETWORKS = (".safetensors", ".onnx")


def network_from(path):
    """The network in a file.

    Parameters
    ----------
    path : str
        ``*.safetensors``, as `FeedforwardNetwork.save` writes it, or ``*.onnx``.

    Returns
    -------
    FeedforwardNetwork

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ImportError
        If it is an ONNX model and onnx is not installed.
    ValueError
        If its name ends otherwise, or it holds no such network.
    """
    if _suffix(path) == ".onnx":
        return FeedforwardNetwork.from_onnx(path)
    return FeedforwardNetwork.load(path)


def black_box_from(path):
    """What is asked: an ONNX model of any kind, run by onnxruntime, or a network.

    Parameters
    ----------
    path : str
        As of `network_from`.

    Returns
    -------
    str or FeedforwardNetwork
        As `Oracle` takes it.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ValueError
        If its name ends otherwise, or it holds no such network.
    """
    if _suffix(path) != ".onnx":
        return FeedforwardNetwork.load(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    return path


def n_inputs_of(box):
    """How many inputs a black box has, where it says so before it is asked.

    Parameters
    ----------
    box : str or FeedforwardNetwork

    Returns
    -------
    int or None
    """
    return box.n_inputs if isinstance(box, FeedforwardNetwork) else None


def write_network(network, path):
    """Write a network by the ending of the path.

    Parameters
    ----------
    network : FeedforwardNetwork
    path : str
        Checked by `check_destination`.

    Raises
    ------
    ValueError
        If an activation cannot be written.
    OSError
        If the file cannot be written.
    """
    if _suffix(path) == ".onnx":
        network.to_onnx(path)
    else:
        network.save(path)


def check_destination(path, endings=_NETWORKS):
    """Refuse a path to which nothing could be written, before any work is done.

    Parameters
    ----------
    path : str or None
        None passes.
    endings : tuple of str
        How it may end.

    Raises
    ------
    ValueError
        If it ends otherwise.
    FileNotFoundError
        If there is no such folder.
    IsADirectoryError
        If it is a folder.
    ImportError
        If what writes it is not installed.
    """
    if path is None:
        return
    needed = {".onnx": "onnx", ".html": "pandas", ".htm": "pandas"}.get(_suffix(path, endings))
    if needed is not None and find_spec(needed) is None:
        raise ImportError(f"to write {path}, {needed} is needed, which is not installed.")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file in it.")
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(path).parent} for {Path(path).name}.")


def _suffix(path, endings=_NETWORKS):
    suffix = Path(path).suffix.lower()
    if suffix not in endings:
        raise ValueError(f"{path} must end in {' or '.join(endings)}.")
    return suffix
