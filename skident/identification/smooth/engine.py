"""Two hidden layers of saturating units: the second one from faces, the first one's norms and biases from edges."""

from dataclasses import replace

import numpy as np

from skident.fitting.least_squares import Stopping, fit_network
from skident.linalg import lapack, svd
from skident.network import (
    FeedforwardNetwork,
    PartlyLinear,
    get_activation,
    partly_linear,
    with_skip_of_first_layer,
)
from skident.oracle import NotIdentified

from .additive import additive_units, any_additive
from .cube import RecoveredNetwork
from .curves import fit_curve, taylor_term
from .edges import query_edges
from .second_layer import find_second_layer, first_guess

_VERTICES = 1.6  # per parameter and output of the network after the first layer
_MORE_VERTICES = 40  # in addition, for few units
_EXACT = 1e-6  # relative residual on vertices from which a fit is the network: wrong ones leave more than 1e-5
_NEAR = 0.05  # relative residual of a start: a second layer without the first one leaves more
_STOPPING = Stopping(max_iter=200, target=1e-9, patience=40, gain=0.9)


def recover_two_layers(cube, guess=None):
    """The `RecoveredNetwork` with two hidden layers and a linear output behind a cube; NotIdentified otherwise.

    The outputs may read the first hidden layer too: linear units of the second one pass its outputs on.
    """
    if first_guess(cube, guess) is None and not any_additive(cube):
        raise NotIdentified("second layer", "rank", "there are too few inputs for faces")
    edges, cube = query_edges(cube)
    units, inner = additive_units(cube, edges)
    if units is None:
        return _recover(cube, edges, guess)
    found = _recover(inner, query_edges(inner)[0], guess)
    if len(found.network.layer_widths) != 3 or isinstance(found.network.activations[0], PartlyLinear):
        raise NotIdentified("second layer", "additive", "the output reads some first-layer units twice.")
    return replace(found, network=units.beside(found.network))


def _recover(cube, edges, guess):
    """The network behind a cube of units that the second layer reads."""
    m = cube.shape[1]
    second = find_second_layer(cube, guess)
    scales = np.array([edges.norm_and_bias(i, second.curvature[i]) for i in range(m)])
    U, curves = _curves(cube, second, scales)
    n_parameters = U.size + len(curves) + (len(curves) + 1) * cube.n_outputs
    H, Y = cube.vertices(int(_VERTICES * n_parameters / cube.n_outputs) + _MORE_VERTICES)
    rest, residual = _fitted(U * curves[:, 0], curves[:, 1], cube.g.name, H, Y)
    norms = np.exp(scales[:, 0])
    first = cube.weights * norms, cube.biases * norms + scales[:, 1]
    n_linear = getattr(get_activation(rest.activations[0]), "n_linear", 0)
    network = _joined(first, rest, len(rest.biases[0]) - n_linear, cube.g.name)
    return RecoveredNetwork(network, residual)


def _curves(cube, second, scales):
    """Weights (m, m_2) of the second layer up to norms, and norms, biases and residuals of curves (m_2, 3)."""
    norms, biases, g = np.exp(scales[:, 0]), scales[:, 1], cube.g
    U = second.U / (norms * g.jet(biases, 1)[1])[:, None]
    C, H = np.concatenate(second.coefficients), g(np.concatenate(second.levels) * norms + biases)
    term = taylor_term(g.name, second.order)
    return U, np.array([fit_curve(H @ U[:, k], C[:, :, k], term) for k in range(U.shape[1])])


def _fitted(W, b, name, H, Y):
    """The network (m, m_2, P) after the first layer, from second-layer weights, fitted to outputs Y at vertices H.

    A start that explains little of the outputs may lack that they read H as well: linear units follow those of W then.
    """
    starts = [_start(W, b, name, H, Y, skip) for skip in (False, True)]
    if starts[0][1] < _NEAR or starts[1][1] > _NEAR:
        starts = starts[:1]
    residual = np.inf
    for start, _ in starts[::-1]:
        rest, residual = fit_network(start, H, Y, _STOPPING)
        if residual < _EXACT:
            return rest, residual
    raise NotIdentified(
        "second layer", "residual", f"the second layer leaves a relative residual of {residual:.1e} of the outputs"
    )


def _start(W, b, name, H, Y, skip):
    """A network with the output layer of least squares and, if `skip`, linear units; its relative residual."""
    hidden = get_activation(name)(H @ W + b)
    columns = np.column_stack([hidden, np.ones(len(H)), *([H] if skip else [])])
    fitted = lapack.lstsq(columns, Y, rcond=1e-12)[0]
    left = np.linalg.norm(columns @ fitted - Y) / max(np.linalg.norm(Y - Y.mean(axis=0)), np.finfo(float).tiny)
    V, offset = fitted[: len(b)], fitted[len(b)]
    if not skip:
        return FeedforwardNetwork([W, V], [b, offset], name), left
    read, sizes, written = svd(fitted[len(b) + 1 :], full_matrices=False)
    weights, n = [np.hstack([W, read * sizes]), np.vstack([V, written])], len(sizes)
    return FeedforwardNetwork(weights, [np.append(b, np.zeros(n)), offset], partly_linear(name, n)), left


def _joined(first, rest, n_units, name):
    """The first layer and the rest, which has linear units from `n_units` on, as one network."""
    (W, V), (b, offset) = rest.weights, rest.biases
    network = FeedforwardNetwork([first[0], W[:, :n_units], V[:n_units]], [first[1], b[:n_units], offset], name)
    if len(b) == n_units:
        return network
    passed = W[:, n_units:] @ V[n_units:]
    network = network.with_parameters(network.weights, [*network.biases[:2], offset + b[n_units:] @ V[n_units:]])
    return with_skip_of_first_layer(network, passed)
