"""Units that grow linearly: scales and biases that their ReLU limit does not determine.

``f(R x) / R`` tends to a ReLU network without biases. It has the weights of f, but a unit of a ReLU network may have
any positive scale. Where a line crosses the activation boundary of one unit far out, all others are linear or zero: the
profile there has the width and the position of this unit.
"""

import itertools

import numpy as np
import scipy.optimize

from skident.linalg import svd
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from .profiles import DISTANCE, Crossing, limits_of, zero_and_slope
from .table import measured_activation

_PAIRS = 600  # of points on both sides of a unit's boundary, among which crossings are chosen
_BISECTIONS = 60  # of the way between them: to rounding
_TRIES = 8  # crossings per unit at most (budget)
_GOOD = 1e-4  # residual of a profile, relative to its bend, from which no other crossing is tried: rounding is 1e-5
_FARTHER = 1e3  # distance over the usual one, of units with weights down to 1e-6 per standard deviation
_ACCEPTED = 0.1  # residual above which a profile is another function
_ACTIVITY_ROWS = 20_000  # points at which a unit that is active at one in 5,000 is detected
_FAR_ROWS = 1000  # points far out at which a unit that is always active must be so
_IDLE_SHARE = 0.2  # share of them at which it may be idle: the search for facets may have missed its boundary
_CANDIDATES = 40  # choices of signs that are fitted near the center (budget: 20 ms each)
_EXPLAINED = 1e-12  # sum of squares over that of the outputs, below which a choice is right: rounding of profiles
_OPPOSITE = 1e-6  # difference of opposite directions of a pair of units, that is rounding
_RANK_ONE = 1e-6  # second singular value of a linear part that one unit makes, over the first
_MOST_REFLECTED = 10  # units whose signs are searched (budget: 1,024 choices)
_SCALES = np.geomspace(0.05, 20.0, 13)  # of a unit near the center, among which a fit starts
_SHIFTS = np.linspace(-6.0, 6.0, 25)  # of its bias
_NEAR_ROWS = 200  # that determine the biases of the outputs


def network_from_limit(oracle, limit, names, rng):
    """The network of standardized inputs whose ReLU limit is `limit`, accurate to 1e-6 or so.

    Its activation is the one of `names`; of several, the one whose profile a unit has, or a table of this profile. Some
    140 queries per unit.
    """
    left = getattr(limit.activations[0], "negative_slope", 0.0)
    limit, straight = (limit, np.zeros(limit.layer_widths[-2], bool)) if left else _with_marked_units(limit, rng)
    weights, biases, factors = [], [], np.ones(limit.n_inputs)
    X = rng.standard_normal((_ACTIVITY_ROWS, limit.n_inputs))
    Z = _pre_activations(limit, X)
    if len(names) == 1:
        activation = get_activation(names[0])
    else:
        units = [_crossings(limit, 0, unit, straight, X, z)[0] for unit, z in enumerate(Z[0].T)]
        units.sort(key=lambda crossing: -crossing.margin * np.linalg.norm(crossing.jump))
        activation = measured_activation(oracle, units[:_TRIES], names, left)
    rate = limits_of(activation)[1]
    for layer, W in enumerate(limit.weights[:-1]):
        linear = None if layer < limit.n_layers - 2 or not straight.any() else _linear_part(limit, straight, factors)
        units = np.arange(W.shape[1]) if layer < limit.n_layers - 2 else np.flatnonzero(~straight)
        V, b, scales = np.empty((len(W), len(units))), np.empty(len(units)), np.empty(len(units))
        for i, unit in enumerate(units):
            crossings = _crossings(limit, layer, unit, straight, X, Z[layer][:, unit])
            center, scales[i] = _zero_and_scale(oracle, crossings, activation)
            V[:, i] = W[:, unit] / factors * scales[i]
            inputs = _hidden(weights, biases, activation, center[None])[0]
            b[i] = -(inputs @ V[:, i])
        weights.append(V)
        biases.append(b)
        factors = scales * rate
    last = limit.weights[-1][~straight] / factors[:, None]
    near = rng.standard_normal((_NEAR_ROWS, limit.n_inputs))
    outputs = oracle(near)
    offset = (outputs - _hidden(weights, biases, activation, near) @ last).mean(axis=0)
    network = FeedforwardNetwork([*weights, last], [*biases, offset], activation)
    if linear is None:
        return network
    far = _hidden(weights[:-1], biases[:-1], activation, DISTANCE * rng.standard_normal((_FAR_ROWS, limit.n_inputs)))
    return with_always_active_unit(network, linear, far / DISTANCE, near, outputs)


def _with_marked_units(limit, rng):
    """The limit without units that are never active, and which units of its last hidden layer make a linear part (m,).

    Such units are always active far out, or a pair ``relu(v . h) - relu(-v . h)``.
    """
    weights, H = [np.array(W) for W in limit.weights], rng.standard_normal((_ACTIVITY_ROWS, limit.n_inputs))
    for layer in range(limit.n_layers - 1):
        Z = H @ weights[layer]
        used = Z.max(axis=0) > 0
        weights[layer], weights[layer + 1] = weights[layer][:, used], weights[layer + 1][used]
        straight = Z[:, used].min(axis=0) > 0
        if straight.any() and layer < limit.n_layers - 2:
            raise NotIdentified("profiles", "units", "a unit is always active far out, and others come behind it.")
        H = np.maximum(Z[:, used], 0.0)
    V, U = weights[-2:]
    both = np.vstack([V / np.linalg.norm(V, axis=0), np.sign(U.T[:1])])
    opposite = np.linalg.norm(both[:, :, None] + both[:, None], axis=0) < _OPPOSITE
    biases = [np.zeros(W.shape[1]) for W in weights]
    return FeedforwardNetwork(weights, biases, "relu"), straight | opposite.any(axis=0)


def _linear_part(limit, straight, factors):
    """The linear part (m, m_L) that marked units make of the outputs of the layer before, whose scales are known."""
    V, U = limit.weights[-2][:, straight], limit.weights[-1][straight]
    both = V / np.linalg.norm(V, axis=0)
    half = np.where((np.linalg.norm(both[:, :, None] + both[:, None], axis=0) < _OPPOSITE).any(axis=0), 0.5, 1.0)
    return (V * half) @ U / factors[:, None]


def with_always_active_unit(network, linear, far, X, Y):
    """The network with a unit of its last hidden layer that is (nearly) always active: a linear part (m, m_L) far out.

    As ``g(z) - g(-z) = z``, every unit of that layer that is reflected changes the linear part. Signs are searched for
    which it is one unit, active at most hidden outputs `far` (n, m); near the center, outputs Y at X give its scale and
    bias, and the right signs. Not more than `_MOST_REFLECTED` units.
    """
    V, b, U, c = network.weights[-2], network.biases[-2], network.weights[-1], network.biases[-1]
    if V.shape[1] > _MOST_REFLECTED:
        raise NotIdentified("profiles", "signs", f"{V.shape[1]} units beside one that is always active far out.")
    candidates = []
    for signs in itertools.product((1.0, -1.0), repeat=V.shape[1]):
        signs = np.array(signs)
        left, sizes, right = svd(linear + (V * (signs < 0)) @ U)
        w, u = left[:, 0] * sizes[0], right[0]
        share = float(np.mean(far @ w < 0))
        if len(sizes) == 1 or sizes[1] <= _RANK_ONE * sizes[0]:
            candidates.append((share, signs, w, u) if share < 0.5 else (1.0 - share, signs, -w, -u))
    near, best = _hidden(network.weights[:-2], network.biases[:-2], network.activations[0], X), None
    for share, signs, w, u in sorted(candidates, key=lambda one: one[0])[:_CANDIDATES]:
        if share > _IDLE_SHARE or (best is not None and best[0] < _EXPLAINED * np.sum((Y - Y.mean(axis=0)) ** 2)):
            break
        start = FeedforwardNetwork(
            [*network.weights[:-2], np.column_stack([V * signs, w]), np.vstack([U, u])],
            [*network.biases[:-2], np.append(b * signs, 0.0), c],
            network.activations[0],
        )
        found, residual = _with_scale_near_center(start, near, X, Y)
        if best is None or residual < best[0]:
            best = residual, found
    if best is None:
        raise NotIdentified("profiles", "signs", "no signs make the linear part far out one unit: parallel units?")
    return best[1]


def _with_scale_near_center(network, hidden, X, Y):
    """The network with fitted scale and bias of the last unit of its last hidden layer, and the residual."""
    V, b, last = np.array(network.weights[-2]), np.array(network.biases[-2]), np.array(network.weights[-1])
    activation = network.activations[0]
    rest = Y - activation(hidden @ V[:, :-1] + b[:-1]) @ last[:-1]
    z, outgoing = hidden @ V[:, -1], last[-1]

    def residual(parameters):
        scale, bias = np.exp(parameters[0]), parameters[1]
        gap = rest - activation(scale * z + bias)[:, None] * outgoing / scale
        return (gap - gap.mean(axis=0)).ravel()

    size = max(float(np.std(z)), np.finfo(float).tiny)
    starts = [(np.log(a / size), c * max(a, 1.0)) for a in _SCALES for c in _SHIFTS]
    start = min(starts, key=lambda parameters: float(np.sum(residual(parameters) ** 2)))
    found = scipy.optimize.least_squares(residual, start, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    scale = np.exp(found.x[0])
    V[:, -1] *= scale
    b[-1], last[-1] = found.x[1], outgoing / scale
    weights, biases = [*network.weights[:-2], V, last], [*network.biases[:-2], b, network.biases[-1]]
    network = network.with_parameters(weights, biases)
    biases[-1] = biases[-1] + (Y - network(X)).mean(axis=0)
    return network.with_parameters(weights, biases), float(np.sum(found.fun**2))


def _hidden(weights, biases, activation, X):
    """Outputs of the layers so far."""
    for W, b in zip(weights, biases, strict=True):
        X = activation(X @ W + b)
    return X


def _pre_activations(limit, X):
    """Pre-activations (n, m_l) of the hidden layers at points X (n, D), without biases."""
    Z, H = [], X
    for W in limit.weights[:-1]:
        Z.append(H @ W)
        H = limit.activations[0](Z[-1])
    return Z


def _zero_and_scale(oracle, crossings, activation):
    """Where (D,) a unit's pre-activation is 0 far out, and its scale over that of the limit, from the best profile.

    Units of small weights bend over more than the usual distance: the farther one determines them.
    """
    best = None
    for distance in (DISTANCE, _FARTHER * DISTANCE):
        for crossing in crossings:
            center, norm, residual = zero_and_slope(oracle, crossing, activation, distance)
            if best is None or residual < best[0]:
                best = residual, center, norm / crossing.slope
            if residual < _GOOD:
                return best[1:]
    if best[0] > _ACCEPTED:
        message = "a profile far out is not that of one unit: parallel units, a linear part, or another activation."
        raise NotIdentified("profiles", "units", message)
    return best[1:]


def _crossings(limit, layer, unit, straight, X, z):
    """Some `Crossing` of a unit's boundary with a large margin and a large jump, the best first.

    Its pre-activations at X (n, D) are z (n,).
    """
    D = limit.n_inputs
    active, idle = X[z > 0], X[z <= 0]
    if min(len(active), len(idle)) == 0:
        raise NotIdentified("profiles", "units", f"unit {unit} of layer {layer + 1} hardly ever changes far out.")
    A, B = (np.resize(part, (_PAIRS, D)) for part in (active, idle))
    above = np.ones(_PAIRS)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (A + B)
        same = _pre_activations(limit, middle)[layer][:, unit] * above > 0
        A, B = np.where(same[:, None], middle, A), np.where(same[:, None], B, middle)
    X = 0.5 * (A + B)
    X *= (np.sqrt(D) / np.linalg.norm(X, axis=1))[:, None]
    return _best_crossings(limit, layer, unit, straight, X)


def _best_crossings(limit, layer, unit, straight, X):
    """The best crossings among points X (n, D) on a unit's boundary."""
    left = getattr(limit.activations[0], "negative_slope", 0.0)
    sides = [_near_boundary(limit, layer, unit, straight, X, slope) for slope in (left, 1.0)]
    margin, (_, normal, active) = np.minimum(sides[0][0], sides[1][0]), sides[0]
    effect = np.broadcast_to(limit.weights[layer + 1][unit], (len(X), limit.weights[layer + 1].shape[1]))
    for depth in range(layer + 1, limit.n_layers - 1):
        effect = (effect * active[depth]) @ limit.weights[depth + 1]
    slope = np.linalg.norm(normal, axis=1)
    jump = effect * slope[:, None] * (1.0 - left)
    score = np.linalg.norm(jump, axis=1) * margin
    best = [i for i in np.argsort(-score, kind="stable")[:_TRIES] if score[i] > 0]
    if not best:
        raise NotIdentified("profiles", "units", f"unit {unit} of layer {layer + 1} has no effect far out.")
    return [Crossing(X[i], normal[i] / slope[i], float(slope[i]), jump[i], float(margin[i])) for i in best]


def _near_boundary(limit, layer, unit, straight, X, side):
    """On one side of a unit's boundary, where its slope is `side`: distances (n,) to others from points X (n, D) on it.

    And the gradient (n, D) of its pre-activation, and the slopes (n, m_l) of all units.
    """
    margin, slopes, normal, H = np.full(len(X), np.inf), [], None, X
    gradients = np.broadcast_to(np.eye(limit.n_inputs), (len(X), limit.n_inputs, limit.n_inputs))
    for depth, W in enumerate(limit.weights[:-1]):
        Z, gradients = H @ W, gradients @ W
        norms = np.linalg.norm(gradients, axis=1)
        distance = np.where(norms > 0, np.abs(Z) / np.where(norms > 0, norms, 1.0), np.inf)
        if depth == limit.n_layers - 2:
            distance[:, straight] = np.inf  # no boundary of the outputs
        H, active = limit.activations[0].jet(Z, 1)
        if depth == layer:
            normal, distance[:, unit], active[:, unit] = gradients[:, :, unit], np.inf, side
        margin = np.minimum(margin, distance.min(axis=1))
        slopes.append(active)
        gradients = gradients * active[:, None]
    return margin, normal, slopes
