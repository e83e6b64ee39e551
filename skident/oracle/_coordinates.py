"""Standardised coordinates of a black box's inputs, and the range in which it may be asked."""

from __future__ import annotations

import numpy as np

from ._errors import BlackBoxError

# Points this little outside the range, in units of `scale`, are its border but for rounding.
_ON_BORDER = 1e-9


class Coordinates:
    """``u`` with ``x = center + scale * u``, and bounds on x.

    Parameters
    ----------
    n_inputs : int
        D.
    center : array-like of shape (D,), default=None
        Zero by default.
    scale : array-like of shape (D,) or float, default=1.0
        Positive.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)`` of x; infinite entries are no bounds.

    Attributes
    ----------
    n_inputs : int
    center, scale : ndarray of shape (D,)
    input_range : tuple of two ndarrays of shape (D,) or None

    Raises
    ------
    ValueError
        If center or scale does not hold D finite numbers, a scale is not positive, or a lower bound is not below the
        upper one.
    """

    def __init__(self, n_inputs, center=None, scale=1.0, input_range=None):
        self.n_inputs = n_inputs
        self.center = _coordinates("center", np.zeros(n_inputs) if center is None else center, n_inputs)
        self.scale = _coordinates("scale", np.full(n_inputs, scale) if np.ndim(scale) == 0 else scale, n_inputs)
        if not np.all(self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale[~(self.scale > 0)][0]}; drop constant inputs.")
        self.input_range = None if input_range is None else _interval(input_range, n_inputs)

    @property
    def reach(self):
        """How far every input can be moved from the centre either way, in units of `scale`."""
        if self.input_range is None:
            return np.inf
        low, high = self.input_range
        return float(min(np.min((self.center - low) / self.scale), np.min((high - self.center) / self.scale)))

    def to_inputs(self, U):
        """Standardised coordinates as the black box's inputs, ``center + scale * u``.

        Parameters
        ----------
        U : ndarray of shape (n, D) or (D,)

        Returns
        -------
        ndarray of the same shape
        """
        return self.center + self.scale * U

    def from_inputs(self, X):
        """The black box's inputs in standardised coordinates, ``(x - center) / scale``.

        Parameters
        ----------
        X : ndarray of shape (n, D) or (D,)

        Returns
        -------
        ndarray of the same shape
        """
        return (X - self.center) / self.scale

    def clip_to_range(self, U, margin=0.0):
        """A copy of the points with every coordinate moved into the range.

        Parameters
        ----------
        U : ndarray of shape (n, D)
        margin : float, default=0.0
            How far from the border they stay, in units of `scale`.

        Returns
        -------
        ndarray of shape (n, D)
        """
        if self.input_range is None:
            return np.array(U, dtype=float)
        low, high = (self.from_inputs(bound) for bound in self.input_range)
        return np.clip(U, low + margin, high - margin)

    def _allowed(self, X):
        """The inputs with rounding at the border undone; points outside the range are refused."""
        if self.input_range is None:
            return X
        low, high = self.input_range
        excess = np.maximum(low - X, X - high) / self.scale
        if excess.max(initial=0.0) > _ON_BORDER:
            row, i = np.unravel_index(np.argmax(excess), excess.shape)
            raise BlackBoxError(
                f"input {i} would have been asked at {X[row, i]:.4g}, outside its input_range ({low[i]:.4g}, "
                f"{high[i]:.4g}): {excess[row, i]:.2g} standard deviations beyond."
            )
        return np.clip(X, low, high)


def _coordinates(name, values, n_inputs):
    """One finite number an input, float64."""
    values = np.array(values, dtype=float)
    if values.shape != (n_inputs,) or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold {n_inputs} finite numbers, one an input, got {values}.")
    return values


def _interval(input_range, n_inputs):
    """``(low, high)`` as two arrays (D,) with low < high; infinite entries allowed."""
    try:
        low, high = input_range
        low, high = (np.array(np.broadcast_to(np.asarray(b, dtype=float), (n_inputs,))) for b in (low, high))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"input_range must be (low, high), each a number or an array of {n_inputs} numbers, one an input; got "
            f"{input_range!r}."
        ) from error
    wrong = ~(low < high)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"input_range must have low < high; input {i} has low={low[i]}, high={high[i]}.")
    return low, high
