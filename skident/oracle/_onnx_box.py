"""An ONNX model as a black box, run by onnxruntime; loaded when one is asked."""

from __future__ import annotations

import math
import os

import numpy as np

try:
    import onnxruntime
except ImportError as error:
    raise ImportError(
        "to ask an ONNX model, onnxruntime is needed, which is not installed; try pip install 'skident[onnx]'."
    ) from error

from skident.network.onnx_models import read_model

_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class OnnxBox:
    """An ONNX model: values in its own precision, rows in the shape of its input.

    Parameters
    ----------
    source : str, path-like or onnxruntime.InferenceSession
        A file is read as `FeedforwardNetwork.from_onnx` does, with nothing outside of its folder, and run by one
        thread on the CPU.
    method : {"predict", "predict_proba"}
        Values, or probabilities of classes.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ValueError
        If the file is no ONNX model or onnxruntime cannot run it; if it has no one input with a batch axis, no one
        output of real numbers, or labels where values are asked.
    """

    differentiable = False

    def __init__(self, source, method):
        self._session = source if isinstance(source, onnxruntime.InferenceSession) else _session_of(source)
        self._name, self._dtype, self._batch, self._dims = _input_of(self._session)
        self._output = _output_of(self._session, method)

    def values(self, X):
        """What the model answers.

        Parameters
        ----------
        X : ndarray of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L) or (n,)

        Raises
        ------
        ValueError
            If the model takes another number of inputs.
        """
        wanted = None if None in self._dims else math.prod(self._dims)
        if wanted not in (None, X.shape[1]):
            raise ValueError(f"the ONNX model takes {wanted} inputs a row, got rows of {X.shape[1]}.")
        rows = np.asarray(X, dtype=self._dtype).reshape(len(X), *(self._dims if wanted else X.shape[1:]))
        if self._batch is None:
            return self._run(rows)
        parts = [self._run_batch(rows[i : i + self._batch]) for i in range(0, len(rows), self._batch)]
        return np.concatenate(parts) if parts else np.empty((0, 1))

    def _run_batch(self, rows):
        """A batch of the model's own size, filled up with its last row."""
        missing = self._batch - len(rows)
        return self._run(np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]))[: len(rows)]

    def _run(self, rows):
        (answers,) = self._session.run([self._output], {self._name: rows})
        if isinstance(answers, list):  # one dict a row, from class to probability
            answers = np.array([list(answer.values()) for answer in answers])
        return answers


def content_of(path):
    """The content of an ONNX file, numbers in other files included.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    bytes
        The same for the same model.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ValueError
        If it holds no ONNX model.
    """
    return read_model(path).SerializeToString(deterministic=True)


def _session_of(path):
    """A session that runs a file, whose other files are in its folder."""
    model = read_model(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of a module of its own that is not public
        raise ValueError(f"onnxruntime cannot run {os.fspath(path)}: {error}") from error


def _input_of(session):
    """Name, dtype, batch size (None if free) and the other axes (None where free) of the one input."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _DTYPES:
        found = [f"{value.name}: {value.type}" for value in inputs]
        raise ValueError(f"the ONNX model must have one input of real numbers, got {found}.")
    shape = [axis if isinstance(axis, int) else None for axis in inputs[0].shape or ()]
    if len(shape) < 2 or (len(shape) > 2 and None in shape[1:]):
        raise ValueError(
            f"the ONNX model's input {inputs[0].name!r} must have a batch axis and behind it axes of fixed length, "
            f"such as (n, D); its shape is {inputs[0].shape}."
        )
    return inputs[0].name, _DTYPES[inputs[0].type], shape[0], tuple(shape[1:])


def _output_of(session, method):
    """The name of the output to ask for."""
    outputs = session.get_outputs()
    real = [value.name for value in outputs if value.type in _DTYPES or value.type.startswith("seq(map(")]
    if len(real) != 1:
        found = [f"{value.name}: {value.type}" for value in outputs]
        raise ValueError(f"the ONNX model must have one output of real numbers, got {found}.")
    if len(outputs) > 1 and method == "predict":
        raise ValueError(
            f"the ONNX model is a classifier: its outputs are {[value.name for value in outputs]}; use "
            "response_method='predict_proba'."
        )
    return real[0]
