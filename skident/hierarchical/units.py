"""The units in which a network sees its inputs and is fitted to its targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from skident.linalg import column_units

__all__ = ["InputUnits", "TargetUnits", "input_units", "robust_units", "target_units"]

_LARGEST_INPUT = 3.0  # standard deviations at which nets with batch norm see the inputs clipped
_BY_CHANCE = 5.0  # standard errors up to which a mean counts as zero


@dataclass(frozen=True)
class InputUnits:
    """How inputs are standardised.

    Attributes
    ----------
    center, scale : ndarray of shape (d,)
        Of the columns but the offset column.
    bound : float or None
        Standardised inputs are clipped at ``-bound`` and ``bound``.
    span : ndarray of shape (2, d) or None
        Standardised inputs are clipped at these lowest and highest values.
    offset_column : int or None
        The column of X that is x_0 of Theorem 4: no input, and taken as it is.
    """

    center: np.ndarray
    scale: np.ndarray
    bound: float | None = None
    offset_column: int | None = None
    span: np.ndarray | None = None

    def inputs(self, X):
        """What the network sees.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, d)
        """
        u = (_without(X, self.offset_column) - self.center) / self.scale
        u = u if self.bound is None else np.clip(u, -self.bound, self.bound)
        return u if self.span is None else np.clip(u, *self.span)

    def offsets(self, X):
        """x_0 of every row.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, 1) or None
            None without offset column.
        """
        return None if self.offset_column is None else X[:, [self.offset_column]]


@dataclass(frozen=True)
class TargetUnits:
    """How targets are standardised: ``(y - center) / scale``.

    Attributes
    ----------
    center : float or ndarray of shape (o,)
    scale : float
    """

    center: float | np.ndarray = 0.0
    scale: float = 1.0

    def standardised(self, Y):
        """Targets in these units.

        Parameters
        ----------
        Y : ndarray or Tensor of shape (n, o)

        Returns
        -------
        ndarray or Tensor of shape (n, o)
        """
        return (Y - self.center) / self.scale

    @torch.no_grad()
    def leave_(self, module):
        """Bring a network that was fitted to standardised targets to y's units, in place.

        Parameters
        ----------
        module : QuadraticDenseNet or DistilledQuadraticNet

        Returns
        -------
        QuadraticDenseNet or DistilledQuadraticNet
            The same.
        """
        module.scale_output_(self.scale)
        module.offset += self._center_like(module)
        return module

    @torch.no_grad()
    def enter_(self, module):
        """Bring a network in y's units to standardised targets, in place.

        Parameters
        ----------
        module : QuadraticDenseNet or DistilledQuadraticNet

        Returns
        -------
        QuadraticDenseNet or DistilledQuadraticNet
            The same.
        """
        module.offset -= self._center_like(module)
        return module.scale_output_(1.0 / self.scale)

    def _center_like(self, module):
        """The centre as a tensor beside the module's offset."""
        return torch.as_tensor(self.center, dtype=module.offset.dtype, device=module.offset.device)


def input_units(X, offset_column=None, clipped=False):
    """Mean and standard deviation of every input.

    Where no mean differs from zero by more than chance, the centre is zero: then ``x`` and ``x^2 - E x^2`` stay those
    of a target on centred inputs, whatever the connections.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    offset_column : int, default=None
    clipped : bool, default=False
        Whether the network is to see inputs clipped at three standard deviations.

    Returns
    -------
    InputUnits
    """
    inputs = _without(X, offset_column)
    mean, scale = column_units(inputs)
    by_chance = np.all(np.abs(mean) <= _BY_CHANCE * scale / np.sqrt(len(X)))
    center = np.zeros_like(mean) if by_chance else mean
    return InputUnits(center, scale, _LARGEST_INPUT if clipped else None, offset_column)


def target_units(Y):
    """Mean of every target, and one standard deviation of all.

    Parameters
    ----------
    Y : ndarray of shape (n, o)

    Returns
    -------
    TargetUnits

    Raises
    ------
    ValueError
        If a target is constant, or targets are so large or so small that float64 does not hold sums of their squares.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        constant = np.ptp(Y, axis=0) <= 1e-14 * np.abs(Y).max(axis=0)
        center = Y.mean(axis=0)
        scale = float(np.sqrt(np.mean((Y - center) ** 2)))
    if constant.any():
        raise ValueError(
            f"y is constant ({Y[0, constant][0]:g} in all {len(Y)} rows): there is nothing to learn. Check the target "
            "column."
        )
    if not 0.0 < scale < np.inf:
        large = scale != 0.0
        raise ValueError(
            f"the targets are too {'large' if large else 'small'} for float64 sums of squares (largest |y| "
            f"{np.abs(Y).max():.1e}): {'divide' if large else 'multiply'} y by a constant."
        )
    return TargetUnits(center, scale)


def robust_units(y):
    """Median and 1.5 times the median distance from it; where that is zero, mean and standard deviation.

    Parameters
    ----------
    y : Tensor (n, 1)

    Returns
    -------
    TargetUnits
    """
    center = y.median()
    unit = 1.5 * (y - center).abs().median()
    if unit > 1e-9 * y.std():
        return TargetUnits(float(center), float(unit))
    return TargetUnits(float(y.mean()), float(y.std()))


def _without(X, column):
    """X without the offset column."""
    return X if column is None else np.delete(X, column, axis=1)
