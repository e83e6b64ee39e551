"""Signs of a layer's units: those under which critical points of the next layer are explained by one unit each."""

import itertools
from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.linalg import lapack, svd

from ...constants import DECOMPOSITIONS, INSIDE, RANK_TOL
from .consensus import clusters_of_jumps, gram_matrices
from .spans import Spans

_LEAST_POINTS = 6  # of a cluster that says something
_MOST_CLUSTERS = 60  # (budget)
_ALL_SIGNS = 10  # units up to which all signs are tried (budget)
_VIOLATION = 10.0  # cost of a normal that contradicts the signs, in logarithms of the clusters' residuals
_AGREEMENT = 3.0  # gain of a normal that could contradict the signs: under most wrong ones hardly any could
_MORE_VIOLATIONS = 5  # than the least, of signs that clusters decide among
_FEWEST_ABLE = 12  # normals that could contradict the signs, fewer than which say nothing
_CLEAR_VIOLATIONS = 4  # of them that say that units are missing, if there are few
_MOST_VIOLATIONS = 0.06  # share of these that contradict the right signs, of units of the layer that are not recovered
_FITTING_CLUSTERS = 0.05  # share of clusters that fit, above which no unit is missing that is always active
_MOST_CLUSTERS_FIT = 0.7  # `_MOST_CLUSTERS` above which normals that contradict the signs are those of rare units
_STARTS = 6  # of the search otherwise
_BATCH_FLOPS = 3e7  # cubed sizes of these, a tenth of a second: no call of LAPACK can be interrupted (budget)
_BEST = -11.0  # least logarithm of eigenvalues that counts
_WORST = -2.0  # the largest one
_FITS = 1e-9  # residual per critical point of a cluster that one unit explains
_OTHER_SIGNS = 24  # random ones: a cluster that fits most of them says nothing
_MOST_FITTING = 0.5  # share of these that a telling cluster fits at most
_INDEPENDENT = 1e-7  # singular value over the largest of gradients that are independent
_CLEAR = 0.5  # votes for a sign, over the most for one, with which all are certain
_SILENT = 1e-5  # coefficient of a silent unit, over the largest


@dataclass(frozen=True)
class SignFit:
    """Signs (K,) of a layer's units, and how deeper critical points agree with them.

    `cluster_share` of the points in clusters are one unit's, and of `n_able` normals `n_violations` contradict them.
    """

    signs: np.ndarray
    cluster_share: float
    n_violations: int
    n_able: int

    @property
    def span_share(self):
        """Share of the normals that agree; None if these are too few."""
        enough = self.n_able >= _FEWEST_ABLE or self.n_violations >= _CLEAR_VIOLATIONS
        return 1.0 - self.n_violations / self.n_able if enough else None

    @property
    def complete(self):
        """Whether no unit is missing that is active at most points."""
        if self.span_share is not None and self.cluster_share < _MOST_CLUSTERS_FIT:
            return self.span_share > 1.0 - _MOST_VIOLATIONS
        return self.cluster_share > _FITTING_CLUSTERS


def layer_signs(critical, H, A, index, units, rng, unsure=None, free=None):
    """The `SignFit` of `units`.

    H (n, m) and A (n, m, D) are the outputs and gradients of the layer before at all critical points, and `index` are
    those of deeper units. `units` are weights C (m, K) and biases b (K,).
    Where units are `unsure` (n, K), only their signs are known: weights to the inputs `free` (m, q) are unknown.
    """
    C, b = units
    K = len(b)
    free = np.zeros((len(C), 0)) if free is None else free
    unsure = np.zeros((len(index), K), dtype=bool) if unsure is None else unsure
    spans = Spans.of(critical, H, A, index, units, rng, unsure)
    matrices = _matrices(critical, H, A, index, (C, b, free))
    votes = _votes(critical, H, A, index[~unsure.any(axis=1)], C, b)
    if np.abs(votes).min() > _CLEAR * max(np.abs(votes).max(), 1.0):
        best = np.sign(votes)
    elif K <= _ALL_SIGNS:
        signs = np.array(list(itertools.product([-1.0, 1.0], repeat=K)))
        wrong = spans.violations(signs)[0]
        signs = signs[wrong <= wrong.min() + _MORE_VIOLATIONS]
        best = signs[np.argmin(_costs(matrices, signs) + _span_costs(spans, signs))]
    else:
        best = _descent(lambda signs: _costs(matrices, signs) + _span_costs(spans, signs), votes, rng)
    wrong, able = spans.violations(best[None])
    return SignFit(best, _share_of_fits(matrices, best, rng), int(wrong[0]), int(able[0]))


def _span_costs(spans, signs):
    """Costs (q,) of signs (q, K) by normals that contradict them, less the normals that could and do not."""
    wrong, able = spans.violations(signs)
    return _VIOLATION * wrong - _AGREEMENT * (able - wrong)


def _share_of_fits(matrices, signs, rng):
    """Share of critical points in clusters that one unit explains under given signs, but not under most others."""
    sizes = matrices[0]
    others = rng.choice([-1.0, 1.0], (_OTHER_SIGNS, len(signs)))
    fits = _cluster_values(matrices, np.vstack([signs, others])) < _FITS
    telling = fits[:, 1:].mean(axis=1) < _MOST_FITTING
    return float(np.sum(sizes[telling & fits[:, 0]]) / max(np.sum(sizes[telling]), 1.0))


def _matrices(critical, H, A, index, units):
    """Sizes (c,) and matrices G, F of clusters in the features (relu(z), relu(-z), linear ones, 1)."""
    C, b, linear = units
    clusters = clusters_of_jumps(critical.jumps[index], critical.line[index], _LEAST_POINTS)[:_MOST_CLUSTERS]
    sizes, Gs, Fs = [], [], []
    for cluster in clusters:
        k = index[cluster]
        Z, J = H[k] @ C + b, np.matmul(C.T, A[k])
        on = Z > 0.0
        features = np.concatenate([np.maximum(Z, 0.0), np.maximum(-Z, 0.0), H[k] @ linear], axis=1)
        straight = np.matmul(linear.T, A[k])
        gradients = np.concatenate([J * on[:, :, None], -J * ~on[:, :, None], straight], axis=1)
        G, F = gram_matrices(features, gradients, critical.normals[k])
        sizes.append(len(k))
        Gs.append(G)
        Fs.append(F)
    return np.array(sizes, dtype=float), np.array(Gs), np.array(Fs)


def _costs(matrices, signs):
    """Costs (q,) of signs (q, K): sums of logarithms of the clusters' residuals."""
    sizes = matrices[0][:, None]
    if len(sizes) == 0:
        return np.zeros(len(signs))
    values = _cluster_values(matrices, signs)
    return np.sum(np.sqrt(sizes) * np.clip(np.log10(values), _BEST, _WORST), axis=0)


def _cluster_values(matrices, signs):
    """Residuals (c, q) per critical point of clusters under signs (q, K)."""
    sizes, G, F = matrices
    if len(sizes) == 0:
        return np.zeros((0, len(signs)))
    K = signs.shape[1]
    rest = np.broadcast_to(np.arange(2 * K, G.shape[1]), (len(signs), G.shape[1] - 2 * K))
    columns = np.column_stack([np.where(signs > 0, np.arange(K), K + np.arange(K)), rest])
    values, at_once = [], min(DECOMPOSITIONS, int(_BATCH_FLOPS / columns.shape[1] ** 3))
    step = max(1, at_once // len(sizes))
    for start in range(0, len(signs), step):
        c = columns[start : start + step]
        pick = np.s_[:, c[:, :, None], c[:, None, :]]
        values.append(_smallest(G[pick], F[pick]) / sizes[:, None])
    return np.concatenate(values, axis=1)


def _smallest(G, F):
    """Smallest eigenvalues of pencils (..., k, k), on the space where F is regular."""
    values, Q = lapack.eigh(F)
    kept = values > RANK_TOL * values[..., -1:]
    R = Q * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[..., None, :]
    M = np.swapaxes(R, -1, -2) @ G @ R
    M = M + np.where(kept, 0.0, 10.0)[..., None, :] * np.eye(M.shape[-1])
    return np.maximum(lapack.eigvalsh(M)[..., 0], 1e-16)


def _votes(critical, H, A, index, C, b):
    """Sums (K,) of votes for the signs, from critical points where the gradients of all units are independent."""
    J = np.matmul(C.T, A[index])
    s = svd(J, compute_uv=False)
    K = len(b)
    full = np.sum(s > _INDEPENDENT * s[:, :1], axis=1) == K
    if not full.any():
        return np.zeros(K)
    k = index[full]
    inverse = lapack.pinv(np.swapaxes(J[full], 1, 2))
    x = np.einsum("nkd,nd->nk", inverse, critical.normals[k])
    off = np.linalg.norm(np.einsum("nkd,nk->nd", J[full], x) - critical.normals[k], axis=1) > INSIDE
    active = np.abs(x) > _SILENT * np.abs(x).max(axis=1, keepdims=True)
    votes = np.where(active, 1.0, -1.0) * np.sign(H[k] @ C + b)
    return votes[~off].sum(axis=0)


def _descent(costs, votes, rng):
    """The best signs (K,) from several random starts, half of them voted, one change at a time."""
    K, best, best_cost = len(votes), None, np.inf
    voted = np.arange(_STARTS)[:, None] < _STARTS // 2
    starts = rng.choice([-1.0, 1.0], (_STARTS, K))
    for signs in np.where(voted & (votes != 0.0), np.sign(votes), starts):
        cost = costs(signs[None])[0]
        while True:
            check_deadline()
            changed = np.where(np.eye(K, dtype=bool), -signs, signs)
            new = costs(changed)
            k = int(np.argmin(new))
            if new[k] >= cost - 1e-9:
                break
            signs, cost = changed[k], new[k]
        if cost < best_cost:
            best, best_cost = signs, cost
    return best
