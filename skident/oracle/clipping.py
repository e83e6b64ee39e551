"""Whether a black box clips its inputs, and where, or its answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["detect_clipped_outputs", "detect_clipped_inputs"]

_FAR = 1e4
_STEP = 1e-2
_VISIBLE = 1e-7  # of the answers' range; a tanh that has become constant in float64 has moved by 1e-15 a step before
_SHARE = 0.3  # of the lines that end in the same answer


def detect_clipped_inputs(oracle, n_base=3, rng=None):
    """Where the answers stop moving with one input, all at once.

    Parameters
    ----------
    oracle : Oracle
    n_base : int, default=3
        Points from which each input is moved.
    rng : numpy.random.RandomState, default=None

    Returns
    -------
    low, high : ndarray of shape (D,)
        In the black box's inputs; infinite where no border was found.

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked 1e4 standard deviations from the centre.

    Notes
    -----
    Along one input, a box that clips is exactly constant beyond a border and moves at full rate before it; units that
    saturate come to rest without a border, and where a border shows but no other input does beyond it, answers are
    clipped (`detect_clipped_outputs`). The last place where the answers differ from those far out is bisected,
    ``2 D n_base`` queries a step, 40 steps.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.oracle.clipping import detect_clipped_inputs
    >>> low, high = detect_clipped_inputs(Oracle(lambda X: np.tanh(np.clip(X, -4, 5)).sum(axis=1), 2))
    >>> print(high.round(4))
    [5. 5.]
    """
    lines = _along_inputs(oracle, n_base, rng)
    clipped = lines.border & lines.others_show
    edges = np.where(clipped, lines.sign * lines.right, lines.sign * np.inf).reshape(n_base, oracle.n_inputs, 2)
    low, high = edges[:, :, 0].max(axis=0), edges[:, :, 1].min(axis=0)
    return oracle.to_inputs(low), oracle.to_inputs(high)


def detect_clipped_outputs(oracle, n_base=3, rng=None):
    """Which outputs a black box clips.

    Parameters
    ----------
    oracle : Oracle
    n_base : int, default=3
        Points from which each input is moved.
    rng : numpy.random.RandomState, default=None

    Returns
    -------
    ndarray of bool, shape (m_L,)

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked 1e4 standard deviations from the centre.

    Notes
    -----
    The lines are those of `detect_clipped_inputs`. If an input is clipped, the outputs beyond the border still depend
    on the other inputs. If an output is clipped, they do not, and lines along different inputs end in the same largest
    or smallest output.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.oracle.clipping import detect_clipped_outputs
    >>> print(detect_clipped_outputs(Oracle(lambda X: np.clip(X, -4, 5) + X[:, ::-1], 2)))
    [False False]
    >>> print(detect_clipped_outputs(Oracle(lambda X: np.clip(X.sum(axis=1), -4, 5), 2)))
    [ True]
    """
    lines = _along_inputs(oracle, n_base, rng)
    ended = lines.border & ~lines.others_show
    if not ended.any():
        return np.zeros(oracle.n_outputs, dtype=bool)
    ends, unit = lines.far[ended], np.maximum(lines.still, np.finfo(float).tiny)
    at_top = (ends >= lines.far.max(axis=0) - unit).mean(axis=0)
    at_bottom = (ends <= lines.far.min(axis=0) + unit).mean(axis=0)
    return np.maximum(at_top, at_bottom) > _SHARE


class _Lines(NamedTuple):
    """Lines along the inputs, (n_base 2 D,) of them, from near a base point to far out."""

    sign: np.ndarray
    far: np.ndarray  # answers far out, (lines, m_L)
    right: np.ndarray  # where the answers come to rest
    border: np.ndarray  # whether they do so all at once
    others_show: np.ndarray  # whether answers far out tell base points apart
    still: float  # difference of answers that is none


def _along_inputs(oracle, n_base, rng):
    """Lines from every base point along every input, both ways: D negative and positive ones in turn."""
    rng = np.random.RandomState(0) if rng is None else rng
    D = oracle.n_inputs
    base = np.repeat(rng.standard_normal((n_base, D)), 2 * D, axis=0)
    axis, sign = np.tile(np.repeat(np.arange(D), 2), n_base), np.tile([-1.0, 1.0], n_base * D)
    every = np.arange(len(base))

    def query(t):
        U = base.copy()
        U[every, axis] = sign * t
        return oracle(U)

    far, unit = query(np.full(len(base), _FAR)), np.abs(oracle(base)).max()
    gap = lambda t: np.abs(query(t) - far).max(axis=1)  # noqa: E731
    still = 1e-12 * max(unit, np.finfo(float).tiny)
    constant = gap(np.full(len(base), 2.0 * _FAR)) <= still
    left, right = np.zeros(len(base)), np.full(len(base), _FAR)
    for _ in range(40):
        middle = 0.5 * (left + right)
        moves = gap(middle) > still
        left, right = np.where(moves, middle, left), np.where(moves, right, middle)
    near, next_to_it = gap(right - _STEP), gap(right - 2.0 * _STEP)
    ratio = next_to_it / np.maximum(near, np.finfo(float).tiny)
    border = constant & (near > _VISIBLE * unit) & (ratio > 1.8) & (ratio < 2.2) & (right > 2.0 * _STEP)
    by_line = far.reshape(n_base, 2 * D, -1)
    others_show = np.tile(np.ptp(by_line, axis=0).max(axis=1) > still, n_base)
    return _Lines(sign, far, right, border, others_show, still)
