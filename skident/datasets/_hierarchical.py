"""Hierarchical targets: the planted quadratic DenseNets of Allen-Zhu and Li (2020)."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils import check_array, check_random_state

from skident.linalg import svd

from ._checks import check_count, check_real

__all__ = ["HierarchicalTarget", "make_hierarchical_target"]

_N_DRAWS = 20_000  # of the moments by which features are normalized: to 1 %


def make_hierarchical_target(
    n_features=16,
    widths=(3, 2),
    *,
    alphas=None,
    connections="paper",
    kappa=2.0,
    distribution="gaussian",
    n_components=3,
    signed=False,
    random_state=None,
):
    """A target ``G*(x) = sum_l alpha_l Sum(G*_l(x))`` and the distribution of its inputs.

    ``G*_0 = x``, ``G*_1 = x^2 - 1``, ``G*_l = (S*_l)^2`` with ``S*_l = sum_{j in J_l} W*_{l,j} G*_j`` in ``R^(k_l)``.
    The W*_{l,j} have random singular vectors and singular values evenly spread over ``[1 / kappa, 1]``; then every
    layer is scaled so that the mean of ``(S*_l)^2`` over units and inputs is one.

    Parameters
    ----------
    n_features : int, default=16
        d, at least 2.
    widths : sequence of int, default=(3, 2)
        ``(k_2, ..., k_L)``, positive.
    alphas : sequence of float, default=None
        ``(alpha_2, ..., alpha_L)``, positive; None is ``0.3 ** (l - 2)``, so ``(1, 0.3, 0.09, ...)``.
    connections : "paper" or sequence of sequence of int, default="paper"
        ``(J_2, ..., J_L)``; "paper" is ``J_l = {0, ..., l - 3, l - 1}`` and ``J_2 = {0, 1}``. Every J_l holds ``l - 1``
        and else indices below it.
    kappa : float, default=2.0
        Condition number of the W*_{l,j} before the scaling, at least 1.
    distribution : {"gaussian", "mixture"}, default="gaussian"
        ``N(0, I)``, or a mixture of `n_components` ``N(0, Sigma_i^2)`` whose Sigma_i have rows of norm one
        (Proposition 5.1).
    n_components : int, default=3
    signed : bool, default=False
        Whether half of the units of each layer are subtracted in the sum (footnote 7); ``k_l // 2`` of them.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    HierarchicalTarget
        ``target.sample(n)`` draws inputs, ``target(X)`` gives G*, ``target.features(X, layer)`` gives S*_l.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Allen-Zhu, Li (2020), "Backward Feature Correction: How Deep Learning Performs Deep Learning", Sections 2 and 5.

    Examples
    --------
    >>> from skident.datasets import make_hierarchical_target
    >>> target = make_hierarchical_target(8, (3, 2), random_state=0)
    >>> X = target.sample(1000, random_state=1)
    >>> print(target(X).shape, target.features(X, layer=3).shape)
    (1000,) (1000, 2)
    """
    d, widths, alphas, connections = _check_architecture(n_features, widths, alphas, connections)
    kappa = check_real("kappa", kappa, lambda k: 1 <= k < np.inf, "a finite number >= 1")
    if distribution not in ("gaussian", "mixture"):
        raise ValueError(f"distribution must be 'gaussian' or 'mixture', got {distribution!r}.")
    rng = check_random_state(random_state)
    n_components = 1 if distribution == "gaussian" else check_count("n_components", n_components)
    roots = np.eye(d)[None] if distribution == "gaussian" else _mixture_roots(d, n_components, rng)
    sizes = [d, d, *widths]
    weights = [{j: _conditioned(k, sizes[j], kappa, rng) for j in J} for k, J in zip(widths, connections)]
    signs = [np.where(np.arange(k) < (k // 2 if signed else 0), -1.0, 1.0) for k in widths]
    target = HierarchicalTarget(weights, alphas, roots, signs)
    target._normalise(target.sample(_N_DRAWS, random_state=rng))
    return target


class HierarchicalTarget:
    """A hierarchical target with its inputs' distribution; made by `make_hierarchical_target`.

    Parameters
    ----------
    weights : list of dict of int to ndarray of shape (k_l, k_j)
        ``W*_{l,j}`` by j, for layers 2, ..., L.
    alphas : tuple of float
    roots : ndarray of shape (c, d, d)
        Sigma_i: inputs are ``Sigma_i g`` with g standard Gaussian and i uniform.
    signs : list of ndarray of shape (k_l,), default=None
        Factors +-1 of the units in the sum, for layers 2, ..., L; None is 1.

    Attributes
    ----------
    n_features : int
    widths : tuple of int
    connections : tuple of tuple of int

    Examples
    --------
    >>> from skident.datasets import make_hierarchical_target
    >>> target = make_hierarchical_target(8, (3,), random_state=0)
    >>> X, y = target.sample_signs(500, random_state=0)
    >>> print(X.shape, sorted(set(y.tolist())))
    (500, 9) [-1, 1]
    """

    def __init__(self, weights, alphas, roots, signs=None):
        self.weights, self.alphas, self.roots = weights, alphas, roots
        self.signs = [np.ones(len(next(iter(W.values())))) for W in weights] if signs is None else signs
        self.n_features = roots.shape[-1]
        self.widths = tuple(len(next(iter(W.values()))) for W in weights)
        self.connections = tuple(tuple(W) for W in weights)
        self._moments = None

    def sample(self, n_samples, random_state=None):
        """Inputs drawn from the target's distribution.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, d)
        """
        rng = check_random_state(random_state)
        component = rng.randint(len(self.roots), size=n_samples)
        g = rng.standard_normal((n_samples, self.n_features))
        X = np.empty_like(g)
        for i, root in enumerate(self.roots):
            X[component == i] = g[component == i] @ root.T
        return X

    def features(self, X, layer):
        """The true features ``S*_l`` of one layer.

        Parameters
        ----------
        X : array-like of shape (n, d)
        layer : int
            l, up to L; layers 0 and 1 are ``x`` and ``x^2 - 1``.

        Returns
        -------
        ndarray of shape (n, k_l)

        Raises
        ------
        ValueError
            If there is no such layer, or X is not finite or of another width.
        """
        if layer not in range(len(self.widths) + 2):
            raise ValueError(f"layer must be in 0, ..., {len(self.widths) + 1}, got {layer!r}.")
        return self._all_features(self._check(X), layer)[layer]

    def __call__(self, X):
        """``G*`` of inputs (n, d), as (n,)."""
        S = self._all_features(self._check(X), len(self.widths) + 1)
        return sum(alpha * F**2 @ signs for alpha, F, signs in zip(self.alphas, S[2:], self.signs))

    def sample_signs(self, n_samples, random_state=None):
        """The classification task of Section 3.2.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState or None, default=None

        Returns
        -------
        X : ndarray of shape (n_samples, d + 1)
            ``(x_0, x)`` with ``x_0 ~ N(-E G, 1)``; G is G* divided by its standard deviation.
        y : ndarray of int, shape (n_samples,)
            ``sgn(x_0 + G(x))``, -1 or 1.
        """
        rng = check_random_state(random_state)
        if self._moments is None:
            values = self(self.sample(_N_DRAWS, random_state=0))
            self._moments = values.mean(), values.std()
        mean, std = self._moments
        x = self.sample(n_samples, random_state=rng)
        x0 = rng.standard_normal(n_samples) - mean / std
        return np.column_stack([x0, x]), np.where(x0 + self(x) / std >= 0, 1, -1)

    def _check(self, X):
        X = check_array(X, dtype=np.float64)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, the target {self.n_features}.")
        return X

    def _all_features(self, X, last):
        S = [X, X**2 - 1.0]
        for W in self.weights[: max(0, last - 1)]:
            S.append(sum((S[j] if j < 2 else S[j] ** 2) @ M.T for j, M in W.items()))
        return S

    def _normalise(self, X):
        for i, W in enumerate(self.weights):
            scale = np.sqrt(np.mean(self._all_features(X, i + 2)[i + 2] ** 2))
            for j in W:
                W[j] = W[j] / scale


def _check_architecture(n_features, widths, alphas, connections):
    """Everything as integers and tuples."""
    d = check_count("n_features", n_features, 2)
    widths = tuple(check_count("every width", k) for k in widths)
    if not widths:
        raise ValueError("widths must hold at least k_2, got ().")
    if alphas is None:
        alphas = [0.3**i for i in range(len(widths))]
    if len(alphas) != len(widths) or not all(isinstance(a, Real) and 0 < a < np.inf for a in alphas):
        raise ValueError(f"alphas must be {len(widths)} positive numbers, one a width; got {alphas!r}.")
    if isinstance(connections, str):
        if connections != "paper":
            raise ValueError(f"connections must be 'paper' or (J_2, ..., J_L), got {connections!r}.")
        connections = [(0, 1), *[(*range(layer - 2), layer - 1) for layer in range(3, len(widths) + 2)]]
    connections = tuple(tuple(sorted(set(J))) for J in connections)
    good = len(connections) == len(widths) and all(
        layer - 1 in J and min(J) >= 0 and max(J) < layer for layer, J in enumerate(connections, start=2)
    )
    if not good:
        raise ValueError(
            f"connections must be (J_2, ..., J_{len(widths) + 1}), every J_l with l - 1 and indices 0, ..., l - 1; "
            f"got {connections!r}."
        )
    return d, widths, tuple(float(a) for a in alphas), connections


def _conditioned(k, q, kappa, rng):
    """(k, q) with random singular vectors and singular values spread evenly over [1 / kappa, 1]."""
    U, _, Vt = svd(rng.standard_normal((k, q)), full_matrices=False)
    return (U * np.linspace(1.0, 1.0 / kappa, U.shape[1])) @ Vt


def _mixture_roots(d, n_components, rng):
    """Well-conditioned Sigma_i with rows of norm one, (c, d, d)."""
    U, _, Vt = svd(rng.standard_normal((n_components, d, d)))
    roots = (U * np.linspace(1.5, 0.75, d)) @ Vt
    return roots / np.linalg.norm(roots, axis=2, keepdims=True)
