"""What a black box answered, as a table of finite numbers."""

from __future__ import annotations

import numpy as np

from ._errors import BlackBoxError

_NO_NUMBERS = {"c": "complex", "M": "dates", "m": "durations"}


def table_of(answers, n_rows, n_columns=None):
    """Answers as a float64 table that shares no memory with the black box.

    Parameters
    ----------
    answers : object
        What the black box gave: (n_rows,) or (n_rows, columns).
    n_rows : int
    n_columns : int, default=None
        How many there were before; None if this is the first answer.

    Returns
    -------
    ndarray of shape (n_rows, columns)
    one_dimensional : bool
        Whether the answers had shape (n_rows,).

    Raises
    ------
    BlackBoxError
        If they cannot be read as real numbers, some are masked, or they have another shape.
    """
    try:
        if np.ma.is_masked(answers):
            raise TypeError(f"{np.ma.count_masked(answers)} of them are masked")
        Y = np.asarray(answers)
        if Y.dtype.kind in _NO_NUMBERS:
            raise TypeError(f"they are {_NO_NUMBERS[Y.dtype.kind]}")
        Y = np.array(Y, dtype=float)
    except Exception as error:
        raise BlackBoxError(
            f"the black box's answers ({type(answers).__name__}) cannot be read as real numbers: "
            f"{str(error).rstrip('.')}."
        ) from error
    one_dimensional = Y.ndim == 1
    if one_dimensional:
        Y = Y[:, None]
    expected = "(n,) or (n, n_outputs)" if n_columns is None else f"({n_rows}, {n_columns})"
    if Y.ndim != 2 or len(Y) != n_rows or Y.shape[1] == 0 or n_columns not in (None, Y.shape[1]):
        raise BlackBoxError(
            f"the black box was asked {n_rows} rows and answered with shape {np.shape(answers)}; expected {expected}."
            f"{' It returned None.' if answers is None else ''}"
        )
    return Y, one_dimensional


def refuse_labels(answers):
    """Refuse what classifiers of several labels a row answer.

    Parameters
    ----------
    answers : object

    Raises
    ------
    BlackBoxError
        If it is a list of tables of probabilities.
    """
    if isinstance(answers, list) and np.ndim(answers[:1]) == 3:
        raise BlackBoxError(
            f"the black box answered with a list of {len(answers)} tables of probabilities, one a label "
            "(multilabel): identify one label at a time, with a callable that gives (n,) probabilities."
        )


def refuse_infinite(Y, X, first_row, n_rows):
    """Refuse answers that are not finite.

    Parameters
    ----------
    Y : ndarray of shape (n, columns)
    X : ndarray of shape (n, D)
        What was asked.
    first_row, n_rows : int
        Where this batch begins among the rows asked, and how many these are: for the message.

    Raises
    ------
    BlackBoxError
        If there is one; the message names the first row.
    """
    bad = ~np.isfinite(Y).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        x = np.array2string(X[row], precision=4, threshold=6)
        raise BlackBoxError(
            f"the black box answered {Y[row]} (not finite) at row {first_row + row} of the {n_rows} asked, "
            f"x = {x}; {int(bad.sum())} of the {len(X)} rows in this batch are like that."
        )
