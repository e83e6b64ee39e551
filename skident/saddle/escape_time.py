"""How long gradient flow takes to leave the origin: the formula for a start along an escape direction, and the flow."""

from __future__ import annotations

import math

from array_api_compat import array_namespace

from .localised_loss import loss_gradient

__all__ = ["aligned_escape_time", "flow_escape_time"]

# Growth of the norm and turn of the direction in a step of the flow, at most and where it is not shortened any more.
_LONGEST, _SHORTEST = 0.04, 1e-6
_MAX_STEPS = 20_000


def aligned_escape_time(escape_speed, depth, init_scale, radius):
    """Time until the layers' norm has grown from `init_scale` to `radius`, along an escape direction.

    With ``a = ||theta|| / sqrt(L)`` the localised flow is ``a' = s a^(L-1)``, so ``t = (a_0^(2-L) - r^(2-L)) / ((L-2)
    s)``, and ``log(r / a_0) / s`` for L = 2.

    Parameters
    ----------
    escape_speed : float
        s.
    depth : int
        L.
    init_scale, radius : float
        ``a_0`` and r, of ``||theta|| / sqrt(L)``.

    Returns
    -------
    float
        inf where it is beyond the largest float.

    Notes
    -----
    Proposition 2.2 of Bantzis, Simon, Jacot (2025) as printed is wrong by powers of L: its speed is of the sphere of
    radius sqrt(L), its proof uses the unit sphere, and the two terms are added.

    Examples
    --------
    >>> from skident.saddle.escape_time import aligned_escape_time
    >>> print(round(aligned_escape_time(0.5, 4, 0.1, 1.0), 6))
    99.0
    """
    if depth == 2:
        return math.log(radius / init_scale) / escape_speed
    # In units of a_0, so that a small start to a high power does not overflow before it must.
    growth = -math.expm1((2 - depth) * math.log(radius / init_scale))
    return _exp((2 - depth) * math.log(init_scale)) * growth / ((depth - 2) * escape_speed)


def _exp(exponent):
    """The exponential, inf where it is beyond the largest float: times of very deep networks are."""
    return math.exp(exponent) if exponent < 709.0 else math.inf


def flow_escape_time(weights, X, G, radius, *, rtol=5e-4):
    """Time that gradient flow on the localised loss takes from given weights to a norm: integrated.

    The direction ``rho`` on the sphere of radius sqrt(L) and the norm ``a`` separate in the time ``ds = a^(L-2) dt``:
    ``d rho = -P grad L_0(rho) ds``, ``d log a = -L_0(rho) ds``, ``dt = a^(2-L) ds``. Bogacki and Shampine's third-order
    steps are so short that the second-order solution agrees on the norm's growth, to `rtol` of what changes in a step.

    Parameters
    ----------
    weights : list of L arrays (m_{l-1}, m_l)
    X, G : array (n, D), (n, k)
    radius : float
        Of ``a = ||theta|| / sqrt(L)``.
    rtol : float, default=5e-4
        Smaller is slower where the flow slides along a kink: there steps shrink in proportion.

    Returns
    -------
    float
        inf where the flow ends at a point from which the loss does not fall; 0 if `radius` is reached already.

    Raises
    ------
    RuntimeError
        If 20 000 steps do not lead there.
    """
    L, xp = len(weights), array_namespace(X)
    start = _norm(weights) / math.sqrt(L)
    target = math.log(radius / start) if start > 0 else math.inf
    if target <= 0 or not math.isfinite(target):
        return 0.0 if target <= 0 else math.inf
    floor = float(xp.finfo(X.dtype).eps) * float(xp.linalg.vector_norm(X) * xp.linalg.vector_norm(G))

    def rates(rho, log_a):
        value, gradients = loss_gradient(rho, X, G)
        value = float(value)
        # Euler: <rho, grad L_0> = L L_0, and ||rho||^2 = L.
        turn = [value * W - g for W, g in zip(rho, gradients)]
        return turn, -value, _exp((2 - L) * log_a)

    state = _on_sphere([W / start for W in weights]), 0.0, 0.0
    first, relative = rates(*state[:2]), _LONGEST
    for _ in range(_MAX_STEPS):
        rate = _norm(first[0]) / math.sqrt(L) + abs(first[1])
        if rate <= floor:
            return math.inf
        step = relative / rate
        if first[1] > 0:
            step = min(step, (target - state[1]) / first[1])
        new, error = _bogacki_shampine(rates, state, first, step)
        ratio = error / (rtol * step * rate)
        # The estimate is of third order in the step, of second order where the flow slides along a kink.
        relative = min(_LONGEST, step * rate * min(3.0, max(0.2, 0.8 / math.sqrt(max(ratio, 1e-6)))))
        if ratio > 1.0 and step * rate > _SHORTEST:
            continue
        state = new
        if target - state[1] < 1e-9:
            return state[2] * _exp((2 - L) * math.log(start))
        first = rates(*state[:2])
    raise RuntimeError(
        f"the flow has not left the origin after {_MAX_STEPS} steps: its norm has grown by a factor of "
        f"{math.exp(state[1]):.3g} of {math.exp(target):.3g}. Ask for a smaller radius."
    )


def _norm(arrays):
    xp = array_namespace(*arrays)
    return math.sqrt(sum(float(xp.sum(W * W)) for W in arrays))


def _on_sphere(arrays):
    """All of them scaled to the norm sqrt(L) together."""
    length = _norm(arrays) / math.sqrt(len(arrays))
    return [W / length for W in arrays]


def _bogacki_shampine(rates, state, first, step):
    """The state after a step, and what the embedded second-order solution differs by in ``log a``."""
    rho, log_a, time = state

    def moved(slopes, parts):
        turned = [W + step * sum(p * s[0][k] for p, s in zip(parts, slopes)) for k, W in enumerate(rho)]
        return turned, log_a + step * sum(p * s[1] for p, s in zip(parts, slopes))

    second = rates(*moved([first], [1 / 2]))
    third = rates(*moved([second], [3 / 4]))
    slopes, parts = [first, second, third], (2 / 9, 1 / 3, 4 / 9)
    new_rho, new_log_a = moved(slopes, parts)
    new_rho = _on_sphere(new_rho)
    last = rates(new_rho, new_log_a)
    differences = (-5 / 72, 1 / 12, 1 / 9, -1 / 8)
    error = abs(step * sum(d * s[1] for d, s in zip(differences, [*slopes, last])))
    return (new_rho, new_log_a, time + step * sum(p * s[2] for p, s in zip(parts, slopes))), error
