"""The last step: all weights and shifts fitted to rounding error or noise, on inputs where every unit can be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.network import FeedforwardNetwork
from skident.optim import give_up_when_slow
from skident.oracle import above_rounding

from .least_squares import NetworkLeastSquares, minimise

__all__ = [
    "change_inputs",
    "change_outputs",
    "design_points",
    "output_units",
    "polish_from_oracle",
    "polish_network",
    "standard_errors",
]

_CLOSE = 1e-4  # relative misfit below which a slow iteration may still be converging
_SETTLED = 1e-13  # below it, a step that does not gain a factor of ten is rounding
_NOISY = 10.0
# Answers a parameter in all rounds so far; spread and near of the fresh inputs. The last round is for noise only.
_ROUNDS = ((1.2, 0.5, 0.0), (1.5, 1.0, 0.5), (_NOISY, 1.0, 0.5))
# More where they cost little, or save conjugate gradients many steps.
_GENEROUS = ((1.75, 0.5, 0.0), (2.5, 1.0, 0.5), (_NOISY, 1.0, 0.5))
_FRUGAL = range(600, 3001)  # numbers of parameters
_NOISY_FTOL = 1e-5  # of a cost of about one an answer: what is left to gain is small beside one a parameter


def change_inputs(network, center, scale):
    """The same function of ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    network : FeedforwardNetwork
        A function of x.
    center, scale : ndarray of shape (D,)

    Returns
    -------
    FeedforwardNetwork
        First layer ``scale * W_1`` and ``tau_1 + W_1^T center``; to go back use ``-center / scale`` and ``1 / scale``.
    """
    W, b = network.weights[0], network.biases[0]
    weights = [scale[:, None] * W, *network.weights[1:]]
    return FeedforwardNetwork(
        weights, [b + center @ W, *network.biases[1:]], network.activation, network.output_activation
    )


def output_units(Y, output_activation):
    """Offset and unit of every output, (m_L,): mean and standard deviation where the output is linear, else 0 and 1."""
    if output_activation != "identity":
        return np.zeros(Y.shape[1]), np.ones(Y.shape[1])
    mean, std = Y.mean(axis=0), Y.std(axis=0)
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


def change_outputs(network, offset, unit):
    """The network ``offset + unit * f(x)`` of a network f with linear output."""
    weights = [*network.weights[:-1], network.weights[-1] * unit]
    biases = [*network.biases[:-1], network.biases[-1] * unit + offset]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def design_points(weights, biases, n_samples, spread, rng, near=0.5):
    """Inputs at which first-layer units move.

    Parameters
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
    n_samples : int
    spread : float
        Standard deviation of a typical unit's pre-activation under the Gaussian part, whose mean is where the
        pre-activations are smallest.
    rng : numpy.random.RandomState
    near : float, default=0.5
        Fraction of the samples moved along one unit's normal, units in turn, to a pre-activation uniform in
        [-2.5, 2.5]: units whose hyperplane is far from the centre are seen too. Unless it is 0, a unit that is
        saturated on nearly all of the Gaussian part gets ``1.5 (D + 2)`` samples more of its own, since one sample
        tells no more than one number about its D + 1 parameters.

    Returns
    -------
    ndarray of shape (n, D)
        ``n >= n_samples``.
    """
    D, m = weights.shape
    norms = np.linalg.norm(weights, axis=0)
    sigma = spread / np.median(norms)
    units = np.arange(int(near * n_samples)) % m
    # Where the data lie all units may be saturated; here as many as can be are not.
    middle = -np.linalg.lstsq(weights.T, biases, rcond=1e-2)[0]
    far = middle + rng.standard_normal((n_samples - len(units), D)) * sigma
    if len(units):
        visible = np.mean(np.abs(far @ weights + biases) < 2.5, axis=0)
        units = np.concatenate([units, np.repeat(np.flatnonzero(visible < 0.05), int(1.5 * (D + 2)))])
    U = middle + rng.standard_normal((len(units), D)) * sigma
    W = weights[:, units].T
    move = rng.uniform(-2.5, 2.5, len(units)) - np.sum(U * W, axis=1) - biases[units]
    return np.concatenate([U + (move / norms[units] ** 2)[:, None] * W, far])


def polish_network(network, U, Y, *, max_iter=60, tol=1e-15, dense_limit=3000, callback=None, noise=None):
    """Levenberg-Marquardt on all weights and shifts: ``sum_np ((f_p(u_n) - Y_np) / sigma_p)^2`` is minimised.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
        About 1.5 to 2 scalar answers a parameter or more.
    max_iter : int, default=60
    tol : float, default=1e-15
        Stop at this relative root mean square misfit.
    dense_limit : int, default=3000
        See `NetworkLeastSquares`: beyond, conjugate gradients with one preconditioner block a unit.
    callback : callable, default=None
        ``callback(n_iter)`` after every step.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute: the sigma above, which makes the fit the maximum
        likelihood one for Gaussian noise. The iteration then ends at the minimum, where the parameters' steps are small
        beside their standard errors, and not at `tol`. None: sigma is 1 or, where the output is linear, the standard
        deviation of the answers.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit on (U, Y); relative to the standard deviations of Y where the output is linear.
    n_iter : int

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.recovery import polish_network
    >>> truth = make_network((4, 3, 2), random_state=0)
    >>> rough = FeedforwardNetwork([W + 0.01 for W in truth.weights], truth.biases, "tanh", "tanh")
    >>> U = np.random.default_rng(0).standard_normal((60, 4))
    >>> _, misfit, _ = polish_network(rough, U, truth(U))
    >>> print(misfit < 1e-14)
    True
    """
    # Outputs of different units, or with a large offset, would hide in each other's rounding.
    offset, unit = output_units(Y, network.output_activation)
    network, Y = change_outputs(network, -offset / unit, 1.0 / unit), (Y - offset) / unit
    sigma = above_rounding(None if noise is None else noise / unit, Y)
    noisy = sigma is not None
    problem = _weighted_problem(network, U, Y, 1.0 if sigma is None else sigma.max() / sigma, dense_limit)
    total = max(float(np.sum(problem.Y**2)), np.finfo(float).tiny)
    good = _CLOSE**2 * total + (4.0 * Y.size * sigma.max() ** 2 if noisy else 0.0)
    slow, previous = give_up_when_slow(12, good), [np.inf]

    def stop(n_iter, cost):
        settled = not noisy and cost < _SETTLED**2 * total and cost > 0.1 * previous[0]
        previous[0] = cost
        if callback is not None:
            callback(n_iter)
        return settled or slow(n_iter, cost)

    result = minimise(
        problem,
        problem.flatten(network.weights, network.biases),
        max_iter=max_iter,
        target=tol**2 * total,
        ftol=_NOISY_FTOL if noisy else 1e-3,
        callback=stop,
    )
    weights, biases = problem.unflatten(result.x)
    polished = FeedforwardNetwork(weights, biases, network.activation, network.output_activation)
    misfit = np.linalg.norm(polished(U) - Y) / max(np.linalg.norm(Y), np.finfo(float).tiny)
    return change_outputs(polished, offset, unit), float(misfit), result.n_iter


def _weighted_problem(network, U, Y, weight, dense_limit=3000):
    """Least squares of ``weight * (f(u) - y)``, weight a scalar or (m_L,)."""
    shapes = [W.shape for W in network.weights]
    output = network.activations[-1]
    weighted = replace(output, jet=lambda z, order: tuple(weight * d for d in output.jet(z, order)))
    return NetworkLeastSquares(shapes, [*network.activations[:-1], weighted], U, weight * Y, dense_limit=dense_limit)


def standard_errors(network, U, noise=None, *, Y=None, max_parameters=3000):
    """Standard errors of weights and shifts fitted to noisy answers, to first order in the noise.

    Square roots of the diagonal of ``(J^T S^-2 J)^-1``, where J holds the derivatives of all answers by all
    parameters and S the noise of every answer: the covariance of the least-squares fit of `polish_network` with
    the same `noise`, and the Cramer-Rao bound.

    Parameters
    ----------
    network : FeedforwardNetwork
        The fitted network.
    U : ndarray of shape (n, D)
        The inputs it was fitted on.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output. None: from the residuals at Y, ``n - P / m_L`` degrees of
        freedom an output.
    Y : ndarray of shape (n, m_L), default=None
        The answers it was fitted to; needed where `noise` is None.
    max_parameters : int, default=3000
        The matrix is formed and inverted: ``O(P^3)`` operations, ``24 P^2`` bytes.

    Returns
    -------
    weights, biases : list of ndarray
        Shaped like the network's.

    Raises
    ------
    ValueError
        If there are more than `max_parameters` parameters; if neither `noise` nor Y is given; if the residuals leave
        no degree of freedom; if the answers do not determine all parameters (a rescaling symmetry, as of relu; a
        unit that is saturated on all of U; too few inputs).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.polish import standard_errors
    >>> network = make_network((4, 3, 2), random_state=0)
    >>> U = np.random.default_rng(0).standard_normal((200, 4))
    >>> weights, biases = standard_errors(network, U, 1e-3)
    >>> print(weights[0].shape, bool(weights[0].max() < 0.01))
    (4, 3) True
    """
    P, n = network.n_parameters, len(U)
    if P > max_parameters:
        raise ValueError(
            f"standard errors of {P} parameters need the inverse of a {P} x {P} matrix; raise "
            f"max_parameters={max_parameters} if the memory allows."
        )
    if noise is None:
        noise = _residual_noise(network, U, Y)
    problem = _weighted_problem(network, U, np.zeros((n, network.n_outputs)), 1.0 / np.asarray(noise, dtype=float))
    A, _ = problem.normal_equations(problem.flatten(network.weights, network.biases))
    scale = np.sqrt(np.diagonal(A))
    scale = np.where(scale > 0, scale, 1.0)
    A /= scale[:, None] * scale[None, :]
    values, vectors = np.linalg.eigh(A)
    if not values[0] > P * np.finfo(float).eps:
        raise ValueError(
            f"the answers at these {n} inputs do not determine all {P} parameters: the smallest eigenvalue of their "
            f"information matrix, scaled to unit diagonal, is {values[0]:.1e}. Units that never move on these inputs, "
            "or a symmetry that rescales weights (relu), do that; so do too few inputs."
        )
    errors = np.sqrt(np.sum(vectors**2 / values, axis=1)) / scale
    weights, biases = problem.unflatten(errors)
    return [W.copy() for W in weights], [b.copy() for b in biases]


def _residual_noise(network, U, Y):
    """Noise of every output from the residuals of a fit, (m_L,)."""
    if Y is None:
        raise ValueError("noise=None: the noise is then read off the residuals, which needs the answers Y.")
    freedom = len(U) - network.n_parameters / network.n_outputs
    if freedom <= 0:
        raise ValueError(
            f"{len(U)} inputs with {network.n_outputs} answers each leave no degree of freedom beside "
            f"{network.n_parameters} parameters, so the residuals do not tell the noise; give noise or more inputs."
        )
    variance = np.sum((network(U) - Y) ** 2, axis=0) / freedom
    # Exact answers have no residual at all; they still have rounding.
    return np.sqrt(np.maximum(variance, (np.finfo(float).eps * np.abs(Y).max(axis=0)) ** 2 + np.finfo(float).tiny))


def polish_from_oracle(oracle, network, rng, log, *, noise=None):
    """Polish on inputs chosen for the purpose: near the centre first, then where every unit bends.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        Of standardised inputs.
    rng : numpy.random.RandomState
    log : StageLog
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute. Where there is some, a last round asks for 10 answers
        a parameter in all and fits them together: the parameters' errors fall with the root of their number.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit of the last round. Later rounds are left out where an earlier one failed.

    Notes
    -----
    A shallow network with linear output starts in the second round: its start is good wherever its units are.
    """
    shallow = len(network.weights) == 2 and network.output_activation == "identity"
    rounds = _ROUNDS if network.n_parameters in _FRUGAL else _GENEROUS
    rounds = rounds[1:] if shallow else rounds
    U, Y = np.empty((0, oracle.n_inputs)), None
    for answers, spread, near in rounds:
        n = int(answers * network.n_parameters / network.n_outputs) + oracle.n_inputs - len(U)
        if answers == _NOISY and above_rounding(noise, Y) is None:
            break
        with log.stage("polish", oracle) as entry:
            fresh, told = oracle.ask_near(_design(network, spread, near, rng), max(n, 0))
            U, Y = np.concatenate([U, fresh]), told if Y is None else np.concatenate([Y, told])
            network, misfit, _ = polish_network(network, U, Y, callback=entry["progress"], noise=noise)
            entry["residual"] = misfit
        if misfit > _CLOSE + 4.0 * _relative(noise, Y, network.output_activation):
            break
    return network, misfit


def _design(network, spread, near, rng):
    """`design_points` of the network's first layer, as `Oracle.ask_near` draws them."""
    W, b = network.weights[0], network.biases[0]
    return lambda n, factor: design_points(W, b, n, factor * spread, rng, near)


def _relative(noise, Y, output_activation):
    """Relative root mean square misfit that the noise leaves of a perfect fit."""
    offset, unit = output_units(Y, output_activation)
    Y = (Y - offset) / unit
    sigma = above_rounding(None if noise is None else noise / unit, Y)
    return 0.0 if sigma is None else float(np.sqrt(len(Y) * np.sum(sigma**2)) / np.linalg.norm(Y))
