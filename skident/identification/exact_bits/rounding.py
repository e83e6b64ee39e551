"""Round the weights of a network, layer by layer, to numbers of a binary format where the evidence allows."""

from dataclasses import dataclass, replace

import numpy as np

from skident.network import FeedforwardNetwork

from .grid import FAR_OFF, INFORMATIVE, WITHIN, distances, evidence_of, integer_multiples, nearest, spacing
from .unit_scale import scale_of_unit

_MIN_NATS = 30.0  # evidence that the weights of a network lie on the grid at all: one false network in 1e13
_MIN_MORE_NATS = 10.0  # evidence for the weights or biases of a layer, once other parameters lie on the grid
MAX_LOG_ODDS = -16.0  # logarithm of the odds of a wrong number below which it is certain: 1e-7
_ERROR_FACTOR = 2.0  # standard error over the root mean square of a unit's distances: few of them, and errors correlate
_RELATIVE_ERROR = 1e-12  # error of a recovered parameter over its unit's largest, if no other one determines it
_NO_INTEGER = 15  # integers up to which weights may be equal or simple for other reasons than quantization
_MIN_DISTANCES = 8  # distances of a unit that determine its error; units with fewer have that of the layer


@dataclass(frozen=True)
class Layer:
    """Rounded parameters of a layer, weights on the bias (m_in + 1, m_out).

    Attributes
    ----------
    values : ndarray
        On the grid where `certain`; else as recovered, at the scale of the rounded ones.
    log_odds : ndarray
        Logarithm of the odds that the nearest number is wrong; inf if it does not lie on the grid, or has no scale.
    reasons : tuple of str
        Why parameters are not certain.
    """

    values: np.ndarray
    log_odds: np.ndarray
    reasons: tuple

    @property
    def certain(self):
        """Which values are certain."""
        return self.log_odds < MAX_LOG_ODDS


@dataclass(frozen=True)
class RoundedNetwork:
    """A network whose certain parameters are numbers of a binary format.

    Attributes
    ----------
    network : FeedforwardNetwork
    layers : list of Layer
    """

    network: FeedforwardNetwork
    layers: list

    @property
    def log_odds(self):
        """Logarithms of the odds of all parameters, layer by layer as in `parameter_jacobian`."""
        return np.concatenate([layer.log_odds.ravel() for layer in self.layers])


def round_network(network, digits):
    """Round the parameters of a network recovered to about 1e-10 or better to numbers with `digits` binary digits.

    Layer by layer: every unit with a positively homogeneous activation (ReLU, leaky ReLU) is first brought to the scale
    at which its incoming weights and its bias lie on the grid, with the largest weight in [1/2, 1); its outgoing
    weights are divided by that scale. Powers of two change no bit of a mantissa. Then weights and biases are rounded
    if they lie on the grid by far more than chance, and a number is certain if its neighbors are unlikely for its
    error.

    Returns a `RoundedNetwork`.
    """
    A = [np.vstack([W, b]) for W, b in zip(network.weights, network.biases)]
    layers, nats, known = [], 0.0, np.ones(network.n_inputs, dtype=bool)
    for index, activation in enumerate(network.activations):
        layer = A[index]
        found = np.ones(layer.shape[1], dtype=bool)
        if index < len(A) - 1 and activation.symmetry == "homogeneous":
            scales, found = _unit_scales(layer[np.append(known, True)], digits)
            layer = layer * scales
            A[index + 1] = np.vstack([A[index + 1][:-1] / scales[:, None], A[index + 1][-1:]])
        rounded, evidence = _round_layer(layer, known, found, digits)
        layers, nats, known = [*layers, rounded], max(nats, evidence), found
    if nats < _MIN_NATS:
        A = [np.vstack([W, b]) for W, b in zip(network.weights, network.biases, strict=True)]
        layers = [
            Layer(values, np.full(values.shape, np.inf), old.reasons) for values, old in zip(A, layers, strict=True)
        ]
    return RoundedNetwork(with_layers(network, [layer.values for layer in layers]), layers)


def with_layers(network, values):
    """A network with other parameters: per layer, weights on the bias (m_in + 1, m_out)."""
    return network.with_parameters([V[:-1] for V in values], [V[-1] for V in values])


def log_odds_of_neighbors(values, error, digits):
    """Logarithms of the odds that not the nearest number is right but a neighbor, for values with normal errors."""
    step = spacing(values, digits)
    gap = step * (step - 2.0 * distances(values, digits))
    return np.log(2.0) - gap / (2.0 * np.maximum(error, np.finfo(float).tiny) ** 2)


def _unit_scales(A, digits):
    """Scales (m,) of all units of a layer A (d, m), and which were detected; 1 for the others."""
    quantized = [integer_multiples(column[:-1]) is not None for column in A.T]
    found = [None if q else scale_of_unit(column, digits) for q, column in zip(quantized, A.T, strict=True)]
    scales = np.array([1.0 if scale is None else scale[0] for scale in found])
    largest = nearest(np.abs(A[:-1] * scales).max(axis=0, initial=0.0), digits)
    scales = np.ldexp(scales, -np.frexp(np.where(largest > 0.0, largest, 0.5))[1])
    return scales, np.array([scale is not None for scale in found])


def _round_layer(A, known, found, digits):
    """Round weights and bias A (d + 1, m) of a layer whose inputs `known` (d,) and units `found` (m,) have their scale.

    Returns the `Layer` and its largest evidence in nats.
    """
    tested = np.append(known, True)[:, None] & found
    size = np.broadcast_to(np.maximum(np.abs(A).max(axis=0), np.finfo(float).tiny), A.shape)
    log_odds, values, reasons, nats, relative = np.full(A.shape, np.inf), A.copy(), [], 0.0, _RELATIVE_ERROR
    for name, rows in (("weights", slice(None, -1)), ("biases", slice(-1, None))):
        part, unit, which = A[rows], size[rows], tested[rows]
        evidence = evidence_of(part[which], unit[which], digits)
        nats = max(nats, evidence.nats)
        if evidence.nats >= _MIN_MORE_NATS:
            relative = evidence.error
        elif np.any(_is_off(part, relative * unit, digits) & which):
            reasons.append(_why_off_grid(name, part))
            continue
        odds = _log_odds(part, unit, which, replace(evidence, error=relative), digits)
        log_odds[rows] = np.where(which, odds, np.inf)
        near = np.where(np.abs(part) <= WITHIN * relative * unit, 0.0, nearest(part, digits))
        values[rows] = np.where(log_odds[rows] < MAX_LOG_ODDS, near, part)
    if not tested.all():
        reasons.append(_why_no_scale(A[:-1][known][:, ~found]))
    return Layer(values, log_odds, tuple(reasons)), nats


def _is_off(values, error, digits):
    """Whether values with these errors are not on the grid."""
    step = spacing(values, digits)
    return (step > INFORMATIVE * error) & (distances(values, digits) > FAR_OFF * step)


def _log_odds(values, size, tested, evidence, digits):
    """Logarithms of the odds of wrong numbers, for values (d, m) of which most lie on the grid; inf off the grid."""
    error = _unit_errors(values, size, tested, evidence.error, digits)
    tiny, step, distance = np.finfo(float).tiny, spacing(values, digits), distances(values, digits)
    by_chance = 2.0 * np.maximum(WITHIN * evidence.error * size, distance) / np.maximum(step, tiny)
    odds = log_odds_of_neighbors(values, error, digits)
    odds = np.maximum(odds, np.log(by_chance * evidence.share_off + tiny))
    odds = np.where(_is_off(values, error, digits), np.inf, odds)
    zero = np.abs(values) <= WITHIN * evidence.error * size
    return np.where(zero, np.log(2.0 * WITHIN * evidence.error), odds)


def _why_off_grid(name, values):
    """Why weights or biases are not numbers of the format."""
    n = integer_multiples(values.ravel())
    if n is not None:
        return f"the {name} are multiples of one step, up to {n}: they were quantized to integers"
    return f"the {name} are not numbers of this format"


def _why_no_scale(weights):
    """Why units with these incoming weights (d, m), or the units before them, have no scale."""
    multiples = [integer_multiples(column) for column in weights.T]
    if multiples and any(n is not None and n > _NO_INTEGER for n in multiples):
        return "the weights of a unit are multiples of one step: they were quantized to integers"
    return "no scale of a unit, or more than one, makes its weights numbers of this format"


def _unit_errors(values, size, tested, relative, digits):
    """Standard errors of values (d, m), from every unit's distances to the grid or, if they are few, the layer's."""
    off, step = distances(values, digits), spacing(values, digits)
    informative = tested & (step > INFORMATIVE * relative * size) & (off < FAR_OFF * step)
    count = informative.sum(axis=0)
    squares = np.where(informative, off**2, 0.0).sum(axis=0) / np.maximum(count, 1)
    own = np.maximum(_ERROR_FACTOR * np.sqrt(squares), np.finfo(float).eps * size)
    return np.where(count >= _MIN_DISTANCES, own, relative * size)
