"""Hidden layers with linear units beside the others: a linear skip connection as part of a feedforward network."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.budget.constants import EXACT_RANK_TOL
from skident.linalg import svd

from .activations import Activation, get_activation


@dataclass(frozen=True)
class _MixedJet:
    """An activation's jet, and the identity's in the last columns; picklable."""

    activation: Activation
    n_linear: int

    def __call__(self, z, order):
        inner, linear = z[..., : -self.n_linear], z[..., -self.n_linear :]
        straight = (linear, np.ones_like(linear), np.zeros_like(linear))
        return tuple(
            np.concatenate([a, b], axis=-1) for a, b in zip(self.activation.jet(inner, order), straight[: order + 1])
        )


@dataclass(frozen=True)
class PartlyLinear(Activation):
    """An activation of all units of a layer but the last ones, which are linear; `partly_linear` makes one.

    Parameters
    ----------
    base : Activation
        Of the first units.
    n_linear : int
        Number of linear units.
    """

    base: Activation | None = None
    n_linear: int = 0


def partly_linear(activation, n_linear):
    """An activation of all units but the last `n_linear`, which are linear.

    Parameters
    ----------
    activation : str or Activation
    n_linear : int
        At least 1.

    Returns
    -------
    PartlyLinear

    Raises
    ------
    ValueError
        If the activation is unknown, or n_linear is not an integer of at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import partly_linear
    >>> print(partly_linear("relu", 1)(np.array([-2.0, 3.0, -4.0])))
    [ 0.  3. -4.]
    """
    base = get_activation(activation)
    if not (isinstance(n_linear, (int, np.integer)) and n_linear >= 1):
        raise ValueError(f"n_linear must be an integer >= 1, got {n_linear!r}.")
    name, jet = f"{base.name} and {n_linear} linear", _MixedJet(base, n_linear)
    return PartlyLinear(name, jet, None, None, base.smooth, base, n_linear)


def with_linear_skip(network, matrix):
    """The network ``f(x) + x A`` of a network f, with linear units in every hidden layer.

    Parameters
    ----------
    network : FeedforwardNetwork
        f, with a hidden layer and linear outputs.
    matrix : ndarray of shape (D, m_L)
        A. Its rank is the number of linear units.

    Returns
    -------
    FeedforwardNetwork

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork, with_linear_skip
    >>> network = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
    >>> print(with_linear_skip(network, np.array([[3.0]])))
    FeedforwardNetwork(1 -> 2 -> 1, tanh and 1 linear, output identity)
    """
    left, sizes, right = svd(np.asarray(matrix, dtype=float), full_matrices=False)
    kept = sizes > EXACT_RANK_TOL * sizes.max(initial=0.0)
    n = int(kept.sum())
    if n == 0:
        return network
    weights = [np.hstack([network.weights[0], left[:, kept]])]
    weights += [scipy.linalg.block_diag(W, np.eye(n)) for W in network.weights[1:-1]]
    weights += [np.vstack([network.weights[-1], sizes[kept, None] * right[kept]])]
    biases = [np.concatenate([b, np.zeros(n)]) for b in network.biases[:-1]] + [network.biases[-1]]
    return type(network)(weights, biases, partly_linear(network.activations[0], n), network.activations[-1])


def with_skip_of_first_layer(network, matrix):
    """The network ``f(x) + h(x) A`` of a network f with two hidden layers, h the outputs of the first one.

    Linear units of the second layer pass ``h A`` on. As many, without weights, stand in the first layer, since all
    hidden layers have the same number of linear units.

    Parameters
    ----------
    network : FeedforwardNetwork
        f, with two hidden layers and linear outputs.
    matrix : ndarray of shape (m_1, m_L)
        A. There are min(m_1, m_L) linear units.

    Returns
    -------
    FeedforwardNetwork

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork, with_skip_of_first_layer
    >>> network = FeedforwardNetwork([[[1.0]], [[2.0]], [[3.0]]], [[0.0], [0.0], [0.5]])
    >>> whole = with_skip_of_first_layer(network, np.array([[4.0]]))
    >>> x = np.array([[0.7]])
    >>> print(float((whole(x) - network(x) - 4.0 * np.tanh(x)).round(12)[0, 0]))
    0.0
    """
    (W1, W2, V), (b1, b2, offset) = network.weights, network.biases
    read, sizes, written = svd(np.asarray(matrix, dtype=float), full_matrices=False)
    n, m_2 = len(sizes), len(b2)
    weights = [
        np.hstack([W1, np.zeros((len(W1), n))]),
        np.block([[W2, read * sizes], [np.zeros((n, m_2 + n))]]),
        np.vstack([V, written]),
    ]
    biases = [np.append(b1, np.zeros(n)), np.append(b2, np.zeros(n)), offset]
    return type(network)(weights, biases, partly_linear(network.activations[0], n), network.activations[-1])
