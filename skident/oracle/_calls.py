"""How a model is called: in batches of a fixed size, with one row, or with a DataFrame."""

from __future__ import annotations

import sys
import warnings

import numpy as np

from skident.network import FeedforwardNetwork

from ._adapters import adapt, is_onnx_model, is_torch_module
from ._errors import BlackBoxError

__all__ = ["CalledModel", "called_as", "named_rows"]


def called_as(model, X, batch_size=None, vectorized=True):
    """The model itself, or a `CalledModel` if it is called with other than arrays of any number of rows.

    Parameters
    ----------
    model : object
        The black box.
    X : ndarray or DataFrame of shape (n, D)
        From `named_rows`: the columns of a DataFrame are passed on.
    batch_size : int, default=None
        Rows per call.
    vectorized : bool, default=True
        False calls the model with one row (D,).
    """
    columns = getattr(X, "columns", None)
    if batch_size is None and vectorized and columns is None:
        return model
    if not vectorized and (hasattr(model, "predict") or is_torch_module(model) or is_onnx_model(model)):
        raise ValueError(
            f"vectorized=False is for callables that take one row (D,), but {type(model).__name__} takes tables of "
            "rows; set batch_size=1 to query it row by row."
        )
    if not vectorized and batch_size not in (None, 1):
        raise ValueError(f"vectorized=False passes one row per call, which contradicts batch_size={batch_size}.")
    return CalledModel(model, columns if _takes_names(model) else None, batch_size, vectorized)


def named_rows(X, frame):
    """X (n, D) as a pandas DataFrame with the columns of `frame` if that is one whose names are text; else X."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(frame, pandas.DataFrame):
        return X
    return pandas.DataFrame(X, columns=frame.columns) if all(isinstance(name, str) for name in frame.columns) else X


def _takes_names(model):
    """Whether a model may want column names: not a module, a network or a file, nor an estimator fitted without."""
    if is_torch_module(model) or is_onnx_model(model) or isinstance(model, FeedforwardNetwork):
        return False
    estimator = getattr(model, "__self__", model)
    return not hasattr(estimator, "get_params") or hasattr(estimator, "feature_names_in_")


class CalledModel:
    """A model with the way to call it; `adapt` reads it.

    Column names are passed on if the model accepts them without an error or a warning about feature names; this is
    decided by the first call.
    """

    def __init__(self, model, columns, batch_size, vectorized):
        self.model, self.columns = model, columns
        self.batch_size, self.vectorized = batch_size, vectorized

    def adapted(self, method):
        """The model's own adapter, with `values` called this way."""
        return _CalledBox(adapt(self.model, method), self)

    def __call__(self, X):
        """Outputs or labels at X (n, D)."""
        return self.query(self.model.predict if hasattr(self.model, "predict") else self.model, X)

    def query(self, function, X):
        """Outputs of a function of tables, or of rows, at X (n, D)."""
        if not self.vectorized:
            return _stacked([_as_row(function(x)) for x in X]) if len(X) else np.empty(0)
        if self.batch_size is None or len(X) == 0:
            return self._call(function, X)
        return np.concatenate([self._batch(function, X[i : i + self.batch_size]) for i in self._starts(len(X))])

    def _starts(self, n):
        return range(0, n, self.batch_size)

    def _batch(self, function, X):
        """Outputs at a batch, filled up to its size with copies of the last row."""
        missing = self.batch_size - len(X)
        filled = np.concatenate([X, np.repeat(X[-1:], missing, axis=0)]) if missing else X
        outputs = _as_array(self._call(function, filled))
        if outputs.ndim == 0 or len(outputs) != self.batch_size:
            raise BlackBoxError(
                f"the black box was queried at a batch of {self.batch_size} rows and returned shape {outputs.shape}."
            )
        return outputs[: len(X)]

    def _call(self, function, X):
        if self.columns is None:
            return function(X)
        pandas = sys.modules["pandas"]
        frame = pandas.DataFrame(X, columns=self.columns)
        if self._decided:
            return function(frame)
        return self._first_call(function, frame, X)

    _decided = False

    def _first_call(self, function, frame, X):
        """Outputs for a DataFrame, or for an array if the model does not take the DataFrame."""
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            try:
                outputs = function(frame)
            except Exception as error:
                refusal = error
            else:
                refusal = next((w.message for w in issued if "feature names" in str(w.message)), None)
        self._decided = True
        if refusal is None:
            return outputs
        columns, self.columns = self.columns, None
        try:
            return function(X)
        except Exception:
            self.columns = columns
            raise refusal from None


class _CalledBox:
    """An adapted model whose values are queried as a `CalledModel` says; derivatives are its own."""

    def __init__(self, box, calls):
        self._box, self._calls = box, calls
        self.differentiable = box.differentiable
        if box.differentiable:
            self.jacobian, self.hessian = box.jacobian, box.hessian

    def values(self, X):
        """Outputs (n, m_L) or (n,) at X (n, D)."""
        return self._calls.query(self._box.values, X)


def _as_array(raw):
    """Outputs as an array; tensors with gradients are detached."""
    return np.asarray(raw.detach() if getattr(raw, "requires_grad", False) else raw)


def _as_row(raw):
    """The output of one row as a number or (m,); a table of one row is taken for its row."""
    row = _as_array(raw)
    return row[0] if row.ndim == 2 and len(row) == 1 else row


def _stacked(rows):
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise BlackBoxError(f"the black box returned outputs of different shapes for single rows: {shapes[:3]}.")
    return np.stack(rows)
