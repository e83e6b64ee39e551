"""Clipped outputs: extreme outputs that repeat exactly, and that the outputs reach at full rate."""

import numpy as np

from skident.optim import bisect

_SCREENING_LINES = 2  # from samples near the center to a plateau; they settle most plateaus that are no clips
_DECIDING_LINES = 6  # more of them, for those that remain
_RESOLUTION = 1e-6  # standard deviations to which the border of a plateau is bisected
_STEP = 1e-3  # standard deviations before that border at which the outputs are compared
_MIN_CHANGE = 1e-9  # of the outputs' spread over one step: units that saturate move by 1e-15 before they are constant
_FULL_RATE = (1.8, 2.2)  # ratio of the changes over two steps and over one, of outputs that move at full rate
_SIDEWAYS = 16  # points on the hyperplane of a border at which the change of slope is tested
_FAR = 1e3  # standard deviations of points where further plateaus are those of clips, once one is detected
_MORE = 500  # of these points (budget)
_AWAY = (0.5, 100.0)  # how far away they are, in sqrt(D) standard deviations
_SAME_BEND = 0.1  # relative difference of two changes of slope that are one unit's
# Share of these points at which a unit's change of slope must recur: others may lie on two boundaries.
_MOST_POINTS = 0.9
_ONE_INPUT = 1e-6  # second largest entry of a normal along one input: behind the other inputs' bounds, only that counts
_MAJORITY = 0.5  # share of lines that decides


def clipped_range(oracle, X, within=np.inf):
    """Bounds (low, high), (m_L,) each, to which a black box clips its outputs, infinite if none; None if it does not.

    X (n, D) are standardized samples whose outputs are not all on plateaus; the bounds are in the black box's units. A
    plateau is an extreme output at three distinct inputs or more. Those farther out than `within` times ``sqrt(D)``
    standard deviations are mostly units that saturate, unless nearer ones are clips. On lines from samples near the
    center, a clipped output moves at full rate up to the border of the plateau, and the output of saturating units
    comes to rest before it. Where all ReLU units of a layer are off, the output also moves at full rate up to a border,
    but that is the hyperplane of a unit: it continues beside the plateau, with the same change of slope; that of a clip
    does not. If all inputs are clipped, the border depends on one input only. Some 100 to 600 queries per plateau.
    """
    low, high = np.full(oracle.n_outputs, -np.inf), np.full(oracle.n_outputs, np.inf)

    def n_near(plateau):
        distances = np.linalg.norm(oracle.from_inputs(plateau.inputs), axis=1)
        return np.sum(distances <= within * np.sqrt(oracle.n_inputs))

    near = [plateau for plateau in oracle.extremes.plateaus() if n_near(plateau) >= 2]
    if any(_is_clipped(oracle, plateau, X, _SCREENING_LINES) for plateau in near):  # rare ones are far
        oracle(_FAR * np.random.RandomState(0).standard_normal((_MORE, oracle.n_inputs)))
        near = oracle.extremes.plateaus()
    for plateau in near:
        if all(_is_clipped(oracle, plateau, X, n) for n in (_SCREENING_LINES, _DECIDING_LINES)):
            (high if plateau.side > 0 else low)[plateau.output] = plateau.value
    for plateau in oracle.extremes.plateaus():  # those of other outputs at the same value, too far for lines
        if plateau.value in (bound := high if plateau.side > 0 else low):
            bound[plateau.output] = plateau.value
    return None if np.all(np.isinf(low) & np.isinf(high)) or np.any(low >= high) else (low, high)


def _is_clipped(oracle, plateau, X, n_lines):
    """Whether an output moves at full rate up to a plateau whose border is no unit's hyperplane."""
    gaps = _gaps(oracle, plateau)
    start = X[gaps(X) > 0.0][:n_lines]
    if not len(start):
        return False
    ends = oracle.from_inputs(plateau.inputs)
    ends = ends[np.argsort(np.linalg.norm(ends, axis=1), kind="stable")[:n_lines]]
    n = max(len(start), len(ends))
    start, ends = (np.resize(part, (n, oracle.n_inputs)) for part in (start, ends))
    lengths = np.linalg.norm(ends - start, axis=1)
    directions = (ends - start) / np.maximum(lengths, np.finfo(float).tiny)[:, None]
    at = lambda t: start + t[:, None] * directions  # noqa: E731
    n_steps = int(np.ceil(np.log2(max(lengths.max() / _RESOLUTION, 2.0))))
    _, border = bisect(lambda t: ~(gaps(at(t)) > 0.0), np.zeros(n), lengths, n_steps)
    once, twice = gaps(at(border - _STEP)), gaps(at(border - 2.0 * _STEP))
    ratio = twice / np.maximum(once, np.finfo(float).tiny)
    full = (once > _MIN_CHANGE * np.ptp(gaps(X))) & (ratio > _FULL_RATE[0]) & (ratio < _FULL_RATE[1])
    full &= border > 2.0 * _STEP
    if full.mean() < _MAJORITY:
        return False
    continues = [_continues(gaps, *line) for line in zip(at(border)[full], -directions[full], strict=True)]
    return np.mean(continues) <= _MAJORITY if n_lines == _SCREENING_LINES else np.mean(continues) < _MAJORITY


def _gaps(oracle, plateau):
    """Distances of an output from a plateau, standardized, as a function of standardized points (n, D)."""
    k = plateau.output
    center, scale = (np.broadcast_to(part, oracle.n_outputs)[k] for part in (oracle.output_center, oracle.output_scale))
    value = (plateau.value - center) / scale  # rounded as the oracle rounds: 0 exactly on the plateau
    return lambda U: plateau.side * (value - oracle(U)[:, k])


def _continues(gaps, point, inward):
    """Whether the change of slope at a border recurs along its hyperplane, or the border is the bound of one input."""
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
    before, middle, beyond = (gaps(Q + t * _STEP * normal) for t in (-1.0, 0.0, 1.0))
    bends = np.abs(before - 2.0 * middle + beyond)
    return np.mean(np.abs(bends - slope * _STEP) < _SAME_BEND * slope * _STEP) >= _MOST_POINTS
