"""Sums of ridge functions ``|v . z + beta|`` or ``relu(v . z + beta)`` and a linear one, fitted by least squares."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.budget.constants import MATRIX_ENTRIES, ROWS_PER_PARAMETER, STEPS
from skident.optim import DenseNormalEquations, KrylovNormalEquations, levenberg_marquardt

_ROUGH_ROWS = 8  # `ROWS_PER_PARAMETER` where fits are only compared
COLLINEAR_ROUNDING = 1e-11  # eigenvalue of a Gram matrix over the largest, below which columns are collinear: rounding
_REPLACED = 1e-6  # squared share in collinear combinations from which a ridge is part of one (rounding: 1e-10)
_PRODUCT_FTOL = 1e-5  # relative decrease at which a fit by products stops, a hundredth of what its noise adds
_ROUNDING = 1e-27  # mean squared residual, in variances of y, that is none
NO_NOISE = 1e-8  # mean squared residual, in variances of y, below which a fit by products goes on with the matrix
PRODUCT_PARAMETERS = 300  # from which on products are cheaper than the matrix
MATRIX_PARAMETERS = 1200  # from which on the matrix is not formed at all (memory)
_SIGN_NUMBERS = 2**25  # of signs that are kept: 128 MB
_TOL = 5e-2  # relative residual of the conjugate gradients of a step (inexact Gauss-Newton)
_LEAST_EIGENVALUE = 1e-7  # of an eigenvalue of the preconditioner, relative to the largest
EXACT = 1e-20  # mean squared residual, in variances of y, that leaves nothing to explain


@dataclass(frozen=True)
class RidgeModel:
    """``g(z) = sum_i s_i act(v_i . z + beta_i) + u . z + c``.

    Attributes
    ----------
    V : ndarray of shape (k, m)
    beta, s : ndarray of shape (m,)
        Biases and signs (1 or -1) of the ridges.
    u : ndarray of shape (k,)
        The skip; zero where `skip` is False.
    c : float
    kind : {"abs", "relu"}
    skip : bool
        Whether u is fitted.
    """

    V: np.ndarray
    beta: np.ndarray
    s: np.ndarray
    u: np.ndarray
    c: float
    kind: str = "abs"
    skip: bool = True

    @property
    def n_units(self):
        """m."""
        return len(self.s)

    @property
    def n_parameters(self):
        """How many numbers are fitted: ridges, constant, and skip if there is one."""
        return self.V.size + self.n_units + 1 + (len(self.u) if self.skip else 0)

    def __call__(self, Z):
        t = Z @ self.V + self.beta
        return (np.abs(t) if self.kind == "abs" else np.maximum(t, 0.0)) @ self.s + Z @ self.u + self.c

    def slopes(self, t):
        """Derivatives (n, m) by pre-activations t (n, m)."""
        return (np.sign(t) if self.kind == "abs" else t > 0) * self.s

    def units(self):
        """The ReLU units with these boundaries, up to their signs.

        Returns U (m, k), b, a (m,).
        """
        lengths = np.linalg.norm(self.V, axis=0)
        lengths = np.where(lengths > 0, lengths, 1.0)
        return (self.V / lengths).T, self.beta / lengths, (2.0 if self.kind == "abs" else 1.0) * self.s * lengths

    def pack(self):
        """Parameters as one vector.

        Returns (n_parameters,).
        """
        units = np.vstack([self.V, self.beta]).T.ravel()
        return np.concatenate([units, self.u, [self.c]] if self.skip else [units, [self.c]])

    def unpack(self, theta):
        """The model with other parameters.

        `theta` (n_parameters,).
        """
        k, m = self.V.shape
        units = theta[: m * (k + 1)].reshape(m, k + 1)
        u = theta[m * (k + 1) : -1] if self.skip else np.zeros(k)
        return RidgeModel(units[:, :k].T, units[:, k], self.s, u, float(theta[-1]), self.kind, self.skip)


def jacobian_of_ridges(X, slopes, skip, root=1.0):
    """Derivatives (..., n, P) of ridge models, in the order of `RidgeModel.pack`, times `root` (n, 1).

    X (n, k + 1) has a last column of ones, slopes (..., n, m) are those of the ridges.
    """
    units = ((root * slopes)[..., None] * X[:, None, :]).reshape(*slopes.shape[:-1], -1)
    linear = root * (X if skip else X[:, -1:])
    return np.concatenate([units, np.broadcast_to(linear, (*slopes.shape[:-1], linear.shape[1]))], axis=-1)


def jacobian_blocks(Z, model, w=None, dtype=np.float64):
    """Blocks of rows (.., P) of the Jacobian of a model, times the roots of weights w (n,)."""
    rows = max(64, MATRIX_ENTRIES // model.n_parameters)
    for start in range(0, len(Z), rows):
        z = Z[start : start + rows]
        root = 1.0 if w is None else np.sqrt(w[start : start + rows, None]).astype(dtype)
        slopes, X = model.slopes(z @ model.V + model.beta), np.column_stack([z, np.ones(len(z))])
        yield jacobian_of_ridges(X.astype(dtype, copy=False), slopes.astype(dtype, copy=False), model.skip, root)


def without_ridges(u, c=0.0):
    """A linear function as a model.

    u (k,).
    """
    return RidgeModel(np.empty((len(u), 0)), np.empty(0), np.empty(0), u, c)


def _products(Z, y, w):
    return ((w * y) @ Z,)


def linear_model(sample):
    """Least squares of y on z and 1; z is white, so it is a mean of products."""
    (slope,) = sample.reduce(_products)
    return without_ridges(slope / sample.total)


def is_exact(sample, rss):
    """Whether residuals are rounding."""
    return rss <= EXACT * sample.total


def squared_errors(Z, y, w, model):
    """Sums over a block of rows of the squared errors e^2 of a model and of their squares, for `Sample.reduce`.

    Z (n, k), y, w (n,); returns ().
    """
    e2 = (y - model(Z)) ** 2
    return np.asarray(w @ e2), np.asarray(w @ e2**2)


def ridge_gram(Z, y, w, U, b):
    """Weighted sums of products of ``(|U z + b|, z, 1, y)`` over a block of rows, for `Sample.reduce`.

    Z (n, k), y, w (n,), U (m, k), b (m,); returns (m + k + 2, m + k + 2).
    """
    A = np.column_stack([np.abs(Z @ U.T + b), Z, np.ones(len(Z)), y])
    return ((w[:, None] * A).T @ A,)


@dataclass(frozen=True)
class Regression:
    """Least squares on given ridges.

    Attributes
    ----------
    model : RidgeModel
    rss : float
        Weighted sum of squared residuals.
    removal : ndarray of shape (m,)
        By how much leaving out a ridge would raise `rss`, the others taking over what they can.
    """

    model: RidgeModel
    rss: float
    removal: np.ndarray


def regress_on_ridges(sample, U, b):
    """Least squares of y on ``|u_i . z + b_i|``, z and 1: the regression of Algorithm 5 of Awasthi et al. (2021).

    The paper's features ``relu(+-(u . z + b))`` differ from each other by linear functions, so they span the same
    space, redundantly.

    U (m, k), b (m,).

    One pass over the rows, ``O(n (m + k)^2)``, for the Gram matrix: `rss` is a difference of its entries, exact to
    1e-14 of the sum of squares. Ridges that are combinations of others to 1e-11 are left to them.
    """
    m, k = U.shape
    (gram,) = sample.reduce(ridge_gram, U, b)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram = gram / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(gram[:-1, :-1])
    kept = values > COLLINEAR_ROUNDING * values[-1]
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    coefficients = inverse @ gram[:-1, -1]
    rss = max(1.0 - gram[:-1, -1] @ coefficients, 0.0) * scale[-1] ** 2
    removal = coefficients[:m] ** 2 / np.maximum(np.diag(inverse)[:m], np.finfo(float).tiny) * scale[-1] ** 2
    # A ridge that the others, or a linear function, replace on all rows: the pseudoinverse does not show it.
    removal[np.sum(vectors[:m, ~kept] ** 2, axis=1) > _REPLACED] = 0.0
    coefficients = coefficients * scale[-1] / scale[:-1]
    size = coefficients[:m]
    signs = np.where(size < 0, -1.0, 1.0)
    model = RidgeModel(U.T * np.abs(size), b * np.abs(size), signs, coefficients[m : m + k], float(coefficients[-1]))
    return Regression(model, float(rss), removal)


def _cost_and_gradient(Z, y, w, model):
    t = Z @ model.V + model.beta
    on = model.slopes(t)
    t *= on
    residual = t.sum(axis=1) + Z @ model.u + model.c - y
    weighted = w * residual
    on *= weighted[:, None]
    parts = [np.vstack([Z.T @ on, on.sum(axis=0)]).T.ravel()]
    if model.skip:
        parts.append(weighted @ Z)
    return np.asarray(weighted @ residual), np.concatenate([*parts, [weighted.sum()]])


def _curvature(Z, y, w, model, dtype=np.float64):
    """``J^T W J``, a few rows of J at a time, these in the given precision."""
    return (sum((J.T @ J for J in jacobian_blocks(Z, model, w, dtype)), np.zeros((model.n_parameters,) * 2)),)


class _Objective:
    """Weighted sum of squares of a model of given signs: gradients over all rows, curvature over as many as needed."""

    def __init__(self, sample, model, rng, rough, by_products=False):
        self.sample, self.model, self.last = sample, model, (None, None)
        if by_products:
            self.products = RidgeProducts(sample, rng, model)
            return
        self.products = None
        self.dtype = np.float32 if rough else np.float64
        rows = (_ROUGH_ROWS if rough else ROWS_PER_PARAMETER) * model.n_parameters
        self.part = sample.draw(max(rows, 1024 if rough else 4096), rng) if rng is not None else sample
        if sample.total < 2.0 * self.part.total:
            self.part = sample

    def cost(self, theta):
        value, gradient = self.sample.reduce(_cost_and_gradient, self.model.unpack(theta))
        self.last = theta, gradient
        return float(value)

    def linearize(self, theta):
        at, gradient = self.last
        if at is not theta:
            _, gradient = self.sample.reduce(_cost_and_gradient, self.model.unpack(theta))
        if self.products is not None:
            scale = self.sample.total / self.products.total
            return self.products.normal_equations(self.model.unpack(theta), gradient, scale)
        (matrix,) = self.part.reduce(_curvature, self.model.unpack(theta), self.dtype)
        matrix *= self.sample.total / self.part.total
        return DenseNormalEquations(matrix, gradient)


@dataclass(frozen=True)
class RidgeFit:
    """Where a fit ended.

    Attributes
    ----------
    model : RidgeModel
    rss : float
        Weighted sum of squared residuals, of standardized y.
    n_iter : int
    status : str
        As in :class:`~skident.optim.LeastSquaresResult`.
    alpha : float
        Penalty per sample on squared weights, for standardized inputs and y.
    """

    model: RidgeModel
    rss: float
    n_iter: int
    status: str
    alpha: float = 0.0


def fit_ridges(sample, model, *, max_iter=60, ftol=1e-7, rough=False, rng=None):
    """Minimize ``sum_n w_n (g(z_n) - y_n)^2`` over the parameters of a ridge model, its signs s kept.

    Gauss-Newton is exact once the signs of all ``v_i . z_n + beta_i`` are right, the model being linear in its
    parameters there: without noise the last step lands on the solution. ``O(n m k)`` for a cost and its gradient,
    ``O(n' P^2)`` for the matrix of P parameters from n' rows. From 300 parameters on (and with `rng`) no matrix is
    formed: a step takes 2 to 40 products of ``O(n' m k)`` in single precision (:class:`RidgeProducts`), and `ftol` is
    1e-5 at least. Up to 1200 parameters the matrix follows where outputs have no noise.
    """
    fit, by_products = None, rng is not None and model.n_parameters >= PRODUCT_PARAMETERS
    if by_products:
        objective = _Objective(sample, model, rng, rough, by_products)
        fit = _minimized(objective, model, max_iter, max(ftol, _PRODUCT_FTOL))
        if rough or fit.rss > NO_NOISE * sample.total or model.n_parameters >= MATRIX_PARAMETERS:
            return fit
        model = fit.model
    last = _minimized(_Objective(sample, model, rng, rough), model, max_iter, ftol)
    return last if fit is None else replace(last, n_iter=fit.n_iter + last.n_iter)


def _minimized(objective, model, max_iter, ftol):
    sample = objective.sample
    result = levenberg_marquardt(
        objective.cost,
        objective.linearize,
        model.pack(),
        max_iter=max_iter,
        target=_ROUNDING * sample.total,  # y is standardized
        ftol=ftol,
    )
    return RidgeFit(model.unpack(result.x), result.cost, result.n_iter, result.status)


class RidgeProducts:
    """``J^T W J`` of a ridge model over rows, by its products, and a preconditioner of Kronecker form.

    Column (i, e) of J is ``sigma_i(z) x_e`` with ``x = (z, 1)`` and sigma the slopes of the ridges, 1 for the skip. As
    z is white, ``E[sigma_i sigma_j x x^T]`` is close to ``E[sigma_i sigma_j] I``: the matrix of the slopes, (m + 1)
    squared, is the preconditioner.
    """

    def __init__(self, sample, rng, model):
        most = min(_SIGN_NUMBERS // (model.n_units + 1), ROWS_PER_PARAMETER * model.n_parameters)
        part = sample.draw(max(1024, most), rng)
        Z, _, self.w = part.arrays(np.float32)
        self.X = np.column_stack([Z, np.ones(len(Z), np.float32)])
        self.total = part.total

    def normal_equations(self, model, gradient, scale):
        """The linearization at a model.

        gradient (P,).
        """
        X, w, m = self.X, self.w[:, None], model.n_units
        slopes = np.ones((len(X), m + 1), np.float32)
        t = X @ np.vstack([model.V, model.beta]).astype(np.float32)
        slopes[:, :m] = model.slopes(t)
        last = slice(None) if model.skip else slice(-1, None)  # coordinates of x in which the last slope is fitted
        buffer = np.empty_like(slopes)

        def product(v):
            D = _columns(v, m, X.shape[1], last)
            np.matmul(X, D.astype(np.float32), out=buffer)
            np.multiply(buffer, slopes, out=buffer)
            along = w * buffer.sum(axis=1, keepdims=True)
            np.multiply(slopes, along, out=buffer)
            return scale * _packed((X.T @ buffer).astype(np.float64), m, last)

        gram = scale * (slopes.T @ (w * slopes)).astype(np.float64)
        n_last = len(range(X.shape[1])[last])
        diagonal = np.concatenate([np.repeat(np.diag(gram)[:m], X.shape[1]), np.repeat(gram[m, m], n_last)])
        values, vectors = scipy.linalg.eigh(gram)

        def preconditioner(damping):
            inverse = 1.0 / (np.maximum(values, _LEAST_EIGENVALUE * values[-1]) + damping * gram[m, m])
            matrix = (vectors * inverse) @ vectors.T
            return lambda v: _packed(_columns(v, m, X.shape[1], last) @ matrix, m, last)

        return KrylovNormalEquations(product, gradient, diagonal, preconditioner, tol=_TOL, max_iter=STEPS)


def _columns(v, m, k1, last):
    """A vector of parameters as a matrix, a column of (z, 1) for every slope."""
    D = np.zeros((k1, m + 1))
    D[:, :m] = v[: m * k1].reshape(m, k1).T
    D[last, m] = v[m * k1 :]
    return D


def _packed(D, m, last):
    return np.concatenate([D[:, :m].T.ravel(), D[last, m]])
