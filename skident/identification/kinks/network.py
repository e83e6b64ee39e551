"""A ReLU network with one hidden layer and linear output, read off the kinks of its answers."""

from __future__ import annotations

import numpy as np

from skident.fitting.polish import polish_network
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError

from .line import NotShallowReLUError, find_kinks
from .rounding import rounding_between_kinks
from .units import FAINT, Line, Probe, ReLUUnits, linear_part, match_kinks, refine_units, units_at_kinks

__all__ = ["find_relu_network"]

_MAX_LINES = 16
_WIDENINGS = 2  # times that lines are followed farther where what they show explains nothing
_FAR = 30.0  # standard deviations up to which answers are compared
_EXPLAINED = 1e-9  # relative error on fresh answers below which a network is taken as the black box
_EXACT = 1e-13  # and below which the polish has nothing to gain
_START = 1e-3  # error above which a polish is no use
_CLEARLY = 100.0  # how much worse all other signs must be
_CHOICES = 4  # signs compared by their polished networks
_NOTHING = 1e-8  # relative size of units of which the sign does not matter
_DENSE = 4000  # unknowns up to which units are refined by linear least squares
_ROUGH = 3e-3  # accuracy of a direction above which a kink is left to another line
_POOR = 1e-6  # and above which a unit is measured again where another line meets it


def find_relu_network(oracle, *, n_units=None, max_units=1000, reach=1e3, rng=None, callback=None):
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
    rng : numpy.random.RandomState, default=None
    callback : callable, default=None
        ``callback(n_found)`` after every line.

    Returns
    -------
    FeedforwardNetwork
        Of u, activation "relu", output "identity"; it misses fresh answers by less than 1e-9 of their spread, mostly by
        less than 1e-13.

    Raises
    ------
    NotShallowReLUError
        (a ValueError) If the black box is something else; the message and the attribute `seen` say what was seen.
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
    output take some 10 seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.kinks.network import find_relu_network
    >>> box = lambda X: np.maximum(X[:, 0] + 2.0 * X[:, 1] - 1.0, 0.0) - 3.0 * np.maximum(0.5 - X[:, 1], 0.0)
    >>> network = find_relu_network(Oracle(box, 2), rng=np.random.RandomState(0))
    >>> print(network, round(float(network([[1.0, 3.0]])[0, 0]), 9))
    FeedforwardNetwork(2 -> 2 -> 1, relu, output identity) 6.0
    """
    rng = np.random.RandomState(0) if rng is None else rng
    probe = Probe(oracle, rounding_between_kinks(oracle, rng, far=min(_FAR, reach)))
    search = _Search(probe, reach * probe.unit, max_units, rng)
    n_widened = 0
    for _ in range(_MAX_LINES):
        search.follow_line()
        if callback is not None:
            callback(len(search.units))
        complete = search.n_idle > 0
        if not complete and (len(search.units) != n_units or search.units.errors.max() > _POOR):
            continue
        network, failure = _assemble(search, n_units)
        if network is not None:
            return network
        if complete:
            if n_widened == _WIDENINGS:
                raise failure
            n_widened += 1
            search.widen(failure)
    raise NotShallowReLUError(
        "unresolved",
        f"after {_MAX_LINES} lines the kinks found ({len(search.units)} units) still change from line to line: units "
        "that are too close together, or no network with one hidden layer of ReLU units.",
    )


class _Search:
    """Units seen on the lines so far."""

    def __init__(self, probe, reach, max_units, rng):
        self.probe, self.reach, self.max_units, self.rng = probe, reach, max_units, rng
        D = probe.oracle.n_inputs
        self.units = ReLUUnits(np.empty((D, 0)), np.empty(0), np.empty((0, len(probe.noise))), np.empty(0))
        self.anchor, self.n_idle, self.n_lost, self.faint, self.failure = None, 0, 0, 0.0, None

    def widen(self, failure):
        """Look farther away, as what was found ended in a failure."""
        self.failure, self.n_idle, self.reach = failure, 0, 100.0 * self.reach

    def follow_line(self):
        """Find the kinks of a random line, drop units that it does not confirm and add those that are new."""
        origin, direction = self.rng.standard_normal((2, self.probe.oracle.n_inputs))
        line = Line(origin, direction / np.linalg.norm(direction), self.reach)
        kinks = self._kinks(line)
        lost, met = match_kinks(self.units, line, kinks)
        fresh = np.setdiff1d(np.arange(len(kinks.positions)), met)
        self._refuse_bent(int(lost.sum()), len(fresh))
        sizes = np.abs(kinks.jumps[fresh]).max(axis=1, initial=0.0) * self.probe.unit
        self.n_idle = 0 if lost.any() or np.any(sizes > FAINT) else self.n_idle + 1
        added = self._measure(line, kinks, fresh, lost, met)
        self.faint = sizes[~added].max(initial=0.0)

    def _measure(self, line, kinks, fresh, lost, met):
        """Take up fresh kinks, and known ones that were poorly measured, where that is accurate; mask of `fresh`."""
        keep = ~lost
        poor = np.flatnonzero((met >= 0) & (self.units.errors > _POOR))
        which = np.concatenate([fresh, met[poor]])
        if len(which) == 0:
            self.units = self.units.take(keep)
            return np.zeros(0, dtype=bool)
        new, anchor = units_at_kinks(self.probe, line, kinks, which, self.rng)
        better = new.errors < np.concatenate([np.full(len(fresh), _ROUGH), self.units.errors[poor]])
        keep[poor] = ~better[len(fresh) :]
        self.units = self.units.take(keep).joined(new.take(better))
        self.anchor = anchor if self.anchor is None or anchor[2] < self.anchor[2] else self.anchor
        return better[: len(fresh)]

    def _kinks(self, line):
        probe = self.probe
        noise = 2.0  # the origin is some `unit` away from the centre
        try:
            return find_kinks(
                lambda t: probe(line.at(t)),
                line.reach,
                noise=noise,
                unit=probe.unit,
                max_kinks=self.max_units,
                rng=self.rng,
            )
        except BlackBoxError as error:
            if self.failure is not None:  # it was asked farther away than it should have been
                raise self.failure from None
            raise BlackBoxError(
                f"{error} The search for kinks asks up to {self.reach:.1e} standard deviations from the centre; where "
                "the black box cannot be asked there, pass a smaller reach."
            ) from error

    def _refuse_bent(self, n_lost, n_fresh):
        known = len(self.units)
        self.n_lost += n_lost
        if n_lost and self.n_lost > 2 + 0.3 * known:
            raise NotShallowReLUError(
                "bent",
                f"{n_lost} of the {known} kinks known were not met, of the same size, where their hyperplanes cross "
                f"another line, which showed {n_fresh} new ones: the answers are piecewise linear, but their kinks "
                "end, bend or change, as with more than one hidden layer, pooling, or inputs that are clipped.",
            )


def _assemble(search, n_units):
    """The network of the units, with signs, constant and polish, or else None and why it is not the black box.

    What it lacks then may lie farther away. That there are too many units, or that their signs cannot be told, is
    raised at once.
    """
    probe, rng, n_found = search.probe, search.rng, len(search.units)
    if n_found == 0:
        return None, _nothing_seen(search)
    if n_units is not None and n_found > n_units:
        raise NotShallowReLUError(
            "units",
            f"n_units={n_units}, but {n_found} different hyperplanes with kinks were found; try n_units={n_found}.",
        )
    far = min(_FAR, search.reach / probe.unit)
    U = rng.standard_normal((96, probe.oracle.n_inputs)) * np.repeat([1.0, np.sqrt(far), far], 32)[:, None]
    Y = probe.oracle(U)
    search.units, choices = _signs(search)
    if len(choices) == 0:
        return None, _no_signs(search)
    networks = [_network(search.units, signs, probe.noise, U, Y) for signs in choices]
    errors = np.array([_error(network, U, Y) for network in networks])
    if _EXACT < errors.min() < _START:
        networks, errors = _polish(search, networks, errors, U, Y)
    best = int(np.argsort(errors)[0])
    if errors[best] > _EXPLAINED:
        return None, NotShallowReLUError(
            "unexplained",
            f"the network of the {n_found} units found misses fresh answers by {errors[best]:.1e} of their spread.",
        )
    if _is_ambiguous(search.units, choices, errors):
        return None, _undetermined(n_found)
    return networks[best], None


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
    return NotShallowReLUError(
        what, f"the answers are a {what} function without kinks, up to {search.reach:.1e} from the centre."
    )


def _no_signs(search):
    return NotShallowReLUError(
        "signs",
        f"{len(search.units)} hyperplanes explain all kinks up to {search.reach:.1e} from the centre, but wherever the "
        "units are active, the linear part of the answers remains unexplained: there is a linear skip connection, "
        "a leaky activation, or there are two units on one hyperplane.",
    )


def _undetermined(n_units):
    return NotShallowReLUError(
        "ambiguous",
        f"{n_units} hyperplanes explain all kinks, but the linear part of the answers does not tell on which side the "
        "units are active: different networks give the same answers (as for hidden units that clip on both sides), or "
        "there are too few equations for so many units.",
    )


def _network(units, signs, scale, U, Y):
    """The network of units with given signs; the constant from the answers Y near the centre, outgoing times scale."""
    weights, none = [units.weights * signs, units.outgoing * scale], np.zeros(len(scale))
    network = FeedforwardNetwork(weights, [units.biases * signs, none], "relu")
    constant = np.median((Y - network(U))[:32], axis=0)
    return FeedforwardNetwork(weights, [units.biases * signs, constant], "relu")


def _polish(search, networks, errors, U, Y):
    """Every network, or its polished form if that is better, and the errors on (U, Y)."""
    n = int(1.75 * networks[0].n_parameters / networks[0].n_outputs)
    points = _points_on_both_sides(search.units, n, search.rng)
    answers = search.probe.oracle(points)
    networks, errors = list(networks), errors.copy()
    for i, network in enumerate(networks):
        polished = polish_network(network, points, answers)[0]
        error = _error(polished, U, Y)
        if error < errors[i]:
            networks[i], errors[i] = polished, error
    return networks, errors


def _signs(search):
    """The units, more exactly where that was needed, and signs (k, m_1) that explain the linear part.

    One row of signs, or the best few where the accuracy leaves a choice; none if nothing explains it.
    """
    units, (point, gradient, accuracy) = search.units, search.anchor
    sizes = np.linalg.norm(units.outgoing, axis=1) * units.errors
    tol = 32.0 * (accuracy + np.linalg.norm(sizes)) + 4.0 * search.faint
    target = linear_part(units, point, gradient)
    try:
        found, misfit = _solve(units, target, tol)
    except UndecidedSignsError as error:
        unknowns = (len(units) + 1) * (len(point) + 1)
        if unknowns > _DENSE:
            raise _undecided(units, error) from None
        points = _points_on_both_sides(units, int(1.75 * unknowns), search.rng)
        try:
            units, target = refine_units(search.probe, units, points)
            found, misfit = _solve(units, target, tol)
        except (UndecidedSignsError, np.linalg.LinAlgError):
            raise _undecided(units, error) from None
    if len(found) == 0:
        return units, found
    # The tolerance is a bound; the right signs are usually exact to far less.
    order = np.argsort(misfit)
    likely = misfit[order] <= _CLEARLY * max(misfit[order[0]], accuracy)
    return units, found[order[likely][:_CHOICES]]


def _solve(units, target, tol):
    """Sign vectors (k, m_1) for which the units add up to the target (m_L, D), and their misfits."""
    M = (units.outgoing.T[:, None] * units.weights).reshape(-1, len(units))
    found = solve_signs(M, target.ravel(), tol, max_solutions=256)
    return found, np.abs(found @ M.T - target.ravel()).max(axis=1)


def _undecided(units, error):
    return NotShallowReLUError(
        "undecided", f"{len(units)} hyperplanes were found, but not on which side of them the units are active: {error}"
    )


def _error(network, U, Y):
    """Largest error over the spread of the answers, the worst of three shells and all outputs."""
    errors = np.abs(network(U) - Y).reshape(3, -1, Y.shape[1]).max(axis=1)
    spread = np.ptp(Y.reshape(3, -1, Y.shape[1]), axis=1)
    return float(np.max(errors / np.where(spread > 0, spread, 1.0)))


def _points_on_both_sides(units, n, rng):
    """At least n + 4 D inputs, half of them near the centre, half near the hyperplanes, and more near far ones."""
    W, b = units.weights, units.biases
    D, m = W.shape
    n += 4 * D
    U = rng.standard_normal((n, D))
    active = np.mean(U @ W + b > 0, axis=0)
    rare = np.flatnonzero(np.minimum(active, 1.0 - active) < 0.05)
    which = np.concatenate([np.arange(n // 2) % m, np.repeat(rare, int(1.5 * (D + 2)))])
    near = rng.standard_normal((len(which), D))
    move = rng.uniform(-2.5, 2.5, len(which)) - np.sum(near * W.T[which], axis=1) - b[which]
    return np.concatenate([U[n // 2 :], near + move[:, None] * W.T[which]])
