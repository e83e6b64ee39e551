"""Standardization of inputs and targets, and the range to which standardized inputs are clipped."""

from dataclasses import dataclass

import numpy as np
import torch

from skident.budget.constants import FEW_ROUNDINGS, INPUT_BOUND, NO_EFFECT
from skident.linalg import column_units

_SIGNIFICANT_MEAN = 5.0  # standard errors up to which a mean counts as zero: false alarms below 1e-6 per input


@dataclass(frozen=True)
class InputScaling:
    """Standardization of inputs: ``(x - center) / scale``, optionally clipped."""

    center: np.ndarray  # (d,), without the offset column
    scale: np.ndarray  # (d,)
    bound: float | None = None  # standardized inputs are clipped to [-bound, bound]
    offset_column: int | None = None  # the column of X that is x_0 of Theorem 4: no input, and unscaled
    span: np.ndarray | None = None  # (2, d): standardized inputs are clipped to these minima and maxima

    def inputs(self, X):
        """The network's inputs (n, d) from X (n, n_features)."""
        u = (_without(X, self.offset_column) - self.center) / self.scale
        u = u if self.bound is None else np.clip(u, -self.bound, self.bound)
        return u if self.span is None else np.clip(u, *self.span)

    def offsets(self, X):
        """x_0 of each sample, (n, 1); None without offset column."""
        return None if self.offset_column is None else X[:, [self.offset_column]]


@dataclass(frozen=True)
class TargetScaling:
    """Standardization of targets: ``(y - center) / scale``."""

    center: float | np.ndarray = 0.0  # or (o,)
    scale: float = 1.0

    def standardized(self, Y):
        """Standardized targets (n, o), array or tensor."""
        return (Y - self.center) / self.scale

    @torch.no_grad()
    def to_original_(self, module):
        """Convert a network fitted to standardized targets to y's units, in place."""
        module.scale_output_(self.scale)
        module.offset += self._center_like(module)
        return module

    @torch.no_grad()
    def to_standardized_(self, module):
        """Convert a network in y's units to standardized targets, in place."""
        module.offset -= self._center_like(module)
        return module.scale_output_(1.0 / self.scale)

    def _center_like(self, module):
        """The center as a tensor on the device of the module's offset."""
        return torch.as_tensor(self.center, dtype=module.offset.dtype, device=module.offset.device)


def input_scaling(X, offset_column=None, clipped=False, weights=None):
    """Mean and standard deviation of each input.

    If no mean differs from zero significantly, the center is zero: then ``x`` and ``x^2 - E x^2`` remain those of a
    target on centered inputs, whatever the connections. `clipped` sets a bound of three standard deviations.
    `weights` (n,) are those of the samples.
    """
    inputs = _without(X, offset_column)
    mean, scale = column_units(inputs, weights=weights)
    no_offset = np.all(np.abs(mean) <= _SIGNIFICANT_MEAN * scale / np.sqrt(len(X)))
    center = np.zeros_like(mean) if no_offset else mean
    return InputScaling(center, scale, INPUT_BOUND if clipped else None, offset_column)


def target_scaling(Y, weights=None):
    """Mean of each target, and one standard deviation of all; ValueError for constant or overflowing targets (n, o).

    `weights` (n,) are those of the samples.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        constant = np.ptp(Y, axis=0) <= FEW_ROUNDINGS * np.abs(Y).max(axis=0)
        center = np.average(Y, axis=0, weights=weights)
        scale = float(np.sqrt(np.average((Y - center) ** 2, axis=0, weights=weights).mean()))
    if constant.any():
        raise ValueError(
            f"y is constant ({Y[0, constant][0]:g} in all {len(Y)} samples): there is nothing to learn. Check the "
            "target column."
        )
    if not 0.0 < scale < np.inf:
        large = scale != 0.0
        raise ValueError(
            f"the targets are too {'large' if large else 'small'} for float64 sums of squares (largest |y| "
            f"{np.abs(Y).max():.1e}): {'divide' if large else 'multiply'} y by a constant."
        )
    return TargetScaling(center, scale)


def robust_scaling(y):
    """Median and 1.5 times the median absolute deviation of y (n, 1); if zero, mean and standard deviation."""
    center = y.median()
    scale = 1.5 * (y - center).abs().median()
    if scale > NO_EFFECT * y.std():
        return TargetScaling(float(center), float(scale))
    return TargetScaling(float(y.mean()), float(y.std()))


def _without(X, column):
    """X without the offset column."""
    return X if column is None else np.delete(X, column, axis=1)


def input_range(samples, margin):
    """Minimum and maximum of each input (2, d), widened by `margin` times their difference at either end."""
    low, high = samples.amin(dim=0), samples.amax(dim=0)
    added = margin * (high - low)
    return torch.stack([low - added, high + added])


def clipped_inputs(x, samples, margin):
    """Inputs x (m, d) clipped to the range that they have in `samples` (n, d)."""
    return x.clamp(*input_range(samples, margin))
