"""Initial weights of the sum form by linear regression, layer by layer, instead of random starts."""

import dataclasses
import itertools
import warnings

import numpy as np
import torch

from skident.budget.constants import STEPS
from skident.linalg import joint_pencil

from .degree_two import signed_root
from .problem import copy_layers
from .solvers import jacobian, set_trainable

# Relative to columns of norm one, one start each: damps products of inputs that the layers below nearly span.
RIDGES = (1e-7, 1e-5)
_MAX_COLUMNS = 1500  # more take longer than random starts (budget)
_NULL_NORM = 1e-8  # of s-norms of unit eigenvectors: nearly null vectors do not belong to a unit
# Fits of the lower layers, before a layer above is added.
_HALVING_STEPS = 8  # steps in which the loss must halve (budget)
# Samples per unknown, so that the equations determine it well.
_SAMPLES_PER_WEIGHT = 8  # of the fit
_SAMPLES_PER_COLUMN = 4  # of the regression


def n_columns(architecture, layer):
    """Upper bound on the number of columns of the larger regression of `regress_top_layer`."""
    q = architecture.n_inputs(layer)
    if layer > 2:
        before = architecture.width(layer - 1)
        q += before * (before - 1) // 2
    return q * (q + 1) // 2 + architecture.n_weights


def can_regress(architecture, layers, n_samples):
    """Whether `regress_top_layer` has enough samples, few enough products of inputs, and skip links in all layers."""
    most = max(n_columns(architecture, layer) for layer in layers)
    linked = all(layer == 2 or len(architecture.connections[layer - 2]) > 1 for layer in layers)
    return linked and most <= _MAX_COLUMNS and 2 * most <= n_samples


@torch.no_grad()
def regress_top_layer(module, lower, samples, fixed=(), ridge=RIDGES[0], signed=True):
    """Set the last layer of a sum-form module by regression on the residual of the layers below; eigenvalues of M.

    With inputs h, the last layer adds ``alpha <M, h h^T>``, linear in ``M = W^T diag(s) W`` with the signs s. M comes
    from linear least squares, together with a first-order change of the layers below (`lower`, fitted): their error is
    as large as the new layer's contribution, since they were fitted without it. W and s are those of M's largest
    eigenpairs; of the positive ones unless `signed`.

    Fitted as the last one, the layer before is known up to Q with ``Q^T diag(s) Q = diag(s)`` only, but the new layer
    squares the entries of ``Q S``. A first regression therefore takes all products ``S_i S_j`` as inputs. The
    coefficients of ``h_m S_i S_j``, a symmetric matrix for each other input ``h_m``, are ``Q^T D_m Q`` with diagonal
    D_m. With equal signs Q is a rotation that diagonalizes them jointly; else it holds the eigenvectors of combinations
    of ``diag(s) Q^T D_m Q = Q^-1 diag(s) D_m Q``. `module` and `lower` are both changed by Q.

    The eigenvalues (by size) are those of the block of all inputs but the layer before, which the layers below
    imitate best; M is continued from there as a matrix of rank k. If k is larger than that block, they are those of M.
    Biases are left at zero. Cost: ``O(n c^2 + c^3)`` for c = `n_columns`. If the layers below are wrong by
    ``O(alpha)``, M has a relative error of that size.
    """
    x, y, w, top = samples.x, samples.y, samples.factors, len(module.widths) + 1
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
    W, signs, values = signed_root((M + M.T) / module.alphas[top - 2], module.widths[-1], before, signed)
    if W is not None:
        module.weights[-1][: len(W)].copy_(W)
        module.signs[-1][: len(W)].copy_(signs)
    return values


def _regress(columns, others, target, w, ridge):
    """Coefficients of `columns` in the weighted ridge regression on `columns` and `others`; zeros if not finite."""
    A = w * torch.cat([columns, others], dim=1)
    norms = torch.linalg.vector_norm(A, dim=0).clamp(min=torch.finfo(A.dtype).tiny)
    A /= norms
    gram = A.T @ A
    gram.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(gram)
    solution = torch.cholesky_solve(A.T @ (w * target), factor)[:, 0] / norms
    solution = solution[: columns.shape[1]]
    return torch.zeros_like(solution) if bool(failed) or not bool(torch.isfinite(solution).all()) else solution


def _rotation(module, top, x, residual, tangent, w, ridge):
    """Q of `regress_top_layer`, (k, k)."""
    S, outputs = module.hidden(x)
    S, k = S[top - 1], module.widths[top - 3]
    h = torch.cat([outputs[j] for j in module.connections[top - 2] if j != top - 1], dim=1)
    q, (i, j) = h.shape[1], torch.triu_indices(k, k, device=x.device)
    m, n = torch.triu_indices(q, q, device=x.device)
    # Each product once: repeated columns would make the regression singular.
    fourth = list(itertools.combinations_with_replacement(range(k), 4))
    mixed = (h[:, :, None] * (S[:, i] * S[:, j])[:, None, :]).reshape(len(x), -1)
    rest = [h[:, m] * h[:, n], S[:, fourth].prod(dim=2), tangent]
    N = torch.zeros(q, k, k, dtype=x.dtype, device=x.device)
    N[:, i, j] = _regress(mixed, torch.cat(rest, dim=1), residual, w, ridge).reshape(q, -1)
    Q = _common_turn((N + N.transpose(1, 2)).cpu().numpy(), module.signs[top - 3].cpu().numpy())
    return torch.as_tensor(Q, dtype=x.dtype, device=x.device)


def _common_turn(N, signs):
    """Q (k, k) with ``Q^T diag(s) Q = diag(s)`` and ``N_m`` near ``Q^T D_m Q``, D_m diagonal; I if there is none.

    The rows of Q are the common factors of all N_m (m, k, k) and of ``diag(s)``.
    """
    Q = np.eye(len(signs))
    if len(signs) == 1 or not N.any():
        return Q
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # units with proportional D_m: any turn of them will do
        rows = joint_pencil(N, len(signs), base=np.diag(signs), rng=np.random.RandomState(0)).vectors.T
    norms = np.einsum("ki,i,ki->k", rows, signs, rows)
    order, places = np.argsort(-np.sign(norms), kind="stable"), np.argsort(-signs, kind="stable")  # signs stay
    if np.abs(norms).min() < _NULL_NORM or not np.array_equal(np.sign(norms)[order], signs[places]):
        return Q
    Q[places] = rows[order] / np.sqrt(np.abs(norms[order]))[:, None]
    return Q


def regressable_layers(problem, options):
    """The new layers if `regress_top_layer` can initialize each of them, else an empty list."""
    known = 0 if problem.start is None else len(problem.start.widths)
    new = list(range(known + 2, problem.architecture.depth + 1))
    plain = problem.architecture.curvature is None
    return new if plain and new and can_regress(problem.architecture, new, len(problem.x)) else []


def regress_layers(problem, options, module, samples, ridge, signed=True):
    """Initialize the new layers of a sum-form module in turn, fitting all trained layers jointly after each."""
    kind, layers, lower = problem.architecture, regressable_layers(problem, options), None
    if layers[0] > 2:  # fitted with other weights of the samples
        lower = _lower_layers(problem, module, layers[0] - 1)
        options.minimize(lower, samples, max_iter=options.n_steps(STEPS), patience=_HALVING_STEPS)
        copy_layers(lower, module)
    for layer in layers:
        subset = samples.first(max(_SAMPLES_PER_WEIGHT * kind.n_weights, _SAMPLES_PER_COLUMN * n_columns(kind, layer)))
        net = _lower_layers(problem, module, layer)
        regress_top_layer(net, lower, subset, problem.fixed, ridge, signed)
        if layer < layers[-1]:
            options.minimize(net, subset, max_iter=options.n_steps(STEPS), patience=_HALVING_STEPS)
        copy_layers(net, module)
        lower = net
    return module


def _lower_layers(problem, module, layer):
    """The layers 2, ..., `layer` of a module in the sum form; all but the fixed ones trainable."""
    lower = dataclasses.replace(problem, architecture=problem.architecture.up_to(layer), start=None)
    net = lower.build("sum")
    copy_layers(module, net)
    set_trainable(net, fixed=problem.fixed)
    return net
