"""Coefficient tensors of Hermite expansions, of orders two to four, from sums over samples."""

import numpy as np

from .symmetric_tensors import pack_entries


def moment_sums(Z, r):
    """Sums ``sum_n r_n z_n^k`` for k = 0 to 4, every symmetric product once.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
    r : ndarray of shape (n,)

    Returns
    -------
    tuple of ndarray
        Of shapes ``()``, ``(p,)``, ``(q,)``, ``(q, p)`` and ``(q, q)`` with ``q = p (p + 1) / 2``: products
        ``z_i z_j``, i <= j, stand in the order of :func:`~skident.linalg.svec`, without its factors.

    Notes
    -----
    Sums of blocks of rows add up. ``O(n p^4 / 4)`` operations in two matrix products, memory for ``n q`` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import moment_sums
    >>> sums = moment_sums(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, 3.0]))
    >>> print(sums[2])
    [1. 2. 7.]
    """
    i, j = np.triu_indices(Z.shape[1])
    Q = Z[:, i]
    Q *= Z[:, j]
    weighted = r[:, None] * Q
    return np.asarray(r.sum()), r @ Z, weighted.sum(axis=0), weighted.T @ Z, weighted.T @ Q


def hermite_tensors(sums, total):
    """Packed coefficient tensors ``T_k = E[r He_k(z)]`` from the sums of a sample.

    Parameters
    ----------
    sums : tuple of ndarray
        Of :func:`moment_sums`, or sums of those.
    total : float
        Number of rows, or sum of their weights.

    Returns
    -------
    dict of int to ndarray
        Orders 2, 3 and 4, packed as :func:`~skident.linalg.symmetric_power` packs them, so that
        ``symmetric_power(w, 4) @ T[4]`` is ``T_4(w, w, w, w)``.

    Notes
    -----
    ``He_4(z)_ijkl = z_i z_j z_k z_l - (six terms delta_ij z_k z_l) + (three terms delta_ij delta_kl)``, and lower
    orders alike. The mean of `hermite_features` is the same and slower: sums of monomials are matrix products. Memory
    for about six arrays of ``p^4 / 4`` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import hermite_tensors, moment_sums
    >>> Z = np.array([[1.0, 2.0], [0.0, 1.0]])
    >>> print(hermite_tensors(moment_sums(Z, np.ones(2)), 2)[2].round(4))
    [-0.5     1.4142  1.5   ]
    """
    m0, m1, m2, m3, m4 = (s / total for s in sums)
    p = len(m1)
    i, j = np.triu_indices(p)
    eye = np.eye(p)
    delta = eye[i, j]
    M = np.empty((p, p))
    M[i, j] = M[j, i] = m2
    T3 = m3 - (delta[:, None] * m1 + m1[i][:, None] * eye[j] + m1[j][:, None] * eye[i])
    T4 = m4 - (np.outer(delta, m2) + np.outer(m2, delta)) + m0 * np.outer(delta, delta)
    for first, second in ((i, j), (j, i)):
        T4 -= eye[np.ix_(first, i)] * M[np.ix_(second, j)] + eye[np.ix_(first, j)] * M[np.ix_(second, i)]
    T4 += m0 * (eye[np.ix_(i, i)] * eye[np.ix_(j, j)] + eye[np.ix_(i, j)] * eye[np.ix_(j, i)])
    entries = {2: (m2 - m0 * delta, (2, 0)), 3: (T3, (2, 1)), 4: (T4, (2, 2))}
    return {k: pack_entries(T, p, parts) for k, (T, parts) in entries.items()}
