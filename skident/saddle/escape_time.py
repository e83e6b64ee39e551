"""Time of gradient flow to leave the origin: closed form along an escape direction, and numerical integration."""

import math

import numpy as np
from scipy.integrate import RK23
from scipy.optimize import brentq

from skident.budget.constants import LARGEST_EXPONENT

from .localized_loss import loss_gradient

# Relative growth of the norm plus rotation of the direction per step of the flow.
_LARGEST_STEP = 0.04  # not tuned; bounds what the error estimate, of norm and time alone, does not control
_MAX_STEPS = 20_000  # (budget) minutes
_FLOW_TOL = 2e-4  # error per step of the logarithm of the norm, and relative one of the time


def aligned_escape_time(escape_speed, depth, init_scale, radius):
    """Time in which the norm ``||theta|| / sqrt(L)`` grows from `init_scale` to `radius` along an escape direction.

    With ``a = ||theta|| / sqrt(L)`` the localized flow is ``a' = s a^(L-1)``, so ``t = (a_0^(2-L) - r^(2-L)) / ((L-2)
    s)``, and ``log(r / a_0) / s`` for L = 2; inf if it overflows. Proposition 2.2 of Bantzis, Simon, Jacot (2025) as
    printed is wrong by powers of L: its speed is for the sphere of radius sqrt(L), its proof uses the unit sphere, and
    the two terms are added.
    """
    if depth == 2:
        return math.log(radius / init_scale) / escape_speed
    # In units of a_0, so that a small start to a high power does not overflow before it must.
    growth = -math.expm1((2 - depth) * math.log(radius / init_scale))
    return _exp((2 - depth) * math.log(init_scale)) * growth / ((depth - 2) * escape_speed)


def _exp(exponent):
    """The exponential, inf on overflow: times of very deep networks do."""
    return math.exp(exponent) if exponent < LARGEST_EXPONENT else math.inf


def flow_escape_time(weights, X, G, radius):
    """Time of gradient flow on the localized loss from given weights to ``||theta|| / sqrt(L) = radius``, integrated.

    The direction ``rho`` on the sphere of radius sqrt(L) and the norm ``a`` separate: per relative change of both,
    ``d rho ~ -P grad L_0(rho)``, ``d log a ~ -L_0(rho)``, ``dt ~ a^(2-L)``. Errors of ``log a`` and t are controlled,
    those of rho by the length of the steps. inf if the flow ends at a point from which the loss does not fall;
    RuntimeError after 20,000 steps.
    """
    L, shapes = len(weights), [W.shape for W in weights]
    flat = np.concatenate([np.ravel(W) for W in weights])
    start = float(np.linalg.norm(flat)) / math.sqrt(L)
    target = math.log(radius / start) if start > 0 else math.inf
    if target <= 0 or not math.isfinite(target):
        return 0.0 if target <= 0 else math.inf
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    floor = np.finfo(np.float64).eps * float(np.linalg.norm(X) * np.linalg.norm(G))

    def rates(_, y):
        rho = y[:-2] * (math.sqrt(L) / np.linalg.norm(y[:-2]))
        value, gradients = loss_gradient([W.reshape(s) for W, s in zip(np.split(rho, ends), shapes)], X, G)
        # Euler: <rho, grad L_0> = L L_0, and ||rho||^2 = L.
        turn = float(value) * rho - np.concatenate([np.ravel(g) for g in gradients])
        rate = float(np.linalg.norm(turn)) / math.sqrt(L) + abs(float(value))
        return np.concatenate([turn, [-float(value), _exp((2 - L) * y[-2])]]) / max(rate, floor)

    tol = _FLOW_TOL / math.sqrt(len(flat))  # scipy takes the root mean square over all entries, of which two count
    options = {"rtol": tol, "atol": np.r_[np.full(len(flat), np.inf), tol, np.finfo(np.float64).tiny]}
    state = np.r_[flat / start, 0.0, 0.0]
    flow = RK23(rates, 0.0, state, math.inf, max_step=_LARGEST_STEP, first_step=0.5 * _LARGEST_STEP, **options)
    for _ in range(_MAX_STEPS):
        moved = rates(0.0, flow.y)[:-1]
        if np.linalg.norm(moved[:-1]) / math.sqrt(L) + abs(moved[-1]) < 1.0 - _LARGEST_STEP:  # below the floor
            return math.inf
        flow.step()
        if flow.y[-2] >= target:
            within = flow.dense_output()
            end = brentq(lambda s, within=within: within(s)[-2] - target, flow.t_old, flow.t)
            return float(within(end)[-1]) * _exp((2 - L) * math.log(start))
    raise RuntimeError(
        f"the flow has not left the origin after {_MAX_STEPS} steps: its norm has grown by a factor of "
        f"{math.exp(flow.y[-2]):.3g} of {math.exp(target):.3g}. Try a smaller radius."
    )
