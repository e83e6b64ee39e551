"""A hard tanh network with one hidden layer and linear output: its activation boundaries come in pairs."""

import numpy as np

from skident.budget.constants import EPS, ROUNDINGS
from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_OUTPUTS, polish_network
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...constants import COMPARED_TO, MAX_LINES, POLISHED, WIDENINGS
from ..kernel.output_error import Probe, measure_rounding, probe_of
from .line_search import LineSearch
from .network import ValidationShells
from .units import ShallowNetwork

_PATIENCE = 3  # lines without any unit before others are scanned farther out
_PAIR_TOL = 1e-6  # difference of normals, and relative difference of jumps, of a pair
_PAIR_ERRORS = 30.0  # `_PAIR_TOL` in errors of the two
_SAME_PLACE = 1e-9  # relative distance of hyperplanes that are one
_OUTPUTS = 5.0  # per parameter, for the polish
_NOISY_TRIES = 8  # searches; noise hides boundaries here and there, other lines find others
_N_SAMPLE = 200  # outputs that determine the largest one of saturated units


def find_hard_tanh_network(oracle, *, n_units=None, max_units=1000, reach=1e3, rng=None, callback=None):
    """The `ShallowNetwork` of a black box with one hidden layer of hard tanh units, ``max(-1, min(z, 1))``.

    The arguments are those of `find_relu_network`; lines have two boundaries per unit. Raises `NotIdentified` if the
    black box is something else, among others "unpaired" (boundaries without partner) and "units" (more than `n_units`).

    Notes
    -----
    ``hard_tanh(z) = relu(z + 1) - relu(z - 1) - 1``: a unit bends the outputs on two parallel hyperplanes, by as much
    one way as the other. Both are located as those of ReLU units are; their distance and center give the unit. The
    activation is odd, so there are no signs to recover. Two units that share both hyperplanes appear as one. A unit
    too narrow for its two boundaries to be separated is a step, and refused.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.shallow.hard_tanh import find_hard_tanh_network
    >>> box = lambda X: 3.0 * np.clip(X[:, 0] + 2.0 * X[:, 1] - 1.0, -1, 1) - np.clip(0.5 - X[:, 1], -1, 1)
    >>> network = find_hard_tanh_network(Oracle(box, 2), rng=np.random.RandomState(0)).network
    >>> print(network, round(float(network([[0.5, 0.5]])[0, 0]), 9))
    FeedforwardNetwork(2 -> 2 -> 1, hard_tanh, output identity) 1.5
    """
    rng = np.random.RandomState(0) if rng is None else rng
    try:
        probe = _probe(oracle, rng, min(COMPARED_TO, reach))
        for n_left in reversed(range(1 if probe.exact else _NOISY_TRIES)):
            search = LineSearch(probe, reach * probe.length_scale, max_units, rng)
            try:
                return ShallowNetwork(_find(search, n_units, callback))
            except NotIdentified:
                if n_left == 0:
                    raise
    except NotIdentified as error:
        raise NotIdentified(
            "activation boundaries", error.reason, f"not a hard tanh network with one hidden layer: {error}"
        ) from error


def _probe(oracle, rng, far):
    """The oracle as a probe for activation boundaries.

    Outputs that are saturated at most places look like steps, and the few that change there like noise.
    """
    if oracle.precision.is_rounded or not oracle.accuracy.repeatable:
        return probe_of(oracle, rng, far=far)
    try:
        return Probe(oracle, measure_rounding(oracle, rng, far=far))
    except NotIdentified as error:
        if error.reason != "steps":
            return probe_of(oracle, rng, far=far)
        Y = oracle(far * rng.standard_normal((_N_SAMPLE, oracle.n_inputs)))
        largest = np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)
        return Probe(oracle, ROUNDINGS * EPS * largest)


def _find(search, n_units, callback):
    """The network of the units, once a line confirms them and adds nothing, or there are enough."""
    n_widened, failure = 0, None
    for _ in range(MAX_LINES):
        search.scan_next_line()
        if callback is not None:
            callback(len(search.units) // 2)
        # A line on which steep units are too narrow to be resolved has no boundaries.
        complete = search.n_idle > (0 if len(search.units) else _PATIENCE)
        accurate = len(search.units) and search.units.errors.max() <= search.remeasure_tol
        enough = n_units is not None and len(search.units) == 2 * n_units and accurate
        if not complete and not enough:
            continue
        network, failure = _assemble(search, n_units)
        if network is not None:
            return network
        if complete:
            if n_widened == WIDENINGS:
                raise failure
            n_widened += 1
            search.widen(failure)
    raise failure or _failure(
        "unresolved",
        f"after {MAX_LINES} lines the detected activation boundaries ({len(search.units)} hyperplanes) still change "
        "from line to line.",
    )


def _failure(reason, message):
    return NotIdentified("activation boundaries", reason, message)


def _assemble(search, n_units):
    """The network of the pairs of boundaries, or else None and why it is not the black box."""
    units = search.units
    if len(units) == 0:
        return None, _failure(
            "linear", f"the outputs have no activation boundaries, up to {search.reach:.1e} from the center."
        )
    pairs = _pairs(units)
    unpaired = len(units) - 2 * len(pairs)
    failure = _failure(
        "unpaired",
        f"{unpaired} of {len(units)} activation boundaries have no partner, a parallel one where the outputs bend by "
        f"as much the other way, up to {search.reach:.1e} from the center; try activation='relu'.",
    )
    if 2 * unpaired > len(units):
        raise failure  # other hyperplanes farther out would not help
    if unpaired:
        return None, failure
    if n_units is not None and len(pairs) > n_units:
        raise _failure(
            "units",
            f"layer_widths gives {n_units} hidden units, but {len(pairs)} pairs of parallel activation boundaries were "
            f"recovered; set layer_widths=({len(pairs)}, {search.probe.oracle.n_outputs}).",
        )
    return _network(search, pairs)


def _pairs(units):
    """Indices (k, 2) of parallel hyperplanes with opposite jumps, closest matches first."""
    W, C = units.weights, units.outgoing
    allowed = _PAIR_TOL + _PAIR_ERRORS * (units.errors[:, None] + units.errors)
    apart = np.minimum(*(np.linalg.norm(W[:, :, None] - sign * W[:, None, :], axis=0) for sign in (1.0, -1.0)))
    sizes = np.linalg.norm(C, axis=1)
    other = np.linalg.norm(C[:, None] + C, axis=2) / np.maximum(sizes[:, None], sizes)
    sign = np.sign(W.T @ W)
    separate = np.abs(units.biases[:, None] - sign * units.biases) > _SAME_PLACE * (1.0 + np.abs(units.biases))
    mismatch = np.where(np.triu(separate, 1), np.maximum(apart, other) / allowed, np.inf)
    pairs, free = [], np.ones(len(units), dtype=bool)
    for i, j in zip(*np.unravel_index(np.argsort(mismatch, axis=None), mismatch.shape), strict=True):
        if not mismatch[i, j] < 1.0:
            break
        if free[i] and free[j]:
            free[[i, j]] = False
            pairs.append((i, j))
    return np.array(pairs, dtype=int).reshape(-1, 2)


def _network(search, pairs):
    """The network of the pairs, polished if that is quick, or else None and what it misses."""
    probe, (first, second) = search.probe, pairs.T
    shells = ValidationShells(search)
    network = _network_of_pairs(search.units.take(first), search.units.take(second), probe.output_error)
    network = shells.with_constant(network)
    if network.n_parameters <= POLISHED:
        network = min(network, _polish(probe, network, search.rng), key=shells.error)
    error = shells.error(network)
    if shells.explains(error):
        return network, None
    return None, _failure(
        "unexplained",
        f"the network of the {len(pairs)} detected units misses held-out outputs by {error:.1e} of their spread: there "
        "is something linear or other units beside them.",
    )


def _network_of_pairs(one, other, output_error):
    """The network of units with boundaries ``z = -1`` and ``z = 1``, given as `ReLUUnits`; no constant."""
    sign = np.sign(np.sum(one.weights * other.weights, axis=0))
    precision = [1.0 / np.maximum(half.errors, EPS) ** 2 for half in (one, other)]
    normals = precision[0] * one.weights + precision[1] * sign * other.weights
    normals /= np.linalg.norm(normals, axis=0)
    low, high = -one.biases, -sign * other.biases  # positions along the normals
    slopes = 2.0 / (high - low)  # negative if the second one comes first: then z falls along the normal
    outgoing = 0.5 * (one.outgoing - other.outgoing) / slopes[:, None] * output_error
    biases = [-np.abs(slopes) * 0.5 * (low + high), 0.0 * output_error]
    return FeedforwardNetwork([normals * np.abs(slopes), outgoing], biases, "hard_tanh")


def _polish(probe, network, rng):
    """The network fitted to outputs near its hyperplanes and around the center."""
    oracle, W, b = probe.oracle, network.weights[0], network.biases[0]
    n = int((_OUTPUTS if probe.exact else NOISY_OUTPUTS) * network.n_parameters / network.n_outputs)
    U, Y = oracle.query_precise(lambda n, factor: design_points(W, b, n, factor, rng), n)
    noise = None if probe.exact else oracle.accuracy.std
    return polish_network(network, U, Y, noise=noise, callback=lambda _: oracle.budget.out_of_time)[0]
