"""Forward pass, entangled weights, Jacobian and Hessian of a feedforward network, as functions on arrays.

Layouts: ``X`` (n, D); ``weights[l]`` (m_l, m_{l+1}) with ``m_0 = D``; ``biases[l]`` (m_{l+1},); lists run over layers.
All steps are batched matrix products. A pass over n rows costs O(n P) for P parameters, times m_L for sensitivities.
"""

import numpy as np

from .activations import get_activation


def layer_activations(n_layers, activation, output_activation):
    """One `Activation` per layer: the hidden one for all but the last."""
    return [get_activation(activation)] * (n_layers - 1) + [get_activation(output_activation)]


def forward(weights, biases, activations, X):
    """Outputs (n, m_L); no intermediate is kept."""
    Y = X
    for W, b, g in zip(weights, biases, activations, strict=True):
        Y = g(Y @ W + b)
    return Y


def forward_jets(weights, biases, activations, X, order=1):
    """Inputs of all layers, and their activations with derivatives up to `order`.

    ``inputs[l]`` (n, m_l) is what layer l reads. ``jets[l] = (g, g', ...)`` at layer l's pre-activations, each (n,
    m_{l+1}); ``jets[-1][0]`` is the output.
    """
    inputs, jets = [], []
    Y = X
    for W, b, g in zip(weights, biases, activations, strict=True):
        inputs.append(Y)
        jets.append(g.jet(Y @ W + b, order))
        Y = jets[-1][0]
    return inputs, jets


def output_sensitivities(weights, jets):
    """Derivatives (n, m_L, m_{l+1}) of the outputs by every layer's pre-activations, and by its outputs.

    The latter are the diagonal of the second factor of ``S_p`` in Proposition 2 of Fiedler et al. (2021). Needs jets of
    order 1.
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
    """``V_l(x) = (prod_{k<l} W_k G_k(x)) W_l`` (n, D, m_{l+1}) for every layer, eq. (6) of Fiedler et al. (2021).

    The first has n = 1: it does not depend on x. Needs jets of order 1.
    """
    V = [weights[0][None]]
    for W, jet in zip(weights[1:], jets[:-1], strict=True):
        V.append((V[-1] * jet[1][:, None, :]) @ W)
    return V


def jacobian(weights, biases, activations, X):
    """Derivatives (n, m_L, D) of the outputs by the inputs, eq. (7) of Fiedler et al. (2021)."""
    _, jets = forward_jets(weights, biases, activations, X, order=1)
    by_pre, _ = output_sensitivities(weights, jets)
    n, m_out, m_1 = by_pre[0].shape
    return (by_pre[0].reshape(n * m_out, m_1) @ weights[0].T).reshape(n, m_out, weights[0].shape[0])


def hessian(weights, biases, activations, X):
    """Second derivatives (n, m_L, D, D) of the outputs by the inputs: ``sum_l V_l S_p^{[l]} V_l^T``.

    Closed form of Proposition 2 of Fiedler et al. (2021): ``S_p`` is the diagonal of `output_sensitivities` times
    ``g''``. The jump of the gradient at an activation boundary is not included.
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


def flatten_parameters(weights, biases):
    """All parameters as one vector (P,): layer by layer, the rows of the weights, then the biases."""
    return np.concatenate([np.vstack([W, b]).ravel() for W, b in zip(weights, biases, strict=True)])


def unflatten_parameters(params, shapes):
    """Weights and biases as views of a vector (P,), for the shapes of the weights; inverts `flatten_parameters`."""
    ends = np.cumsum([(rows + 1) * columns for rows, columns in shapes])
    parts = np.split(params, ends[:-1])
    blocks = [part.reshape(-1, columns) for part, (_, columns) in zip(parts, shapes, strict=True)]
    return [B[:-1] for B in blocks], [B[-1] for B in blocks]
