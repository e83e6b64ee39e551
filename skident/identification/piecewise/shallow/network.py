"""A ReLU network with one hidden layer and linear output, from its activation boundaries."""

from dataclasses import replace

import numpy as np

from skident.fitting.polish import NOISY_OUTPUTS, polish_network
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import NotIdentified

from ...constants import CLEARLY, COMPARED_TO, MAX_LINES, POLISHED, WIDENINGS
from ..kernel.output_error import probe_of
from .distant import find_from_distant_outputs, serves_distant_outputs
from .inexact import find_from_inexact_outputs
from .line_search import LineSearch
from .linear_part import network_with_linear_part
from .logits import find_from_logits
from .restricted import fit_unsigned, network_of_fit
from .signs import leaky_units, points_on_both_sides, refined_units, signed_units
from .units import ShallowNetwork

_MAX_LINES_RESTRICTED = 100  # budget where the informative part of a line crosses only some of them
_N_IDLE_RESTRICTED = 2  # lines in a row that must give nothing new there
_FIT_EVERY = 8  # lines after which the units are fitted there in any case
_PATIENCE = 24  # lines after which small residuals are accepted there
_FAINT_RESIDUAL = 1e-6  # these, relative to the spread of the outputs: units too small for the others' rounding
_EXPLAINED_TOL = 1e-9  # relative error of held-out outputs below which a network is taken as the black box
_EXACT_TOL = 1e-13  # `_EXPLAINED_TOL` below which polishing gains nothing: rounding
_ACCURATE = 3e-8  # error of a unit that need not be measured again if nothing is polished
_N_REMEASURING = 4  # first lines on which that is tried
_START_TOL = 1e-3  # relative error above which polishing does not converge to the black box
_START_TOL_NOISY = 0.3  # `_START_TOL` for noisy outputs
_NOISY_TRIES = 2  # searches; noise hides boundaries here and there, other lines find others
_NOISE_LEFT = 4.0  # errors of the outputs by which a network may be off
_NO_WEIGHT = 1e-8  # outgoing weight over the largest of units whose sign does not matter
_OUTPUTS = 1.75  # per parameter, for the polish
_CONSTANT_TOL = 4.0  # errors by which constant outputs differ
_NO_SIGNS = ("signs", "ambiguous", "undecided")  # reasons of a failure for which a linear part may explain the outputs
_SHELL = 32  # points of a shell of validation


def find_relu_network(
    oracle, *, n_units=None, max_units=1000, reach=1e3, leaky=False, linear=True, rng=None, callback=None
):
    """The `ShallowNetwork` of a black box with one hidden layer of ReLU units and linear output, from its outputs.

    It is of the oracle's standardized inputs, and misses held-out outputs by less than 1e-9 of their spread, mostly
    1e-13, or by some of their errors if they are noisy. Otherwise raises `NotIdentified`; and `BlackBoxError` if the
    black box cannot be queried far from the center: then a smaller `reach` may help.

    With `n_units` known, no line is spent on confirming that it is complete, and more boundaries are an error. Lines
    have at most `max_units` boundaries. They reach `reach` units of ``sqrt(D)``, and up to 1e4 times as far if no
    boundaries explain the outputs. With `leaky`, units have a slope on their other side, one for all: it is recovered.
    With `linear`, units without signs that explain the outputs get a linear part instead. `callback(n_found)` is called
    after every line.

    Notes
    -----
    Almost every line crosses every hyperplane once, so a line meets all units: about 20 queries per unit. Another
    2 D per unit give the jumps of the gradient, and ``1.75 P / m_L`` the polish of P parameters. A further line
    confirms that every hyperplane continues there with the same jump, which holds for one hidden layer only.

    Units that are constant, or whose outgoing weights are below 1e-10 of the others, have no effect and are left out.
    Parallel units with different biases are separated. Two units on one hyperplane appear as one, whose jump is their
    sum, and are refused unless it explains the linear part too. The signs of the units follow from m_L D equations, see
    `solve_signs`: 100 units with 10 inputs and one output take some 10 seconds. An unknown slope takes one of these.

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
    if oracle.response == "predict_proba" and oracle.precision.is_coarse_binary and not leaky:
        return find_from_logits(oracle, rng, n_units, callback)
    probe = probe_of(oracle, rng, far=min(COMPARED_TO, reach))
    for n_left in reversed(range(1 if probe.exact else _NOISY_TRIES)):
        search = LineSearch(probe, reach * probe.length_scale, max_units, rng)
        try:
            if oracle.restricted and not leaky:
                return _find_restricted(search, callback)
            if not probe.exact and not leaky:
                return ShallowNetwork(*_inexact(search, n_units, callback))
            return _find_everywhere(search, n_units, leaky, linear, callback)
        except NotIdentified:
            if n_left == 0:
                raise


def _inexact(search, n_units, callback):
    """The network and the sample of its last fit from outputs with errors, far out first if that makes them small."""
    oracle = search.probe.oracle
    if serves_distant_outputs(oracle):
        try:
            return find_from_distant_outputs(
                oracle, search.rng, n_units=n_units, max_units=search.max_units, callback=callback
            )
        except NotIdentified:  # errors may grow with the distance, or the black box is another function there
            pass
    return find_from_inexact_outputs(search, n_units, callback)


def _find_everywhere(search, n_units, leaky, linear, callback):
    """The network if every line meets nearly all units: until one confirms what is known and adds nothing."""
    n_widened = 0
    for n_lines in range(MAX_LINES):
        search.scan_next_line()
        if callback is not None:
            callback(len(search.units))
        complete = search.n_idle > 0
        if search.probe.exact and len(search.units) * search.probe.oracle.n_inputs > POLISHED:
            # Too large to be polished: every unit is measured until it is accurate.
            search.remeasure_tol = _ACCURATE
            if complete and n_lines < _N_REMEASURING and search.units.errors.max() > _ACCURATE:
                continue
        if not complete and (len(search.units) != n_units or search.units.errors.max() > search.remeasure_tol):
            continue
        try:
            network, failure = _assemble(search, n_units, leaky)
        except NotIdentified as undecided:
            if not linear or undecided.reason != "undecided":
                raise
            network, failure = None, undecided
        if network is not None:
            return ShallowNetwork(network)
        final = failure.reason == "undecided" or (complete and n_widened == WIDENINGS)
        # With a given number of units, ambiguous signs are those of another activation.
        free = linear and failure.reason in _NO_SIGNS and (n_units is None or failure.reason != "ambiguous")
        if final and free and (found := _with_linear_part(search)) is not None:
            return found
        if final:
            raise failure
        if complete:
            n_widened += 1
            search.widen(failure)
    raise _failure(
        "unresolved",
        f"after {MAX_LINES} lines the detected activation boundaries ({len(search.units)} units) still change from "
        "line to line: units that are too close together, or no network with one hidden layer of ReLU units.",
    )


def _find_restricted(search, callback):
    """The network if not all outputs are informative: lines until nothing visible is new and all is explained."""
    fit = None
    for n_lines in range(_MAX_LINES_RESTRICTED):
        search.scan_next_line() if fit is None else search.scan_residual()
        if callback is not None:
            callback(len(search.units))
        if len(search.units) == 0 or (search.n_idle < _N_IDLE_RESTRICTED and (n_lines + 1) % _FIT_EVERY):
            continue
        fit = fit_unsigned(search)
        search.units, search.n_located = fit.units, len(fit.units)
        if len(fit.wrong) == 0 or (n_lines >= _PATIENCE and fit.residual < _FAINT_RESIDUAL):
            return network_of_fit(fit, search.probe.output_error, search.probe.length_scale)
    raise _failure(
        "unexplained",
        f"after {_MAX_LINES_RESTRICTED} lines {len(search.units)} units were detected, and outputs remain that they do "
        "not explain: other units are too small, or the black box is no network with one hidden layer of ReLU units.",
    )


class ValidationShells:
    """Held-out outputs on shells at three distances, and the errors of networks on them.

    The errors are relative to the spread of a shell's outputs, the worst of all shells and outputs.
    """

    def __init__(self, search, far=COMPARED_TO):
        probe, far = search.probe, min(far, search.reach / search.probe.length_scale)
        radii = np.repeat([1.0, np.sqrt(far), far], _SHELL)[:, None]
        U = search.rng.standard_normal((3 * _SHELL, probe.oracle.n_inputs)) * radii
        self.U = probe.oracle.clip_to_range(U)  # outside, nothing is known that could refute a network
        F, tol = probe.query(self.U)
        self.Y = F * probe.output_error
        # Outputs that are constant on a shell have at least their error as spread.
        spread = np.maximum(np.ptp(F.reshape(3, _SHELL, -1), axis=1), 1.0)
        self.output_error = float(np.max(tol.reshape(3, -1, 1) / spread[:, None]))
        self.spread = spread * probe.output_error

    def error(self, network):
        """Largest relative error of a network."""
        errors = np.abs(network(self.U) - self.Y).reshape(3, _SHELL, -1).max(axis=1)
        return float(np.max(errors / self.spread))

    def with_constant(self, network):
        """The network with the biases of its outputs from those near the center."""
        constant = np.median((self.Y - network(self.U))[:_SHELL], axis=0)
        return network.with_parameters(network.weights, [network.biases[0], network.biases[1] + constant])

    def explains(self, error):
        """Whether an error is that of the black box itself."""
        return error <= max(_EXPLAINED_TOL, _NOISE_LEFT * self.output_error)


def _assemble(search, n_units, leaky):
    """The network of the units, with signs, constant and polish, or else None and why it is not the black box.

    What it lacks then may be farther out. Too many units, or signs that cannot be determined, are raised at once.
    """
    n_found = len(search.units)
    if n_found == 0:
        return None, _no_boundaries(search)
    if n_units is not None and n_found > n_units:
        raise _failure(
            "units",
            f"layer_widths gives {n_units} hidden units, but {n_found} activation boundaries were detected; set "
            f"layer_widths=({n_found}, {search.probe.oracle.n_outputs}).",
        )
    shells = ValidationShells(search)
    search.units, choices, activation = _leaky(search) if leaky else (*signed_units(search), "relu")
    if len(choices) == 0:
        return None, _no_signs(search)
    networks = [_network(search, signs, activation, shells) for signs in choices]
    errors = np.array([shells.error(network) for network in networks])
    exact = search.probe.exact
    enough = _EXACT_TOL if networks[0].n_parameters <= POLISHED or not exact else _EXPLAINED_TOL
    if enough < errors.min() < (_START_TOL if exact else _START_TOL_NOISY):
        networks, errors = _polish(search, networks, errors, shells)
    best = int(np.argsort(errors)[0])
    if not shells.explains(errors[best]):
        return None, _failure(
            "unexplained",
            f"the network of the {n_found} detected units misses held-out outputs by {errors[best]:.1e} of their "
            "spread.",
        )
    # Signs of exact outputs that explain them equally well are different writings of one function; validation says so.
    if not exact and _is_ambiguous(search.units, choices, errors):
        return None, _ambiguous(n_found)
    return networks[best], None


def _with_linear_part(search):
    """The `ShallowNetwork` of the units with a linear part in place of signs; None if it explains too little."""
    try:
        units, linear = refined_units(search)
    except NotIdentified:
        return None
    shells = ValidationShells(search)
    network, n_pairs = network_with_linear_part(units, linear, search.probe.output_error)
    network = shells.with_constant(network)
    error = shells.error(network)
    return ShallowNetwork(network, n_skips=n_pairs) if shells.explains(error) else None


def _leaky(search):
    """Units with outgoing weights in place of jumps, their signs, and the activation."""
    units, choices, slope = leaky_units(search)
    if len(choices) == 0:
        return units, choices, "relu"
    return replace(units, outgoing=units.outgoing / (1.0 - slope)), choices, leaky_relu(slope)


def _network(search, signs, activation, shells):
    """The network of the units with given signs."""
    units, scale = search.units, search.probe.output_error
    weights, biases = [units.weights * signs, units.outgoing * scale], [units.biases * signs, np.zeros(len(scale))]
    return shells.with_constant(FeedforwardNetwork(weights, biases, activation))


def _polish(search, networks, errors, shells):
    """Every network, or its polished form if that is better, and their errors."""
    oracle, exact = search.probe.oracle, search.probe.exact
    n = int((_OUTPUTS if exact else NOISY_OUTPUTS) * networks[0].n_parameters / networks[0].n_outputs)
    points = points_on_both_sides(search.units, n, search.rng)
    outputs, noise = oracle(points), None if exact else oracle.accuracy.std
    networks, errors = list(networks), errors.copy()
    for i, network in enumerate(networks):
        polished = polish_network(network, points, outputs, noise=noise, callback=lambda _: oracle.budget.out_of_time)[
            0
        ]
        error = shells.error(polished)
        if error < errors[i]:
            networks[i], errors[i] = polished, error
    return networks, errors


def _is_ambiguous(units, choices, errors):
    """Whether other signs of units that matter explain the outputs about as well as the best ones."""
    order = np.argsort(errors)
    rivals = order[1:][errors[order[1:]] < CLEARLY * max(errors[order[0]], _EXACT_TOL)]
    changed = np.any(choices[rivals] != choices[order[0]], axis=0)
    sizes = np.linalg.norm(units.outgoing, axis=1)
    return bool(np.any(sizes[changed] > _NO_WEIGHT * sizes.max()))


def _failure(reason, message):
    return NotIdentified("activation boundaries", reason, message)


def _no_boundaries(search):
    X = search.probe.oracle.clip_to_range(search.rng.standard_normal((16, search.probe.oracle.n_inputs)))
    what = "constant" if np.ptp(search.probe(X), axis=0).max() <= _CONSTANT_TOL else "linear"
    return _failure(
        what,
        f"the outputs are a {what} function without activation boundaries, up to {search.reach:.1e} from the center.",
    )


def _no_signs(search):
    return _failure(
        "signs",
        f"{len(search.units)} hyperplanes explain all activation boundaries up to {search.reach:.1e} from the center, "
        "but wherever the units are active, the linear part of the outputs remains unexplained: there is a linear skip "
        "connection, a leaky activation, or there are two units on one hyperplane.",
    )


def _ambiguous(n_units):
    return _failure(
        "ambiguous",
        f"{n_units} hyperplanes explain all activation boundaries, but the linear part of the outputs does not "
        "determine on which side the units are active: different networks give the same outputs (as for hidden units "
        "that clip on both sides: try activation='hard_tanh'), or there are too few equations for so many units.",
    )
