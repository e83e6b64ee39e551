"""Many shallow networks trained at once by Levenberg-Marquardt in the space of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ShallowBatch", "train_shallow_batch"]


@dataclass
class ShallowBatch:
    """Trained networks.

    Attributes
    ----------
    W : ndarray of shape (B, k, d)
    v : ndarray of shape (B, k)
    losses : ndarray of shape (B,)
        ``1/(2n) ||r||^2``.
    n_iter : ndarray of shape (B,)
        Steps tried.
    history : ndarray of shape (steps + 1, B)
        Losses after every step; a network that has ended keeps its last one.
    """

    W: np.ndarray
    v: np.ndarray
    losses: np.ndarray
    n_iter: np.ndarray
    history: np.ndarray


def train_shallow_batch(X, y, W, v, jet, *, data=None, train_output=True, max_iter=300, target=1e-8):
    """Minimise ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` from many starts, on many data sets, as one batch.

    Parameters
    ----------
    X : ndarray of shape (E, n, d)
        Data sets.
    y : ndarray of shape (E, n)
    W : ndarray of shape (B, k, d)
        Starts.
    v : ndarray of shape (B, k)
    jet : callable
        ``jet(z, 1)`` returns g and g'.
    data : ndarray of int, shape (B,), default=None
        Which data set a start belongs to; None if there are as many starts as sets.
    train_output : bool, default=True
        Whether v is trained too.
    max_iter : int, default=300
        Steps tried at most.
    target : float, default=1e-8
        A loss at or below this ends a run.

    Returns
    -------
    ShallowBatch

    Notes
    -----
    With n rows and Jacobian J, the damped step is ``-J^T (J J^T + mu)^-1 r``, and ``J J^T`` is
    ``(A A^T) * (X X^T) + g g^T`` with ``A = v g'``: J itself is never formed. O(n^2 (k + d) + n^3) a step and network,
    batched products throughout; networks that have ended are taken out. Right for networks with about as many
    parameters as rows, which is where phase transitions are.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.batch_training import train_shallow_batch
    >>> rng = np.random.default_rng(0)
    >>> X, W = rng.standard_normal((1, 12, 5)), rng.standard_normal((3, 10, 5))
    >>> square = lambda z, order: (z * z, 2 * z)
    >>> signs = np.tile([1.0, -1.0], (3, 5))
    >>> batch = train_shallow_batch(X, rng.standard_normal((1, 12)), W, signs, square, data=np.zeros(3, dtype=int))
    >>> print(bool(np.all(batch.losses < 1e-8)))
    True
    """
    data = np.arange(len(W)) if data is None else np.asarray(data)
    W, v = np.array(W, dtype=np.float64), np.array(v, dtype=np.float64)
    gram = X @ X.transpose(0, 2, 1)
    cost = _loss(X[data], y[data], W, v, jet)[0]
    history, n_iter = [cost.copy()], np.zeros(len(W), dtype=int)
    damping, growth = np.full(len(W), np.nan), np.full(len(W), 2.0)
    for _ in range(max_iter):
        left = np.flatnonzero((cost > target) & ~(damping > 1e12))
        if not len(left):
            break
        Xb, yb, Wb, vb = X[data[left]], y[data[left]], W[left], v[left]
        step_W, step_v, predicted, used = _step(Xb, yb, Wb, vb, jet, gram[data[left]], damping[left], train_output)
        damping[left] = used
        new_cost = _loss(Xb, yb, Wb + step_W, vb + step_v, jet)[0]
        gained = (cost[left] - new_cost) / np.maximum(predicted, 1e-300)
        better = np.isfinite(new_cost) & (new_cost < cost[left])
        taken, kept = left[better], left[~better]
        W[taken], v[taken], cost[taken] = (Wb + step_W)[better], (vb + step_v)[better], new_cost[better]
        # Nielsen's rule: the damping follows the ratio of actual to predicted decrease.
        damping[taken] *= np.maximum(0.1, 1.0 - (2.0 * np.minimum(gained[better], 1.0) - 1.0) ** 3)
        damping[kept] *= growth[kept]
        growth[taken], growth[kept] = 2.0, 2.0 * growth[kept]
        n_iter[left] += 1
        history.append(cost.copy())
    return ShallowBatch(W, v, cost, n_iter, np.array(history))


def _loss(X, y, W, v, jet):
    """Losses (B,), residuals (B, n), values and slopes of the units (B, n, k)."""
    g, slope = jet(X @ W.transpose(0, 2, 1), 1)
    residual = np.einsum("bnk,bk->bn", g, v) - y
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * np.mean(residual**2, axis=1), residual, g, slope


def _step(X, y, W, v, jet, gram, damping, train_output):
    """Steps in W and v, the decrease that the linear model predicts, and the damping (started where it is nan)."""
    _, residual, g, slope = _loss(X, y, W, v, jet)
    A = slope * v[:, None, :]
    K = (A @ A.transpose(0, 2, 1)) * gram
    if train_output:
        K += g @ g.transpose(0, 2, 1)
    mean = np.maximum(np.einsum("bii->b", K) / K.shape[1], 1e-300)
    damping = np.where(np.isnan(damping), 1e-2 * mean, damping)
    # Never so small that rounding decides, which for a singular K would be a random step.
    damping = np.maximum(damping, 1e-13 * mean)
    np.einsum("bii->bi", K)[...] += damping[:, None]
    s = -np.linalg.solve(K, residual[..., None])[..., 0]
    step_W = (A * s[..., None]).transpose(0, 2, 1) @ X
    step_v = np.einsum("bnk,bn->bk", g, s) if train_output else np.zeros_like(v)
    # The linear model leaves r + J step = -damping s.
    predicted = 0.5 * np.mean(residual**2 - (damping[:, None] * s) ** 2, axis=1)
    return step_W, step_v, predicted, damping
