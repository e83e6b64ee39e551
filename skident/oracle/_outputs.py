"""Check what a black box returned, and convert it to a finite float64 table."""

import numpy as np

from ._errors import BlackBoxError

_LARGEST = 2.0**511  # 6.7e153: sums of squares of a hundred such outputs are finite
_NOT_REAL = {"c": "complex", "M": "dates", "m": "durations"}  # by numpy's dtype.kind


def table_of(raw, n_rows, n_columns=None):
    """Outputs as a float64 copy (n_rows, columns), and whether they had shape (n_rows,).

    `n_columns` is the number of columns of earlier outputs. Raises BlackBoxError if the outputs are not real numbers,
    are masked, or have another shape.
    """
    if getattr(raw, "requires_grad", False):  # a torch tensor with gradients, which numpy does not read
        raw = raw.detach()
    try:
        if np.ma.is_masked(raw):
            raise TypeError(f"{np.ma.count_masked(raw)} of them are masked")
        Y = np.asarray(raw)
        if Y.dtype.kind in _NOT_REAL:
            raise TypeError(f"they are {_NOT_REAL[Y.dtype.kind]}")
        Y = np.array(Y, dtype=float)
    except Exception as error:
        labels = _words(raw)
        if labels:
            raise BlackBoxError(
                f"the outputs are class labels (text such as {labels[0]!r}), which cannot be read as real numbers: "
                "pass response_method='labels', or a callable that returns probabilities or scores."
            ) from error
        raise BlackBoxError(
            f"the black box's outputs ({type(raw).__name__}) cannot be read as real numbers: {str(error).rstrip('.')}."
        ) from error
    if n_rows == 1 and Y.ndim < 2 and Y.size == n_columns and (n_columns > 1 or Y.ndim == 0):  # squeezed
        Y = Y.reshape(1, n_columns)
    one_dimensional = Y.ndim == 1
    if one_dimensional:
        Y = Y[:, None]
    expected = "(n,) or (n, n_outputs)" if n_columns is None else f"({n_rows}, {n_columns})"
    if Y.ndim != 2 or len(Y) != n_rows or Y.shape[1] == 0 or n_columns not in (None, Y.shape[1]):
        raise BlackBoxError(
            f"the black box was queried at {n_rows} rows and returned shape {np.shape(raw)}; expected {expected}."
            f"{' It returned None.' if raw is None else ''}"
        )
    return Y, one_dimensional


def _words(raw):
    """Distinct words among outputs, sorted; empty if not all of them are text."""
    values = np.ravel(np.asarray(raw, dtype=object)) if isinstance(raw, (np.ndarray, list, tuple)) else []
    return sorted({str(value) for value in values}) if all(isinstance(value, str) for value in values) else []


def refuse_labels(raw):
    """Raise BlackBoxError for a list of probability tables, which multilabel classifiers return."""
    if isinstance(raw, list) and np.ndim(raw[:1]) == 3:
        raise BlackBoxError(
            f"the black box returned a list of {len(raw)} tables of probabilities, one per label (multilabel): "
            "identify one label at a time, with a callable that returns (n,) probabilities."
        )


def training_hint(error):
    """What to do about an error that torch raises in training mode only, or nothing."""
    if "when training" not in str(error):
        return ""
    return " (batch normalization is in training mode: call .eval() on the model)"


def refuse_infinite(Y, X, first_row, n_rows):
    """Raise BlackBoxError if an output, or its square, is not finite; the batch starts at first_row of n_rows."""
    bad, what, remedy = ~np.isfinite(Y).all(axis=1), "not finite", ""
    if not bad.any():
        bad, what = np.any(np.abs(Y) > _LARGEST, axis=1), "so large that squares overflow"
        remedy = " Divide the outputs by a constant: lambda X: model(X) / 1e200."
    if bad.any():
        row = int(np.argmax(bad))
        x = np.array2string(X[row], precision=4, threshold=6)
        raise BlackBoxError(
            f"the black box returned {Y[row]} ({what}) at row {first_row + row} of {n_rows}, "
            f"x = {x}; {int(bad.sum())} of the {len(X)} rows in this batch are {what}.{remedy}"
        )
