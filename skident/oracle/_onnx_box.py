"""An ONNX model as a black box, run by onnxruntime; imported when one is queried."""

import math
import os

import numpy as np

try:
    import onnxruntime
except ImportError as error:
    raise ImportError(
        "querying an ONNX model needs onnxruntime, which is not installed; try pip install 'skident[onnx]'."
    ) from error

from skident.budget.constants import LONGEST_MESSAGE
from skident.network.onnx_models import check_sizes, gives_probabilities, read_model

__all__ = ["OnnxBox", "content_of", "gives_probabilities", "width_of"]

_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_LINE = np.linspace(-10.0, 10.0, 21)  # inputs at which logits leave [0, 1] (tuned: logits of order 1)


class OnnxBox:
    """An ONNX model, run by one CPU thread in its own precision.

    A file is read as `FeedforwardNetwork.from_onnx` does, with nothing outside of its folder. Several inputs (n, 1) are
    the columns in their order. ValueError if it does not have such inputs, or one with a batch axis, and one output of
    real numbers, or if the probabilities of a classifier are queried as values.
    """

    differentiable = False

    def __init__(self, source, method):
        self._session = source if isinstance(source, onnxruntime.InferenceSession) else _session_of(source)
        self._names, self._dtype, self._batch, self._dims = _input_of(self._session)
        self._output = _output_of(self._session)
        outputs = [value.name for value in self._session.get_outputs()]
        if len(outputs) > 1 and method == "predict" and self._gives_probabilities():
            raise ValueError(
                f"the ONNX model is a classifier: its outputs are {outputs}; use response_method='predict_proba'."
            )

    def values(self, X):
        """Outputs (n, m_L) or (n,) at X (n, D), reshaped to the model's input."""
        wanted = None if None in self._dims else math.prod(self._dims)
        if wanted not in (None, X.shape[1]):
            raise ValueError(f"the ONNX model takes {wanted} inputs per row, got {X.shape[1]}.")
        rows = np.asarray(X, dtype=self._dtype).reshape(len(X), *(self._dims if wanted else X.shape[1:]))
        if self._batch is None:
            return self._run(rows)
        parts = [self._run_batch(rows[i : i + self._batch]) for i in range(0, len(rows), self._batch)]
        return np.concatenate(parts) if parts else np.empty((0, 1))

    def _run_batch(self, rows):
        """A batch of the model's fixed size, padded with its last row."""
        missing = self._batch - len(rows)
        return self._run(np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]))[: len(rows)]

    def _gives_probabilities(self):
        """Whether the outputs lie between 0 and 1 along a line of inputs, or cannot be computed there."""
        if None in self._dims:
            return True
        try:
            outputs = self.values(np.repeat(_LINE[:, None], math.prod(self._dims), axis=1))
        except Exception:  # of a module of its own that is not public
            return True
        return bool(outputs.min() >= 0.0 and outputs.max() <= 1.0)

    def _run(self, rows):
        columns = [rows] if len(self._names) == 1 else [np.ascontiguousarray(column) for column in rows.T[:, :, None]]
        (outputs,) = self._session.run([self._output], dict(zip(self._names, columns, strict=True)))
        if isinstance(outputs, list):  # one dict per row, from class to probability
            outputs = np.array([[row[name] for name in outputs[0]] for row in outputs])
        return outputs


def width_of(path):
    """Number of inputs of the ONNX model in a file, or None if it takes any."""
    *_, dims = _input_of(_session_of(path))
    return None if None in dims else math.prod(dims)


def content_of(path):
    """Bytes that identify the model in an ONNX file, external data included."""
    return read_model(path).SerializeToString(deterministic=True)


def _session_of(path):
    """A session that runs a file, with external data from its folder only."""
    model = read_model(path)
    check_sizes(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        content, runtime = model.SerializeToString(), {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
        return onnxruntime.InferenceSession(content, options, **runtime)  # a fallback would print to stdout
    except Exception as error:  # of a module of its own that is not public
        raise ValueError(f"onnxruntime cannot run {os.fspath(path)}: {str(error)[:LONGEST_MESSAGE]}") from error


def _input_of(session):
    """Names of the inputs, dtype, batch size (None if free), and the other axes of a row (None if free)."""
    inputs = session.get_inputs()
    kinds, names = {value.type for value in inputs}, [value.name for value in inputs]
    are_columns = all(len(value.shape or ()) == 2 and value.shape[1] == 1 for value in inputs)
    if not (len(inputs) == 1 or (are_columns and len(kinds) == 1)) or not kinds <= set(_DTYPES):
        found = [f"{value.name}: {value.type}" for value in inputs]
        raise ValueError(f"the ONNX model must have one input of real numbers, got {found}, or one per column.")
    if len(inputs) > 1:
        batch = inputs[0].shape[0]
        return names, _DTYPES[inputs[0].type], batch if isinstance(batch, int) else None, (len(inputs),)
    shape = [axis if isinstance(axis, int) else None for axis in inputs[0].shape or ()]
    if len(shape) < 2 or (len(shape) > 2 and None in shape[1:]):
        raise ValueError(
            f"the ONNX model's input {inputs[0].name!r} must have a batch axis followed by axes of fixed length, "
            f"such as (n, D); its shape is {inputs[0].shape}."
        )
    return names, _DTYPES[inputs[0].type], shape[0], tuple(shape[1:])


def _output_of(session):
    """Name of the output to compute."""
    outputs = session.get_outputs()
    real = [value.name for value in outputs if value.type in _DTYPES or value.type.startswith("seq(map(")]
    if len(real) != 1:
        found = [f"{value.name}: {value.type}" for value in outputs]
        names = [value.name for value in session.get_inputs()]
        call = f"; keep one, with onnx.utils.extract_model('model.onnx', 'one.onnx', {names}, {real[:1]})"
        raise ValueError(
            f"the ONNX model must have one output of real numbers, got {found}{call if len(real) > 1 else ''}."
        )
    return real[0]
