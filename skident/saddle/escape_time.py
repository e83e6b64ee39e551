"""Time of gradient flow to leave the origin: closed form along an escape direction, and numerical integration."""

import math

from array_api_compat import array_namespace

from .localized_loss import loss_gradient

# Relative growth of the norm plus rotation of the direction per step of the flow.
_LARGEST_STEP = 0.04  # not tuned; bounds what the error estimate, of the norm alone, does not control
_SMALLEST_STEP = 1e-6  # not shortened further: the flow slides along an activation boundary
_MAX_STEPS = 20_000  # (budget) minutes
# Step size control of embedded Runge-Kutta pairs, usual values.
_SAFETY = 0.8  # factor of the estimated step
_SHRINK = 0.2  # least ratio of two steps
_GROW = 3.0  # largest ratio of two steps
_SMALL_ERROR = 1e-6  # relative error estimates below it no longer lengthen the step
_REACHED = 1e-9  # distance of log a to its target: rounding of a sum of 20,000 steps
_MAX_EXPONENT = 709.0  # largest exponent of a float64


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
    return math.exp(exponent) if exponent < _MAX_EXPONENT else math.inf


def flow_escape_time(weights, X, G, radius, *, rtol=5e-4):
    """Time of gradient flow on the localized loss from given weights to ``||theta|| / sqrt(L) = radius``, integrated.

    The direction ``rho`` on the sphere of radius sqrt(L) and the norm ``a`` separate in the time ``ds = a^(L-2) dt``:
    ``d rho = -P grad L_0(rho) ds``, ``d log a = -L_0(rho) ds``, ``dt = a^(2-L) ds``. Third-order Bogacki-Shampine
    steps, with a relative error of the norm's growth of `rtol` per step. inf if the flow ends at a point from which the
    loss does not fall; RuntimeError after 20,000 steps. A smaller `rtol` is slower where the flow slides along an
    activation boundary: steps shrink in proportion.
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
    first, relative = rates(*state[:2]), _LARGEST_STEP
    for _ in range(_MAX_STEPS):
        rate = _norm(first[0]) / math.sqrt(L) + abs(first[1])
        if rate <= floor:
            return math.inf
        step = relative / rate
        if first[1] > 0:
            step = min(step, (target - state[1]) / first[1])
        new, error = _bogacki_shampine(rates, state, first, step)
        ratio = error / (rtol * step * rate)
        relative = min(_LARGEST_STEP, step * rate * _change_of_step(ratio))
        if ratio > 1.0 and step * rate > _SMALLEST_STEP:
            continue
        state = new
        if target - state[1] < _REACHED:
            return state[2] * _exp((2 - L) * math.log(start))
        first = rates(*state[:2])
    raise RuntimeError(
        f"the flow has not left the origin after {_MAX_STEPS} steps: its norm has grown by a factor of "
        f"{math.exp(state[1]):.3g} of {math.exp(target):.3g}. Try a smaller radius."
    )


def _change_of_step(ratio):
    """Factor of the next step, from the estimated error relative to the tolerated one."""
    # The estimate is of third order in the step, but of second order along an activation boundary.
    return min(_GROW, max(_SHRINK, _SAFETY / math.sqrt(max(ratio, _SMALL_ERROR))))


def _norm(arrays):
    """Euclidean norm of all arrays together."""
    xp = array_namespace(*arrays)
    return math.sqrt(sum(float(xp.sum(W * W)) for W in arrays))


def _on_sphere(arrays):
    """All arrays scaled jointly to the norm sqrt(L)."""
    length = _norm(arrays) / math.sqrt(len(arrays))
    return [W / length for W in arrays]


def _bogacki_shampine(rates, state, first, step):
    """The state after a step, and the difference to the embedded second-order solution in ``log a``."""
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
