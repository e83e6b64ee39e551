"""Slow, obvious implementations that fast code is tested against."""

import itertools

import numpy as np


def reference_jacobian(f, x, step=1e-5):
    """Derivatives (m, D) at a point (D,) of a function (n, D) -> (n, m), by central differences."""
    columns = []
    for i in range(len(x)):
        e = np.zeros(len(x))
        e[i] = step
        columns.append((f((x + e)[None])[0] - f((x - e)[None])[0]) / (2 * step))
    return np.stack(columns, axis=-1)


def reference_hessian(f, x, step=1e-3):
    """Second derivatives (m, D, D) at a point (D,) of a function (n, D) -> (n, m): differences of differences."""

    def gradient(points):
        return np.stack([reference_jacobian(f, point, step).ravel() for point in points])

    return reference_jacobian(gradient, x, step).reshape(f(x[None]).shape[1], len(x), len(x))


def reference_forward(weights, biases, activations, x):
    """All layers' pre-activations at a point (D,), and the output, written unit by unit."""
    y, pre = list(x), []
    for W, b, g in zip(weights, biases, activations):
        z = [sum(W[i, j] * y[i] for i in range(len(y))) + b[j] for j in range(len(b))]
        y = [float(g(np.array(zj))) for zj in z]
        pre.append(np.array(z))
    return pre, np.array(y)


def reference_proposition_2(weights, biases, activations, x):
    """Proposition 2 of Fiedler et al. (2021), neuron by neuron: Hessians (m_L, D, D) at a point (D,)."""
    pre, _ = reference_forward(weights, biases, activations, x)
    n_layers, n_outputs = len(weights), weights[-1].shape[1]
    G = [np.diag(g.jet(z, 1)[1]) for g, z in zip(activations, pre)]
    H = np.zeros((n_outputs, len(x), len(x)))
    for layer in range(n_layers):
        V = np.eye(len(x))
        for k in range(layer):
            V = V @ weights[k] @ G[k]
        V = V @ weights[layer]
        tail = np.eye(V.shape[1])
        for k in range(layer + 1, n_layers):
            tail = tail @ weights[k] @ G[k]
        second = activations[layer].jet(pre[layer], 2)[2]
        for p in range(n_outputs):
            for i in range(V.shape[1]):
                H[p] += second[i] * tail[i, p] * np.outer(V[:, i], V[:, i])
    return H


def reference_svec(A):
    """Upper triangle of a symmetric matrix row by row, off-diagonal entries times sqrt(2), entry by entry."""
    D = len(A)
    return np.array([A[i, j] * (1.0 if i == j else 2.0**0.5) for i in range(D) for j in range(i, D)])


def reference_leading_subspace(rows, rank):
    """Projection (q, q) on the leading right singular vectors of a matrix (n, q), and its singular values."""
    _, values, Vt = np.linalg.svd(rows, full_matrices=False)
    return Vt[:rank].T @ Vt[:rank], values


def reference_algorithm_2(matrices, starts, gamma=1.5, n_steps=3000):
    """Algorithm 2 of Fiedler et al. (2021), literally: one start after the other, a fixed number of steps.

    `matrices` (m, D, D) is a Frobenius-orthonormal basis of the subspace; returns the last iterates (n, D) with a
    nonnegative first entry and ``||P(u u^T)||_F^2`` there.
    """

    def project(A):
        return sum(np.sum(B * A) * B for B in matrices)

    ends, phis = [], []
    for u in starts:
        for _ in range(n_steps):
            u = u + 2 * gamma * project(np.outer(u, u)) @ u
            u = u / np.linalg.norm(u)
        ends.append(u if u[0] >= 0 else -u)
        phis.append(np.sum(project(np.outer(u, u)) ** 2))
    return np.array(ends), np.array(phis)


def reference_residual_jacobian(residual, theta, step=1e-6):
    """Jacobian (n m_L, P) of a residual (n, m_L) as a function of parameters (P,), by central differences."""
    columns = []
    for i in range(len(theta)):
        e = np.zeros(len(theta))
        e[i] = step
        columns.append((residual(theta + e) - residual(theta - e)).ravel() / (2 * step))
    return np.stack(columns, axis=1)


def reference_completion(lists, mixings, activations, z):
    """Eq. (18) of Fiedler et al. (2021) at one row of features (m_1,), layer by layer with explicit diagonals.

    `lists` holds ``scales`` (T_l), ``biases`` (tau_l), ``rescales`` (R_l) and, with a free last layer, ``readout``.
    """
    y = activations[0](np.diag(lists["scales"][0]) @ z + lists["biases"][0])
    for layer, C in enumerate(mixings):
        T, R = np.diag(lists["scales"][layer + 1]), np.diag(lists["rescales"][layer])
        y = activations[layer + 1](T @ C.T @ R @ y + lists["biases"][layer + 1])
    if "readout" in lists:
        y = activations[-1](lists["readout"].T @ y + lists["biases"][-1])
    return y


def reference_packed(T):
    """Entries (n_k,) with ascending indices of a symmetric tensor, times the roots of how often they occur."""
    T = np.asarray(T, dtype=float)
    indices = itertools.combinations_with_replacement(range(len(T) if T.ndim else 1), T.ndim)
    return np.array([T[index] * len(set(itertools.permutations(index))) ** 0.5 for index in indices])


def reference_hermite_tensor(x, order):
    """``He_k(x)`` (D, ..., D) by its definition: k times ``p -> x_i p - d p / d x_i``, p as {powers: factor}."""
    D = len(x)

    def step(p, i):
        q = {}
        for powers, factor in p.items():
            up = tuple(a + (j == i) for j, a in enumerate(powers))
            q[up] = q.get(up, 0.0) + factor
            if powers[i]:
                down = tuple(a - (j == i) for j, a in enumerate(powers))
                q[down] = q.get(down, 0.0) - powers[i] * factor
        return q

    T = np.empty((D,) * order)
    for index in np.ndindex(*T.shape):
        p = {(0,) * D: 1.0}
        for i in index:
            p = step(p, i)
        T[index] = sum(factor * np.prod(np.power(x, powers)) for powers, factor in p.items())
    return T


def reference_outer_power(w, order):
    """``w^{(x) k}`` (D, ..., D)."""
    T = np.ones(())
    for _ in range(order):
        T = np.multiply.outer(T, w)
    return T
