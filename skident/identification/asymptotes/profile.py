"""The profile of one unit along a line: two straight lines, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

__all__ = ["Bend", "Profile", "fit_profile", "is_reflection_symmetric"]

_CLOSEST = 1e-10  # of the room on both sides, the first points of a look at a profile
_LOOKS, _ROWS = 100, 48  # points on either side of that look, and of the fit
_WITHIN = 12.0  # |z| where the fit takes its points
_VISIBLE, _ROUNDED = 300.0, 100.0  # sizes of a profile and of a misfit, in units of the answers' rounding
_ALIKE = 1e-7  # misfit, in units of a profile's largest value


@dataclass(frozen=True)
class Bend:
    """Where two straight stretches of a line meet.

    Attributes
    ----------
    corner : float
        Their meeting point.
    value, before, after : ndarray of shape (m_L,)
        Answers there, slopes before and after it.
    room : float
        How far the straight stretches are known to reach on either side.
    """

    corner: float
    value: np.ndarray
    before: np.ndarray
    after: np.ndarray
    room: float

    def straight(self, t):
        """The two lines.

        Parameters
        ----------
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, m_L)
        """
        move = (t - self.corner)[:, None]
        return self.value + move * np.where(move > 0, self.after, self.before)


@dataclass(frozen=True)
class Profile:
    """One unit: on the line its argument is ``+-sigma (t - position)``.

    Attributes
    ----------
    position, sigma : float
        Where the argument is 0, and its slope; sigma is positive.
    orientation : int
        1 or -1, whether the argument grows along the line; 0 if undetermined, see `is_reflection_symmetric`.
    """

    position: float
    sigma: float
    orientation: int


def is_reflection_symmetric(activation):
    """Whether ``g(z) - g(-z) = z``, as of softplus, gelu and silu: a unit turned round bends alike.

    Parameters
    ----------
    activation : Activation

    Returns
    -------
    bool
    """
    z = np.array([0.3, 1.0, 2.5])
    return bool(np.allclose(activation(z) - activation(-z), z))


def fit_profile(line, bend, activation):
    """Length, position and orientation of the unit behind a bend, by least squares.

    Parameters
    ----------
    line : FarLine
    bend : Bend
    activation : Activation
        Constant far on the left, with slope 1 far on the right.

    Returns
    -------
    Profile or None
        None where the bend is not that of one unit.
    """
    jump = bend.after - bend.before
    weight = jump / (jump @ jump)
    near = bend.room * np.geomspace(_CLOSEST, 1.0, _LOOKS)
    t = bend.corner + np.concatenate([-near[::-1], near])
    tol = float(np.abs(weight) @ line.tolerance(t))
    seen = (line.ask(t) - bend.straight(t)) @ weight
    largest = float(seen[np.argmax(np.abs(seen))])
    if abs(largest) < _VISIBLE * tol:
        return None
    low = float(activation(np.array([-1e3]))[0])
    fits = []
    for sign in (1,) if is_reflection_symmetric(activation) else (1, -1):

        def sag(z, sign=sign):
            # The lines meet where z + low is the unit's argument.
            return activation(sign * z + low) - low - np.maximum(sign * z, 0.0)

        sigma, misfit = _length(line, bend, weight, sag, largest)
        fits.append((misfit, sigma, sign))
    misfit, sigma, sign = min(fits)
    if misfit > _ROUNDED * tol + _ALIKE * abs(largest):
        return None
    return Profile(bend.corner - sign * low / sigma, sigma, 0 if is_reflection_symmetric(activation) else sign)


def _length(line, bend, weight, sag, largest):
    """Sigma for which ``sag(sigma (t - corner)) / sigma`` is what lies between the lines, and its largest misfit."""
    z = np.linspace(-_WITHIN, _WITHIN, 2401)
    shape = sag(z)
    rough = shape[np.argmax(np.abs(shape))] / largest
    if not 0.0 < rough < np.inf or _WITHIN / rough > bend.room:
        return np.inf, np.inf
    t = bend.corner + np.linspace(-_WITHIN, _WITHIN, _ROWS) / rough
    wanted = ((line.ask(t) - bend.straight(t)) @ weight) * rough

    def residual(x):
        stretch = np.exp(x[0])
        return sag(stretch * rough * (t - bend.corner)) / stretch - wanted

    fit = scipy.optimize.least_squares(residual, [0.0], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(np.exp(fit.x[0]) * rough), float(np.abs(fit.fun).max() / rough)
