"""A hard tanh network with one hidden layer and linear output: its kinks come in pairs."""

from __future__ import annotations

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_ANSWERS, polish_network
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ..kernel.output_error import Probe
from ..kernel.rounding import probe_of, rounding_between_kinks
from .in_view import Found
from .line_search import LineSearch

__all__ = ["find_hard_tanh_network"]

_MAX_LINES, _WIDENINGS = 16, 2
_PATIENCE = 3  # lines without any unit before others are followed farther
_FAR = 30.0  # standard deviations up to which answers are compared
_SAME, _ERRORS = 1e-6, 30.0  # normals and slopes of a pair agree up to this and so many times their accuracy
_SAME_PLACE = 1e-9  # distance, relative, of hyperplanes that are one
_ANSWERS = 5.0  # a parameter, for the polish
_POLISHED = 3000  # parameters up to which that is quick
_EXPLAINED = 1e-9  # relative error on fresh answers below which a network is taken as the black box
_NOISE_LEFT = 4.0  # errors of the answers by which a network may miss them
_NOISY_TRIES = 8
_SAMPLE, _ROUNDINGS = 200, 16.0  # answers that tell the largest one, and roundings of it allowed for in a comparison


def find_hard_tanh_network(oracle, *, n_units=None, max_units=1000, reach=1e3, rng=None, callback=None):
    """A network of hard tanh units, ``max(-1, min(z, 1))``, in one hidden layer, exactly, from function values.

    Parameters
    ----------
    oracle : Oracle
        Asked for answers in its standardised coordinates u, never for derivatives.
    n_units : int, default=None
        m_1 if known: then no line is spent on making sure that it is complete, and it is an error to see more.
    max_units : int, default=1000
        Bound on the kinks of one line, two a unit.
    reach : float, default=1e3
        See `find_relu_network`.
    rng : numpy.random.RandomState, default=None
    callback : callable, default=None
        ``callback(n_found)`` after every line.

    Returns
    -------
    Found
        Its network is of u, activation "hard_tanh", output "identity".

    Raises
    ------
    NotIdentified
        (a ValueError) If the black box is something else. `reason` is "unpaired" where kinks have no partner, "units"
        where there are more than `n_units`; see `NotIdentified` for others.
    BlackBoxError
        (a ValueError) If the black box cannot be asked far from the centre; a smaller `reach` may help.

    Notes
    -----
    ``hard_tanh(z) = relu(z + 1) - relu(z - 1) - 1``: a unit bends the answers on two parallel hyperplanes, by as much
    one way as the other. Both are found as those of relu units are; their distance and the place half way between them
    give the unit. On which side which bend is need not be known, since the activation is odd, so no signs are to be
    found. Two units that share both hyperplanes show as one. A unit too narrow for its two kinks to be told apart is a
    step, and refused.

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
        probe = _probe(oracle, rng, min(_FAR, reach))
        for _ in range(0 if probe.exact else _NOISY_TRIES - 1):
            try:
                return Found(_line_by_line(LineSearch(probe, reach * probe.unit, max_units, rng), n_units, callback))
            except NotIdentified:
                continue  # noise hides kinks here and there; other lines show others
        return Found(_line_by_line(LineSearch(probe, reach * probe.unit, max_units, rng), n_units, callback))
    except NotIdentified as error:
        raise NotIdentified(
            "activation boundaries", error.reason, f"not a hard tanh network with one hidden layer: {error}"
        ) from error


def _probe(oracle, rng, far):
    """The oracle as it is asked for kinks.

    Where answers rest at most places, a few that move there look like noise, and the rest like steps.
    """
    if oracle.accuracy.kind in ("decimals", "float32") or not oracle.accuracy.repeatable:
        return probe_of(oracle, rng, far=far)
    try:
        return Probe(oracle, rounding_between_kinks(oracle, rng, far=far))
    except NotIdentified as error:
        if error.reason != "steps":
            return probe_of(oracle, rng, far=far)
        Y = oracle(far * rng.standard_normal((_SAMPLE, oracle.n_inputs)))
        largest = np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)
        return Probe(oracle, _ROUNDINGS * np.finfo(float).eps * largest)


def _line_by_line(search, n_units, callback):
    """The network of the units seen, once a line confirms them and shows nothing else, or there are enough."""
    n_widened, failure = 0, None
    for _ in range(_MAX_LINES):
        search.follow_line()
        if callback is not None:
            callback(len(search.units) // 2)
        # A line on which steep units are too narrow to be resolved shows nothing.
        complete = search.n_idle > (0 if len(search.units) else _PATIENCE)
        enough = n_units is not None and len(search.units) == 2 * n_units and search.units.errors.max() <= search.poor
        if not complete and not enough:
            continue
        network, failure = _assemble(search, n_units)
        if network is not None:
            return network
        if complete:
            if n_widened == _WIDENINGS:
                raise failure
            n_widened += 1
            search.widen(failure)
    raise failure or NotIdentified(
        "activation boundaries",
        "unresolved",
        f"after {_MAX_LINES} lines the kinks found ({len(search.units)} hyperplanes) still change from line to line.",
    )


def _assemble(search, n_units):
    """The network of the pairs of kinks, or else None and why it is not the black box."""
    units = search.units
    if len(units) == 0:
        return None, NotIdentified(
            "activation boundaries", "linear", f"the answers have no kinks, up to {search.reach:.1e} from the centre."
        )
    pairs = _pairs(units)
    unpaired = len(units) - 2 * len(pairs)
    failure = NotIdentified(
        "activation boundaries",
        "unpaired",
        f"of {len(units)} hyperplanes where the answers bend {unpaired} have no partner, a parallel one where they "
        f"bend by as much the other way, up to {search.reach:.1e} from the centre; try activation='relu'.",
    )
    if 2 * unpaired > len(units):
        raise failure  # other hyperplanes farther out would not help
    if unpaired:
        return None, failure
    if n_units is not None and len(pairs) > n_units:
        raise NotIdentified(
            "activation boundaries",
            "units",
            f"layer_widths gives {n_units} hidden units, but {len(pairs)} pairs of parallel activation boundaries were "
            f"found; set layer_widths=({len(pairs)}, {search.probe.oracle.n_outputs}).",
        )
    return _network(search, pairs)


def _pairs(units):
    """Indices (k, 2) of hyperplanes that are parallel and where slopes change by as much one way as the other."""
    W, C = units.weights, units.outgoing
    allowed = _SAME + _ERRORS * (units.errors[:, None] + units.errors)
    apart = np.minimum(*(np.linalg.norm(W[:, :, None] - side * W[:, None, :], axis=0) for side in (1.0, -1.0)))
    sizes = np.linalg.norm(C, axis=1)
    other = np.linalg.norm(C[:, None] + C, axis=2) / np.maximum(sizes[:, None], sizes)
    side = np.sign(W.T @ W)
    far = np.abs(units.biases[:, None] - side * units.biases) > _SAME_PLACE * (1.0 + np.abs(units.biases))
    mismatch = np.where(np.triu(far, 1), np.maximum(apart, other) / allowed, np.inf)
    pairs, free = [], np.ones(len(units), dtype=bool)
    for i, j in zip(*np.unravel_index(np.argsort(mismatch, axis=None), mismatch.shape), strict=True):
        if not mismatch[i, j] < 1.0:
            break
        if free[i] and free[j]:
            free[[i, j]] = False
            pairs.append((i, j))
    return np.array(pairs, dtype=int).reshape(-1, 2)


def _network(search, pairs):
    """The network of the pairs, polished where that is needed, or else None and what it misses."""
    probe, rng, (first, second) = search.probe, search.rng, pairs.T
    far = min(_FAR, search.reach / probe.unit)
    U = rng.standard_normal((96, probe.oracle.n_inputs)) * np.repeat([1.0, np.sqrt(far), far], 32)[:, None]
    F, tol = probe.ask(U)
    shells = F.reshape(3, 32, -1)  # in units of the noise
    spread = np.maximum(np.ptp(shells, axis=1), 1.0)
    left = float(np.max(tol.reshape(3, 32, 1) / spread[:, None]))

    def error_of(network):
        off = np.abs(network(U) / probe.noise - F).reshape(shells.shape)
        return float(np.max(off.max(axis=1) / spread))

    network = _of_pairs(search.units.take(first), search.units.take(second), probe.noise)
    constant = np.median(F[:32] * probe.noise - network(U[:32]), axis=0)
    network = network.with_parameters(network.weights, [network.biases[0], constant])
    if network.n_parameters <= _POLISHED:
        polished = _polished(probe, network, rng)
        network = min(network, polished, key=error_of)
    error = error_of(network)
    if error <= max(_EXPLAINED, _NOISE_LEFT * left):
        return network, None
    return None, NotIdentified(
        "activation boundaries",
        "unexplained",
        f"the network of the {len(pairs)} units found misses fresh answers by {error:.1e} of their spread: something "
        "linear or other units are there beside them.",
    )


def _of_pairs(one, other, noise):
    """The network of units whose two hyperplanes are given, ``z = -1`` and ``z = 1``; no constant."""
    side = np.sign(np.sum(one.weights * other.weights, axis=0))
    exact = [1.0 / np.maximum(half.errors, np.finfo(float).eps) ** 2 for half in (one, other)]
    normals = exact[0] * one.weights + exact[1] * side * other.weights
    normals /= np.linalg.norm(normals, axis=0)
    low, high = -one.biases, -side * other.biases  # places along the normals
    slopes = 2.0 / (high - low)  # negative where the second comes first: then z falls along the normal
    jumps = 0.5 * (one.outgoing - other.outgoing)
    outgoing = jumps / slopes[:, None] * noise
    return FeedforwardNetwork(
        [normals * np.abs(slopes), outgoing], [-np.abs(slopes) * 0.5 * (low + high), 0.0 * noise], "hard_tanh"
    )


def _polished(probe, network, rng):
    """The network fitted to answers near its hyperplanes and around the centre."""
    oracle, W, b = probe.oracle, network.weights[0], network.biases[0]
    n = int((_ANSWERS if probe.exact else NOISY_ANSWERS) * network.n_parameters / network.n_outputs)
    U, Y = oracle.query_precise(lambda n, factor: design_points(W, b, n, factor, rng), n)
    noise = None if probe.exact else oracle.accuracy.std
    return polish_network(network, U, Y, noise=noise, callback=lambda _: oracle.clock.out_of_time)[0]
