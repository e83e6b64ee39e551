"""One hidden layer of ReLU units from outputs with errors: candidates by vote, a robust fit of all weights, signs.

A fit without signs comes first. Units whose outgoing weight is not significant are redundant. Then the signs are those
that make the linear part vanish.
"""

from dataclasses import replace

import numpy as np

from skident.fitting.robust_polish import robust_polish
from skident.linalg.sign_vectors import UndecidedSignsError
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...constants import (
    CHECKED,
    COARSE,
    CUT,
    DOUBLE_COSINE,
    DOUBLE_FREEDOM,
    MAX_DOUBLES,
    N_CHOICES,
    SIGNIFICANT,
    WEAK_RIDGE,
)
from .candidates import CandidateUnits
from .growth import grown_units, with_close_units
from .screening import screened, screened_beside
from .signs import signs_of_linear_part
from .split_units import with_split_units
from .unsigned import Covariance, n_units_of, output_std, query_rows, significant, units_of, with_linear_part

_LINES = (8, 8, 16)  # lines scanned before each fit: nearly every line crosses every hyperplane
_RESIDUAL_SEARCHES = 4  # fits, each with the small units that the residual of the one before shows
_ROWS = 8.0  # queries per parameter of the fit of small networks: standard errors fall with the root of their number
_ROWS_COARSE = 32.0  # `_ROWS` for coarse outputs, of which few show a small unit
_LEAST_COARSE = 4000  # of these: some 1 % of them lie between close units
_ROWS_LARGE = 2.5  # `_ROWS` of large ones (budget)
_FIRST_SHARE = 0.6  # of these for the fit without signs
_LARGE = 1500  # parameters from which a network is large (budget)
_DEEPER = 0.14  # share of boundaries that no other line meets, of two layers; 0.10 of one at most, 0.18 of two at least
_ROUGH = 0.1  # residual of the linear fit over the outputs' spread from which candidates miss most of the network
_CONVERGED = 1.5  # scale at which the fit without signs ends: signs need no more
_EXPLAINED = 3.0  # scale of the residuals, in standard deviations of the errors, up to which they are errors
_OUTLIERS = 5e-4  # share of outlying rows up to which units are complete: a rarely active one moves few rows
_FEW = 0.05  # share of them up to which the others are explained by the right units; validation counts them
_ROUNDING_FACTOR = 3.0  # `SIGNIFICANT` over that if outputs are rounded: rounding is not white
_PRUNED = 10.0  # scale of the residuals from which units are kept, as others are missing
_LINEAR_ERRORS = 8.0  # standard deviations of the linear part that right signs may leave
_SIGN_SAMPLES = 8  # random signs of which the mean covariance is taken: pairs of close units have large ones for some
_WORSE = 1.5  # factor of the residuals by which signs are excluded
_COARSE_DIGITS = 2.5e-6  # `COARSE` of significant digits, whose errors grow with the distance: six of them


def find_from_inexact_outputs(search, n_units=None, callback=None, max_unshared=_DEEPER):
    """The `FeedforwardNetwork` of standardized inputs with one hidden ReLU layer, and the `FitSample` of its last fit.

    There must be more layers if a larger share than `max_unshared` of the boundaries lies on hyperplanes of which no
    other line meets one.

    Raises `NotIdentified` if no units explain the outputs up to their errors.
    """
    if is_coarse(search.probe.oracle):
        return _network_of(search, grown_units(search.probe.oracle, search.rng), n_units)
    candidates, failure = CandidateUnits(search), None
    for n_lines in _LINES:
        candidates.scan(n_lines)
        units = candidates.units()
        if callback is not None:
            callback(len(units))
        if (share := candidates.unshared()) > max_unshared:
            raise _failure("layers", f"{share:.0%} of the activation boundaries end, as those of deeper layers do.")
        try:
            return _network_of(search, units, n_units)
        except NotIdentified as error:
            failure = error
            if error.reason == "units":
                break
    raise failure


def _complete_fit(search, units):
    """The unsigned fit of units and of those that its residual shows, and its rows."""
    oracle = search.probe.oracle
    for n_left in reversed(range(_RESIDUAL_SEARCHES)):
        fit, rows = _unsigned_fit(oracle, units, search.rng)
        units = _further_units(oracle, fit, rows, search.rng) if n_left else None
        if units is None:
            return fit, rows


def _further_units(oracle, fit, rows, rng):
    """The units of a fit and those that its residual shows; None if it shows none."""
    units, explained = units_of(fit.network), _explains(fit)
    if not is_coarse(oracle):
        return None if explained else units.joined(screened(fit, rows, rng))
    if not explained:
        return with_close_units(oracle, units, rows, rng)
    close = screened_beside(fit, rows, rng)
    return units.joined(close) if len(close) else None


def _network_of(search, units, n_units):
    """The network whose units are among candidates, and its rows; NotIdentified if these are not all."""
    oracle = search.probe.oracle
    if len(units) == 0:
        raise _failure("bent", "no hyperplane is crossed by several lines.")
    fit, rows = _complete_fit(search, units)
    if fit.scale < _EXPLAINED and not is_coarse(oracle):
        fit, rows = with_split_units(oracle, fit, rows, search.rng)
    if not _explains(fit, _FEW):
        raise _failure(
            "unexplained",
            f"{n_units_of(fit.network)} hyperplanes leave residuals of {fit.scale:.1e} times the outputs' error.",
        )
    if n_units is not None and n_units_of(fit.network) > n_units:
        raise _failure(
            "units",
            f"layer_widths gives {n_units} hidden units, but {n_units_of(fit.network)} hyperplanes are significant.",
        )
    covariance = _linear_covariance(fit, rows, search.rng)
    rows = query_rows(oracle, fit.network, _n_rows(oracle, fit.network), search.rng)
    fit = _signed_fit(fit, rows, covariance)
    checked = query_rows(oracle, fit.network, CHECKED, search.rng)
    residual = np.abs(fit.network(checked.inputs) - checked.outputs) / checked.std
    if np.median(residual) > _EXPLAINED:
        raise _failure("unexplained", "further outputs are not explained.")
    return fit.network, replace(rows, std=rows.std * fit.scale)


def _explains(fit, outliers=_OUTLIERS):
    return fit.scale < _EXPLAINED and fit.outliers.mean() < outliers


def _failure(reason, message):
    return NotIdentified("activation boundaries", reason, message)


def _unsigned_fit(oracle, units, rng):
    """The `RobustFit` of the significant units with a linear part, and its rows."""
    p = units.outgoing.shape[1]
    guess = FeedforwardNetwork([units.weights, units.outgoing], [units.biases, np.zeros(p)], "relu")
    rows = query_rows(oracle, guess, int(_FIRST_SHARE * _n_rows(oracle, guess)), rng)
    network, rough = with_linear_part(units, rows)
    if rough > _ROUGH:
        raise _failure("bent", f"the hyperplanes detected explain the outputs only to {rough:.0%} of their spread.")
    # Small outputs have so many more digits that a fit which explains most of the others is far from its end.
    enough = 0.0 if is_coarse(oracle) or oracle.accuracy.kind == "digits" else _CONVERGED
    while True:
        fit = robust_polish(network, rows.inputs, rows.outputs, rows.std, enough=enough)
        units = units_of(fit.network)
        limit = SIGNIFICANT * (1.0 if is_coarse(oracle) else _ROUNDING_FACTOR)
        kept = significant(fit, rows, limit) if fit.scale < _PRUNED else np.ones(len(units), dtype=bool)
        if not kept.all() and kept.any():
            network, _ = with_linear_part(units.take(kept), rows)
            continue
        fit = _without_doubles(fit, rows, limit) if _explains(fit) else fit
        return fit, replace(rows, std=output_std(oracle, fit.network, rows.inputs, rows.outputs))


def _without_doubles(fit, rows, limit):
    """The fit with one unit for every two close ones that explain the outputs no better than one."""
    units = units_of(fit.network)
    planes = np.vstack([units.weights, units.biases / np.sqrt(len(units.weights))])
    planes /= np.linalg.norm(planes, axis=0)
    cosines = np.abs(np.triu(planes.T @ planes, 1))
    pairs = np.argwhere(cosines > DOUBLE_COSINE)
    for j in pairs[np.argsort(-cosines[tuple(pairs.T)])][:MAX_DOUBLES, 1]:
        network, _ = with_linear_part(units.take(np.arange(len(units)) != j), rows)
        single = robust_polish(network, rows.inputs, rows.outputs, rows.std)
        residuals = [(f.network(rows.inputs) - rows.outputs) / (rows.std * fit.scale) for f in (single, fit)]
        worse = np.sum(np.minimum(residuals[0] ** 2, CUT)) - np.sum(np.minimum(residuals[1] ** 2, CUT))
        if worse < limit**2 + DOUBLE_FREEDOM * len(planes):
            return _without_doubles(single, rows, limit)
    return fit


def is_coarse(oracle):
    """Whether outputs have errors of noise or of few digits, and not of single precision."""
    accuracy = oracle.accuracy
    return accuracy.relative_error > (_COARSE_DIGITS if accuracy.kind == "digits" else COARSE)


def _n_rows(oracle, network):
    """Queries of a fit."""
    P = network.n_parameters
    if is_coarse(oracle) and P < _LARGE:
        return int(max(_ROWS_COARSE * P / network.n_outputs, _LEAST_COARSE))
    return int((_ROWS if P < _LARGE else _ROWS_LARGE) * P / network.n_outputs)


def _signed_fit(fit, rows, covariance):
    """The `RobustFit` with the signs that make the linear part of an unsigned fit vanish.

    `covariance` is that of the linear part, (m_L D, m_L D), outputs first.
    """
    units, network = units_of(fit.network), fit.network
    m = len(units)
    linear = network.weights[0][:, m:] @ network.weights[1][m:]  # (D, p)
    target = (2.0 * linear + units.weights @ units.outgoing).T
    constant = network.biases[1] + network.biases[0][m:] @ network.weights[1][m:]
    try:
        choices, residual = signs_of_linear_part(units, target, _LINEAR_ERRORS, covariance)
    except UndecidedSignsError as error:
        raise _failure("undecided", f"{m} hyperplanes are detected, but not their signs: {error}") from None
    if len(choices) == 0:
        raise _failure("signs", f"{m} hyperplanes explain the outputs, but no signs explain their linear part.")
    order = np.argsort(residual)[:N_CHOICES]
    fits = [_relu_fit(units, signs, rows, constant) for signs in choices[order]]
    fits = sorted(fits, key=lambda f: f.scale)
    if fits[0].scale > max(_WORSE * fit.scale, _EXPLAINED):
        raise _failure("signs", f"{m} hyperplanes explain the outputs, but no signs explain their linear part.")
    if len(fits) > 1 and fits[1].scale < _WORSE * fits[0].scale:
        raise _failure("ambiguous", f"several choices of signs of {m} units explain the outputs.")
    return fits[0]


def _relu_fit(units, signs, rows, constant):
    """The polished network of units (weights with |z|) with given signs."""
    # c relu(z) with orientation +1 becomes c relu(-z) + c z; the linear parts cancel, the biases go to the constant.
    flipped = np.where(signs < 0, units.biases, 0.0) @ units.outgoing
    weights = [units.weights * signs, units.outgoing]
    network = FeedforwardNetwork(weights, [units.biases * signs, constant + flipped], "relu")
    return robust_polish(network, rows.inputs, rows.outputs, rows.std)


def _linear_covariance(fit, rows, rng):
    """Covariance (p D, p D) of the linear part ``sum_i s_i c_i w_i - 2 g``, outputs first: the mean over some signs."""
    network, m = fit.network, n_units_of(fit.network)
    (W, c), D, p = network.weights, network.n_inputs, network.n_outputs
    covariance, total = Covariance(fit, rows), np.zeros((p * D, p * D))
    for _ in range(_SIGN_SAMPLES):
        flipped = np.concatenate([rng.rand(m) < 0.5, np.ones(p, dtype=bool)])
        by_inner, by_outer = np.zeros((p, D, *W.shape)), np.zeros((p, D, *c.shape))
        for i in range(D):
            for j in range(p):
                by_inner[j, i, i], by_outer[j, i, :, j] = c[:, j] * flipped, W[i] * flipped
        total += covariance.of((by_inner.reshape(p * D, *W.shape), by_outer.reshape(p * D, *c.shape)))
    total.flat[:: len(total) + 1] *= 1.0 + WEAK_RIDGE
    return 4.0 * total / _SIGN_SAMPLES
