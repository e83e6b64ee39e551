"""All weights of two hidden layers fitted to Jacobians: Gauss-Newton steps without a matrix of all parameters."""

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from skident.budget import check_deadline, memory_allows
from skident.budget.constants import TINY
from skident.linalg import lapack

from ...constants import RADII, RCOND
from .eliminated_layers import MOST_UNKNOWNS, inverse_factor, solved_by_elimination
from .roomy_points import LEAST_ACTIVE, active_units, room_at, roomy_points
from .shared_jacobians import jacobians_at

_ARRAYS = 4  # of the size of all Jacobians, and of those in the first layer: work space
_OVER = 2.0  # entries of all Jacobians per weight: fewer determine some weights badly
_OVER_KNOWN = 3.0  # `_OVER` of known Jacobians: their points are less roomy, and they cost no queries
_MORE = 4  # Jacobians beyond that
_STEP = 1.0  # first step of a Jacobian over the distance of the nearest boundary: random steps rarely go straight there
_MAX_STEPS = 4  # of Gauss-Newton: from errors of 1e-6, two reach rounding
_ITERATIONS = 100  # of LSQR per step (budget): two steps of 100 are as accurate as one of 400
_TOL = 1e-10  # relative residual of LSQR: 500 eps over the first residual of 1e-5 or less
_ROUNDING = 0.1  # residual of rounding over its bound
_SETTLED = 0.5  # ratio of successive residuals above which the rest is rounding
_CROSSED = 30.0  # relative residual of a known Jacobian over their median: a boundary crossed, or outputs lost
_LEAST_WEIGHT = 1e-3  # of a Jacobian whose entries have large errors
_POINTS_PER_BIAS = 2.0  # outputs per bias, beside those of the Jacobians
_CHECKS = 30  # outputs that decide whether the fit is better


def polished_on_jacobians(space, network, rng, known=(), unexplained=()):
    """A network with two hidden layers, close to the model's, after a fit of all weights, and of all biases then.

    Within a linear region, the Jacobian is ``J = W_3^T D_2 W_2^T D_1 W_1^T`` with known 0-1 diagonals D. A step solves
    its linearization by elimination of layer after layer; by LSQR if the first layer is wider than the input, with
    changes of W_1 eliminated, and one matrix per further layer as preconditioner. Jacobians that are `known` need no
    queries; further ones are measured at roomy points if these are too few, and at points (n, D) whose outputs are
    `unexplained`. Memory is a few times that of the Jacobians, ``2 P`` to ``3 P`` numbers for P parameters, and the
    square of the number of output weights; if `max_memory` is less, the given network is returned.
    """
    k, (m1, m2, mL) = network.n_inputs, network.layer_widths
    n_weights, entries = k * m1 + m1 * m2 + m2 * mL, mL * k
    G = int(np.ceil(_OVER * n_weights / entries)) + _MORE
    last = m2 * mL if m2 * mL <= MOST_UNKNOWNS else 0
    if not memory_allows(8 * (_ARRAYS * G * mL * (k + m1) + last**2)):
        return network
    found = _best(network, known, int(np.ceil(_OVER_KNOWN * n_weights / entries)))
    points = np.array([one.point for one in found]).reshape(-1, k)
    X, room = roomy_points(network, max(G - len(found), 0), rng, space.within_reach, known=points)
    if len(unexplained):
        X = np.concatenate([X, unexplained])
        room = np.concatenate([room, room_at(network, unexplained)[0]])
    found = [one for one in found + jacobians_at(space, X, _STEP * room, rng) if one.confirmed]
    if len(found) * entries < n_weights:
        return network
    X, errors = np.array([one.point for one in found]), np.array([one.error for one in found])
    weights = np.maximum(errors.min() / errors, _LEAST_WEIGHT)[:, None, None]
    rounding = _ROUNDING * np.linalg.norm(weights[:, 0, 0] * errors) * np.sqrt(entries)
    fitted = _fitted(network, X, np.array([one.value for one in found]), weights, rounding)
    fitted = _with_biases(space, fitted, X, np.array([one.outputs for one in found]), rng)
    X = space.within_reach(RADII[-1] * rng.standard_normal((_CHECKS, k)))
    Y = space.query(X)
    return min(fitted, network, key=lambda one: np.abs(one(X) - Y).max())


def _fitted(network, X, J, weights, rounding):
    """The network after Gauss-Newton steps towards Jacobians J (G, m_L, k) at X (G, k), up to `rounding`."""
    kept, best = network, np.inf
    for _ in range(_MAX_STEPS):
        check_deadline()
        step = Linearized(network, X, weights)
        residual = np.linalg.norm(weights * (J - step.jacobians))
        if residual > _SETTLED * best:
            break
        best, kept = residual, network
        if residual < rounding:
            break
        by_lsqr = step.wide or network.weights[-1].size > MOST_UNKNOWNS
        weights_after = step.solved_by_lsqr(J) if by_lsqr else solved_by_elimination(step, J)
        network = network.with_parameters(weights_after, network.biases)
    else:
        return network
    return kept


def _best(network, known, n):
    """The n Jacobians with the smallest errors, and those at which units of the second layer are active rarely."""
    known = sorted((one for one in known if one.confirmed), key=lambda one: one.error)
    if not known:
        return []
    X, J = np.array([one.point for one in known]), np.array([one.value for one in known])
    left = np.linalg.norm(J - network.jacobian(X), axis=(1, 2)) / np.maximum(np.linalg.norm(J, axis=(1, 2)), TINY)
    known = [one for one, share in zip(known, left, strict=True) if share < _CROSSED * np.median(left)]
    active = active_units(network, np.array([one.point for one in known]))
    before = np.cumsum(active, axis=0) - active
    rare = np.any(active & (before < LEAST_ACTIVE), axis=1)
    return [one for i, one in enumerate(known) if i < n or rare[i]]


class Linearized:
    """Jacobians (G, m_L, k) at X (G, k), and their derivatives by the weights, rows scaled by weights (G, 1, 1)."""

    def __init__(self, network, X, weights):
        self.W1, self.W2, self.W3 = network.weights
        b1, b2 = network.biases[:2]
        Z = X @ self.W1 + b1
        self.on1 = (Z > 0.0)[:, None, :].astype(float)
        self.on2 = (np.maximum(Z, 0.0) @ self.W2 + b2 > 0.0)[:, None, :].astype(float)
        self.weights, self.scaled2 = weights, self.on2 * weights
        self.A = self.W3.T * self.on2 * weights  # (G, m_L, m_2)
        self.M = (self.A @ self.W2.T) * self.on1  # (G, m_L, m_1)
        self.jacobians = self.M / weights @ self.W1.T
        self.wide = self.W1.shape[1] > len(self.W1)

    def solved_by_lsqr(self, J):
        """Weights after a step towards Jacobians J."""
        (m1, m2), mL = self.W2.shape, self.W3.shape[1]
        R = self.weights * (J - self.jacobians)
        flat = self.M.reshape(-1, m1)
        Q = lapack.orth(flat)
        rows, columns, L3 = self._preconditioners()

        def split(v):
            V2, V3 = v[: m1 * m2].reshape(m1, m2), v[m1 * m2 :].reshape(m2, mL)
            return (V2 @ columns) * rows, L3 @ V3

        def forward(v):
            C = self.change(*split(v)).reshape(len(flat), -1)
            return (C - Q @ (Q.T @ C)).ravel()

        def adjoint(y):
            # The residuals of LSQR are orthogonal to Q already.
            V2, V3 = self._adjoint(y.reshape(R.shape[0], mL, -1))
            return np.concatenate([((V2 * rows) @ columns.T).ravel(), (L3.T @ V3).ravel()])

        # In coordinates of the first layer, or of the input if these are fewer.
        target = (R if self.wide else R @ lapack.pinv(self.W1.T)).reshape(len(flat), -1)
        target = (target - Q @ (Q.T @ target)).ravel()
        operator = LinearOperator((len(target), m1 * m2 + m2 * mL), matvec=forward, rmatvec=adjoint)
        d2, d3 = split(lsqr(operator, target, atol=_TOL, btol=_TOL, iter_lim=_ITERATIONS)[0])
        change = self.change(d2, d3)
        left = R - (change if self.wide else change @ self.W1.T)
        d1 = lapack.lstsq(flat, left.reshape(len(flat), -1))[0].T
        return [self.W1 + d1, self.W2 + d2, self.W3 + d3]

    def change(self, d2, d3):
        """Change (G, m_L, m_1) of ``W_3^T D_2 W_2^T D_1`` with changes d2 of W_2 and d3 of W_3; (G, m_L, k) if wide."""
        m1, m2 = self.W2.shape
        C = self.A.reshape(-1, m2) @ d2.T  # one large product is faster than one per Jacobian
        C += (d3.T * self.scaled2).reshape(-1, m2) @ self.W2.T
        C = C.reshape(len(self.A), -1, m1)
        C *= self.on1
        return C @ self.W1.T if self.wide else C

    def _adjoint(self, Y):
        Y = (Y @ self.W1 if self.wide else Y) * self.on1
        m1, m2 = self.W2.shape
        flat = Y.reshape(-1, m1)
        V2 = flat.T @ self.A.reshape(-1, m2)
        V3 = np.einsum("gpj,gj->jp", (flat @ self.W2).reshape(self.A.shape), self.scaled2[:, 0])
        return V2, V3

    def _preconditioners(self):
        """Factors of the second layer, per row and of all columns, and of the third: the blocks become near 1."""
        m2 = len(self.W3)
        share = np.sqrt(np.maximum(self.on1.mean(axis=(0, 1)), 1.0 / len(self.A)))
        A = self.A.reshape(-1, m2)
        second = inverse_factor(A.T @ A)
        gram = np.zeros((m2, m2))
        for mask1, mask2 in zip(self.on1[:, 0], self.scaled2[:, 0], strict=True):
            V = self.W2.T * mask1 * mask2[:, None]
            gram += V @ V.T
        return 1.0 / share[:, None], second.T, inverse_factor(gram)


def _with_biases(space, network, X, Y, rng):
    """The network with all biases fitted to outputs Y at X and at further points, at which it is linear in them."""
    (W1, W2, W3), (b1, b2, b3) = network.weights, network.biases
    n = int(_POINTS_PER_BIAS * (len(b1) + len(b2) + len(b3)) / len(b3)) + len(RADII)
    more = np.array(RADII)[np.arange(n) % len(RADII), None] * rng.standard_normal((n, len(W1)))
    more = space.within_reach(more)
    X, Y = np.concatenate([X, more]), np.concatenate([Y, space.query(more)])
    weights = 1.0 / (1.0 + np.linalg.norm(X, axis=1) / space.unit)
    Z1 = X @ W1 + b1
    Z2 = np.maximum(Z1, 0.0) @ W2 + b2
    left = Y - np.maximum(Z2, 0.0) @ W3 - b3
    A2 = W3.T * (Z2 > 0.0)[:, None, :]
    A1 = (A2 @ W2.T) * (Z1 > 0.0)[:, None, :]
    A3 = np.broadcast_to(np.eye(len(b3)), (len(X), len(b3), len(b3)))
    A = np.concatenate([A1, A2, A3], axis=2) * weights[:, None, None]
    change = lapack.lstsq(A.reshape(-1, A.shape[2]), (left * weights[:, None]).ravel(), rcond=RCOND)[0]
    d1, d2, d3 = np.split(change, np.cumsum([len(b1), len(b2)]))
    return network.with_parameters(network.weights, [b1 + d1, b2 + d2, b3 + d3])
