"""Constraints and checks of the parameters that the estimators share."""

from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np

# Private in scikit-learn: imported here and nowhere else.
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array

from skident.linalg import column_units
from skident.network import ACTIVATIONS

ACTIVATION_CHOICES = StrOptions({*ACTIVATIONS, "logistic"})
POSITIVE = Interval(Real, 0, None, closed="neither")
CLASS_WEIGHT = [dict, StrOptions({"balanced"}), None]
AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
_MAX_MAGNITUDE = 1e100  # of entries of X and y: their squares, 1e200, times numbers of samples do not overflow


def check_layer_widths(layer_widths, n_outputs=None, *, outputs="the black box gives {} output(s)"):
    """``(m_1, ..., m_L)`` as a tuple of positive integers; ValueError for others, or if the last is not `n_outputs`.

    `outputs` completes the message: what has how many outputs.
    """
    widths = tuple(np.atleast_1d(np.asarray(layer_widths, dtype=object)))
    if not widths or not all(isinstance(m, Integral) and m > 0 for m in widths):
        raise ValueError(
            f"layer_widths must be positive integers (m_1, ..., m_L), the last one the number of outputs; "
            f"got {layer_widths!r}."
        )
    widths = tuple(int(m) for m in widths)
    if n_outputs is not None and widths[-1] != n_outputs:
        shorter = f" (or {(*widths[:-1], n_outputs)}, if {widths[-1]} was meant for the outputs)" if widths[1:] else ""
        raise ValueError(
            f"layer_widths={layer_widths!r} ends in {widths[-1]} but {outputs.format(n_outputs)}. "
            "layer_widths lists the widths of the hidden layers and, last, the number of outputs: for hidden layers of "
            f"{' and '.join(map(str, widths))} units write layer_widths={(*widths, n_outputs)}{shorter}."
        )
    return widths


def check_targets(y, response):
    """y (n,) or (n, m_L) itself; ValueError for a classifier with continuous targets or several labels per sample.

    The targets are those of a classifier if `response` is "predict_proba".
    """
    if response == "predict":
        return y
    check_classification_targets(y)
    if type_of_target(y) in ("multilabel-indicator", "multiclass-multioutput"):
        raise ValueError(
            f"y has {y.shape[1]} labels per sample (multilabel); only classifiers of exclusive classes can be "
            "identified. Fit one classifier per label."
        )
    return y


def check_numbers(y):
    """ValueError if targets of a regressor are strings."""
    y = np.asarray(y)
    text = next((one for one in y.ravel() if isinstance(one, str | bytes)), None) if y.dtype.kind in "USO" else None
    if text is not None:
        raise ValueError(
            f"y holds strings ({str(text)!r}), and a regressor needs numbers. If they are numbers, pass "
            "np.asarray(y, dtype=float); if they are class labels, use HierarchicalQuadraticNetClassifier().fit(X, y)."
        )


def check_magnitudes(**arrays):
    """ValueError if the largest entry of a named array is beyond 1e100, or below 1e-100 and not zero."""
    for name, array in arrays.items():
        largest = float(np.abs(array).max(initial=0.0))
        if largest > _MAX_MAGNITUDE:
            raise ValueError(
                f"{name} has entries of magnitude {largest:.1e}; their squares overflow. Scale {name} to magnitudes "
                f"below {_MAX_MAGNITUDE:.0e}."
            )
        if 0 < largest < 1.0 / _MAX_MAGNITUDE:
            raise ValueError(
                f"{name} has no entry above {largest:.1e} in magnitude; their squares underflow. Scale "
                f"{name} to magnitudes above {1.0 / _MAX_MAGNITUDE:.0e}."
            )


def center_and_scale(X, center):
    """The center x* (D,) of inputs X (n, D), their mean if `center` is None, and their standard deviations (D,).

    A constant column gets the median of the other standard deviations, or 1. ValueError for a center of another shape.
    """
    if center is None:
        center = X.mean(axis=0)
    else:
        center = check_array(center, ensure_2d=False, dtype=np.float64, input_name="center").copy()
        if center.shape != (X.shape[1],):
            raise ValueError(f"center must have shape ({X.shape[1]},), one entry per input; got {center.shape}.")
    scale = column_units(X, constant=np.nan)[1]
    varies = np.isfinite(scale)
    scale[~varies] = np.median(scale[varies]) if varies.any() else 1.0
    return center, scale


@contextmanager
def forgotten_on_error(estimator):
    """A block with the whole of a `fit`: an estimator whose fit raised, at whatever point, is not fitted.

    All attributes that end in ``_`` are deleted if the block raises, and all but the number and names of features
    before it. Validation belongs into the block too: it stores these.
    """

    def forget(kept=()):
        for name in [k for k in vars(estimator) if k.endswith("_") and not k.startswith("__")]:
            if name not in kept:
                delattr(estimator, name)

    forget(kept=("n_features_in_", "feature_names_in_"))  # validation replaces them, and compares nothing before
    try:
        yield
    except BaseException:
        forget()
        raise
