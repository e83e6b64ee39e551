"""Adapt a model of any kind to one interface: values, and exact derivatives if they exist."""

import os
import sys

import numpy as np

from skident.network import FeedforwardNetwork, named_method
from skident.optim import all_threads

from ._errors import BlackBoxError
from .budget import OutOfBudgetError

_FLOPS_PER_ENTRY = 512.0  # assumed cost of a model per entry of a batch: a first layer of 256 units


def adapt(black_box, method="predict"):
    """Wrap a model by its kind: an object with ``values``, ``differentiable``, and if True ``jacobian``, ``hessian``.

    `method` is the method of an estimator that is queried. An ONNX model is a path ``*.onnx`` or a session of
    onnxruntime.
    """
    if hasattr(black_box, "values") and hasattr(black_box, "differentiable"):  # adapted already
        return black_box
    if hasattr(black_box, "adapted"):  # a model with the way to call it
        return black_box.adapted(method)
    if isinstance(black_box, FeedforwardNetwork):
        return _NetworkBox(black_box)
    if is_torch_module(black_box):
        from ._torch_box import TorchBox

        return TorchBox(black_box)
    if is_onnx_model(black_box):
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
    """Whether it is a torch module; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(black_box, torch.nn.Module)


def is_onnx_file(black_box):
    """Whether it is a path that ends in ``.onnx``."""
    return isinstance(black_box, (str, os.PathLike)) and os.fspath(black_box).lower().endswith(".onnx")


def is_onnx_model(black_box):
    """Whether it is a path that ends in ``.onnx``, or a session of onnxruntime."""
    return is_onnx_file(black_box) or _is_session(black_box)


def same_onnx_model(first, second):
    """Whether both are paths of ONNX files with the same content, external data included."""
    if not (is_onnx_file(first) and is_onnx_file(second)):
        return False
    from ._onnx_box import content_of

    return content_of(first) == content_of(second)


def ends_in_probabilities(path):
    """Whether the ONNX model in a file ends in a softmax, or in the probabilities of two classes."""
    from ._onnx_box import gives_probabilities

    return gives_probabilities(path)


def n_inputs_of(box):
    """Number of inputs of a network or of the ONNX model in a file; None if it is unknown before the first query."""
    if not is_onnx_file(box):
        return getattr(box, "n_inputs", None)
    from ._onnx_box import width_of

    return width_of(box)


def _is_session(black_box):
    """Whether it is an onnxruntime session; onnxruntime is not imported to find out."""
    onnxruntime = sys.modules.get("onnxruntime")
    return onnxruntime is not None and isinstance(black_box, onnxruntime.InferenceSession)


def values_of(box, X):
    """Raw outputs of an adapted model at X (n, D); large batches use all threads again, see `one_thread`."""
    with all_threads(_FLOPS_PER_ENTRY * X.size):
        return box.values(X)


def exact_derivatives(box, what, X):
    """Jacobian (n, m_L, D) or Hessian (n, m_L, D, D) of an adapted model, checked to be finite."""
    try:
        values = {"Jacobian": box.jacobian, "Hessian": box.hessian}[what](X)
    except (BlackBoxError, OutOfBudgetError):
        raise
    except Exception as error:
        raise BlackBoxError(
            f"the black box's exact {what} failed with {type(error).__name__}: {error} Give a callable that evaluates "
            "it, which finite differences can differentiate, or an extractor with derivatives='finite_difference'."
        ) from error
    bad = ~np.isfinite(values.reshape(len(X), -1)).all(axis=1)
    if bad.any():
        raise BlackBoxError(f"the black box's {what} is not finite at row {int(np.argmax(bad))} of {len(X)}.")
    return values


class SharedBox:
    """An `Oracle` as the black box of another oracle: same outputs, range, accuracy and query count."""

    def __init__(self, oracle):
        self.oracle, self.input_range = oracle, oracle.input_range
        self.differentiable, self.accuracy = oracle.exact, oracle.accuracy
        self.values = oracle.query_inputs
        self.jacobian = lambda X: oracle.derivatives_at_inputs("Jacobian", X)
        self.hessian = lambda X: oracle.derivatives_at_inputs("Hessian", X)


class SpanBox:
    """A black box at inputs in the span of a basis (D, r) of standardized coordinates, with derivatives by these."""

    def __init__(self, box, to_inputs, scale, basis):
        self.differentiable, scaled = box.differentiable, scale[:, None] * basis
        self.values = lambda C: box.values(to_inputs(C @ basis.T))
        self.jacobian = lambda C: box.jacobian(to_inputs(C @ basis.T)) @ scaled
        self.hessian = lambda C: scaled.T @ box.hessian(to_inputs(C @ basis.T)) @ scaled


class _ValueBox:
    """Function values only."""

    differentiable = False

    def __init__(self, function):
        self.values = function


class _NetworkBox:
    """A known network, with the closed-form derivatives of Proposition 2."""

    differentiable = True

    def __init__(self, network):
        self.values, self.jacobian, self.hessian = network, network.jacobian, network.hessian
