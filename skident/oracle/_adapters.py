"""Black boxes of different kinds behind one face: values, and exact derivatives where they exist."""

from __future__ import annotations

import os
import sys

import numpy as np

from skident.network import FeedforwardNetwork, named_method
from skident.optim import all_threads

from ._errors import BlackBoxError
from .clock import OutOfBudgetError

_WORK = 512.0  # operations per entry of a batch that a model is taken to need: a first layer of 256 units


def adapt(black_box, method="predict"):
    """Wrap a black box by its kind.

    Parameters
    ----------
    black_box : callable, estimator, torch.nn.Module, FeedforwardNetwork, SharedBox, InferenceSession or path
        An ONNX model, as a session of onnxruntime or as the path of its file ``*.onnx``, is run by onnxruntime.
    method : {"predict", "predict_proba"}, default="predict"
        What is asked of an estimator.

    Returns
    -------
    object
        With ``values``, which maps (n, D) to answers, and ``differentiable``; where that is True, with ``jacobian`` and
        ``hessian`` too.

    Raises
    ------
    ValueError
        If it is neither callable nor an estimator with that method, or an ONNX model that cannot be asked.
    FileNotFoundError, IsADirectoryError
        If a path leads to no file.
    ImportError
        If an ONNX model is given and onnx or onnxruntime is not installed.
    """
    if isinstance(black_box, SharedBox):
        return black_box
    if isinstance(black_box, FeedforwardNetwork):
        return _NetworkBox(black_box)
    if is_torch_module(black_box):
        from ._torch_box import TorchBox

        return TorchBox(black_box)
    if is_onnx_file(black_box) or _is_session(black_box):
        from ._onnx_box import OnnxBox

        return OnnxBox(black_box, method)
    if hasattr(black_box, method):
        return _ValueBox(named_method(black_box, method))
    if callable(black_box):
        return _ValueBox(black_box)
    if hasattr(black_box, "predict"):
        raise ValueError(
            f"{type(black_box).__name__} has no {method}; use response_method='predict', or an estimator that has it."
        )
    raise ValueError(
        "the black box must be a callable, a scikit-learn regressor, a torch.nn.Module, a FeedforwardNetwork or an "
        f"ONNX model (the path of an .onnx file, or a session of onnxruntime), got {type(black_box).__name__}."
    )


def is_torch_module(black_box):
    """Whether it is a torch module; torch is not imported to find out.

    Parameters
    ----------
    black_box : object

    Returns
    -------
    bool
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(black_box, torch.nn.Module)


def is_onnx_file(black_box):
    """Whether it is a path that ends in ``.onnx``.

    Parameters
    ----------
    black_box : object

    Returns
    -------
    bool
    """
    return isinstance(black_box, (str, os.PathLike)) and os.fspath(black_box).lower().endswith(".onnx")


def same_onnx_model(first, second):
    """Whether both are paths of ONNX files with the same content, numbers in other files included.

    Parameters
    ----------
    first, second : object

    Returns
    -------
    bool

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ImportError
        If onnx or onnxruntime is not installed.
    ValueError
        If one of two paths holds no ONNX model.
    """
    if not (is_onnx_file(first) and is_onnx_file(second)):
        return False
    from ._onnx_box import content_of

    return content_of(first) == content_of(second)


def _is_session(black_box):
    """Whether it is a session of onnxruntime, which is not imported to find out."""
    onnxruntime = sys.modules.get("onnxruntime")
    return onnxruntime is not None and isinstance(black_box, onnxruntime.InferenceSession)


def values_of(box, X):
    """What an adapted model answers; a large batch gets the threads that a fit has taken away, see `one_thread`.

    Parameters
    ----------
    box : object
        From `adapt`.
    X : ndarray of shape (n, D)

    Returns
    -------
    object
        As it comes.
    """
    with all_threads(_WORK * X.size):
        return box.values(X)


def exact_derivatives(box, what, X):
    """The derivatives of a differentiable box, checked.

    Parameters
    ----------
    box : object
        From `adapt`.
    what : {"Jacobian", "Hessian"}
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m_L, D) or (n, m_L, D, D)

    Raises
    ------
    ValueError
        If they cannot be had, or are not finite.
    """
    try:
        values = {"Jacobian": box.jacobian, "Hessian": box.hessian}[what](X)
    except (BlackBoxError, OutOfBudgetError):
        raise
    except Exception as error:
        raise BlackBoxError(
            f"the black box's exact {what} failed with {type(error).__name__}: {error} Give a callable that evaluates "
            "it, which is differentiated by differences, or an extractor with derivatives='finite_difference'."
        ) from error
    bad = ~np.isfinite(values.reshape(len(X), -1)).all(axis=1)
    if bad.any():
        raise BlackBoxError(f"the black box's {what} is not finite at row {int(np.argmax(bad))} of {len(X)}.")
    return values


class SharedBox:
    """The black box of an `Oracle`, for another oracle that asks through it: same answers, range and count.

    Derivatives are exact where the first oracle's are. Answers are in the first oracle's units, and as accurate.
    """

    def __init__(self, oracle):
        self.oracle, self.input_range = oracle, oracle.input_range
        self.differentiable, self.accuracy = oracle.exact, oracle.accuracy
        self.values = oracle.query_inputs
        self.jacobian = lambda X: oracle.derivatives_at_inputs("Jacobian", X)
        self.hessian = lambda X: oracle.derivatives_at_inputs("Hessian", X)


class _ValueBox:
    """Function values only."""

    differentiable = False

    def __init__(self, function):
        self.values = function


class _NetworkBox:
    """A known network: derivatives by Proposition 2's closed form."""

    differentiable = True

    def __init__(self, network):
        self.values, self.jacobian, self.hessian = network, network.jacobian, network.hessian
