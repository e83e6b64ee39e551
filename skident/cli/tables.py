"""Rows of numbers from CSV files; a cell that is none is named by its row and column."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

__all__ = ["read_table"]

_DELIMITERS = ",;\t|"


def read_table(path, n_columns=None):
    r"""Numbers from a CSV file.

    The first row is a header if one of its cells is no number. Cells are separated by commas, semicolons, tabs or bars,
    whichever the first row has most of. Empty lines are left out.

    Parameters
    ----------
    path : str or path-like
        Text in UTF-8.
    n_columns : int, default=None
        How many columns there must be, where that is known.

    Returns
    -------
    X : ndarray of shape (n, D)
    names : list of str or None
        The header, if there is one.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    IsADirectoryError
        If it is a folder.
    ValueError
        If it is no text, has no rows, a row of another length, a cell that is no finite number (the message names row
        and column), or another number of columns than there must be.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skident.cli.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "X.csv"
    ...     _ = path.write_text("age,bmi\n1,2.5\n3,4\n")
    ...     X, names = read_table(path)
    >>> print(X.sum(), names)
    10.5 ['age', 'bmi']
    """
    rows = _cells(Path(path))
    if not rows:
        raise ValueError(f"{path} has no rows.")
    names = None
    if any(_number(cell) is None for cell in rows[0][1]):
        names, rows = [cell.strip() for cell in rows[0][1]], rows[1:]
    if not rows:
        raise ValueError(f"{path} has a header and no rows.")
    width = len(names if names is not None else rows[0][1])
    X = np.array([_checked_row(path, line, cells, names, width) for line, cells in rows])
    if n_columns not in (None, width):
        raise ValueError(f"{path} has {width} columns, but the model has {n_columns} inputs.")
    return X, names


def _cells(path):
    """Pairs of line number and texts of the cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(_DELIMITERS, key=first.count)
            reader = csv.reader(file, delimiter=delimiter)
            return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file of text in UTF-8: {error}.") from error


def _number(cell):
    """A cell as a float, or None."""
    try:
        return float(cell)
    except ValueError:
        return None


def _checked_row(path, line, cells, names, width):
    """A row as floats."""
    if len(cells) != width:
        raise ValueError(f"{path}, line {line}: {len(cells)} cells, but {width} columns.")
    numbers = [_number(cell) for cell in cells]
    for column, (number, cell) in enumerate(zip(numbers, cells)):
        if number is None or not math.isfinite(number):
            name = f" ({names[column]})" if names is not None else ""
            raise ValueError(f"{path}, line {line}, column {column + 1}{name}: {cell!r} is no finite number.")
    return numbers
