"""Polish of all parameters on outputs of known, unequal accuracy, of which some belong to something else."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from skident.budget.constants import CAUCHY, FTOL, OUTLIER, ROUNDS
from skident.network import FeedforwardNetwork
from skident.network.calculus import flatten_parameters

from .least_squares import NetworkLeastSquares, minimize

_SETTLED = 0.03  # decrease of the cost per parameter of a round that is the last: 0.2 standard errors
_KEPT_FACTOR = 600  # parameters from which a factor is kept for several steps: it costs more than a step
_FACTOR_LIMIT = 8000  # parameters from which steps are matrix-free: a matrix of 0.5 GB
_DAMPING = 1e-6  # of the first step: starts are close
_LEAST_SCALE = 1e-3  # of the residuals over their known standard deviation: smaller ones are rounding of the fit


@dataclass(frozen=True)
class RobustFit:
    """A network fitted to outputs whose errors have known standard deviations.

    Attributes
    ----------
    network : FeedforwardNetwork
    scale : float
        Standard deviation of the residuals over their standard deviations, by a quantile: about 1 for a right network.
    outliers : ndarray of shape (n,)
        Mask of the rows of which an output is off by more than 8 times that.
    """

    network: FeedforwardNetwork
    scale: float
    outliers: np.ndarray


def robust_polish(
    network, U, Y, std, *, max_rounds=8, enough=0.0, quantile=0.5, factor_limit=_FACTOR_LIMIT, callback=None
):
    """Minimize ``sum_np log(1 + (r_np / (6 s))^2)`` with ``r_np = (f_p(u_n) - Y_np) / std_np``, over all parameters.

    Reweighted Gauss-Newton steps, damped so that no step is worse; s is the scale of the residuals. Of any depth.

    Parameters
    ----------
    network : FeedforwardNetwork
        Close start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    std : ndarray of shape (n, m_L) or (n, 1)
        Standard deviations of the outputs' errors, up to a common factor.
    max_rounds : int
        Changes of the weights at most, with four steps each.
    enough : float
        Scale of the residuals below which no further round follows.
    quantile : float
        Of the absolute residuals, that gives their scale; residuals in a share of 1 less that may count for less.
    factor_limit : int
        That of `NetworkLeastSquares`: larger networks are fitted by conjugate gradients.
    callback : callable, optional
        ``callback(n_iter)``, called after every step; True ends the fit.

    Returns
    -------
    RobustFit
    """
    shapes = [W.shape for W in network.weights]
    limits = {"dense_limit": _KEPT_FACTOR, "factor_limit": factor_limit, "single": True}
    problem = NetworkLeastSquares(shapes, network.activations, U, Y, row_weights=1.0 / std, **limits)
    residual = (network(U) - Y) / std
    scale, damping = residual_scale(residual, quantile), _DAMPING
    for _ in range(max_rounds):
        before = _robust_cost(residual, scale)
        problem.row_weights = 1.0 / (std * np.sqrt(1.0 + (residual / (CAUCHY * scale)) ** 2))
        result = minimize(
            problem,
            flatten_parameters(network.weights, network.biases),
            max_iter=ROUNDS,
            ftol=FTOL,
            damping=damping,
            callback=None if callback is None else lambda n_iter, _: bool(callback(n_iter)),
        )
        network, damping = network.with_parameters(*problem.unflatten(result.x)), result.damping
        residual = (network(U) - Y) / std
        gain = before - _robust_cost(residual, scale)
        scale = residual_scale(residual, quantile)
        if gain < _SETTLED * network.n_parameters or scale < enough:
            break
    return RobustFit(network, scale, np.any(np.abs(residual) > OUTLIER * scale, axis=1))


def residual_scale(residual, quantile=0.5):
    """Robust standard deviation of residuals (n, m_L) around 0, from a quantile of their absolute values."""
    size = float(np.quantile(np.abs(residual), quantile))
    return max(size / float(ndtri(0.5 * (1.0 + quantile))), _LEAST_SCALE)


def _robust_cost(residual, scale):
    """In units in which a residual of one standard deviation costs 1."""
    return float(CAUCHY**2 * np.sum(np.log1p((residual / (CAUCHY * scale)) ** 2)))
