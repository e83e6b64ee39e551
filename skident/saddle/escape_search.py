"""Search for fast escape directions by batched ascent: restarts, truncation, polishing; array API."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from skident.budget.constants import NO_EFFECT
from skident.optim import sphere_ascent, unit_norm

from .localized_loss import activations, collapse, deepened, last_layer, speed, speed_and_gradient

_N_SINGLE_UNITS = 256  # starts of the depth-two problem (budget): it is cheap
_FEWEST_STEPS = 50  # of the depth-two ascent and of polishing
_MAX_STEPS_OF_UNITS = 100  # of the depth-two ascent (budget)
_POLISH_STEPS = (0.3, 1e-6)  # first and last step, relative to a layer's norm; the last is the error of the direction
_NOTHING_LEFT = 1e-6  # norm of the remaining gradient, relative to G, at which components end


class DeadRestartsError(ValueError):
    """No start has a unit that is active and reduces the loss."""


@dataclass(frozen=True)
class AscentOptions:
    """Budget of the ascent."""

    n_starts: int
    max_iter: int  # steps per restart; half as many follow to polish
    step_size: float = 0.1  # first step, relative to a layer's norm
    chunk_bytes: int = 2**30  # bound on a batch's activations; further restarts form another batch


@dataclass(frozen=True)
class EscapeResult:
    """The fastest escape direction of one search."""

    weights: list  # L arrays (m_{l-1}, m_l) of norm one; the last hidden layer uses one unit
    speed: float
    unit: Any  # activation (n,) of that unit on the data
    restart_speeds: np.ndarray  # (R,); NaN for dead restarts
    shallow_speed: float  # largest speed at depth two, attainable at each depth


def search_escape(X, G, *, depth, width, ascent, rng):
    """The fastest escape direction from random starts; DeadRestartsError if all are dead.

    1. `sphere_ascent` of the speed over the hidden layers, restarts in one batch.
    2. `collapse`: each network is truncated above its best unit, at no loss of speed.
    3. The same at depth two from many single units: the best of them, made deeper, is one more candidate, so that the
       speed does not decrease with depth by bad luck.
    4. The remaining networks are ascended with smaller steps, and the fastest is extended to full depth.
    """
    networks, units = _ascend(X, G, (X.shape[1], *[width] * (depth - 1)), ascent, rng)
    n_steps = max(_FEWEST_STEPS, min(ascent.max_iter, _MAX_STEPS_OF_UNITS))
    single = _best_single_unit(units[:_N_SINGLE_UNITS], X, G, n_steps)
    polished = _polish([*networks, [single]], X, G, max(_FEWEST_STEPS, ascent.max_iter // 2))
    speeds = _live_speeds(polished, X, G)
    if np.isnan(speeds).all():
        raise DeadRestartsError(
            f"all {ascent.n_starts} restarts died: no unit of any start is active where it could reduce the loss. "
            "Raise n_starts or width, or center X (if all inputs point one way, half of all units are off "
            "everywhere)."
        )
    # Of equally fast candidates, prefer the one of depth two (the last): it is the simplest.
    best = len(speeds) - 1 if not speeds[-1] < np.nanmax(speeds) * (1 - NO_EFFECT) else int(np.nanargmax(speeds))
    hidden = polished[best]
    readout = last_layer([W[None] for W in hidden], X, G)[0]
    unit = activations(hidden, X)[-1][:, 0]
    weights = deepened(hidden, readout, depth - 1, width)
    return EscapeResult(weights, float(speeds[best]), unit, speeds[:-1], float(speeds[-1]))


def successive_escapes(X, G, n_components, search):
    """Yield the fastest escape, then the fastest for the remainder of G after projecting out its unit, and so on.

    `search(X, G)` gives an `EscapeResult`. At most `n_components`; fewer if nothing of G is left.
    """
    xp, units, remaining = array_namespace(G), [], G
    for _ in range(n_components):
        escape = search(X, remaining)
        yield escape
        units.append(escape.unit)
        remaining = remaining_gradient(G, units)
        if float(xp.linalg.vector_norm(remaining)) <= _NOTHING_LEFT * float(xp.linalg.vector_norm(G)):
            return


def _ascend(X, G, sizes, ascent, rng):
    """Networks of all restarts, truncated above their best units, and the first-layer units (K, D) of the starts."""
    xp = array_namespace(X, G)
    per_restart = X.shape[0] * sum(sizes[1:]) * 3 * (8 if X.dtype == xp.float64 else 4)
    batch = max(1, int(ascent.chunk_bytes // max(1, per_restart)))
    networks, units = [], []
    for first in range(0, ascent.n_starts, batch):
        R = min(batch, ascent.n_starts - first)
        starts = [_random(X, rng, (R, a, b)) for a, b in zip(sizes[:-1], sizes[1:])]
        units.append(xp.reshape(xp.matrix_transpose(starts[0]), (-1, X.shape[1])))
        steps = {"step_size": ascent.step_size, "max_iter": ascent.max_iter}
        result = sphere_ascent(lambda hidden: speed_and_gradient(hidden, X, G), starts, **steps)
        networks += collapse(result.blocks, X, G)[0]
    return networks, xp.concat(units, axis=0)


def _live_speeds(networks, X, G):
    """Speeds (R,) of networks; NaN if zero to rounding."""
    xp = array_namespace(X, G)
    threshold = float(xp.finfo(X.dtype).eps) * float(xp.linalg.vector_norm(X) * xp.linalg.vector_norm(G))
    values = [float(speed([W[None] for W in hidden], X, G)[0]) for hidden in networks]
    return np.array([v if np.isfinite(v) and v > threshold else np.nan for v in values])


def _random(like, rng, shape):
    """Standard normal numbers with the namespace, dtype and device of another array."""
    xp = array_namespace(like)
    return xp.asarray(rng.standard_normal(shape), dtype=like.dtype, device=device(like))


def _single_units(W, X, G):
    """`speed_and_gradient` of K networks with one unit (K, D, 1), in one product."""
    xp = array_namespace(X)
    A = xp.clip(X @ W[:, :, 0].T, min=0.0)
    readouts = A.T @ G
    D = xp.where(A > 0, G @ unit_norm(readouts[:, None, :])[:, 0, :].T, xp.zeros_like(A))
    return xp.linalg.vector_norm(readouts, axis=-1), [(X.T @ D).T[:, :, None]]


def _best_single_unit(starts, X, G, max_iter):
    """The fastest of many single units (D, 1)."""
    xp = array_namespace(X)
    result = sphere_ascent(
        lambda blocks: _single_units(blocks[0], X, G), [starts[:, :, None]], step_size=1.0, max_iter=max_iter
    )
    return result.blocks[0][int(xp.argmax(result.values))]


def _polish(networks, X, G, max_iter):
    """Each network ascended again, those of equal depth in one batch; unchanged if that makes it slower."""
    xp = array_namespace(X)
    polished = list(networks)
    for n_hidden in sorted({len(hidden) for hidden in networks}):
        members = [r for r, hidden in enumerate(networks) if len(hidden) == n_hidden]
        blocks = [xp.stack([networks[r][k] for r in members]) for k in range(n_hidden)]

        def objective(blocks):
            return _single_units(blocks[0], X, G) if len(blocks) == 1 else speed_and_gradient(blocks, X, G)

        before = objective(blocks)[0]
        result = sphere_ascent(
            objective, blocks, step_size=_POLISH_STEPS[0], last_step_size=_POLISH_STEPS[1], max_iter=max_iter
        )
        for i, r in enumerate(members):
            if float(result.values[i]) > float(before[i]):
                polished[r] = [W[i] for W in result.blocks]
    return polished


def remaining_gradient(G, units):
    """G (n, k) minus its projection on units' activations: for the squared loss, the residual of fitting them."""
    if not units:
        return G
    xp = array_namespace(G)
    Q, _ = xp.linalg.qr(xp.stack(units, axis=-1))
    return G - Q @ (Q.T @ G)
