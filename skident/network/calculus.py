"""Forward passes and derivatives of a feedforward network, as functions on arrays.

Layouts: ``X`` (n, D); ``weights[l]`` (m_l, m_{l+1}) with ``m_0 = D``; ``biases[l]`` (m_{l+1},); lists run over layers.
Everything is a batched matrix product; cost of a pass over n rows is O(n P) for P parameters, times m_L for
sensitivities.
"""

from __future__ import annotations

import numpy as np

from .activations import get_activation


def layer_activations(n_layers, activation, output_activation):
    """The activations of all layers.

    Parameters
    ----------
    n_layers : int
        L.
    activation, output_activation : str or Activation

    Returns
    -------
    list of Activation
        L of them.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    return [get_activation(activation)] * (n_layers - 1) + [get_activation(output_activation)]


def forward(weights, biases, activations, X):
    """The network's outputs; no intermediate is kept.

    Parameters
    ----------
    weights, biases : sequence of ndarray
    activations : sequence of Activation
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m_L)
    """
    Y = X
    for W, b, g in zip(weights, biases, activations, strict=True):
        Y = g(Y @ W + b)
    return Y


def forward_jets(weights, biases, activations, X, order=1):
    """All layers' inputs and activation jets.

    Parameters
    ----------
    weights, biases : sequence of ndarray
    activations : sequence of Activation
    X : ndarray of shape (n, D)
    order : {0, 1, 2}, default=1
        Highest derivative of the activations.

    Returns
    -------
    inputs : list of ndarray
        ``inputs[l]`` (n, m_l), what layer l reads; ``inputs[0]`` is X.
    jets : list of tuple of ndarray
        ``jets[l] = (g, g', ...)`` at layer l's pre-activations, each (n, m_{l+1}); ``jets[-1][0]`` is the output.
    """
    inputs, jets = [], []
    Y = X
    for W, b, g in zip(weights, biases, activations, strict=True):
        inputs.append(Y)
        jets.append(g.jet(Y @ W + b, order))
        Y = jets[-1][0]
    return inputs, jets


def output_sensitivities(weights, jets):
    """Derivatives of the outputs by every layer's pre-activations and outputs.

    Parameters
    ----------
    weights : sequence of ndarray
    jets : list of tuple of ndarray
        From `forward_jets`, of order 1 at least.

    Returns
    -------
    by_pre : list of ndarray
        ``by_pre[l][n, p, j] = d f_p / d z_j`` of layer l, (n, m_L, m_{l+1}).
    by_post : list of ndarray
        ``by_post[l][n, p, j] = d f_p / d g(z_j)`` of layer l, same shapes: the diagonal of the second factor of
        ``S_p`` in Proposition 2 of Fiedler et al. (2021).
    """
    n, m_out = jets[-1][0].shape
    post = np.broadcast_to(np.eye(m_out), (n, m_out, m_out))
    by_pre, by_post = [], []
    for layer in range(len(weights) - 1, -1, -1):
        pre = post * jets[layer][1][:, None, :]
        by_post.append(post)
        by_pre.append(pre)
        if layer:
            W = weights[layer]
            post = (pre.reshape(n * m_out, W.shape[1]) @ W.T).reshape(n, m_out, W.shape[0])
    return by_pre[::-1], by_post[::-1]


def entangled_weights(weights, jets):
    """``V_l(x) = (prod_{k<l} W_k G_k(x)) W_l``, eq. (6) of Fiedler et al. (2021), for every layer.

    Parameters
    ----------
    weights : sequence of ndarray
    jets : list of tuple of ndarray
        From `forward_jets`, of order 1 at least.

    Returns
    -------
    list of ndarray of shape (n, D, m_{l+1})
        The first has n = 1: it does not depend on x.
    """
    V = [weights[0][None]]
    for W, jet in zip(weights[1:], jets[:-1], strict=True):
        V.append((V[-1] * jet[1][:, None, :]) @ W)
    return V


def jacobian(weights, biases, activations, X):
    """Derivatives of the outputs by the inputs, eq. (7) of Fiedler et al. (2021).

    Parameters
    ----------
    weights, biases : sequence of ndarray
    activations : sequence of Activation
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m_L, D)
    """
    _, jets = forward_jets(weights, biases, activations, X, order=1)
    by_pre, _ = output_sensitivities(weights, jets)
    n, m_out, m_1 = by_pre[0].shape
    return (by_pre[0].reshape(n * m_out, m_1) @ weights[0].T).reshape(n, m_out, weights[0].shape[0])


def hessian(weights, biases, activations, X):
    """Second derivatives of the outputs by the inputs: ``sum_l V_l S_p^{[l]} V_l^T``.

    The closed form of Proposition 2 of Fiedler et al. (2021), with the diagonal ``S_p`` of `output_sensitivities` times
    ``g''``.

    Parameters
    ----------
    weights, biases : sequence of ndarray
    activations : sequence of Activation
        Smooth ones: where there is a kink, its part is missing.
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, m_L, D, D)
    """
    _, jets = forward_jets(weights, biases, activations, X, order=2)
    _, by_post = output_sensitivities(weights, jets)
    V = entangled_weights(weights, jets)
    n, m_out = jets[-1][0].shape
    H = np.zeros((n, m_out, X.shape[1], X.shape[1]))
    for Vl, jet, post in zip(V, jets, by_post, strict=True):
        if jet[2].any():  # a linear layer adds nothing
            S = post * jet[2][:, None, :]
            H += (Vl[:, None] * S[:, :, None, :]) @ np.swapaxes(Vl, 1, 2)[:, None]
    return H
