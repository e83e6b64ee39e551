"""`Coordinates`: standardized coordinates of a black box's inputs, and the range in which it may be queried."""

import numpy as np

from ._errors import BlackBoxError

_BORDER_TOL = 1e-9  # in units of `scale`: points this little outside the range are on its border but for rounding


class Coordinates:
    """Part of `Oracle`: coordinates ``u`` with ``x = center + scale * u``, and bounds ``input_range`` of x."""

    def __init__(self, n_inputs, center=None, scale=1.0, input_range=None):
        self.n_inputs = n_inputs
        self.center = _vector("center", np.zeros(n_inputs) if center is None else center, n_inputs)
        self.scale = _vector("scale", np.full(n_inputs, scale) if np.ndim(scale) == 0 else scale, n_inputs)
        if not np.all(self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale[~(self.scale > 0)][0]}; drop constant inputs.")
        self.input_range = None if input_range is None else _interval(input_range, n_inputs)

    @property
    def reach(self):
        """Distance that every input can move from the center in both directions, in units of `scale`."""
        if self.input_range is None:
            return np.inf
        low, high = self.input_range
        return float(min(np.min((self.center - low) / self.scale), np.min((high - self.center) / self.scale)))

    def to_inputs(self, U):
        """Inputs ``center + scale * u`` of the black box, (n, D) or (D,)."""
        return self.center + self.scale * U

    def from_inputs(self, X):
        """Standardized coordinates ``(x - center) / scale``, (n, D) or (D,)."""
        return (X - self.center) / self.scale

    def clip_to_range(self, U, margin=0.0):
        """Copy of the points U (n, D), clipped to the range less a margin in units of `scale`."""
        if self.input_range is None:
            return np.array(U, dtype=float)
        low, high = (self.from_inputs(bound) for bound in self.input_range)
        return np.clip(U, low + margin, high - margin)

    def _allowed(self, X):
        """Inputs X (n, D) with rounding at the border undone; BlackBoxError for inputs outside the range."""
        if self.input_range is None:
            return X
        low, high = self.input_range
        excess = np.maximum(low - X, X - high) / self.scale
        if excess.max(initial=0.0) > _BORDER_TOL:
            row, i = np.unravel_index(np.argmax(excess), excess.shape)
            raise BlackBoxError(
                f"a query needs input {i} at {X[row, i]:.4g}, outside its input_range ({low[i]:.4g}, "
                f"{high[i]:.4g}): {excess[row, i]:.2g} standard deviations beyond."
            )
        return np.clip(X, low, high)


def _vector(name, values, n_inputs):
    """Finite float64 numbers (D,), one per input."""
    values = np.array(values, dtype=float)
    if values.shape != (n_inputs,) or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold {n_inputs} finite numbers, one per input, got {values}.")
    return values


def _interval(input_range, n_inputs):
    """``(low, high)`` as two arrays (D,) with low < high; infinite entries allowed."""
    try:
        low, high = input_range
        low, high = (np.array(np.broadcast_to(np.asarray(b, dtype=float), (n_inputs,))) for b in (low, high))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"input_range must be (low, high), each a number or an array of {n_inputs} numbers, one per input; got "
            f"{input_range!r}."
        ) from error
    wrong = ~(low < high)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"input_range must have low < high; input {i} has low={low[i]}, high={high[i]}.")
    return low, high
