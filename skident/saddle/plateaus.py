"""Plateaus and escapes in a curve of losses and singular values."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks

from skident.budget.constants import CONSTANT_TOL

_NOISE_DROP = 5.0  # median deviations from the smoothed loss below which a decrease may be noise
_LEAST_RATE = 1e-4  # of the mean rate of decrease: below it, plateaus are as flat as rounding makes them


@dataclass(frozen=True)
class Saddle:
    """A plateau of training.

    Attributes
    ----------
    step : float
        Where the loss falls most slowly.
    loss : float
        At this step.
    escape_step : float or None
        Where the loss falls fastest on the way out; None for the last plateau, which training did not leave.
    ranks : tuple of int
        Numerical rank of each layer's weights: singular values above `rank_tol` of the largest. Zero while the loss is
        the initial one. Empty without singular values.
    singular_value_ratios : tuple of float
        Second over first singular value of each layer.
    """

    step: float
    loss: float
    escape_step: float | None
    ranks: tuple
    singular_value_ratios: tuple


def detect_escapes(
    steps, losses, singular_values=None, *, smoothing=2.5, prominence=1.0986, min_drop=0.1, rank_tol=0.3
):
    """Detect plateaus and escapes of a training curve.

    An escape is a peak of ``log(-d loss / d step)`` of the smoothed loss with this `prominence`, over which the loss
    falls by at least `min_drop` and more than its noise, and after which the numerical rank of some layer is higher
    than on any earlier plateau. Between two escapes lies one saddle: the point where the loss falls most slowly.

    Parameters
    ----------
    steps : array-like of shape (T,)
        Increasing, evenly spaced or nearly so.
    losses : array-like of shape (T,)
    singular_values : list of array-like of shape (T, k_l), default=None
        Of each layer, descending. None detects escapes from the loss alone.
    smoothing : float, default=2.5
        Standard deviation of the Gaussian window, in records. Raise it for losses of small batches.
    prominence : float, default=log(3)
        Of the natural logarithm: a peak is three times as steep as what separates it from a steeper one.
    min_drop : float, default=0.1
        Fraction of the total decrease of the loss.
    rank_tol : float, default=0.3
        Singular values above this fraction of the largest count as rank.

    Returns
    -------
    list of Saddle
        The first is the start. A curve without an escape gives this one only.

    Raises
    ------
    ValueError
        If shapes do not match, there are fewer than five points, steps do not increase, or a loss is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.saddle import detect_escapes
    >>> t = np.arange(400.0)
    >>> loss = 3 - np.tanh((t - 100) / 10) - np.tanh((t - 300) / 10)
    >>> print([saddle.escape_step for saddle in detect_escapes(t, loss)])
    [100.0, 300.0, None]
    """
    t, loss, spectra = _checked(steps, losses, singular_values)
    smooth = gaussian_filter1d(loss, smoothing, mode="nearest")
    total = float(smooth[0] - smooth.min())
    fall = -np.gradient(smooth, t)
    rate = np.log(np.maximum(fall, _LEAST_RATE * max(total, np.finfo(float).tiny) / (t[-1] - t[0])))
    peaks, _ = find_peaks(rate, prominence=prominence)
    # The median deviation: at an escape, smoothing also removes what is not noise.
    drop = max(min_drop * total, _NOISE_DROP * float(np.median(np.abs(loss - smooth))))
    kept = _significant_escapes([int(p) for p in peaks], rate, smooth, spectra, drop, rank_tol)
    return _saddles(kept, t, rate, loss, spectra, lambda i: _ranks(spectra, i, rank_tol, smooth, drop))


def _checked(steps, losses, singular_values):
    """Steps, losses and spectra as float64 arrays; ValueError if they do not match or are not finite."""
    t, loss = np.asarray(steps, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    spectra = [np.asarray(s, dtype=np.float64) for s in singular_values or []]
    if t.ndim != 1 or t.shape != loss.shape or len(t) < 5 or any(s.ndim != 2 or len(s) != len(t) for s in spectra):
        raise ValueError(
            f"steps and losses must be two vectors of one length, at least 5, and singular values (T, k) each; got "
            f"shapes {t.shape}, {loss.shape} and {[s.shape for s in spectra]}."
        )
    if not np.isfinite(loss).all() or not np.isfinite(t).all() or np.any(np.diff(t) <= 0):
        raise ValueError("steps must increase and losses be finite; where training diverged, cut the curve off before.")
    return t, loss, spectra


def _ranks(spectra, i, rank_tol, smooth, drop):
    """Numerical ranks at a record; zero while the loss is the initial one, where the weights are still small."""
    if smooth[i] > smooth[0] - drop:
        return (0,) * len(spectra)
    return tuple(int(np.sum(s[i] > rank_tol * s[i, 0])) for s in spectra)


def _flattest(rate, first, last):
    """Index of the slowest decrease in ``first .. last``; of several the middle one."""
    part = rate[first : last + 1]
    lowest = np.flatnonzero(part <= part.min() + CONSTANT_TOL)
    return first + int(lowest[len(lowest) // 2])


def _significant_escapes(peaks, rate, smooth, spectra, drop, rank_tol):
    """The peaks over which the loss falls enough and after which some layer's rank is new."""
    changed = True
    while changed:
        changed, ends = False, [0, *peaks, len(rate) - 1]
        plateaus = [_flattest(rate, a, b) for a, b in zip(ends[:-1], ends[1:])]
        ranks = [_ranks(spectra, i, rank_tol, smooth, drop) for i in plateaus]
        for k in range(len(peaks)):
            falls = smooth[plateaus[k]] - smooth[plateaus[k + 1]] >= drop
            before = [max(column) for column in zip(*ranks[: k + 1])]
            rises = not spectra or any(a > b for a, b in zip(ranks[k + 1], before))
            if not (falls and rises):
                del peaks[k]
                changed = True
                break
    return peaks


def _saddles(peaks, t, rate, loss, spectra, ranks_at):
    """One `Saddle` before each escape, and one after the last."""
    ends, saddles = [0, *peaks, len(t) - 1], []
    for k, (first, last) in enumerate(zip(ends[:-1], ends[1:])):
        i = _flattest(rate, first, last)
        ratios = tuple(float(s[i, 1] / s[i, 0]) if s.shape[1] > 1 and s[i, 0] > 0 else 0.0 for s in spectra)
        escape = float(t[last]) if k < len(peaks) else None
        saddles.append(Saddle(float(t[i]), float(loss[i]), escape, ranks_at(i), ratios))
    return saddles
