"""Hidden units that a network can do without, and what takes their place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.network import FeedforwardNetwork
from skident.network.calculus import forward_jets, output_sensitivities

__all__ = ["Removal", "cheapest_removal", "remove_cheap", "remove_unit", "removal_costs"]

_ROUNDING = 1e-13  # of the largest singular value: what keeps the inverse finite where units are copies of each other


def removal_costs(network, U):
    """What leaving out a hidden unit would cost, when the other units of its layer take over what they can.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D)
        Inputs over which costs are averaged.

    Returns
    -------
    costs : list of ndarray of shape (m_l,)
        One a hidden layer: predicted increase of the mean squared error, summed over outputs.
    takeovers : list of ndarray of shape (m_l + 1, m_l)
        Column j: the combination of the other units of the layer, and of 1 (last row), closest to unit j.

    Notes
    -----
    With ``a = (y_l, 1)`` the outputs of a layer extended by 1 and ``G = E[a a^T]``, unit j is best replaced by
    ``-sum_i (G^-1)_ij / (G^-1)_jj a_i``, with mean squared error ``1 / (G^-1)_jj``. Its outgoing weights carry that
    on to the next layer's pre-activations, and the mean of ``B^T B`` with ``B = d f / d z`` from there to the outputs.
    This is the optimal brain surgeon (Hassibi and Stork, 1993) for whole units; copies,
    constant units and units without outgoing weights cost nothing. ``O(n m^2 + m^3)`` a layer.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.fitting.removal import removal_costs
    >>> W = np.array([[1.0, 1.0, 0.5], [2.0, 2.0, 0.1]])
    >>> network = FeedforwardNetwork([W, np.ones((3, 1))], [np.zeros(3), np.zeros(1)])
    >>> costs, _ = removal_costs(network, np.random.default_rng(0).standard_normal((50, 2)))
    >>> print(np.flatnonzero(costs[0] < 1e-6))
    [0 1]
    """
    inputs, jets = forward_jets(network.weights, network.biases, network.activations, U, order=1)
    sensitivities, _ = output_sensitivities(network.weights, jets)
    costs, takeovers = [], []
    for y, W, B in zip(inputs[1:], network.weights[1:], sensitivities[1:], strict=True):
        inverse = _inverse_gram(np.hstack([y, np.ones((len(y), 1))]))
        own = np.diag(inverse)[:-1]
        metric = np.tensordot(B, B, axes=((0, 1), (0, 1))) / len(U)
        costs.append(np.einsum("jp,pq,jq->j", W, metric, W) / own)
        takeover = -inverse[:, :-1] / own
        np.fill_diagonal(takeover, 0.0)
        takeovers.append(takeover)
    return costs, takeovers


def _inverse_gram(a):
    """Inverse of ``E[a a^T]``, from singular values of the columns scaled to length 1: copies are told to rounding."""
    length = np.sqrt(np.mean(a**2, axis=0))
    length = np.maximum(length, 1e-8 * length.max())
    s, Vt = np.linalg.svd(a / length, full_matrices=False)[1:]
    s, Vt = (s, Vt) if len(s) == a.shape[1] else _completed(a / length)
    s = np.maximum(s, _ROUNDING * s[0])
    return (Vt.T * (len(a) / s**2)) @ Vt / (length[:, None] * length)


def _completed(a):
    """Singular values and vectors of fewer rows than columns, null vectors included."""
    s, Vt = np.linalg.svd(a, full_matrices=True)[1:]
    return np.append(s, np.zeros(a.shape[1] - len(s))), Vt


def remove_unit(network, layer, unit, takeover):
    """The network without one hidden unit, its outgoing weights handed to others.

    Parameters
    ----------
    network : FeedforwardNetwork
    layer, unit : int
        Hidden layer, from 0, and the unit in it.
    takeover : ndarray of shape (m_l + 1,)
        See `removal_costs`.

    Returns
    -------
    FeedforwardNetwork
    """
    weights, biases = list(network.weights), list(network.biases)
    outgoing = weights[layer + 1][unit]
    weights[layer + 1] = np.delete(weights[layer + 1] + np.outer(takeover[:-1], outgoing), unit, axis=0)
    biases[layer + 1] = biases[layer + 1] + takeover[-1] * outgoing
    weights[layer] = np.delete(weights[layer], unit, axis=1)
    biases[layer] = np.delete(biases[layer], unit)
    return network.with_parameters(weights, biases)


@dataclass(frozen=True)
class Removal:
    """A network with fewer hidden units, the others taking over what they can.

    Attributes
    ----------
    network : FeedforwardNetwork
    layer : int
        Hidden layer, from 0, of the last unit removed.
    n_units : int
        Units removed.
    cost : float
        The sum of their `removal_costs`.
    """

    network: FeedforwardNetwork
    layer: int
    n_units: int
    cost: float


def cheapest_removal(network, U, layers):
    """The network without the unit that costs least.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D)
        See `removal_costs`.
    layers : collection of int
        Hidden layers, from 0, that may lose one, of two units or more.

    Returns
    -------
    Removal
    """
    costs, takeovers = removal_costs(network, U)
    layer = min(layers, key=lambda k: costs[k].min())
    unit = int(np.argmin(costs[layer]))
    smaller = remove_unit(network, layer, unit, takeovers[layer][:, unit])
    return Removal(smaller, layer, 1, float(costs[layer][unit]))


def remove_cheap(network, U, layers, cheap, limit=np.inf):
    """The cheapest unit removed, and further ones for as long as they are cheap.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D)
        See `removal_costs`.
    layers : callable
        ``layers(network)`` gives the hidden layers that may lose a unit.
    cheap : callable
        ``cheap(removal, spent)`` says whether one more unit may go; `removal` is the next one alone, `spent` the sum of
        the costs so far.
    limit : int, default=inf
        Units at most.

    Returns
    -------
    Removal or None
        None where no layer may lose a unit.
    """
    total = None
    while layers(network) and (total is None or total.n_units < limit):
        one = cheapest_removal(network, U, layers(network))
        if total is not None and not cheap(one, total.cost):
            break
        spent, n_units = (0.0, 0) if total is None else (total.cost, total.n_units)
        total = Removal(one.network, one.layer, n_units + 1, spent + one.cost)
        network = one.network
    return total
