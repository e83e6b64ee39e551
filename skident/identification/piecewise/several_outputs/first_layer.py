"""The first layer of several, from lines that cross the hyperplanes of its units."""

import numpy as np

from skident.linalg import lapack
from skident.oracle import NotIdentified

from ...constants import SAME_JUMP
from .planes import PlaneSearch, measure_again
from .shared_jacobians import MIN_OUTPUTS, STAGE, good, normals_on_line, scanned

_REACH = 300.0  # half length of lines over sqrt(D): nearly every line crosses every hyperplane
_MAX_LINES = 8  # of the first layer
# Bound of the error of a normal of the first layer up to which it is not measured again: errors are below 1/40 of
# it, mostly 1/1000 (784-512-512-10), and fits remove them.
_FIRST_ACCURATE = 1e-3
_MORE_LINES = 1  # on which the others are (budget: D + 12 queries per Jacobian), and all must be met
_MANY_LINES = 4  # after which there may be fewer units than the dimension of their span: parallel ones
_WIDE_LINES = 3  # on which there are more hyperplanes than inputs, after which the first layer is too wide
_SAME_JUMP = 1e-8  # one minus the cosine of jumps of one unit: their errors are 1e-6 at most
# Of the jumps of one line, beyond which the network has one hidden layer: all of them, but for errors.
_REPEATED_SHARE = 0.9
_OUT_OF_SPAN = 1e-5  # relative part of a normal outside of the span of those of the first layer
_IN_SPAN_SHARE = 0.97  # of deeper boundaries whose normals lie in that span, if the first layer is complete
_SILENT = 1e-4  # coefficient of a silent unit, over the largest
_LEAST_VOTES = 0.02  # of the votes for a sign, over the largest: fewer if a boundary is not one of the first layer
_LEAST_DEEPER = 30  # critical points of deeper units that show how many layers there are
_LAST_SHARE = 0.65  # of their jumps that return on another line: above 0.8 with two hidden layers, 0.3 to 0.7 with more
_OFF = 1e-4  # distance of a critical point from the next boundary, in units of the line, from which it has another
_AIMED = 4  # lines that are aimed at a second-layer unit


def find_first_layer(space, rng, lines):
    """The `PlaneSearch` of the first layer: complete once deeper normals lie in the normals' span.

    Its lines are appended to the list `lines`.
    """
    D = space.n_coordinates
    search = PlaneSearch(space.unit, False, D, len(space.output_error))
    first, n_more, n_wide = [random_line(space, rng, D) for _ in range(2)], 0, 0
    if _is_one_layer(*first):
        raise NotIdentified(STAGE, "shallow", "two lines show the same changes of the slopes: one hidden layer.")
    for index in range(_MAX_LINES):
        line = first[index] if index < 2 else random_line(space, rng, D)
        lines.append(line)
        n_missed = search.demote_missed(line)
        search.confirm(line)
        which = search.explained(line)
        search.insert_known(line, which)
        if index > 0 and _spans(search) and (len(search) >= space.least_units or index >= _MANY_LINES):
            again = search.forget_inaccurate(line, which, _FIRST_ACCURATE)
            line.normals[which < 0] = 0.0  # deeper ones need no normals: those of the first lines suffice
            measure_again(space, search, line, which, again, rng)
            n_more = 1 if n_missed else n_more + 1
            if n_more > _MORE_LINES:
                return search
            continue
        n_wide = n_wide + 1 if len(search) > D else 0
        if n_wide > _WIDE_LINES:
            break
        if n_wide:  # further lines decide which were confirmed by chance
            continue
        normals_on_line(space, line, rng)
        search.add_candidates(line, which)
    raise NotIdentified(
        STAGE,
        "wide" if len(search) > D else "layers",
        f"{len(search)} hyperplanes were confirmed on {len(lines)} lines, and do not explain the other boundaries: the "
        "first layer is wider than the input, or there are more units than lines meet.",
    )


def random_line(space, rng, n_coordinates, origin=None, direction=None, reach=np.inf):
    """A scanned line that crosses nearly all hyperplanes, by default a random one near the center; or a shorter one."""
    if direction is None:
        direction = rng.standard_normal(n_coordinates)
    if origin is None:
        origin = rng.standard_normal(n_coordinates)
    else:  # errors grow with the distance from the center
        origin = space.within_reach(2.0 * origin[None])[0] / 2.0
        space = space.seen_from(origin)
    reach = min(_REACH * np.sqrt(n_coordinates), space.reach, reach)
    return scanned(
        space, origin, direction / np.linalg.norm(direction), -reach, reach, rng, length_scale=np.sqrt(n_coordinates)
    )


def _is_one_layer(one, other):
    """Whether the unit jumps on one line return on another, as those of the last hidden layer's units do."""
    if len(one.positions) == 0 or len(other.positions) == 0:
        return True
    cosines = np.abs(one.units @ other.units.T).max(axis=1)
    return bool(np.mean(cosines > 1.0 - _SAME_JUMP) > _REPEATED_SHARE)


def _spans(search):
    """Whether the normals of deeper units lie in the span of the hyperplanes' normals."""
    if not 0 < len(search) <= search.n_coordinates:
        return False
    Q = lapack.qr(search.normals.T)[0]
    N = np.array([candidate[0] for candidate in search.candidates + search.deeper])
    if len(N) < MIN_OUTPUTS:
        return False
    inside = np.linalg.norm(N - (N @ Q) @ Q.T, axis=1) < _OUT_OF_SPAN
    return bool(np.mean(inside) > _IN_SPAN_SHARE)


def signed_layer(search, lines):
    """Weights (D, m_1) and biases of the first layer with their signs: units on their silent side are not in normals.

    Every deeper boundary votes for the sign of every unit: its normal contains the weights of the active units only.
    """
    P, N = _deeper(search, lines)
    A = _coefficients(search.normals.T, N)
    Z = P @ search.normals.T + search.offsets
    active = np.abs(A) > _SILENT
    known = ~np.isnan(A[:, 0]) & (active.sum(axis=1) > 1)
    votes = np.where(active[known], 1.0, -1.0) * np.sign(Z[known])
    votes = votes.sum(axis=0)
    kept = np.abs(votes) > _LEAST_VOTES * np.abs(votes).max(initial=0.0)
    if not kept.any():
        raise NotIdentified(STAGE, "signs", "no boundary of a second layer determines the signs of the first layer.")
    search.drop(np.flatnonzero(~kept))
    signs = np.sign(votes[kept])
    return (search.normals * signs[:, None]).T, search.offsets * signs


def second_layer_units_on(search, lines, W, b):
    """Second-layer units on the lines: weights (m_1,) on the active units, which these are, and tries to aim there."""
    P, N = _deeper(search, lines)
    A = _coefficients(W, N)
    active = P @ W + b > 0.0
    right = np.all(np.abs(np.where(active, 0.0, A)) < _SILENT, axis=1) & (active.sum(axis=1) > 1)
    return [(a, on, _AIMED) for a, on in zip(A[right], active[right], strict=True)]


def has_more_layers(search, lines):
    """Whether there are more than two hidden layers: jumps of the last layer's units alone return on other lines."""
    deeper = [line.units[search.explained(line) < 0] for line in lines]
    if sum(map(len, deeper)) < _LEAST_DEEPER:
        return False
    returned = [
        np.abs(units @ np.concatenate(deeper[:i] + deeper[i + 1 :]).T).max(axis=1, initial=0.0) > 1.0 - SAME_JUMP
        for i, units in enumerate(deeper)
    ]
    return bool(np.mean(np.concatenate(returned)) < _LAST_SHARE)


def points_off_boundaries(search, lines, network):
    """Critical points (n, D) of the lines through which no boundary of a network with two hidden layers passes."""
    (W, V, _), (b, c, _) = network.weights, network.biases
    found = []
    for line in lines:
        index = np.flatnonzero(search.explained(line) < 0)
        Z = line.points[index] @ W + b
        slopes = ((Z > 0.0) * (line.direction @ W)) @ V
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.nan_to_num(np.abs((np.maximum(Z, 0.0) @ V + c) / slopes), nan=np.inf, posinf=np.inf)
        scale = search.unit / np.linalg.norm(line.direction) + np.abs(line.positions[index])
        found.append(line.points[index][gaps.min(axis=1, initial=np.inf) > _OFF * scale])
    return np.concatenate(found)


def _deeper(search, lines):
    """Points and unnormalized normals of critical points of deeper layers."""
    P, N = [], []
    for line in lines:
        index = np.flatnonzero((search.explained(line) < 0) & good(line))
        P.append(line.points[index])
        N.append(line.normals[index])
    return np.concatenate(P), np.concatenate(N)


def _coefficients(W, N):
    """Coefficients (n, m_1) of normals N (n, D) in the columns of W, relative to the largest; nan off their span."""
    A = N @ lapack.pinv(W).T
    off = np.linalg.norm(A @ W.T - N, axis=1) > 10.0 * _OUT_OF_SPAN * np.linalg.norm(N, axis=1)
    A = A / np.abs(A).max(axis=1, keepdims=True)
    A[off] = np.nan
    return A
