"""The second layer behind a saturating first one, end to end: by linear algebra on patches, from no random network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv

from skident.network import FeedforwardNetwork, get_activation

from .behind import PatchesFailedError
from .curves import fit_curve, taylor_term
from .first_rows import find_first_rows
from .further_rows import find_further_rows

__all__ = ["SecondLayer", "find_second_layer"]

_TRIES, _MORE = 4, 0.3  # at most, and how many more points the first patch of each has than that of the one before
_DOUBT = 1e-5  # misfit of the answers beside that with outputs fitted, beyond which these are taken
_WRONG = 0.05  # misfit of the answers that is none of a network with these units


@dataclass(frozen=True)
class SecondLayer:
    """A network of two hidden layers as patches tell it.

    Attributes
    ----------
    network : FeedforwardNetwork
        Hidden activation tanh or erf, linear output.
    misfit : float
        Of the answers at all points of all patches, relative.
    misfits : dict
        Of the steps: ``powers``, ``rows``, ``curves``.
    n_patches : int
        First patches tried.
    """

    network: FeedforwardNetwork
    misfit: float
    misfits: dict
    n_patches: int


def find_second_layer(behind, plan, n_units=None, *, n_tries=_TRIES, callback=None):
    """All that follows a first layer, if that is one hidden layer and a linear output.

    Parameters
    ----------
    behind : Behind
    plan : PatchPlan
    n_units : int, default=None
        m_2; None where the gap of the singular values has to tell it.
    n_tries : int, default=4
        How often all of it may be tried, beginning with another patch.
    callback : callable, default=None
        ``callback(n_known, m_1)``.

    Returns
    -------
    SecondLayer

    Raises
    ------
    PatchesFailedError
        If no patch is in reach, the coefficients are no sum of powers, a unit is not found, or the network found does
        not explain the answers.

    Notes
    -----
    ``f = R(h)`` with ``R(h) = sum_k v_k g(W_k . h + c_k) + v_0``. Where k first-layer units are free and all others
    stand still at signs s, the terms of order p of R are ``sum_k v_k g^(p)(y_k(s)) / p! (W_k . eta)^p``: for all s they
    lie in the span of m_2 powers. Shifts come from the null space of all orders, rows from a power method, rows at the
    other units from linear equations, and length, shift and output weights from the curves ``g^(p)``.
    """
    for attempt in range(n_tries - 1):
        try:
            return _find(behind, plan, n_units, attempt, callback)
        except PatchesFailedError as error:
            if error.final:
                raise
    return _find(behind, plan, n_units, n_tries - 1, callback)


def _find(behind, plan, n_units, attempt, callback):
    """One try: other patches, and more points on them, than the one before."""
    first = find_first_rows(behind, plan, n_units, generosity=1.0 + _MORE * attempt)
    rows = find_further_rows(behind, plan, first, callback)
    network, misfit, worst = _assemble(behind, rows, first.rule.order)
    misfits = {"powers": first.misfit, "rows": rows.misfit, "curves": worst}
    if not misfit < _WRONG:
        raise PatchesFailedError(f"the second layer found on patches misfits the answers by {misfit:.1e}: {misfits}")
    return SecondLayer(network, misfit, misfits, attempt + 1)


def _assemble(behind, rows, order):
    """The network, its relative misfit at all points, and the worst one of a curve."""
    g = get_activation(behind.activation)
    shifts = _inverse(behind.activation, rows.theta)
    H = np.concatenate([sample.patch.outputs(g, shifts) for sample in rows.samples])
    C = np.concatenate([sample.coefficients for sample in rows.samples])
    Y = np.concatenate([sample.values for sample in rows.samples])
    term = taylor_term(behind.activation, order)
    X = H @ rows.rows
    curves = [fit_curve(X[:, k], C[:, :, k], order, term) for k in range(X.shape[1])]
    lengths, biases = np.array([c.length for c in curves]), np.array([c.shift for c in curves])
    readout, offset, misfit = _readout(g(X * lengths + biases), np.array([c.readout for c in curves]), Y)
    network = FeedforwardNetwork(
        [behind.weights, rows.rows * lengths, readout], [behind.biases + shifts, biases, offset], behind.activation
    )
    return network, misfit, max(c.misfit for c in curves)


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


def _inverse(activation, theta):
    """Shifts of pre-activations."""
    return np.arctanh(theta) if activation == "tanh" else erfinv(theta)
