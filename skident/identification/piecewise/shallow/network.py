"""A ReLU network with one hidden layer and linear output, read off the kinks of its answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.fitting.polish import NOISY_ANSWERS, polish_network
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import NotIdentified

from ..kernel.rounding import probe_of
from .in_view import Found, network_of_view, view_of
from .line_search import LineSearch
from .signs import leaky_units, oriented_units, points_on_both_sides

__all__ = ["find_relu_network"]

_MAX_LINES = 16
_MAX_LINES_IN_VIEW = 100
_PATIENCE = 24  # lines after which
_FAINT_IN_VIEW = 1e-6  # errors of this size, relative to the spread of the answers, are no reason to look on
_IDLE_IN_VIEW = 2  # lines in a row that must show nothing new
_AIMS = 4  # lines drawn at once through answers that are not explained
_WIDENINGS = 2  # times that lines are followed farther where what they show explains nothing
_FAR = 30.0  # standard deviations up to which answers are compared
_EXPLAINED = 1e-9  # relative error on fresh answers below which a network is taken as the black box
_EXACT = 1e-13  # and below which the polish has nothing to gain
_POLISHED = 3000  # parameters up to which it is quick; larger networks are polished where they explain too little
_ACCURATE = 3e-8  # accuracy of a unit that need not be measured again where nothing is polished
_MORE_LINES = 4  # on which that is tried
_START = 1e-3  # error above which a polish is no use
_NOISY_START = 0.3  # where answers are noisy
_NOISY_TRIES = 8
_NOISE_LEFT = 4.0  # errors of the answers by which a network may miss them
_CLEARLY = 100.0  # how much worse all other signs must be
_NOTHING = 1e-8  # relative size of units of which the sign does not matter


def find_relu_network(oracle, *, n_units=None, max_units=1000, reach=1e3, leaky=False, rng=None, callback=None):
    """A ReLU network with one hidden layer and linear output, exactly, from function values.

    Parameters
    ----------
    oracle : Oracle
        Asked for answers in its standardised coordinates u, never for derivatives.
    n_units : int, default=None
        m_1 if known: then no line is spent on making sure that it is complete, and it is an error to see more.
        Otherwise a line must show what is known and nothing else; 16 lines are followed at most.
    max_units : int, default=1000
        Bound on the kinks of one line.
    reach : float, default=1e3
        Lines are followed up to this distance in units of ``sqrt(D)``, and up to 1e4 times as far where there are no
        kinks, or none that explain the answers.
    leaky : bool, default=False
        Whether units may have a slope on their other side, one for all, which is found; the network's activation is
        then `leaky_relu`.
    rng : numpy.random.RandomState, default=None
    callback : callable, default=None
        ``callback(n_found)`` after every line.

    Returns
    -------
    Found
        Its network is of u, activation "relu", output "identity"; it misses fresh answers by less than 1e-9 of their
        spread, mostly by less than 1e-13, or by some of their errors where they are noisy or rounded.

    Raises
    ------
    NotIdentified
        (a ValueError) If the black box is something else; the message and the attribute `reason` say what was seen.
    BlackBoxError
        (a ValueError) If the black box cannot be asked far from the centre; a smaller `reach` may help.

    Notes
    -----
    Almost every line crosses every hyperplane once, so a line shows all units: about 20 queries a unit. Another
    2 D a unit give the jumps of the gradient, and ``1.75 P / m_L`` the polish of P parameters. A further line
    confirms that every hyperplane goes on there with the same jump, which holds for one hidden layer only.

    Units that are constant, or whose outgoing weights are below 1e-10 of the others, leave no trace and are left out:
    the network found has fewer units than the one asked, and is the same function. Units with parallel weights and
    different biases are told apart. Two units on one hyperplane show as one, whose jump is their sum, and are refused
    unless it explains the linear part too. A unit whose hyperplane is farther away than `reach` on all lines is left
    out if it is silent on this side of it; if it is active, that shows, and the search goes farther. On which side of
    its hyperplane a unit is active follows from m_L D equations, see `solve_signs`: 100 units with 10 inputs and one
    output take some 10 seconds. Where the slope is unknown, it takes one of these equations.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.shallow.network import find_relu_network
    >>> box = lambda X: np.maximum(X[:, 0] + 2.0 * X[:, 1] - 1.0, 0.0) - 3.0 * np.maximum(0.5 - X[:, 1], 0.0)
    >>> network = find_relu_network(Oracle(box, 2), rng=np.random.RandomState(0)).network
    >>> print(network, round(float(network([[1.0, 3.0]])[0, 0]), 9))
    FeedforwardNetwork(2 -> 2 -> 1, relu, output identity) 6.0
    """
    rng = np.random.RandomState(0) if rng is None else rng
    probe = probe_of(oracle, rng, far=min(_FAR, reach))
    for n_left in reversed(range(1 if probe.exact else _NOISY_TRIES)):
        search = LineSearch(probe, reach * probe.unit, max_units, rng)
        try:
            return (
                _in_view(search, callback)
                if oracle.restricted and not leaky
                else _line_by_line(search, n_units, leaky, callback)
            )
        except NotIdentified:
            # Noise hides kinks here and there; other lines show others.
            if n_left == 0:
                raise


def _line_by_line(search, n_units, leaky, callback):
    """The network where every line shows nearly all units: until one confirms what is known and shows nothing else."""
    n_widened = 0
    for n_lines in range(_MAX_LINES):
        search.follow_line()
        if callback is not None:
            callback(len(search.units))
        complete = search.n_idle > 0
        if search.probe.exact and len(search.units) * search.probe.oracle.n_inputs > _POLISHED:
            # Too large to be polished: every unit is measured until it is accurate.
            search.poor = _ACCURATE
            if complete and n_lines < _MORE_LINES and search.units.errors.max() > _ACCURATE:
                continue
        if not complete and (len(search.units) != n_units or search.units.errors.max() > search.poor):
            continue
        network, failure = _assemble(search, n_units, leaky)
        if network is not None:
            return Found(network)
        if complete:
            if n_widened == _WIDENINGS:
                raise failure
            n_widened += 1
            search.widen(failure)
    raise NotIdentified(
        "activation boundaries",
        "unresolved",
        f"after {_MAX_LINES} lines the kinks found ({len(search.units)} units) still change from line to line: units "
        "that are too close together, or no network with one hidden layer of ReLU units.",
    )


def _in_view(search, callback):
    """The network where not all answers tell: lines until nothing in view is new, and all of it is explained."""
    view = None
    for n_lines in range(_MAX_LINES_IN_VIEW):
        search.follow_line() if view is None else search.follow_rest()
        if callback is not None:
            callback(len(search.units))
        if len(search.units) == 0 or (search.n_idle < _IDLE_IN_VIEW and (n_lines + 1) % 8):
            continue
        view = view_of(search)
        search.units, search.n_known = view.units, len(view.units)
        # Units too faint to be told from the rounding of the others are given up at last.
        if len(view.wrong) == 0 or (n_lines >= _PATIENCE and view.misfit < _FAINT_IN_VIEW):
            return network_of_view(view, search.probe.noise, search.probe.unit)
        some = search.rng.permutation(len(view.wrong))[:_AIMS]
        if len(view.right):
            search.aim(view.wrong[some], view.right)
    raise NotIdentified(
        "activation boundaries",
        "unexplained",
        f"after {_MAX_LINES_IN_VIEW} lines {len(search.units)} units were found, and answers remain that they do not "
        "explain: other units are too faint, or the black box is no network with one hidden layer of ReLU units.",
    )


def _assemble(search, n_units, leaky):
    """The network of the units, with signs, constant and polish, or else None and why it is not the black box.

    What it lacks then may lie farther away. That there are too many units, or that their signs cannot be told, is
    raised at once.
    """
    probe, rng, n_found = search.probe, search.rng, len(search.units)
    if n_found == 0:
        return None, _nothing_seen(search)
    if n_units is not None and n_found > n_units:
        raise NotIdentified(
            "activation boundaries",
            "units",
            f"layer_widths gives {n_units} hidden units, but {n_found} activation boundaries were found; set "
            f"layer_widths=({n_found}, {search.probe.oracle.n_outputs}).",
        )
    far = min(_FAR, search.reach / probe.unit)
    U = rng.standard_normal((96, probe.oracle.n_inputs)) * np.repeat([1.0, np.sqrt(far), far], 32)[:, None]
    Y, tol = _answers(probe, U)
    search.units, choices, activation = _leaky(search) if leaky else (*oriented_units(search), "relu")
    if len(choices) == 0:
        return None, _no_signs(search)
    networks = [_network(search.units, signs, probe.noise, activation, U, Y) for signs in choices]
    errors = np.array([_error(network, U, Y) for network in networks])
    enough = _EXACT if networks[0].n_parameters <= _POLISHED or not probe.exact else _EXPLAINED
    if enough < errors.min() < (_START if probe.exact else _NOISY_START):
        networks, errors = _polish(search, networks, errors, U, Y)
    best = int(np.argsort(errors)[0])
    if errors[best] > max(_EXPLAINED, _NOISE_LEFT * tol):
        return None, NotIdentified(
            "activation boundaries",
            "unexplained",
            f"the network of the {n_found} units found misses fresh answers by {errors[best]:.1e} of their spread.",
        )
    if _is_ambiguous(search.units, choices, errors):
        return None, _undetermined(n_found)
    return networks[best], None


def _answers(probe, U):
    """Answers (96, m_L) on three shells, and the largest error they may have, relative to the spread of a shell."""
    F, tol = probe.ask(U)
    shells = F.reshape(3, -1, F.shape[1])
    return F * probe.noise, float(
        np.max(tol.reshape(3, -1, 1) / np.maximum(np.ptp(shells, axis=1, keepdims=True), 1.0))
    )


def _is_ambiguous(units, choices, errors):
    """Whether other signs of units that matter explain the answers about as well as the best ones."""
    order = np.argsort(errors)
    rivals = order[1:][errors[order[1:]] < _CLEARLY * max(errors[order[0]], _EXACT)]
    moved = np.any(choices[rivals] != choices[order[0]], axis=0)
    sizes = np.linalg.norm(units.outgoing, axis=1)
    return bool(np.any(sizes[moved] > _NOTHING * sizes.max()))


def _nothing_seen(search):
    X = search.rng.standard_normal((16, search.probe.oracle.n_inputs))
    what = "constant" if np.ptp(search.probe(X), axis=0).max() <= 4.0 else "linear"
    return NotIdentified(
        "activation boundaries",
        what,
        f"the answers are a {what} function without kinks, up to {search.reach:.1e} from the centre.",
    )


def _no_signs(search):
    return NotIdentified(
        "activation boundaries",
        "signs",
        f"{len(search.units)} hyperplanes explain all kinks up to {search.reach:.1e} from the centre, but wherever the "
        "units are active, the linear part of the answers remains unexplained: there is a linear skip connection, "
        "a leaky activation, or there are two units on one hyperplane.",
    )


def _undetermined(n_units):
    return NotIdentified(
        "activation boundaries",
        "ambiguous",
        f"{n_units} hyperplanes explain all kinks, but the linear part of the answers does not tell on which side the "
        "units are active: different networks give the same answers (as for hidden units that clip on both sides: try "
        "activation='hard_tanh'), or there are too few equations for so many units.",
    )


def _leaky(search):
    """Units with outgoing weights in place of jumps, their signs, and the activation."""
    units, choices, slope = leaky_units(search)
    if len(choices) == 0:
        return units, choices, "relu"
    return replace(units, outgoing=units.outgoing / (1.0 - slope)), choices, leaky_relu(slope)


def _network(units, signs, scale, activation, U, Y):
    """The network of units with given signs; the constant from the answers Y near the centre, outgoing times scale."""
    weights, none = [units.weights * signs, units.outgoing * scale], np.zeros(len(scale))
    network = FeedforwardNetwork(weights, [units.biases * signs, none], activation)
    constant = np.median((Y - network(U))[:32], axis=0)
    return FeedforwardNetwork(weights, [units.biases * signs, constant], activation)


def _polish(search, networks, errors, U, Y):
    """Every network, or its polished form if that is better, and the errors on (U, Y)."""
    oracle, exact = search.probe.oracle, search.probe.exact
    n = int((1.75 if exact else NOISY_ANSWERS) * networks[0].n_parameters / networks[0].n_outputs)
    points = points_on_both_sides(search.units, n, search.rng)
    answers = oracle(points)
    networks, errors = list(networks), errors.copy()
    for i, network in enumerate(networks):
        polished = polish_network(
            network,
            points,
            answers,
            noise=None if exact else oracle.accuracy.std,
            callback=lambda _: oracle.clock.out_of_time,
        )[0]
        error = _error(polished, U, Y)
        if error < errors[i]:
            networks[i], errors[i] = polished, error
    return networks, errors


def _error(network, U, Y):
    """Largest error over the spread of the answers, the worst of three shells and all outputs."""
    errors = np.abs(network(U) - Y).reshape(3, -1, Y.shape[1]).max(axis=1)
    spread = np.ptp(Y.reshape(3, -1, Y.shape[1]), axis=1)
    return float(np.max(errors / np.where(spread > 0, spread, 1.0)))
