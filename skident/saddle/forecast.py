"""What to say of a training that ended before its end: where it stands, and when it would move on."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["describe_plateau", "expected_escape"]

_ESCAPE_DROP = 0.02  # share of the loss whose fall is an escape under way
_RECORDS = 4  # that the forecast looks at


def expected_escape(steps, losses):
    """Step at which the loss will have fallen by 2 % more, if its fall goes on to grow as it does now.

    On the way out of a saddle the loss falls at a rate r that grows exponentially, ``r exp(g t)``; it falls by D
    within ``log(1 + g D / r) / g``.

    Parameters
    ----------
    steps, losses : array-like of shape (T,)

    Returns
    -------
    float
        inf where the loss does not fall, or there are fewer than four records.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.saddle.forecast import expected_escape
    >>> t = np.arange(0.0, 50.0, 5.0)
    >>> print(round(expected_escape(t, 1 - 1e-6 * np.exp(t / 10))))
    99
    """
    t, loss = np.asarray(steps, dtype=float)[-_RECORDS:], np.asarray(losses, dtype=float)[-_RECORDS:]
    if len(t) < _RECORDS or not np.isfinite(loss).all():
        return math.inf
    fall = -np.diff(loss) / np.diff(t)
    if fall[-1] <= 0:
        return math.inf
    middles, drop = 0.5 * (t[1:] + t[:-1]), _ESCAPE_DROP * abs(loss[-1])
    growth = float(np.polyfit(middles, np.log(fall), 1)[0]) if (fall > 0).all() else 0.0
    rate = fall[-1] * math.exp(min(max(growth, 0.0) * (t[-1] - middles[-1]), 50.0))
    wait = math.log1p(growth * drop / rate) / growth if growth > 1e-12 else drop / rate
    return float(t[-1] + wait)


def describe_plateau(history):
    """Loss and the expected escape, in words.

    Parameters
    ----------
    history : dict
        ``steps`` and ``losses``.

    Returns
    -------
    str
    """
    step = expected_escape(history["steps"], history["losses"])
    when = f"escape expected at step {step:.0f}" if step < 1e9 else "no escape in sight"
    return f"loss {history['losses'][-1]:.4g}, {when}"
