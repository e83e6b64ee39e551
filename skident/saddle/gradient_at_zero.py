"""Gradients of losses with respect to a network's outputs, at zero outputs."""

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skident.budget.constants import FEW_ROUNDINGS

_LABELS = ("binary", "multiclass")


def _are_labels(y):
    """Whether y holds one label per sample: strings, booleans or integers. Floating-point numbers are targets."""
    return np.asarray(y).dtype.kind != "f" and type_of_target(y) in _LABELS


def resolve_loss(loss, y):
    """The loss ("squared_error", "log_loss", "gradient" or a callable) for a name and given targets."""
    if loss == "auto":
        return "log_loss" if _are_labels(y) else "squared_error"
    if isinstance(loss, str) and loss == "squared":
        return "squared_error"
    if isinstance(loss, str) and loss == "log_loss":
        check_classification_targets(y)
        if type_of_target(y) not in _LABELS:
            raise ValueError(
                f"log_loss needs one label per sample, got {type_of_target(y)} targets; use loss='squared_error', or a "
                "callable."
            )
    return loss


def gradient_at_zero(loss, y, *, weights=None, fit_intercept=True):
    """The gradient G (n, k) of a loss with respect to the outputs at zero, and the classes of labels or None.

    ``squared_error``: half the mean over samples of ``||f(x) - y||^2``, so ``G = -y / n``, y centered if
    `fit_intercept`. ``log_loss``: mean cross-entropy of a softmax, ``G = (1/k - onehot) / n``; for two classes of a
    sigmoid of one output, ``G = (1/2 - [y is the second]) / n``. ``gradient``: y is G itself. A callable is
    differentiated by torch. With `weights` (n,) of the samples, G is without them: they only center y.
    """
    n, classes = len(y), None
    if np.ndim(y) == 2 and np.shape(y)[1] == 1:
        y = np.ravel(y)  # one label per sample, in a column
    if callable(loss):
        G, classes = _differentiated(loss, y)
    elif loss == "log_loss":
        classes, codes = _classes(y)
        G = (0.5 - codes)[:, None] if len(classes) == 2 else 1.0 / len(classes) - np.eye(len(classes))[codes]
        G = G / n
    else:
        Y = _numbers(y, loss)
        G = Y if loss == "gradient" else -(Y - np.average(Y, axis=0, weights=weights) if fit_intercept else Y) / n
        _refuse_zero(G, np.abs(Y).max() / (1 if loss == "gradient" else n), loss)
    if not np.isfinite(G).all():
        raise ValueError(f"the gradient of {loss!r} at zero output is not finite; check the targets.")
    _refuse_zero(G, 0.0, loss)
    return np.ascontiguousarray(G, dtype=np.float64), classes


def _refuse_zero(G, scale, loss):
    """Raise ValueError if G is zero to rounding of `scale`."""
    if np.abs(G).max() <= FEW_ROUNDINGS * scale or not np.any(G):
        reason = "the targets are constant" if isinstance(loss, str) and loss == "squared_error" else "G is zero"
        raise ValueError(
            f"the gradient of {loss!r} at zero output vanishes ({reason}): the origin is not a saddle for this loss, "
            "so there is no escape from it. Check y."
        )


def _classes(y):
    """The classes (at least two) and their codes."""
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only ({str(classes[0])!r}): its log loss falls along the output alone, and there is no "
            "escape direction to search for; at least two classes are needed."
        )
    return classes, codes


def _numbers(y, loss):
    """y as float64 (n, k); ValueError for labels."""
    try:
        return np.array(y, dtype=np.float64).reshape(len(y), -1)
    except (TypeError, ValueError) as error:
        seen = type_of_target(y)
        raise ValueError(f"loss={loss!r} needs numbers as y, got {seen} labels; use 'log_loss'.") from error


def _differentiated(loss, y):
    """Gradient of a callable loss at zero outputs, and the classes of labels or None."""
    if _are_labels(y):
        classes, codes = _classes(y)
        k, targets = len(classes), torch.as_tensor(codes.astype(np.int64))
    else:
        classes, targets = None, torch.as_tensor(_numbers(y, loss))
        k = targets.shape[1]
    outputs = torch.zeros((len(y), k), dtype=torch.float64, requires_grad=True)
    value = loss(outputs, targets)
    if not (isinstance(value, torch.Tensor) and value.ndim == 0 and value.requires_grad):
        raise ValueError(
            "loss(outputs, targets) must return one number as a tensor that depends on outputs, as the losses in "
            f"torch.nn.functional do; got {type(value).__name__}"
            f"{tuple(value.shape) if isinstance(value, torch.Tensor) else ''}."
        )
    return torch.autograd.grad(value, outputs)[0].numpy(), classes
