"""Hidden layers with linear units beside the others, for activations whose units may face either way.

Where ``g(z) - g(-z) = k z``, as for softplus (k = 1), gelu, silu and relu, a unit that faces the wrong way is right but
for a linear function. A fit with linear units finds the others up to their sides, which are chosen afterwards such that
the linear functions add up to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.network import Architecture, FeedforwardNetwork
from skident.network.activations import Activation, get_activation

__all__ = ["oddness", "sides_chosen", "with_linear_units"]

_PROBES = np.array([0.3, 1.1, 2.7])


@dataclass(frozen=True)
class _MixedJet:
    """An activation's jet, and the identity's in the last columns."""

    activation: Activation
    n_linear: int

    def __call__(self, z, order):
        inner, linear = z[..., : -self.n_linear], z[..., -self.n_linear :]
        straight = (linear, np.ones_like(linear), np.zeros_like(linear))
        return tuple(
            np.concatenate([a, b], axis=-1) for a, b in zip(self.activation.jet(inner, order), straight[: order + 1])
        )


def oddness(activation):
    """The k of ``g(z) - g(-z) = k z``.

    Parameters
    ----------
    activation : str or Activation

    Returns
    -------
    float
        0 where there is none.

    Examples
    --------
    >>> from skident.fitting.linear_units import oddness
    >>> print(round(oddness("gelu"), 12), oddness("tanh"))
    1.0 0.0
    """
    activation = get_activation(activation)
    if activation.symmetry in ("linear", "even"):
        return 0.0
    slopes = (activation(_PROBES) - activation(-_PROBES)) / _PROBES
    return float(slopes[0]) if np.ptp(slopes) < 1e-12 else 0.0


def with_linear_units(architecture):
    """One hidden layer with as many linear units more as there are outputs, behind the others.

    Parameters
    ----------
    architecture : Architecture
        ``(m, m_L)``.

    Returns
    -------
    Architecture
        ``(m + m_L, m_L)``.
    """
    m, p = architecture.widths
    activation = get_activation(architecture.activation)
    mixed = Activation(f"{activation.name} and {p} linear", _MixedJet(activation, p), smooth=activation.smooth)
    return Architecture((m + p, p), mixed, architecture.output_activation)


def sides_chosen(weights, biases, activation, output_activation="identity"):
    """Networks without linear units that come close to one with them.

    Parameters
    ----------
    weights, biases : sequences of 2 ndarrays
        Of a network as `with_linear_units` has it.
    activation, output_activation : str or Activation
        Without the linear units.

    Returns
    -------
    list of FeedforwardNetwork
        The first has the same units, some of them turned round such that the linear part is left as small as can be
        told by rounding the solution of ``U = -k sum_j t_j w_j a_j^T`` to ``t_j`` in {0, 1}. The second has two units
        more for every output, which together make the linear part, and is the same function.
    """
    (W, A), (b, c) = weights, biases
    p, k = A.shape[1], oddness(activation)
    linear, shift = W[:, -p:] @ A[-p:], b[-p:] @ A[-p:]
    W, b, A, c = W[:, :-p], b[:-p], A[:-p], c + shift
    designs = np.einsum("im,mp->ipm", W, A).reshape(-1, W.shape[1])
    turned = np.rint(np.linalg.lstsq(-k * designs, linear.ravel(), rcond=None)[0]) >= 1.0
    sign = np.where(turned, -1.0, 1.0)
    same = FeedforwardNetwork([W * sign, A], [b * sign, c + k * (b * turned) @ A], activation, output_activation)
    pairs = np.concatenate([W, linear, -linear], axis=1), np.concatenate([A, np.eye(p) / k, -np.eye(p) / k])
    more = FeedforwardNetwork(pairs, [np.concatenate([b, np.zeros(2 * p)]), c], activation, output_activation)
    return [same, more]
