"""Read tables of numbers from CSV files; an error names the line and column."""

from __future__ import annotations

import csv
import math
import warnings

import numpy as np

from skident.network.paths import checked_source

__all__ = ["read_table"]

_DELIMITERS = ",;\t|"


def read_table(path, n_columns=None):
    """Numbers X (n, D) and header (list of str, or None) of a CSV file in UTF-8.

    The first row is a header if one of its cells is not a number. If its cells are 0, 1, 2, ... and rows follow, it is
    a header as well, as pandas writes it for columns without names, and a warning says so. The delimiter is the most
    frequent one of comma, semicolon, tab and bar in the first row. Empty lines are skipped.
    """
    rows = _cells(checked_source(path))
    if not rows:
        raise ValueError(f"{path} has no rows.")
    names = None
    if _is_header(path, *rows[0], len(rows)):
        names, rows = [cell.strip() for cell in rows[0][1]], rows[1:]
    if not rows:
        raise ValueError(f"{path} has a header but no rows.")
    width = len(names if names is not None else rows[0][1])
    X = np.array([_checked_row(path, line, cells, names, width) for line, cells in rows])
    if n_columns not in (None, width):
        raise ValueError(f"{path} has {width} columns, but the model has {n_columns} inputs.")
    return X, names


def _cells(path):
    """Pairs of line number and cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(_DELIMITERS, key=first.count)
            reader = csv.reader(file, delimiter=delimiter)
            return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}.") from error


def _is_header(path, line, cells, n_rows):
    """Whether the first row is a header; a warning if it numbers the columns, an error if it may be either."""
    cells = [cell.strip() for cell in cells]
    if n_rows > 1 and cells == [str(i) for i in range(len(cells))]:
        decimals = ",".join(f"{cell}.0" for cell in cells[:3])
        warnings.warn(
            f"{path}: the first row numbers the columns and is read as a header; if it is a row of inputs, write it "
            f"with decimals, such as {decimals}.",
            UserWarning,
            stacklevel=3,
        )
        return True
    unclear = [cell for cell in cells if "_" in cell]
    if unclear and all(_number(cell.replace("_", "")) is not None for cell in cells):
        raise ValueError(
            f"{path}, line {line}: {unclear[0]!r} may be a name or a number; begin names with a letter, and write "
            "numbers without underscores."
        )
    return any(_number(cell) is None for cell in cells)


def _number(cell):
    """A cell as a float, or None; ``1_000``, which Python reads as 1000, is no number."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _checked_row(path, line, cells, names, width):
    """A row as finite floats."""
    if len(cells) != width:
        raise ValueError(f"{path}, line {line}: {len(cells)} cells, but {width} columns.")
    numbers = [_number(cell) for cell in cells]
    for column, (number, cell) in enumerate(zip(numbers, cells)):
        if number is None or not math.isfinite(number):
            name = f" ({names[column]})" if names is not None else ""
            raise ValueError(f"{path}, line {line}, column {column + 1}{name}: {cell!r} is not a finite number.")
    return numbers
