"""ReLU units that fit packed coefficient tensors best: Gauss-Newton steps whose matrices need no tensor.

Inside, units are rows: ``U`` (c, m, p) unit rows, ``b`` and ``a`` (c, m), for a batch of c candidates. All inner
products of a candidate's tensors and their derivatives are polynomials in the Gram matrix of its units.
"""

import math

import numpy as np

from skident.linalg import flatten_symmetric, symmetric_power
from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

from .paper.scalars import relu_coefficients

_BATCH_BYTES = 2**26  # of the Gauss-Newton matrices of the candidates that are treated at a time
_FIRST_DAMPING = 1.0  # of Levenberg-Marquardt, in units of the diagonal
# Long steps carry biases out to where a unit has no effect and cannot come back. With these three, 365 of 432 random
# starts, of 36 problems with 6 or 8 units in 4 to 6 dimensions, reach the best minimum.
_LONGEST_STEP = 0.07  # of a bias
_CURVATURE_FLOOR = 0.03  # of the largest diagonal entry, where a parameter's own would give it hardly any damping
_MAX_BIAS = 5.0  # a unit whose bias is larger has next to no effect on the tensors
_LARGEST_DAMPING = 1e8  # from which steps are rounding and the fit ends
_TYPICAL = 0.4  # root of sum_k ||T_k||^2 / k!, k >= 2, a unit of output weight 1.5 with a bias in [-1, 1]


class _Target:
    """Given tensors, prepared for evaluation along directions."""

    def __init__(self, tensors, p):
        self.orders = sorted(tensors)
        self.weights = {k: 1.0 / math.factorial(k) for k in self.orders}
        self.constant = float(tensors[0][0]) if 0 in tensors else 0.0
        self.rows = {k: flatten_symmetric(tensors[k], p, (1, k - 1)).T for k in self.orders if k}
        self.norms = {k: float(tensors[k] @ tensors[k]) for k in self.orders}
        # The loss is a difference of such numbers: what is below has no effect on it.
        self.rounding = 8.0 * np.finfo(np.float64).eps * sum(self.weights[k] * self.norms[k] for k in self.orders)

    def slopes(self, U, k):
        """``T_k(u, ..., u, .)`` (c, m, p)."""
        return symmetric_power(U, k - 1) @ self.rows[k]

    def evaluate(self, U):
        """``T_k(u, ..., u)`` (c, m) and the slopes of every order."""
        slopes = {k: self.slopes(U, k) if k else np.zeros_like(U) for k in self.orders}
        values = {k: np.sum(slopes[k] * U, axis=-1) if k else np.full(U.shape[:-1], self.constant) for k in slopes}
        return values, slopes

    def loss(self, U, b, a):
        """``sum_k ||T_k - T_k(U, b, a)||^2 / k!`` (c,)."""
        values, _ = self.evaluate(U)
        c, G = a * relu_coefficients(b, self.orders[-1]), U @ U.swapaxes(-1, -2)
        loss = np.zeros(len(U))
        for k in self.orders:
            own = np.sum(c[k] * (G**k @ c[k][..., None])[..., 0], axis=-1)
            loss += self.weights[k] * (own - 2.0 * np.sum(c[k] * values[k], axis=-1) + self.norms[k])
        return loss

    def linearize(self, U, b, a):
        """``J^T J`` (c, m, p + 2, m, p + 2) and ``J^T (T - T(U, b, a))`` (c, m, p + 2), in u, a, b of every unit.

        The derivatives by a_i, b_i and u_i of order k are ``c_k u_i^k``, ``a_i c_{k+1} u_i^k`` and
        ``k a_i c_k sym(e (x) u_i^{k-1})``; with ``g = u_i . u_j`` two of the last kind have the inner product
        ``(delta g^{k-1} + (k - 1) u_j u_i^T g^{k-2}) / k``.
        """
        n, m, p = U.shape
        values, slopes = self.evaluate(U)
        h, G = relu_coefficients(b, self.orders[-1] + 1), U @ U.swapaxes(-1, -2)
        H, g = np.zeros((n, m, p + 2, m, p + 2)), np.zeros((n, m, p + 2))
        same, mixed = np.zeros((2, n, m, m))
        for k in self.orders:
            weight, c = self.weights[k], a * h[k]
            Gk, Gk1 = G**k, k * G ** max(k - 1, 0)
            scalars = np.stack([h[k], a * h[k + 1]], axis=-1)
            missing = values[k] - (Gk @ c[..., None])[..., 0]
            g[..., p:] += weight * scalars * missing[..., None]
            H[:, :, p:, :, p:] += weight * np.einsum("nis,nij,njt->nisjt", scalars, Gk, scalars)
            along = (Gk1 * c[:, None, :])[:, :, None, :] * scalars[..., None]
            H[:, :, p:, :, :p] += weight * along[..., None] * U[:, :, None, None, :]
            g[..., :p] += weight * c[..., None] * (k * slopes[k] - (Gk1 * c[:, None, :]) @ U)
            pairs = weight * c[:, :, None] * c[:, None, :]
            same += pairs * Gk1
            mixed += pairs * (k * (k - 1) * G ** max(k - 2, 0))
        H[:, :, :p, :, p:] = H[:, :, p:, :, :p].transpose(0, 3, 4, 1, 2)
        crossed = U.swapaxes(1, 2)[:, None, :, :, None] * U[:, :, None, None, :]
        H[:, :, :p, :, :p] = mixed[:, :, None, :, None] * crossed
        diagonal = np.arange(p)
        H[:, :, diagonal, :, diagonal] += same
        return H, g


def _tangent(H, g, U):
    """The same for steps orthogonal to the units; along a unit the matrix is 1, so that no step is taken there."""
    p = U.shape[-1]
    H[:, :, :p] -= U[..., None, None] * np.einsum("nip,nipjq->nijq", U, H[:, :, :p])[:, :, None]
    H[..., :p] -= np.einsum("nisjq,njq->nisj", H[..., :p], U)[..., None] * U[:, None, None]
    g[..., :p] -= np.sum(g[..., :p] * U, axis=-1, keepdims=True) * U
    unit = np.arange(U.shape[1])
    H[:, unit, :p, unit, :p] += (U[..., :, None] * U[..., None, :]).swapaxes(0, 1)
    return H, g


class _Candidates:
    """Candidates as a batch of problems in ``x = (u, a, b)`` of every unit, (c, m, p + 2)."""

    def __init__(self, target):
        self.target = target

    def take(self, index):
        return self  # all share their tensors

    def cost(self, x):
        return self.target.loss(x[..., :-2], x[..., -1], x[..., -2])

    def linearize(self, x):
        U, a, b = x[..., :-2], x[..., -2], x[..., -1]
        H, g = _tangent(*self.target.linearize(U, b, a), U)
        size, longest = g[0].size, np.full(g.shape[1:], np.inf)
        longest[:, -1] = _LONGEST_STEP
        H, g = H.reshape(-1, size, size), -g.reshape(-1, size)
        return BatchedNormalEquations(H, g, _CURVATURE_FLOOR, longest.ravel())

    def move(self, x, steps):
        steps = steps.reshape(x.shape)
        U = x[..., :-2] + steps[..., :-2]
        a, b = x[..., -2] + steps[..., -2], x[..., -1] + steps[..., -1]
        U /= np.linalg.norm(U, axis=-1, keepdims=True)
        return np.concatenate([U, a[..., None], np.clip(b, -_MAX_BIAS, _MAX_BIAS)[..., None]], axis=-1)


def _typical_output_weight(tensors, m):
    """The unit of a in which m units of size one or two make tensors of this size."""
    squares = sum(float(T @ T) / math.factorial(k) for k, T in tensors.items() if k >= 2)
    return math.sqrt(squares / m) / _TYPICAL or 1.0


def refine_by_moments(tensors, W, b, a, *, max_iter=200, ftol=1e-6):
    """Minimize ``sum_k ||T_k - T_k(W, b, a)||^2 / k!`` over unit columns W, biases b and output weights a.

    That is the squared L2 risk of the network under standard normal inputs as far as the given orders see it
    (Proposition B.1 of Awasthi et al. (2021)), and 1 / k! are also the weights that make sampling errors of all
    entries alike.

    W (c, p, m) with columns of norm one, b, a (c, m); returns these after the fit, and the loss (c,).

    A step of one candidate is ``O(m^2 (p + 2)^2 + m n_{k-1} p)`` to build and ``O(m^3 (p + 2)^3 / 3)`` to solve, with
    ``n_k = C(p + k - 1, k)`` and the largest k, whatever the sample was. Candidates run as one batch, of as many as
    fit 64 MB of matrices.
    """
    U = W.swapaxes(1, 2)
    n, m, p = U.shape
    # Damping compares curvatures in a with those in w and b, so the unit of y must not matter.
    unit = _typical_output_weight(tensors, m)
    target = _Target({k: T / unit for k, T in tensors.items()}, p)
    ending = Ending(max_iter, -np.inf, ftol, target.rounding, _FIRST_DAMPING, _LARGEST_DAMPING)
    x = np.concatenate([U, a[..., None] / unit, b[..., None]], axis=2)
    size = max(1, _BATCH_BYTES // (8 * (m * (p + 2)) ** 2))
    parts = [x[start : start + size] for start in range(0, n, size)]
    ended = [batched_levenberg_marquardt(_Candidates(target), part, ending) for part in parts]
    x, loss = (np.concatenate([getattr(end, name) for end in ended]) for name in ("x", "cost"))
    return x[..., :-2].swapaxes(1, 2).copy(), x[..., -1].copy(), x[..., -2] * unit, loss * unit**2
