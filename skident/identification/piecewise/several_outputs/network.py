"""Two hidden ReLU layers with several outputs: the first from lines, the second from lines in the positive orthant."""

from __future__ import annotations

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import polish_network
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .input_span import find_input_span
from .planes import PlaneSearch
from .shared_jacobians import Space, good, normals_on_line, scanned

__all__ = ["MIN_OUTPUTS", "find_network"]

MIN_OUTPUTS = 3  # outputs from which critical points share Jacobians
_STAGE = "layers (shared Jacobians)"
_REACH = 300.0  # half length of lines over sqrt(D): nearly every line crosses every hyperplane
_MAX_LINES = 8  # of the first layer
_MAX_SECOND_LINES = 40  # in the positive orthant
_LAST_LINES = 8  # lines in a row without a new boundary, after which the second layer is complete
_MAX_BOUNDARIES = 20_000  # on a line (budget)
_FIRST_ACCURATE = 5e-10  # error of a normal of the first layer up to which it is not measured again
_MORE_LINES = 1  # on which the others are (budget: D + 12 queries per Jacobian), and all must be met
_MANY_LINES = 4  # after which there may be fewer units than the dimension of their span: parallel ones
_WIDE_LINES = 3  # on which there are more hyperplanes than inputs, after which the first layer is too wide
_ACCURATE = 2e-11  # error of a normal of the second layer up to which it is not measured again
_ACCURATE_LINES = 8  # on which these are measured again (budget: m_1 + 12 queries per Jacobian)
_SAME_JUMP = 1e-8  # one minus the cosine of jumps of one unit: their errors are 1e-6 at most
_REPEATED_SHARE = (
    0.9  # of the jumps of one line, beyond which the network has one hidden layer: all of them, but for errors
)
_OUT_OF_SPAN = 1e-5  # relative part of a normal outside of the span of those of the first layer
_IN_SPAN_SHARE = 0.97  # of deeper boundaries whose normals lie in that span, if the first layer is complete
_SILENT = 1e-4  # coefficient of a silent unit, over the largest
_LEAST_VOTES = 0.02  # of the votes for a sign, over the largest: fewer if a boundary is not one of the first layer
_FLOOR = 1e-3  # least value of a unit in the positive orthant, over its deviation
_SPARSE = (0.1, 0.3, 1.0)  # shares of the units that are large at an end of a line
_LOW = 0.01  # size of the others there
_UNEXPLAINED = 1e-5  # relative part of a Jacobian that signs leave unexplained: further units or layers
_MAX_ATTEMPTS = 3  # from new lines: a unit of the first layer may hide beside others on both of the first lines
_MAX_ROUNDS = 2  # of further lines if units of the second layer are missing
_LEAST_SIZE = 1e-3  # of a Jacobian over the largest: at some points nearly all units rest
_MAX_JACOBIANS = 50  # that the signs must explain (budget)
_AIMED = 4  # lines that are aimed at a second-layer unit
_CHECKS = 60  # further outputs per radius that the network must explain
_CHECKED_RADII = (0.5, 1.0, 2.0, 3.0, 10.0)  # standard deviations of these
_MAX_TARGETS = 6  # of the others at which lines are aimed: they show the units that are missing
_MAX_POLISHED = 30_000  # parameters up to which all of them are fitted (budget: 20 s)
_POLISH_OUTPUTS = 1.75  # outputs per parameter of that fit
_PER_WEIGHT = 1.5  # of its points, at which a unit of the second layer is active, per incoming weight
_DENSE = 3000  # parameters up to which its normal equations are solved directly: conjugate gradients converge faster
_MAX_ERROR = 1e-5  # of these, relative: larger ones are those of missing units
_RCOND = 1e-12  # of the output layer's least squares: rounding
_SAMPLES_PER_UNIT = 8  # of the second layer, to which the output layer is fitted: a unit may rest at most of them
_READOUT_SAMPLES = 40  # beside these
_READOUT_RADII = (0.5, 1.0, 2.0, 3.0)  # standard deviations of these samples


def find_network(query, n_inputs, output_error, rng, callback=None):
    """The `FeedforwardNetwork` with two hidden ReLU layers that has the outputs of `query`, (n, D) to (n, m_L).

    Inputs are standardized, widths unknown, and the first layer is not wider than the input. `output_error` (m_L,) is
    the error of the outputs near the center. About ``(D + 12) (K / g + 1)`` queries for the first layer, with K
    critical points on a line and g of them per Jacobian. Raises `NotIdentified` if the first layer is too wide or
    there is another number of layers; the network must be validated on further samples.
    """
    space = Space(query, n_inputs, output_error, np.sqrt(n_inputs))
    span = find_input_span(space, rng)
    if span is not None:
        try:
            inner = span.space(space)
            network = _from_new_lines(inner, rng, callback, inner.n_coordinates)
            network = span.in_all_inputs(space, _polished(inner, network, rng), rng)
        except NotIdentified as error:
            if error.reason == "shallow":
                raise
        else:
            if len(_unexplained(query, network, rng)) == 0:
                return network
    # No span is narrower, or units outside of it are active at none of the random points.
    return _polished(space, _from_new_lines(space, rng, callback), rng)


def _from_new_lines(space, rng, callback, n_units=0):
    """The network from several attempts, each with lines of its own, with `n_units` in the first layer at least."""
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return _attempt(space, rng, callback, n_units)
        except NotIdentified as error:
            if error.reason in ("shallow", "wide") or attempt == _MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _attempt(space, rng, callback, n_units):
    """The network from lines of its own; `NotIdentified` if it does not explain further outputs."""
    first, lines = _first_layer(space, rng, n_units)
    W, b = _signed(first, lines)
    if callback is not None:
        callback(len(b))
    seen = _seen(first, lines, W, b)
    second, failure = SecondLayer(space.query, space.output_error, W, b, seen, rng), None
    for _ in range(_MAX_ROUNDS):
        second.extend()
        try:
            network = _with_readout(space.query, W, b, second.solved(), rng)
        except NotIdentified as error:
            failure = error
            continue
        if callback is not None:
            callback(sum(network.layer_widths[:-1]))
        missed = _unexplained(space.query, network, rng)
        if len(missed) == 0:
            return network
        second.aim_at(missed)
        failure = NotIdentified(
            _STAGE, "unexplained", f"a network {network.layer_widths} does not explain further outputs."
        )
    raise failure


def _polished(space, network, rng):
    """The network after a fit of all parameters, if they are not too many."""
    P = network.n_parameters
    if P > _MAX_POLISHED:
        return network
    n = int(_POLISH_OUTPUTS * P / network.n_outputs) + space.n_coordinates
    X = design_points(network.weights[0], network.biases[0], n, 1.0, rng, 0.5)
    X = np.concatenate([X, _points_for_rare_units(network, X, rng)])
    return polish_network(network, X, space.query(X), dense_limit=_DENSE, factor_limit=_DENSE)[0]


def _points_for_rare_units(network, X, rng):
    """Points (n, D) at which those units of the second layer are active that are so at too few points X."""
    (W, V, _), (b, c, _) = network.weights, network.biases
    n_active = np.sum(np.maximum(X @ W + b, 0.0) @ V + c > 0.0, axis=0)
    which = np.repeat(np.arange(len(c)), np.maximum(int(_PER_WEIGHT * (len(b) + 1)) - n_active, 0))
    H, weights = rng.exponential(size=(len(which), len(b))) + _FLOOR, V[:, which].T
    up = np.sum(H * np.maximum(weights, 0.0), axis=1)
    down = np.sum(H * np.maximum(-weights, 0.0), axis=1) + np.abs(c[which])
    more = np.maximum(1.0, rng.uniform(1.0, 2.0, len(which)) * down / np.maximum(up, np.finfo(float).tiny))
    H = np.where(weights > 0.0, H * more[:, None], H)
    return (H - b) @ np.linalg.pinv(W)


def _unexplained(query, network, rng):
    """Further points (n, D) whose outputs a network does not explain, up to what its polish removes."""
    X = np.array(_CHECKED_RADII)[:, None, None] * rng.standard_normal((len(_CHECKED_RADII), _CHECKS, network.n_inputs))
    X = X.reshape(-1, network.n_inputs)
    Y = query(X)
    errors, spread = np.abs(network(X) - Y).max(axis=1), np.abs(Y - Y.mean(axis=0)).max(axis=1)
    return X[errors > _MAX_ERROR * np.maximum(spread, np.median(spread))]


def _random_line(space, rng, n_coordinates):
    origin, direction = rng.standard_normal((2, n_coordinates))
    reach = _REACH * np.sqrt(n_coordinates)
    options = {"length_scale": np.sqrt(n_coordinates), "max_boundaries": _MAX_BOUNDARIES}
    return scanned(space, origin, direction / np.linalg.norm(direction), -reach, reach, rng, **options)


def _first_layer(space, rng, n_units):
    """The `PlaneSearch` of the first layer, and its lines: complete once deeper normals lie in the normals' span.

    `n_units` are expected; there are fewer only if many lines show no more.
    """
    D = space.n_coordinates
    search, lines = PlaneSearch(space.unit, False, D, len(space.output_error)), []
    first, n_more, n_wide = [_random_line(space, rng, D) for _ in range(2)], 0, 0
    if _is_one_layer(*first):
        raise NotIdentified(_STAGE, "shallow", "two lines show the same changes of the slopes: one hidden layer.")
    for index in range(_MAX_LINES):
        line = first[index] if index < 2 else _random_line(space, rng, D)
        lines.append(line)
        n_missed = search.demote_missed(line)
        search.confirm(line)
        which = search.explained(line)
        search.insert_known(line, which)
        if index > 0 and _spans(search) and (len(search) >= n_units or index >= _MANY_LINES):
            again = search.forget_inaccurate(line, which, _FIRST_ACCURATE)
            line.normals[which < 0] = 0.0  # deeper ones need no normals: those of the first lines suffice
            _measure_again(space, search, line, which, again, rng)
            n_more = 1 if n_missed else n_more + 1
            if n_more > _MORE_LINES:
                return search, lines
            continue
        n_wide = n_wide + 1 if len(search) > D else 0
        if n_wide > _WIDE_LINES:
            break
        if n_wide:  # further lines tell which were confirmed by chance
            continue
        normals_on_line(space, line, rng)
        search.add_candidates(line, which)
    raise NotIdentified(
        _STAGE,
        "wide" if len(search) > D else "layers",
        f"{len(search)} hyperplanes were confirmed on {len(lines)} lines, and do not explain the other boundaries: the "
        "first layer is wider than the input, or there are more units than lines meet.",
    )


def _is_one_layer(one, other):
    """Whether the unit jumps on one line return on another, as those of the last hidden layer's units do."""
    if len(one.positions) == 0 or len(other.positions) == 0:
        return True
    cosines = np.abs(one.units @ other.units.T).max(axis=1)
    return bool(np.mean(cosines > 1.0 - _SAME_JUMP) > _REPEATED_SHARE)


def _spans(search):
    """Whether the candidates' normals lie in the span of the hyperplanes' normals."""
    if not 0 < len(search) <= search.n_coordinates:
        return False
    Q = np.linalg.qr(search.normals.T)[0]
    N = np.array([candidate[0] for candidate in search.candidates])
    if len(N) < MIN_OUTPUTS:
        return False
    inside = np.linalg.norm(N - (N @ Q) @ Q.T, axis=1) < _OUT_OF_SPAN
    return bool(np.mean(inside) > _IN_SPAN_SHARE)


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
    A = N @ np.linalg.pinv(W).T
    off = np.linalg.norm(A @ W.T - N, axis=1) > 10.0 * _OUT_OF_SPAN * np.linalg.norm(N, axis=1)
    A = A / np.abs(A).max(axis=1, keepdims=True)
    A[off] = np.nan
    return A


def _signed(search, lines):
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
        raise NotIdentified(_STAGE, "signs", "no boundary of a second layer determines the signs of the first layer.")
    search.drop(np.flatnonzero(~kept))
    signs = np.sign(votes[kept])
    return (search.normals * signs[:, None]).T, search.offsets * signs


def _seen(search, lines, W, b):
    """Second-layer units on the lines: weights (m_1,) on the active units, which these are, and tries to aim there."""
    P, N = _deeper(search, lines)
    A = _coefficients(W, N)
    active = P @ W + b > 0.0
    right = np.all(np.abs(np.where(active, 0.0, A)) < _SILENT, axis=1) & (active.sum(axis=1) > 1)
    return [(a, on, _AIMED) for a, on in zip(A[right], active[right], strict=True)]


class SecondLayer:
    """Boundaries of the second layer in the coordinates h of the positive orthant, where the first layer is linear.

    `extend` scans lines until several in a row show no new boundary; `solved` determines signs and outgoing weights.
    """

    def __init__(self, query, output_error, W, b, seen, rng):
        self.inverse = np.linalg.pinv(W)  # x = (h - b) W^+ has W^T x + b = h
        self.m, self.seen, self.rng, self.n_lines = len(b), seen, rng, 0
        self.space = Space(lambda H: query((H - b) @ self.inverse), self.m, output_error, np.sqrt(self.m))
        self.search, self.jacobians, self.targets = PlaneSearch(1.0, True, self.m, len(output_error)), [], []
        self.first = W, b

    def aim_at(self, X):
        """Scan lines through the outputs of the first layer at inputs X (n, D), at which units are missing."""
        W, b = self.first
        self.targets = list(np.maximum(X[:_MAX_TARGETS] @ W + b, 0.0) + _FLOOR)

    def extend(self):
        """Scan lines until `_LAST_LINES` in a row show no new boundary."""
        idle = 0
        for index in range(_MAX_SECOND_LINES):
            idle = 0 if self._scan(aim=index % 2 == 1) else idle + 1
            if idle >= _LAST_LINES:
                break

    def _scan(self, aim):
        """Scan one line; whether it showed a new boundary or measured one better."""
        self.seen = [one for one in self.seen if one[2] and not _is_known(self.search, *one[:2])]
        if self.targets:
            ends = [self.targets.pop(), _random_ends(self.m, self.rng)[0]]
        elif self.seen and aim:
            a, active, tries = self.seen.pop(0)
            self.seen.append((a, active, tries - 1))
            ends = _aimed(a, active, self.rng)
        else:
            ends = _random_ends(self.m, self.rng)
        options = {"length_scale": 1.0, "max_boundaries": _MAX_BOUNDARIES}
        try:
            line = scanned(self.space, ends[0], ends[1] - ends[0], 0.0, 1.0, self.rng, **options)
        except NotIdentified:  # a boundary of the first layer is next to one end
            return True
        search = self.search
        search.confirm(line)
        which = search.explained(line)
        search.insert_known(line, which)
        new = bool(np.any(which < 0))
        self.n_lines += 1
        again = search.forget_inaccurate(line, which, _ACCURATE if self.n_lines <= _ACCURATE_LINES else np.inf)
        if new or len(again):
            _measure_again(self.space, search, line, which, again, self.rng)
            search.add_candidates(line, which)
            self.jacobians += [J for J in line.jacobians if J.confirmed]
        return new or bool(self.seen or self.targets) or self.n_lines < _ACCURATE_LINES

    def solved(self):
        """Weights (m_1, m_2), biases and outgoing weights (m_2, m_L) of the second layer.

        With z_j = n_j . h + o_j, unit jumps u_j and unknown signs s_j, a Jacobian in the orthant is
        ``J = 1/2 sum_j (s_j + sign z_j) |n_j| u_j n_j^T``: linear in the signs.
        """
        search = self.search
        if len(search) == 0 or not self.jacobians:
            raise NotIdentified(_STAGE, "layers", "no boundary of a second layer was found.")
        jacobians = sorted(self.jacobians, key=lambda J: J.error)[:_MAX_JACOBIANS]
        rank_one = search.jumps.T[:, None, :] * (search.normals.T * search.sizes)
        rank_one = rank_one.reshape(-1, len(search))
        sides = [np.sign(search.normals @ J.point + search.offsets) for J in jacobians]
        targets = [2.0 * J.value.ravel() - rank_one @ side for J, side in zip(jacobians, sides, strict=True)]
        signs = np.linalg.lstsq(rank_one, targets[0])[0]
        signs = np.where(signs >= 0.0, 1.0, -1.0)
        left = [np.linalg.norm(target - rank_one @ signs) for target in targets]
        sizes = np.array([np.linalg.norm(2.0 * J.value) for J in jacobians])
        share = np.max(left / np.maximum(sizes, _LEAST_SIZE * sizes.max()))
        if share > _UNEXPLAINED:
            raise NotIdentified(
                _STAGE,
                "layers",
                f"{len(search)} units of a second layer leave a share of {share:.0e} of a Jacobian unexplained.",
            )
        outgoing = search.jumps * search.sizes[:, None]
        return (search.normals * signs[:, None]).T, search.offsets * signs, outgoing


def _measure_again(space, search, line, which, again, rng):
    """Determine the unknown normals of a line, and improve hyperplanes by those that were measured again."""
    normals_on_line(space, line, rng)
    search.improve(line, which, again)


def _random_ends(m, rng):
    """Two points of the positive orthant whose entries differ widely."""
    ends = []
    for _ in range(2):
        large = rng.random_sample(m) < _SPARSE[rng.randint(len(_SPARSE))]
        ends.append(rng.exponential(size=m) ** 1.5 * np.where(large, 1.0, _LOW) + _FLOOR)
    return ends


def _aimed(a, active, rng):
    """Two points of the positive orthant on both sides of a boundary with weights a (m,) on the active units."""
    size = rng.exponential(size=(2, len(a)))
    return [
        s * np.where(active & (sign * a > 0), 2.0, 2.0 * _LOW) + _FLOOR for s, sign in zip(size, (1, -1), strict=True)
    ]


def _is_known(search, a, active):
    """Whether a hyperplane or a candidate has the weights a (m,) on the active units, up to a factor."""
    normals = [search.normals, *(candidate[0][None] for candidate in search.candidates)]
    B = np.concatenate(normals)[:, active]
    size = np.linalg.norm(B, axis=1) * np.linalg.norm(a[active])
    return bool(np.any(np.abs(B @ a[active]) > (1.0 - 1e-6) * size))


def _with_readout(query, W, b, second, rng):
    """The network, with its output layer fitted by least squares."""
    V, c, outgoing = second
    n = _SAMPLES_PER_UNIT * len(c) + _READOUT_SAMPLES
    X = np.array(_READOUT_RADII)[np.arange(n) % len(_READOUT_RADII), None] * rng.standard_normal((n, len(W)))
    H = np.maximum(np.maximum(X @ W + b, 0.0) @ V + c, 0.0)
    A = np.column_stack([H, np.ones(n)])
    scale = np.maximum(np.linalg.norm(A, axis=0), _FLOOR * np.linalg.norm(A))
    solution = np.linalg.lstsq(A / scale, query(X) - H @ outgoing, rcond=_RCOND)[0] / scale[:, None]
    return FeedforwardNetwork([W, V, outgoing + solution[:-1]], [b, c, solution[-1]], "relu")
