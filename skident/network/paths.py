"""Check paths before anything is opened: a pipe would block, and a device never end."""

import os
from pathlib import Path


def checked_source(path):
    """The path of a file to read.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    Path
        Of a file, or of nothing.

    Raises
    ------
    IsADirectoryError
        If it is a folder.
    ValueError
        If it is a pipe, a socket or a device.

    Examples
    --------
    >>> from skident.network.paths import checked_source
    >>> checked_source("/dev/null")
    Traceback (most recent call last):
        ...
    ValueError: /dev/null is a pipe or a device, not a file.
    """
    path = Path(os.fspath(path))
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a pipe or a device, not a file.")
    return path


def checked_destination(path):
    """The path of a file to write, in a folder that exists; see `checked_source`.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        If there is no such folder.

    Examples
    --------
    >>> from skident.network.paths import checked_destination
    >>> print(checked_destination("network.onnx").name)
    network.onnx
    """
    path = checked_source(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}.")
    return path
