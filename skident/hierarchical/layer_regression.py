"""Weights of a new last layer of the paper's sum form by linear regression, without a search."""

from __future__ import annotations

import itertools

import torch

from skident.linalg.joint_diagonal import joint_diagonaliser

from .solvers import jacobian, set_trainable

__all__ = ["RIDGES", "can_regress", "n_columns", "regress_top_layer"]

# Of columns of norm one, a start each: products of inputs that the layers below can nearly imitate are damped.
RIDGES = (1e-7, 1e-5)
_LARGEST = 1500  # columns; more cost longer than random starts take
_FLOOR = 1e-3  # of eigenvalues: units of weight zero would stay there


def n_columns(architecture, layer):
    """Number of columns of the larger regression of `regress_top_layer`, at most.

    Parameters
    ----------
    architecture : DenseNetArchitecture
    layer : int
        The new one.

    Returns
    -------
    int
    """
    q = architecture.n_inputs(layer)
    if layer > 2:
        before = architecture.width(layer - 1)
        q += before * (before - 1) // 2
    return q * (q + 1) // 2 + architecture.n_weights


def can_regress(architecture, layers, n_rows):
    """Whether `regress_top_layer` has rows enough, not too many products of inputs, and skip links.

    Parameters
    ----------
    architecture : DenseNetArchitecture
    layers : collection of int
        The new ones.
    n_rows : int

    Returns
    -------
    bool
        At all of the layers.
    """
    most = max(n_columns(architecture, layer) for layer in layers)
    linked = all(layer == 2 or len(architecture.connections[layer - 2]) > 1 for layer in layers)
    return linked and most <= _LARGEST and 2 * most <= n_rows


@torch.no_grad()
def regress_top_layer(module, lower, rows, fixed=(), ridge=RIDGES[0]):
    """Set the weights of the last layer so that the network explains best what the layers below leave.

    With inputs h, the last layer adds ``alpha ||W h||^2 = alpha <M, h h^T>``, linear in ``M = W^T W``. So M comes from
    linear least squares, together with a first-order change of the layers below: these are wrong by as much as the new
    layer adds, since they were fitted without it. W is the root of M's largest eigenpairs.

    Fitted as the last one, the layer before is known up to a rotation only, ``||S||^2 = ||Q S||^2``, but the new one
    sees the squares of ``Q S``. So a first regression has all products ``S_i S_j`` for inputs; the coefficients of
    ``h_m S_i S_j``, a symmetric matrix for every other input ``h_m``, are ``Q^T D_m Q`` with diagonal D_m, and Q
    diagonalises them all.

    Parameters
    ----------
    module : QuadraticDenseNet
        Sum form; its last layer is changed, and the one before is rotated.
    lower : QuadraticDenseNet or None
        Its other layers, fitted, rotated as well; None where there are none.
    rows : WeightedRows
        One output.
    fixed : collection of int, default=()
        Layers of `lower` that stay.
    ridge : float, default=1e-7
        Of columns of norm one.

    Returns
    -------
    Tensor (m,)
        Eigenvalues of M, from the largest down: those of the block of all inputs but the layer before, which the
        layers below imitate best; M is continued from there as a matrix of rank k. Where k is larger, of all of M.

    Notes
    -----
    Cost: ``O(n c^2 + c^3)``, c of `n_columns`. Biases are left at zero. Where the layers below are wrong by
    ``O(alpha)``, M is wrong by as much, relatively.
    """
    x, y, w, top = rows.x, rows.y, rows.factors, len(module.widths) + 1
    residual, tangent = y, torch.ones_like(y)
    if lower is not None:
        set_trainable(lower, fixed=fixed)
        F, J = jacobian(lower, [(name, p) for name, p in lower.blocks() if p.requires_grad], x)
        residual, tangent = y - F, J[0]
        if top - 1 not in fixed:
            Q = _rotation(module, top, x, residual, tangent, w, ridge)
            for net in (module, lower):
                net.weights[top - 3].copy_(Q @ net.weights[top - 3])
                net.biases[top - 3].copy_(Q @ net.biases[top - 3])
    h = module.gather(module.hidden(x)[1], top)
    q = h.shape[1]
    i, j = torch.triu_indices(q, q, device=x.device)
    M = torch.zeros(q, q, dtype=x.dtype, device=x.device)
    M[i, j] = 0.5 * _regress(h[:, i] * h[:, j], tangent, residual, w, ridge)
    before = module.widths[top - 3] if top > 2 else 0
    W, values = _root((M + M.T) / module.alphas[top - 2], module.widths[-1], before)
    if W is not None:
        module.weights[-1][: len(W)].copy_(W)
    return values


def _regress(columns, others, target, w, ridge):
    """Coefficients of `columns` in the weighted least squares on both; zeros where that overflows."""
    A = w * torch.cat([columns, others], dim=1)
    norms = torch.linalg.vector_norm(A, dim=0).clamp(min=torch.finfo(A.dtype).tiny)
    A /= norms
    gram = A.T @ A
    gram.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(gram)
    solution = torch.cholesky_solve(A.T @ (w * target), factor)[:, 0] / norms
    solution = solution[: columns.shape[1]]
    return torch.zeros_like(solution) if bool(failed) or not bool(torch.isfinite(solution).all()) else solution


def _root(M, k, n_last):
    """W (<= k, q) with ``W^T W`` near M, from the block without the last inputs; None where nothing is positive."""
    q = len(M)
    known = q - n_last if q - n_last >= k else q
    values, vectors = torch.linalg.eigh(M[:known, :known])
    values, vectors = values.flip(0), vectors.flip(1)
    if not float(values[0]) > 0.0:
        return None, values
    kept = min(k, known)
    sizes, V = values[:kept].clamp(min=_FLOOR * float(values[0])).sqrt(), vectors[:, :kept]
    return torch.cat([V * sizes, M[:known, known:].T @ (V / sizes)]).T, values


def _rotation(module, top, x, residual, tangent, w, ridge):
    """Q of `regress_top_layer`, (k, k)."""
    S, outputs, _ = module.hidden(x)
    S, k = S[top - 1], module.widths[top - 3]
    h = torch.cat([outputs[j] for j in module.connections[top - 2] if j != top - 1], dim=1)
    q, (i, j) = h.shape[1], torch.triu_indices(k, k, device=x.device)
    m, n = torch.triu_indices(q, q, device=x.device)
    fourth = list(itertools.combinations_with_replacement(range(k), 4))  # each once, unlike products of products
    mixed = (h[:, :, None] * (S[:, i] * S[:, j])[:, None, :]).reshape(len(x), -1)
    rest = [h[:, m] * h[:, n], S[:, fourth].prod(dim=2), tangent]
    N = torch.zeros(q, k, k, dtype=x.dtype, device=x.device)
    N[:, i, j] = _regress(mixed, torch.cat(rest, dim=1), residual, w, ridge).reshape(q, -1)
    Q = joint_diagonaliser((N + N.transpose(1, 2)).cpu().numpy())
    return torch.as_tensor(Q, dtype=x.dtype, device=x.device)
