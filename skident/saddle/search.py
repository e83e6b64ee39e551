"""The search for fast escape directions: restarts, collapse, polish. Arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from skident.optim import sphere_ascent, unit_norm

from .localised_loss import activations, collapse, last_layer, prolonged, speed, speed_and_gradient

__all__ = ["Ascent", "DeadRestartsError", "EscapeSearch", "remaining_gradient", "search_escape", "successive_escapes"]

_N_SINGLE_UNITS = 256  # starts of the depth-two problem, which is cheap
_POLISH_STEPS = (0.3, 1e-6)
_EXPLAINED = 1e-6  # what is left of G below this share of it counts as nothing


class DeadRestartsError(ValueError):
    """No start has a single unit that is active and reduces the loss."""


@dataclass(frozen=True)
class Ascent:
    """How long, and from how many starts, the speed is ascended.

    Attributes
    ----------
    n_restarts : int
    max_iter : int
        Steps of a restart; half as many follow to polish.
    step_size : float, default=0.1
        First step, relative to a layer's norm.
    chunk_bytes : int, default=2**30
        Bound on a batch's activations; restarts beyond it are another batch.
    """

    n_restarts: int
    max_iter: int
    step_size: float = 0.1
    chunk_bytes: int = 2**30


@dataclass(frozen=True)
class EscapeSearch:
    """What `search_escape` found.

    Attributes
    ----------
    weights : list of L arrays (m_{l-1}, m_l)
        Every layer of norm one, the last hidden layer with one unit in use.
    speed : float
    unit : array (n,)
        Activation of that unit on the data.
    restart_speeds : ndarray (R,)
        NaN for dead restarts.
    shallow_speed : float
        The fastest escape found at depth two, which can be had at every depth.
    """

    weights: list
    speed: float
    unit: Any
    restart_speeds: np.ndarray
    shallow_speed: float


def search_escape(X, G, *, depth, width, ascent, rng):
    """The fastest escape direction found from random starts.

    1. `sphere_ascent` of the speed over the hidden layers, restarts in one batch.
    2. `collapse`: every network is cut off above its best unit, at no loss of speed.
    3. The same is done at depth two from many single units: the best of them, made deeper, is one more candidate, so
       that the speed found does not fall with depth for want of luck.
    4. What is left is ascended again with smaller steps, and the fastest made as deep as wanted by `prolonged`.

    Parameters
    ----------
    X : array (n, D)
    G : array (n, k)
        Of X's dtype and device.
    depth : int
        L, of the direction.
    width : int
        Units of every hidden layer.
    ascent : Ascent
    rng : numpy.random.RandomState

    Returns
    -------
    EscapeSearch

    Raises
    ------
    DeadRestartsError
        If every restart is dead.
    """
    networks, units = _ascended(X, G, (X.shape[1], *[width] * (depth - 1)), ascent, rng)
    single = _best_single_unit(units[:_N_SINGLE_UNITS], X, G, max(50, min(ascent.max_iter, 100)))
    polished = _polish([*networks, [single]], X, G, max(50, ascent.max_iter // 2))
    speeds = _live_speeds(polished, X, G)
    if np.isnan(speeds).all():
        raise DeadRestartsError(
            f"all {ascent.n_restarts} restarts died: no unit of any start is active where it could reduce the loss. "
            "Raise n_restarts or width, or centre X (where all inputs point one way, half of all units are off "
            "everywhere)."
        )
    # On equal terms the depth-two candidate, the last one, is the simplest.
    best = len(speeds) - 1 if not speeds[-1] < np.nanmax(speeds) * (1 - 1e-9) else int(np.nanargmax(speeds))
    hidden = polished[best]
    readout = last_layer([W[None] for W in hidden], X, G)[0]
    unit = activations(hidden, X)[-1][:, 0]
    weights = prolonged(hidden, readout, depth - 1, width)
    return EscapeSearch(weights, float(speeds[best]), unit, speeds[:-1], float(speeds[-1]))


def successive_escapes(X, G, n_components, search):
    """The fastest escape, then the fastest for what the features of those before it leave of G, and so on.

    Parameters
    ----------
    X : array (n, D)
    G : array (n, k)
    n_components : int
        At most so many; fewer where nothing is left of G.
    search : callable
        ``search(X, G)`` gives an `EscapeSearch`.

    Yields
    ------
    EscapeSearch
    """
    xp, units, left = array_namespace(G), [], G
    for _ in range(n_components):
        found = search(X, left)
        yield found
        units.append(found.unit)
        left = remaining_gradient(G, units)
        if float(xp.linalg.vector_norm(left)) <= _EXPLAINED * float(xp.linalg.vector_norm(G)):
            return


def _ascended(X, G, sizes, ascent, rng):
    """Networks from all restarts, cut off above their best units, and the single units (K, D) of their starts."""
    xp = array_namespace(X, G)
    per_restart = X.shape[0] * sum(sizes[1:]) * 3 * (8 if X.dtype == xp.float64 else 4)
    batch = max(1, int(ascent.chunk_bytes // max(1, per_restart)))
    networks, units = [], []
    for first in range(0, ascent.n_restarts, batch):
        R = min(batch, ascent.n_restarts - first)
        starts = [_random(X, rng, (R, a, b)) for a, b in zip(sizes[:-1], sizes[1:])]
        units.append(xp.reshape(xp.matrix_transpose(starts[0]), (-1, X.shape[1])))
        steps = {"step_size": ascent.step_size, "max_iter": ascent.max_iter}
        result = sphere_ascent(lambda hidden: speed_and_gradient(hidden, X, G), starts, **steps)
        networks += collapse(result.blocks, X, G)[0]
    return networks, xp.concat(units, axis=0)


def _live_speeds(networks, X, G):
    """Speeds (R,) of networks; NaN of those that are dead to rounding."""
    xp = array_namespace(X, G)
    threshold = float(xp.finfo(X.dtype).eps) * float(xp.linalg.vector_norm(X) * xp.linalg.vector_norm(G))
    values = [float(speed([W[None] for W in hidden], X, G)[0]) for hidden in networks]
    return np.array([v if np.isfinite(v) and v > threshold else np.nan for v in values])


def _random(like, rng, shape):
    """Standard normal numbers of another array's namespace, dtype and device."""
    xp = array_namespace(like)
    return xp.asarray(rng.standard_normal(shape), dtype=like.dtype, device=device(like))


def _single_units(W, X, G):
    """`speed_and_gradient` of K networks with one unit (K, D, 1): one product for all of them."""
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
    """Every network ascended again, networks of one depth in one batch; kept as it was where that made it slower."""
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
    """G less its projection on the span of units' activations: for the squared loss, what a fit of them leaves.

    Parameters
    ----------
    G : array (n, k)
    units : list of arrays (n,)

    Returns
    -------
    array (n, k)
    """
    if not units:
        return G
    xp = array_namespace(G)
    Q, _ = xp.linalg.qr(xp.stack(units, axis=-1))
    return G - Q @ (Q.T @ G)
