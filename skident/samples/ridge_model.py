"""Sums of ridge functions ``|v . z + beta|`` or ``relu(v . z + beta)`` and a linear function.

``a relu(t) = a / 2 |t| + a / 2 t``: up to a linear function a ReLU unit is an absolute value, whose sign does not
matter. Fitting absolute values and a linear function, the *skip*, therefore needs no signs; they are read off the skip
afterwards.
"""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import MATRIX_ENTRIES

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
