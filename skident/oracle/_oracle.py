"""The one object that asks a black box: it counts, chunks, checks, and differentiates."""

from __future__ import annotations

import threading

import numpy as np

from ._adapters import adapt
from ._differences import difference_hessian, difference_jacobian

__all__ = ["DERIVATIVES", "BlackBoxError", "Oracle"]


class BlackBoxError(ValueError):
    """The black box raised, or its answers cannot be used."""


DERIVATIVES = ("auto", "exact", "finite_difference")

# Central differences balance truncation h^2 (Jacobian) against rounding eps / h at the cube root of eps.
_JACOBIAN_STEP = float(np.finfo(float).eps ** (1.0 / 3.0))


class Oracle:
    """Asks a black box in standardised coordinates ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    black_box : callable, estimator with ``predict``, torch.nn.Module or FeedforwardNetwork
        Maps (n, D) to (n, m_L) or (n,). A torch module is copied, put into ``eval`` mode and evaluated in float64.
    n_inputs : int
        D.
    center : array-like of shape (D,), default=None
        Zero by default.
    scale : array-like of shape (D,) or float, default=1.0
        Positive units of the inputs; all steps and radii below are in these units.
    derivatives : {"auto", "exact", "finite_difference"}, default="auto"
        ``exact`` insists on closed form (FeedforwardNetwork) or automatic differentiation (torch); ``auto`` uses them
        where the black box allows.
    step_size : float, default=1e-3
        Step of the Hessian's central differences (epsilon of eq. (19)), in units of `scale`.
    chunk_rows : int, default=65536
        Rows handed to the black box at once.

    Attributes
    ----------
    n_queries : int
        Rows the black box was asked.
    n_derivatives : int
        Rows at which an exact Jacobian or Hessian was taken.
    n_outputs : int or None
        m_L, known after the first answer.
    one_dimensional : bool
        Whether the last answer had shape (n,).

    Raises
    ------
    BlackBoxError
        (a ValueError) From every method: if the black box raises, answers with another shape than (n,) or (n, m_L), or
        with a value that is not finite; the message names the first bad row.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> oracle = Oracle(lambda X: np.tanh(X @ [1.0, 2.0]), n_inputs=2)
    >>> gradient = oracle.jacobian(np.zeros((1, 2)))
    >>> print(gradient.shape, oracle.n_queries)
    (1, 1, 2) 4
    """

    def __init__(
        self, black_box, n_inputs, *, center=None, scale=1.0, derivatives="auto", step_size=1e-3, chunk_rows=65536
    ):
        if derivatives not in DERIVATIVES:
            raise ValueError(f"derivatives must be one of {DERIVATIVES}, got {derivatives!r}.")
        if not 0 < step_size < np.inf:
            raise ValueError(f"step_size must be positive and finite, got {step_size!r}.")
        if not chunk_rows >= 1:
            raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows!r}.")
        self._box = adapt(black_box)
        if derivatives == "exact" and not self._box.differentiable:
            raise ValueError(
                f"derivatives='exact' needs a FeedforwardNetwork or a torch.nn.Module, got {type(black_box).__name__}; "
                "use derivatives='finite_difference' or 'auto'."
            )
        self.exact = self._box.differentiable and derivatives != "finite_difference"
        self.n_inputs = n_inputs
        self.center = _coordinates("center", np.zeros(n_inputs) if center is None else center, n_inputs)
        self.scale = _coordinates("scale", np.full(n_inputs, scale) if np.ndim(scale) == 0 else scale, n_inputs)
        if not np.all(self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale[~(self.scale > 0)][0]}; drop constant inputs.")
        self.step_size, self.chunk_rows = step_size, chunk_rows
        self.n_queries, self.n_derivatives, self.n_outputs = 0, 0, None
        self.one_dimensional = False
        self._counting = threading.Lock()

    def to_inputs(self, U):
        """Standardised coordinates (n, D) as the black box's inputs."""
        return self.center + self.scale * U

    def from_inputs(self, X):
        """The black box's inputs (n, D) in standardised coordinates."""
        return (X - self.center) / self.scale

    def __call__(self, U):
        """Answers at the rows of U (n, D): float64 (n, m_L), an array of the caller's own."""
        U = self._rows(U, at_least=0)
        if len(U) == 0:
            return np.empty((0, self.n_outputs or 0))
        parts = [self._ask(U[i : i + self.chunk_rows], i, len(U)) for i in range(0, len(U), self.chunk_rows)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _rows(self, U, at_least=1):
        U = np.asarray(U, dtype=float)
        if U.ndim != 2 or U.shape[1] != self.n_inputs or len(U) < at_least:
            raise ValueError(f"points must have shape (n, {self.n_inputs}) with n >= {at_least}, got {U.shape}.")
        return U

    def _ask(self, U, first_row, n_rows):
        """Answers to a chunk; the black box gets an array of its own, so it may keep or change it."""
        with self._counting:
            first, self.n_queries = self.n_queries, self.n_queries + len(U)
        try:
            answers = self._box.values(self.to_inputs(U))
        except Exception as error:
            raise BlackBoxError(
                f"the black box raised {type(error).__name__} on a batch of {len(U)} rows, after {first} rows answered "
                f"well: {error}"
            ) from error
        Y = self._table(answers, len(U))
        bad = ~np.isfinite(Y).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            x = np.array2string(self.to_inputs(U[row]), precision=4, threshold=6)
            raise BlackBoxError(
                f"the black box answered {Y[row]} (not finite) at row {first_row + row} of the {n_rows} asked, "
                f"x = {x}; {int(bad.sum())} of the {len(U)} rows in this batch are like that."
            )
        self.n_outputs = Y.shape[1]
        return Y

    def _table(self, answers, n):
        """Answers as a float64 table (n, m_L) that shares no memory with the black box."""
        try:
            Y = np.asarray(answers)
            if np.iscomplexobj(Y):
                raise TypeError("they are complex")
            Y = np.array(Y, dtype=float)
        except Exception as error:
            raise BlackBoxError(
                f"the black box's answers ({type(answers).__name__}) cannot be read as real numbers: {error}."
            ) from error
        self.one_dimensional = Y.ndim == 1
        if Y.ndim == 1:
            Y = Y[:, None]
        expected = "(n,) or (n, n_outputs)" if self.n_outputs is None else f"({n}, {self.n_outputs})"
        if Y.ndim != 2 or len(Y) != n or Y.shape[1] == 0 or self.n_outputs not in (None, Y.shape[1]):
            raise BlackBoxError(
                f"the black box was asked {n} rows and answered with shape {np.shape(answers)}; expected {expected}."
            )
        return Y

    def ask_twice(self, U):
        """Answers (n, m_L) to rows U (n, D), and the largest difference to a second asking over the largest answer."""
        U = self._rows(U)
        first, second = self(U), self(U[::-1])[::-1]
        noise = np.max(np.abs(first - second)) / max(np.max(np.abs(first)), np.finfo(float).tiny)
        return first, float(noise)

    def jacobian(self, U):
        """Derivatives of the outputs by u: (n, m_L, D); ``2 D n`` queries where differences are needed."""
        U = self._rows(U)
        if self.exact:
            return self._exact("Jacobian", self._box.jacobian, U) * self.scale
        return difference_jacobian(self, U, _JACOBIAN_STEP)

    def hessian(self, U):
        """Second derivatives by u: (n, m_L, D, D); ``(2 D^2 + 1) n`` queries where differences are needed."""
        U = self._rows(U)
        if self.exact:
            return self._exact("Hessian", self._box.hessian, U) * (self.scale[:, None] * self.scale[None, :])
        return difference_hessian(self, U, self.step_size)

    def _exact(self, what, derivative, U):
        n = len(U)
        with self._counting:
            self.n_derivatives += n
        try:
            values = derivative(self.to_inputs(U))
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(
                f"the black box's exact {what} failed with {type(error).__name__}: {error} "
                "Try derivatives='finite_difference'."
            ) from error
        self.n_outputs = values.shape[1]
        bad = ~np.isfinite(values.reshape(n, -1)).all(axis=1)
        if bad.any():
            raise ValueError(f"the black box's {what} is not finite at row {int(np.argmax(bad))} of {n}.")
        return values


def _coordinates(name, values, n_inputs):
    """One finite number an input, float64."""
    values = np.array(values, dtype=float)
    if values.shape != (n_inputs,) or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold {n_inputs} finite numbers, one an input, got {values}.")
    return values
