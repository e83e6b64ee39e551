"""Clipped outputs: an extreme output that repeats exactly, and which the outputs reach at full rate."""

from __future__ import annotations

import numpy as np

__all__ = ["clipped_range"]

_FIRST = 2  # lines from rows near the center to a plateau that screen it
_LINES = 6  # lines that decide
_RESOLUTION = 1e-6  # standard deviations to which the border of a plateau is bisected
_STEP = 1e-3  # standard deviations before that border at which the outputs are compared
_VISIBLE = 1e-9  # of the outputs' spread: units that saturate have moved by 1e-15 over one step before they rest
_TWICE = (1.8, 2.2)  # ratio of the changes over two steps and over one, of outputs that move at full rate
_SIDEWAYS = 16  # points beside a border at which its hyperplane is followed
_AWAY = (0.5, 100.0)  # how far away they are, in sqrt(D) standard deviations
_SAME_JUMP = 0.1  # relative difference of two kinks that belong to one unit
_ALL = 0.9  # share of these points at which a unit's kink shows: others may lie on a second kink
_ONE_INPUT = 1e-6  # second largest entry of a normal along one input: behind the other inputs' bounds, only that counts
_MOST = 0.5  # share of lines that decides


def clipped_range(oracle, rows, within=np.inf):
    """Bounds to which a black box clips its outputs, as far as its extreme outputs so far show.

    Parameters
    ----------
    oracle : Oracle
        Its `extremes` hold what it has answered.
    rows : ndarray of shape (n, D)
        Standardized, where the outputs are not on plateaus, at least in part.
    within : float, default=inf
        Only plateaus are considered that two inputs show up to this distance, in units of ``sqrt(D)`` standard
        deviations: those farther out are mostly units that saturate.

    Returns
    -------
    low, high : ndarray of shape (m_L,), or None
        In the black box's units, infinite where there is no bound; None if no output is clipped.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    A plateau is an extreme output at three distinct inputs or more. On lines from rows near the center, a clipped
    output moves at full rate up to the border of the plateau; the output of saturating units comes to rest before it.
    Where all ReLU units of a layer are off the output also moves at full rate up to a border, but that border is the
    hyperplane of a unit: it continues beside the plateau, with the same kink, and the border of a clip does not. Where
    all inputs are clipped, the border depends on one input only. Some 100 to 600 queries per plateau.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.activation.plateaus import clipped_range
    >>> from skident.oracle import Oracle
    >>> oracle = Oracle(lambda X: np.minimum(np.sin(X[:, 0]) + X[:, 1], 1.25), 2)
    >>> outputs = oracle(3.0 * np.random.default_rng(0).standard_normal((40, 2)))
    >>> print(clipped_range(oracle, np.zeros((1, 2))))
    (array([-inf]), array([1.25]))
    """
    low, high = np.full(oracle.n_outputs, -np.inf), np.full(oracle.n_outputs, np.inf)
    for plateau in oracle.extremes.plateaus():
        distances = np.linalg.norm(oracle.from_inputs(plateau.inputs), axis=1)
        if np.sum(distances <= within * np.sqrt(oracle.n_inputs)) < 2:
            continue
        # Two lines settle most plateaus that are no clips.
        if _is_clipped(oracle, plateau, rows, _FIRST) and _is_clipped(oracle, plateau, rows, _LINES):
            (high if plateau.side > 0 else low)[plateau.output] = plateau.value
    return None if np.all(np.isinf(low) & np.isinf(high)) or np.any(low >= high) else (low, high)


def _is_clipped(oracle, plateau, rows, n_lines):
    """Whether an output moves at full rate up to a plateau, whose border is no unit's hyperplane."""
    gaps = _gaps(oracle, plateau)
    start = rows[gaps(rows) > 0.0][:n_lines]
    if not len(start):
        return False
    ends = oracle.from_inputs(plateau.inputs)
    ends = ends[np.argsort(np.linalg.norm(ends, axis=1), kind="stable")[:n_lines]]
    n = max(len(start), len(ends))
    start, ends = (np.resize(part, (n, oracle.n_inputs)) for part in (start, ends))
    lengths = np.linalg.norm(ends - start, axis=1)
    directions = (ends - start) / np.maximum(lengths, np.finfo(float).tiny)[:, None]
    at = lambda t: start + t[:, None] * directions  # noqa: E731
    moving, still = np.zeros(n), lengths
    for _ in range(int(np.ceil(np.log2(max(lengths.max() / _RESOLUTION, 2.0))))):
        middle = 0.5 * (moving + still)
        moves = gaps(at(middle)) > 0.0
        moving, still = np.where(moves, middle, moving), np.where(moves, still, middle)
    once, twice = gaps(at(still - _STEP)), gaps(at(still - 2.0 * _STEP))
    ratio = twice / np.maximum(once, np.finfo(float).tiny)
    spread = np.ptp(gaps(rows))
    full = (once > _VISIBLE * spread) & (ratio > _TWICE[0]) & (ratio < _TWICE[1]) & (still > 2.0 * _STEP)
    if full.mean() < _MOST:
        return False
    border = at(still)[full]
    continued = [_continues(gaps, *line) for line in zip(border, -directions[full], strict=True)]
    return np.mean(continued) <= _MOST if n_lines == _FIRST else np.mean(continued) < _MOST


def _gaps(oracle, plateau):
    """Distances of an output from a plateau, in the oracle's units, as a function of standardized points (n, D)."""
    k = plateau.output
    offset, unit = (np.broadcast_to(part, oracle.n_outputs)[k] for part in (oracle.output_center, oracle.output_scale))
    value = (plateau.value - offset) / unit  # rounded as the oracle rounds: 0 exactly on the plateau
    return lambda U: plateau.side * (value - oracle(U)[:, k])


def _continues(gaps, point, inward):
    """Whether the same kink lies all along the hyperplane of a border, or that is where one input is clipped."""
    D = len(point)
    inside = point + 2.0 * _STEP * inward
    h = 0.1 * _STEP
    values = gaps(np.vstack([inside, inside + h * np.eye(D)]))
    gradient = (values[1:] - values[0]) / h
    slope = np.linalg.norm(gradient)
    normal = gradient / max(slope, np.finfo(float).tiny)
    if D > 1 and np.sort(np.abs(normal))[-2] < _ONE_INPUT:
        return True
    # The border of a linear piece lies where its gap is 0.
    foot = inside - values[0] / max(slope, np.finfo(float).tiny) * normal
    V = np.random.RandomState(0).standard_normal((_SIDEWAYS, D))
    V -= (V @ normal)[:, None] * normal
    Q = foot + np.geomspace(*_AWAY, _SIDEWAYS)[:, None] * V
    before, middle, behind = (gaps(Q + t * _STEP * normal) for t in (-1.0, 0.0, 1.0))
    kinks = np.abs(before - 2.0 * middle + behind)
    return np.mean(np.abs(kinks - slope * _STEP) < _SAME_JUMP * slope * _STEP) >= _ALL
