"""How a model is called: in batches of a fixed size, with one row, or with a DataFrame."""

import warnings

import numpy as np

from skident.network import FeedforwardNetwork

from ._adapters import adapt, is_onnx_model, is_torch_module
from ._columns import fitted_with_names, frames_like, is_about_names
from ._errors import BlackBoxError


def called_as(model, X, batch_size=None, vectorized=True):
    """The model itself, or a `CalledModel` if it is called with other than arrays of any number of rows.

    Parameters
    ----------
    model : object
        The black box.
    X : array-like or DataFrame of shape (n, D)
        The columns of a DataFrame are passed on.
    batch_size : int, default=None
        Rows per call.
    vectorized : bool, default=True
        False calls the model with one row (D,).
    """
    of_arrays = is_torch_module(model) or is_onnx_model(model) or isinstance(model, FeedforwardNetwork)
    framed = None if of_arrays else frames_like(X)
    if batch_size is None and vectorized and framed is None:
        return model
    if not vectorized and (hasattr(model, "predict") or is_torch_module(model) or is_onnx_model(model)):
        raise ValueError(
            f"vectorized=False is for callables that take one row (D,), but {type(model).__name__} takes tables of "
            "rows; set batch_size=1 to query it row by row."
        )
    if not vectorized and batch_size not in (None, 1):
        raise ValueError(f"vectorized=False passes one row per call, which contradicts batch_size={batch_size}.")
    return CalledModel(model, framed, batch_size, vectorized)


class CalledModel:
    """A model with the way to call it; `adapt` reads it.

    A model that was fitted with column names gets DataFrames, whatever it raises. Others get arrays if the first call
    with a DataFrame raises an error that is not about names, or warns that the model was fitted without names.
    """

    def __init__(self, model, framed, batch_size, vectorized):
        self.model, self._framed = model, framed
        self.batch_size, self.vectorized = batch_size, vectorized
        self._decided = framed is None or fitted_with_names(model) is not None

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
        rows = X if self._framed is None else self._framed(X)
        return function(rows) if self._decided else self._first_call(function, rows, X)

    def _first_call(self, function, frame, X):
        """Outputs for a DataFrame, or for an array if the model does not take the DataFrame."""
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            try:
                outputs, refusal = function(frame), None
            except Exception as error:
                outputs, refusal = None, error
        self._decided = True
        if refusal is not None and is_about_names(refusal, frame.columns):
            raise BlackBoxError(
                f"the black box raised {type(refusal).__name__} on a batch of {len(X)} rows as a DataFrame with the "
                f"columns of X: {refusal} Give X with the columns that it knows, or pass X.to_numpy() if it takes "
                "columns by their positions."
            ) from refusal
        if refusal is None and not any("feature names" in str(w.message) for w in issued):
            for w in issued:
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
            return outputs
        framed, self._framed = self._framed, None
        try:
            return function(X)
        except Exception:
            self._framed = framed
            if refusal is None:
                raise
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
