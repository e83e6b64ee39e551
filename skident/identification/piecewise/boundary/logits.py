"""Logits of one or two hidden layers: zero differences on the boundary, up to a null space, and fits to its points."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from skident.budget import check_deadline
from skident.linalg import lapack, svd

from .points import sizes

MAX_UNKNOWNS = 6000  # of the joint least squares (memory and time)
_NEAR_BEND = 1e-6  # distance from a hyperplane within which the side of a point is uncertain
NULL_TOL = 2e-9  # singular value per root of the points that is a null vector of accurate hyperplanes
_STEPS = 8  # of a fit (budget)
_DAMPING = 1e-11  # of a fit (rounding)
_ROUNDED = 2e-15  # largest residual after which no step follows (rounding)
_CONVERGED = 1e-12  # largest residual from which a step that does not halve it is the last one (rounding)
_LEFT_OUT = 100.0  # median residuals, beyond `_NEAR_BEND`, from which a point leaves the fit


def with_one(X):
    """Rows (x, 1)."""
    return np.column_stack([X, np.ones(len(X))])


@dataclass(frozen=True)
class Logits:
    """Logits ``(|z|, h, 1) @ coef`` with ``z = hyperplanes @ (h, 1)``; the first class has coefficients 0.

    One hidden layer: h are the inputs. Two: ``h = relu(first @ (x, 1))``; `linear` units (m_1,) are active everywhere.
    """

    hyperplanes: np.ndarray
    coef: np.ndarray
    first: np.ndarray | None = None
    linear: np.ndarray | None = None

    def hidden(self, X):
        """What the last hidden layer acts on: inputs X (n, D), or activations (n, m_1) of the first layer."""
        if self.first is None:
            return X
        z = with_one(X) @ self.first.T
        return np.where(self.linear, z, np.maximum(z, 0.0))

    def __call__(self, X):
        """Logits (n, K)."""
        return features(self.hyperplanes, self.hidden(X)) @ self.coef

    def predict(self, X):
        """Indices of the labels (n,)."""
        return np.argmax(self(X), axis=1)

    @property
    def n_parameters(self):
        """Number of weights and coefficients, differences of classes counted."""
        return self.hyperplanes.size + self.coef[:, 1:].size + (0 if self.first is None else self.first.size)

    def gradients(self, X, pairs):
        """Gradients (n, D) of the differences of logits of pairs (n, 2)."""
        return _differences(self, X, pairs)[-1]

    def distances(self, X, pairs):
        """Distances (n,) of points from the boundary of pairs (n, 2), over 1 + |x|, to first order."""
        F, d, _, _, _, gradient = _differences(self, X, pairs)
        return np.abs(np.sum(F * d, axis=1)) / _weights(X, gradient)

    def normalized(self):
        """The same logits with unit normals in both layers and coefficients of norm 1."""
        H, coef, first, m = self.hyperplanes.copy(), self.coef.copy(), self.first, len(self.hyperplanes)
        if first is not None:
            size = np.linalg.norm(first[:, :-1], axis=1)
            first = first / size[:, None]
            H[:, :-1] *= size
            coef[m:-1] *= size[:, None]
        size = np.linalg.norm(H[:, :-1], axis=1)[:, None]
        coef[:m] *= size
        return replace(self, hyperplanes=H / size, coef=coef / np.linalg.norm(coef), first=first)

    def moved(self, change):
        """The logits with all parameters changed, normalized."""
        first, H, coef, n = self.first, self.hyperplanes, self.coef.copy(), 0
        if first is not None:
            first, n = first + change[: first.size].reshape(first.shape), first.size
        H, m = H + change[n : n + H.size].reshape(H.shape), H.size
        coef[:, 1:] += change[n + m :].reshape(coef.shape[1] - 1, -1).T
        return replace(self, hyperplanes=H, coef=coef, first=first).normalized()


def features(H, X):
    """(|z|, x, 1) of inputs X (n, D)."""
    one = with_one(X)
    return np.column_stack([np.abs(one @ H.T), one])


def _differences(logits, X, pairs):
    """Features F, coefficients d of pairs, those of z, derivatives by h, distance to the nearest bend, by x."""
    h, H, m = with_one(logits.hidden(X)), logits.hyperplanes, len(logits.hyperplanes)
    z = h @ H.T
    d = (logits.coef[:, pairs[:, 0]] - logits.coef[:, pairs[:, 1]]).T
    e, near = d[:, :m] * np.sign(z), np.min(np.abs(z), axis=1, initial=np.inf)
    slopes = gradient = e @ H[:, :-1] + d[:, m:-1]
    if logits.first is not None:
        z1 = with_one(X) @ logits.first.T
        slopes = slopes * ((z1 > 0) | logits.linear)
        gradient, near = slopes @ logits.first[:, :-1], np.minimum(near, np.min(np.abs(z1), axis=1))
    return np.column_stack([np.abs(z), h]), d, e, slopes, near, gradient


def _weights(X, gradient):
    return sizes(X) * np.maximum(np.linalg.norm(gradient, axis=1), 1e-12)


def _linearized(logits, X, pairs):
    """Residuals (n,): distances to the boundary over 1 + |x|; their Jacobian, and which points count."""
    F, d, e, slopes, near, gradient = _differences(logits, X, pairs)
    weight, m = _weights(X, gradient), len(logits.hyperplanes)
    r, one, h = np.sum(F * d, axis=1) / weight, with_one(X), F[:, m:]
    keep = (near > _NEAR_BEND) & (np.abs(r) < _NEAR_BEND + _LEFT_OUT * np.median(np.abs(r)))
    blocks = [] if logits.first is None else [slopes[:, [k]] * one for k in range(len(logits.first))]
    blocks += [e[:, [j]] * h for j in range(m)]
    for c in range(1, logits.coef.shape[1]):
        blocks.append(((pairs[:, 0] == c).astype(float) - (pairs[:, 1] == c))[:, None] * F)
    return r, np.hstack(blocks) / weight[:, None], keep


def _gauge(logits):
    """Equations (1 + units, unknowns) that keep the norms of the normals and of the coefficients."""
    planes = [*([] if logits.first is None else logits.first), *logits.hyperplanes]
    return scipy.linalg.block_diag(*[np.append(w[:-1], 0.0) for w in planes], logits.coef[:, 1:].T.ravel())


def refined(logits, X, pairs, damping=_DAMPING):
    """Gauss-Newton over all parameters at boundary points; the logits and the largest residual.

    `damping` is relative to the usual coefficient of an equation: combinations that the points determine less stay.
    """
    logits, best = logits.normalized(), (np.inf, logits)
    if logits.n_parameters > MAX_UNKNOWNS:
        return logits, logits.distances(X, pairs).max()
    for step in range(_STEPS + 1):
        check_deadline()
        r, J, keep = _linearized(logits, X, pairs)
        worst, before = np.abs(r[keep]).max(initial=0.0), best[0]
        if worst < before:
            best = worst, logits
        if step == _STEPS or worst < _ROUNDED or (worst < _CONVERGED and worst > before / 2):
            break
        gauge = _gauge(logits)
        target = np.append(-r[keep], np.zeros(len(gauge)))
        logits = logits.moved(_damped_solution(np.vstack([J[keep], gauge]), target, damping))
    return best[1], best[0]


def _damped_solution(A, b, damping):
    """Damped least squares: about the shortest solution if equations are missing."""
    n = A.shape[1]
    damped = damping * np.sqrt(np.mean(A**2)) * np.eye(n, n + 1)
    R = lapack.qr(np.vstack([np.column_stack([A, b]), damped]), mode="r")
    return scipy.linalg.solve_triangular(R[:n, :n], R[:n, n])


def null_space(H, X, pairs, n_classes, tol=NULL_TOL):
    """Coefficients (k, F, K) that vanish on boundary points X, or on their activations."""
    F = features(H, X) / sizes(X)[:, None]
    rows = np.arange(len(X))
    M = np.zeros((len(X), n_classes, F.shape[1]))
    M[rows, pairs[:, 0]] += F
    M[rows, pairs[:, 1]] -= F
    M = M[:, 1:].reshape(len(X), -1)
    if len(M) > 2 * M.shape[1]:
        M = lapack.qr(M, mode="r")
    _, s, V = svd(M)
    s = np.append(s, np.zeros(M.shape[1] - len(s)))[::-1]
    k = int(np.sum(s < tol * np.sqrt(len(X))))
    N = np.zeros((k, F.shape[1], n_classes))
    N[:, :, 1:] = V[::-1][:k].reshape(k, n_classes - 1, F.shape[1]).transpose(0, 2, 1)
    return N


def separating(H, N, X, seen):
    """The combination (F, K) of null vectors N that gives inputs X their labels with the largest margin, or None."""
    if not len(N):
        return None
    F = features(H, X)
    F /= np.linalg.norm(F, axis=1)[:, None]
    values = np.einsum("nf,kfc->nck", F, N)
    rows = np.arange(len(X))
    margins = values[rows, seen][:, None] - values
    keep = np.ones(margins.shape[:2], dtype=bool)
    keep[rows, seen] = False
    G = margins[keep]
    k = len(N)
    found = linprog(
        np.append(np.zeros(k), -1.0), A_ub=np.column_stack([-G, np.ones(len(G))]), b_ub=np.zeros(len(G)),
        bounds=[(-1, 1)] * k + [(None, 1)], method="highs",
    )  # fmt: skip
    if found.status != 0 or -found.fun <= 1e-12:
        return None
    return np.einsum("k,kfc->fc", found.x[:k], N)
