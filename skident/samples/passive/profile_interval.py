"""Confidence interval of one parameter by the profile of the residual sum of squares, all others refitted."""

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student_t

from skident.budget.constants import STEPS, TINY
from skident.fitting.standard_errors import parameter_jacobian
from skident.network.calculus import flatten_parameters, unflatten_parameters

_DOUBLINGS = 8  # of the distance, from half a standard error to 128, and halvings of the last one
_LARGEST_STEP = 1e3  # first step over the root mean square parameter, if the standard error is larger or infinite
_OVERFLOW = 1e100  # residuals and derivatives of parameters at which the network overflows
_REFIT_TOL = 1e-8  # relative, of costs and steps of refits: the profile has to be known to a hundredth of the noise


def profile_interval(network, X, Y, position, level):
    """Ends (2,) between which parameter `position` of ``flatten_parameters`` lies with confidence `level`.

    They are where the residual sum of squares, minimized over all other parameters from where it was before, exceeds
    its minimum by the variance of the noise times the squared Student quantile (Bates and Watts, 1988, section 6.1.2).
    An end is infinite if the sum stays below on that side. X (n, D), Y (n, m_L) with more outputs than parameters.
    """
    problem = _Residuals(network, X, Y)
    best = problem.minimized(flatten_parameters(network.weights, network.biases), None)
    profile = _Profile(problem, best, position, level)
    return np.array([profile.end(sign) for sign in (-1.0, 1.0)])


class _Residuals:
    """Residuals of a network as a function of its parameters, and their minimization."""

    def __init__(self, network, X, Y):
        self.network, self.X, self.Y = network, X, Y
        self.shapes = [W.shape for W in network.weights]

    def _network(self, params):
        return self.network.with_parameters(*unflatten_parameters(params, self.shapes))

    def residuals(self, params):
        """Errors of the outputs (n m_L,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _finite((self._network(params)(self.X) - self.Y).ravel())

    def cost(self, params):
        """Residual sum of squares."""
        return float(np.sum(self.residuals(params) ** 2))

    def jacobian(self, params):
        """Derivatives (n m_L, P) of the residuals."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _finite(parameter_jacobian(self._network(params), self.X))

    def minimized(self, params, fixed):
        """The parameters of a local minimum from here; the one at index `fixed` keeps its value unless it is None."""
        free = np.ones(len(params), dtype=bool)
        if fixed is not None:
            free[fixed] = False

        def whole(part):
            moved = params.copy()
            moved[free] = part
            return moved

        fit = least_squares(
            lambda part: self.residuals(whole(part)),
            params[free],
            jac=lambda part: self.jacobian(whole(part))[:, free],
            x_scale="jac",
            method="lm",
            ftol=_REFIT_TOL,
            xtol=_REFIT_TOL,
            max_nfev=STEPS,
        )
        return whole(fit.x)


def _finite(A):
    return np.clip(np.nan_to_num(A, nan=_OVERFLOW), -_OVERFLOW, _OVERFLOW)


class _Profile:
    """The profile of one parameter about a minimum.

    Refits of lower cost belong to other minima, in which a unit follows the noise and the others have other roles: the
    interval is about the minimum at which it began.
    """

    def __init__(self, problem, best, position, level):
        self.problem, self.best, self.position = problem, best, position
        self.cost, freedom = problem.cost(best), problem.Y.size - len(best)
        variance = self.cost / freedom
        self.rise = max(variance * student_t.ppf(0.5 + 0.5 * level, freedom) ** 2, TINY)
        J = problem.jacobian(best)
        sizes = np.maximum(np.linalg.norm(J, axis=0), TINY)
        row = np.linalg.pinv(J / sizes)[position] / sizes[position]
        largest = _LARGEST_STEP * np.sqrt(np.mean(best**2))
        self.step = 0.5 * min(max(np.sqrt(variance) * float(np.linalg.norm(row)), TINY), largest)

    def end(self, sign):
        """Where the profile leaves the interval on the side of `sign`."""
        inside, distance = (self.best, 0.0), self.step
        for _ in range(_DOUBLINGS + 1):
            outside = self._refitted(inside[0], sign * distance)
            if outside is None:
                return self._bisected(inside, distance, sign)
            inside, distance = (outside, distance), 2.0 * distance
        return sign * np.inf

    def _bisected(self, inside, beyond, sign):
        for _ in range(_DOUBLINGS):
            middle = 0.5 * (inside[1] + beyond)
            refitted = self._refitted(inside[0], sign * middle)
            if refitted is None:
                beyond = middle
            else:
                inside = refitted, middle
        return self.best[self.position] + sign * 0.5 * (inside[1] + beyond)

    def _refitted(self, start, change):
        """Parameters at the minimum with the parameter changed, from `start`; None if its cost is too large."""
        params = start.copy()
        params[self.position] = self.best[self.position] + change
        params = self.problem.minimized(params, self.position)
        return params if self.problem.cost(params) <= self.cost + self.rise else None
