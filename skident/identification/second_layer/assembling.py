"""The network of two hidden layers from what patches tell of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv

from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from .kernel.curves import fit_curve, taylor_term

__all__ = ["RecoveredNetwork", "PowerEvidence", "network_from_curves", "preactivations_of"]

_DOUBT = 1e-5  # misfit of the answers beside that with outputs fitted, beyond which these are taken
_WRONG = 0.05  # misfit of the answers that is none of a network with these units


@dataclass(frozen=True)
class RecoveredNetwork:
    """A network of two hidden layers as patches tell it.

    Attributes
    ----------
    network : FeedforwardNetwork
        Hidden activation tanh or erf, linear output.
    misfit : float
        Of the answers at all points of all patches, relative.
    misfits : dict
        Of the steps: ``powers``, ``rows``, ``curves``.
    """

    network: FeedforwardNetwork
    misfit: float
    misfits: dict


@dataclass(frozen=True)
class PowerEvidence:
    """What patches tell before second-layer units have their lengths.

    Attributes
    ----------
    rows : ndarray of shape (m_1, m_2)
        Weights of the second layer, up to a factor a unit.
    shifts : ndarray of shape (m_1,)
        To be added to the pre-activations of the first layer.
    outputs : ndarray of shape (n, m_1)
        Of the first layer, at all points.
    coefficients : ndarray of shape (n, m_L, m_2)
        Of the powers of the rows there.
    values : ndarray of shape (n, m_L)
        Answers there.
    order : int
        p.
    """

    rows: np.ndarray
    shifts: np.ndarray
    outputs: np.ndarray
    coefficients: np.ndarray
    values: np.ndarray
    order: int


def preactivations_of(activation, theta):
    """Shifts of pre-activations whose outputs are theta.

    Parameters
    ----------
    activation : {"tanh", "erf"}
    theta : ndarray

    Returns
    -------
    ndarray
    """
    return np.arctanh(theta) if activation == "tanh" else erfinv(theta)


def network_from_curves(downstream, told, misfits):
    """The network, with lengths, shifts and output weights of second-layer units from their curves.

    Parameters
    ----------
    downstream : Downstream
    told : PowerEvidence
    misfits : dict
        Of the steps before.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If the network does not explain the answers at the points.
    """
    g, term = get_activation(downstream.activation), taylor_term(downstream.activation, told.order)
    X, C = told.outputs @ told.rows, told.coefficients
    curves = [fit_curve(X[:, k], C[:, :, k], told.order, term) for k in range(X.shape[1])]
    lengths, biases = np.array([c.length for c in curves]), np.array([c.shift for c in curves])
    readouts = np.array([c.readout for c in curves])
    readout, offset, misfit = _readout(g(X * lengths + biases), readouts, told.values)
    misfits = {**misfits, "curves": max(c.misfit for c in curves)}
    if not misfit < _WRONG:
        raise NotIdentified(
            "second layer",
            "residual",
            f"the second layer found on patches misfits the answers by {misfit:.1e}: {misfits}",
        )
    weights, shifts = [downstream.weights, told.rows * lengths, readout], downstream.biases + told.shifts
    return RecoveredNetwork(
        FeedforwardNetwork(weights, [shifts, biases, offset], downstream.activation), misfit, misfits
    )


def _readout(G, V, Y):
    """Output weights and offset: those of the curves, or fitted to the answers where that is clearly better."""
    spread = max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)
    left = Y - G @ V
    told = np.linalg.norm(left - left.mean(axis=0)) / spread
    fitted = np.linalg.lstsq(np.column_stack([G, np.ones(len(G))]), Y, rcond=1e-10)[0]
    best = np.linalg.norm(Y - G @ fitted[:-1] - fitted[-1]) / spread
    if told < 2.0 * best + _DOUBT:
        return V, left.mean(axis=0), float(told)
    return fitted[:-1], fitted[-1], float(best)
