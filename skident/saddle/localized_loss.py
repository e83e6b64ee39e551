"""The localized loss of a bias-free ReLU network near zero: speeds, gradients, truncation, added layers.

Layouts: inputs X (n, D); weights ``W_l`` (R, m_{l-1}, m_l) of a batch of R networks, or without R for one; ``f(X) =
relu(... relu(X W_1) ...) W_L``; G (n, k), the loss's gradient with respect to the outputs at zero. All functions take
array API arrays: NumPy arrays and torch tensors on any device.

On ``||theta||^2 = L`` the localized loss ``L_0 = <G, f(X)>`` is lowest if each layer has norm one, so layers are kept
at norm one. The last layer is never a variable: for any hidden layers, the best one is ``-A^T G / ||A^T G||`` for the
last hidden activations A, with the speed ``-L_0 = ||A^T G||_F``.
"""

import math

import numpy as np
from array_api_compat import array_namespace

from skident.optim import unit_norm


def _relu(Z):
    return array_namespace(Z).clip(Z, min=0.0)


def as_matrices(weights):
    """Weights as float64 NumPy arrays (copies), also from torch tensors that require gradients."""
    return [np.array(W.detach().cpu().numpy() if hasattr(W, "detach") else W, dtype=np.float64) for W in weights]


def check_layers(weights, n_inputs, n_outputs):
    """Weights of a network with at least one hidden layer as arrays; ValueError if shapes do not match."""
    weights = as_matrices(weights)
    sizes = [W.shape for W in weights]
    fits = len(weights) >= 2 and all(W.ndim == 2 and np.isfinite(W).all() for W in weights)
    ends = fits and (sizes[0][0], sizes[-1][1]) == (n_inputs, n_outputs)
    if not (ends and all(a[1] == b[0] for a, b in zip(sizes[:-1], sizes[1:]))):
        raise ValueError(
            f"weights must be finite matrices from {n_inputs} inputs over at least one hidden layer to {n_outputs} "
            f"output(s), each taking the columns of the one before; got shapes {sizes}."
        )
    return weights


def activations(hidden, X):
    """The hidden activations ``A_l = relu(A_{l-1} W_l)``, ``A_0 = X``: L - 1 arrays (R, n, m_l) or (n, m_l)."""
    layers, A = [], X
    for W in hidden:
        A = _relu(A @ W)
        layers.append(A)
    return layers


def _readout(A, G):
    """``-A^T G`` (R, m, k): the last layer's best weights times the speed."""
    return -(array_namespace(A).matrix_transpose(A) @ G)


def last_layer(hidden, X, G):
    """The best last layer (R, m_{L-1}, k) for given hidden layers, of unit norm; zeros for dead networks."""
    return unit_norm(_readout(activations(hidden, X)[-1], G))


def speed(hidden, X, G):
    """The speeds ``||A_{L-1}^T G||_F`` (R,) of hidden layers of unit norm with the best last layer."""
    readout = _readout(activations(hidden, X)[-1], G)
    return array_namespace(readout).linalg.vector_norm(readout, axis=(-2, -1))


def speed_and_gradient(hidden, X, G):
    """The speeds (R,) of hidden layers with the best last layer, and their gradients.

    The last layer is optimal for the hidden layers, so its own derivative is zero (envelope theorem). A unit with
    pre-activation exactly zero counts as off. Three products per layer, ``O(R n sum_l m_{l-1} m_l)``.
    """
    xp = array_namespace(X)
    layers = activations(hidden, X)
    readout = _readout(layers[-1], G)
    value = xp.linalg.vector_norm(readout, axis=(-2, -1))
    D = -(G @ xp.matrix_transpose(unit_norm(readout)))
    gradients = []
    for k in range(len(hidden) - 1, -1, -1):
        D = D * xp.astype(layers[k] > 0, D.dtype)
        below = layers[k - 1] if k else X
        gradients.append(xp.matrix_transpose(below) @ D)
        D = D @ xp.matrix_transpose(hidden[k]) if k else None
    return value, gradients[::-1]


def loss_gradient(weights, X, G):
    """Value and gradient of the localized loss ``<G, f(X)>`` of one network with all its layers."""
    xp = array_namespace(X)
    layers = activations(weights[:-1], X)
    gradients = [xp.matrix_transpose(layers[-1]) @ G]
    value = xp.sum(gradients[0] * weights[-1])
    D = G
    for k in range(len(weights) - 2, -1, -1):
        D = D @ xp.matrix_transpose(weights[k + 1])
        D = xp.where(layers[k] > 0, D, xp.zeros_like(D))
        gradients.append(xp.matrix_transpose(layers[k - 1] if k else X) @ D)
    return value, gradients[::-1]


def criticality(weights, X, G, escape_speed):
    """Relative residual of criticality on the sphere: ``||grad L_0(rho) + s rho|| / (s ||rho||)``.

    By Euler's identity it is 0 at a critical point.
    """
    _, gradients = loss_gradient(weights, X, G)
    off = sum(np.sum((g + escape_speed * W) ** 2) for g, W in zip(gradients, weights))
    return math.sqrt(off / len(weights)) / escape_speed


def best_units(hidden, X, G):
    """For each layer, the unit that makes the fastest network with the layers below: speeds (R, L - 1) and weights.

    A sum over units of the top hidden layer is at most the best of its terms when each unit has incoming and outgoing
    weights of norm one, so keeping that unit alone loses no speed: the first step of Proposition 3.2's proof. It is
    done at each layer, since a shallower network can be made deeper at the same speed.
    """
    xp = array_namespace(X)
    speeds, units, A = [], [], X
    for W in hidden:
        norms = xp.linalg.vector_norm(W, axis=-2, keepdims=True)
        directions = W / xp.where(norms > 0, norms, xp.ones_like(norms))
        # ReLU is homogeneous: the readout of a unit of norm one is that of the unit, divided by its norm.
        A = _relu(A @ W)
        readouts = xp.linalg.vector_norm(_readout(A, G), axis=-1)[:, None, :]
        readouts = (readouts / xp.where(norms > 0, norms, xp.ones_like(norms)))[:, 0, :]
        best = xp.argmax(readouts, axis=-1)
        chosen = [directions[r, :, int(i)] for r, i in enumerate(best)]
        units.append(xp.stack(chosen)[:, :, None])
        speeds.append(xp.max(readouts, axis=-1))
    return xp.stack(speeds, axis=-1), units


def collapse(hidden, X, G, *, slack=1e-9):
    """Each network of a batch truncated above its best unit: hidden layers (R lists), and their speeds (R,).

    Of layers whose best unit is the fastest, to a relative difference of `slack`, the lowest is taken.
    """
    xp = array_namespace(X)
    speeds, units = best_units(hidden, X, G)
    fastest = xp.max(speeds, axis=-1, keepdims=True)
    layers = xp.argmax(xp.astype(speeds >= fastest * (1.0 - slack), xp.int64), axis=-1)
    networks = []
    for r, layer in enumerate(layers):
        networks.append([W[r] for W in hidden[: int(layer)]] + [units[int(layer)][r]])
    return networks, fastest[:, 0]


def deepened(hidden, readout, n_hidden, width):
    """A network whose last hidden layer has one unit, extended by layers that pass this unit on; the same function.

    The unit's activation is nonnegative, so ReLU leaves it unchanged. Added layers have norm one and rank one, unused
    units weights zero. Source: Proposition 3.2 (A.3) of Bantzis, Simon, Jacot (2025).
    """
    xp = array_namespace(readout)
    weights = []
    for k in range(n_hidden):
        if k < len(hidden) - 1:
            weights.append(xp.asarray(hidden[k], copy=True))
            continue
        inputs = (weights[-1].shape[1] if weights else hidden[0].shape[0]) if k < len(hidden) else width
        W = xp.zeros((inputs, width), dtype=readout.dtype, device=readout.device)
        if k == len(hidden) - 1:
            W[:, 0] = hidden[k][:, 0]
        else:
            W[0, 0] = 1.0
        weights.append(W)
    top = xp.zeros((width, readout.shape[1]), dtype=readout.dtype, device=readout.device)
    top[0, :] = readout[0, :]
    return [*weights, top]
