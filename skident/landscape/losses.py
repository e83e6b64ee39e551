"""Convex losses of an output f and a target y: values, derivatives, and convex conjugates for dual bounds.

Layouts: outputs `f`, targets `y` and dual variables `u` (n,). The conjugate is ``sup_f (u f - loss(f, y))``.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from skident.budget.constants import LARGEST_EXPONENT

# Change of ``(1 - p) log(1 - p)`` by a rounding of p, over that rounding, divided by the 16 roundings of an evaluation:
# at most ``|log eps|`` / 16.
_ROUNDED_SHARE = 3.0


@dataclass(frozen=True)
class HuberLoss:
    """The Huber loss ``(f - y)^2 / 2`` up to residuals of `delta`, and linear beyond.

    Attributes
    ----------
    delta : float, default=1
    """

    delta: float = 1.0


@dataclass(frozen=True)
class LogisticLoss:
    """``log(1 + exp(-y f))`` for labels y of -1 and 1."""

    name: str = "logistic"

    def value(self, f, y):
        """Losses (n,)."""
        return np.logaddexp(0.0, -y * f)

    def slope(self, f, y):
        """First derivatives (n,) with respect to f."""
        return -y * expit(-y * f)

    def curvature(self, f, y):
        """Second derivatives (n,)."""
        p = expit(-y * f)
        return p * expit(y * f)

    def slope_bound(self, f, y, error):
        """Upper bounds (n,) of the slope's magnitude within `error` of f."""
        return expit(error - y * f) + 0.0 * f

    def domain(self, y):
        """The dual variables' lower and upper bounds, each (n,)."""
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def conjugate(self, u, y):
        """Convex conjugates (n,) at u within the domain."""
        p = -y * u
        return xlogy(p, p) + xlog1py(1.0 - p, -p)

    def magnitude(self, f, y):
        """Magnitudes (n,) of the terms of `value`, for rounding bounds."""
        return self.value(f, y)

    def conjugate_magnitude(self, u, y):
        """Magnitudes (n,) of the terms of `conjugate`, and the effect of a rounding of u."""
        return _ROUNDED_SHARE - self.conjugate(u, y)


@dataclass(frozen=True)
class Huber:
    """``(f - y)^2 / 2`` up to a residual of `delta`, and linear beyond."""

    delta: float
    name: str = "huber"

    def value(self, f, y):
        """Losses (n,)."""
        r = np.abs(f - y)
        return np.where(r <= self.delta, 0.5 * r**2, self.delta * (r - 0.5 * self.delta))

    def slope(self, f, y):
        """First derivatives (n,) with respect to f."""
        return np.clip(f - y, -self.delta, self.delta)

    def curvature(self, f, y):
        """Second derivatives (n,)."""
        return (np.abs(f - y) <= self.delta).astype(float)

    def slope_bound(self, f, y, error):
        """Upper bounds (n,) of the slope's magnitude within `error` of f."""
        return np.minimum(np.abs(f - y) + error, self.delta)

    def domain(self, y):
        """The dual variables' lower and upper bounds, each (n,)."""
        return np.full_like(y, -self.delta), np.full_like(y, self.delta)

    def conjugate(self, u, y):
        """Convex conjugates (n,) at u within the domain."""
        return u * (0.5 * u + y)

    def magnitude(self, f, y):
        """Magnitudes (n,) of the terms of `value`, for rounding bounds."""
        return self.value(f, y) + np.abs(self.slope(f, y)) * (np.abs(f) + np.abs(y) + self.delta)

    def conjugate_magnitude(self, u, y):
        """Magnitudes (n,) of the terms of `conjugate`."""
        return np.abs(u) * (np.abs(u) + np.abs(y))


@dataclass(frozen=True)
class PoissonLoss:
    """``exp(f) - y f - y + y log y``, half the Poisson deviance of counts y with mean ``exp(f)``."""

    name: str = "poisson"

    def value(self, f, y):
        """Losses (n,)."""
        return _exp(f) - y * f - y + xlogy(y, y)

    def slope(self, f, y):
        """First derivatives (n,) with respect to f."""
        return _exp(f) - y

    def curvature(self, f, y):
        """Second derivatives (n,)."""
        return _exp(f) + 0.0 * y

    def slope_bound(self, f, y, error):
        """Upper bounds (n,) of the slope's magnitude within `error` of f."""
        return np.maximum(np.abs(_exp(f + error) - y), np.abs(_exp(f - error) - y))

    def domain(self, y):
        """The dual variables' lower and upper bounds, each (n,)."""
        return -y, np.full_like(y, np.inf)

    def conjugate(self, u, y):
        """Convex conjugates (n,) at u within the domain."""
        mean = u + y
        return xlogy(mean, mean) - mean + y - xlogy(y, y)

    def magnitude(self, f, y):
        """Magnitudes (n,) of the terms of `value`, for rounding bounds."""
        return _exp(f) + y * np.abs(f) + y + np.abs(xlogy(y, y))

    def conjugate_magnitude(self, u, y):
        """Magnitudes (n,) of the terms of `conjugate`; a small mean has the rounding of the terms of its sum."""
        size, mean = np.abs(u) + y, u + y
        return np.abs(xlogy(size, np.maximum(mean, np.finfo(float).tiny))) + size + y + np.abs(xlogy(y, y))


def checked_loss(loss, y):
    """The loss of that name, or the loss itself; ValueError if it does not fit the targets y (n,)."""
    named = {"logistic": LogisticLoss(), "poisson": PoissonLoss()}
    if not isinstance(loss, HuberLoss) and loss not in named:
        raise ValueError(f"loss must be 'squared', 'logistic', 'poisson' or HuberLoss(delta), got {loss!r}.")
    loss = Huber(loss.delta) if isinstance(loss, HuberLoss) else named[loss]
    if loss.name == "logistic" and not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError("the logistic loss takes labels y of -1 and 1; encode them, for example by np.where.")
    if loss.name == "poisson" and (y < 0).any():
        raise ValueError(f"the Poisson loss takes counts y >= 0, got {y.min():.3g}. Use the Huber or squared loss.")
    if loss.name == "huber" and not 0 < loss.delta < np.inf:
        raise ValueError(f"delta of the Huber loss must be a finite number > 0, got {loss.delta!r}.")
    return loss


def _exp(f):
    """``exp(f)`` without overflow; that large, a loss leads down anyway."""
    return np.exp(np.minimum(f, LARGEST_EXPONENT))
