"""The one object that asks a black box: it counts, chunks, checks, and differentiates."""

from __future__ import annotations

import threading

import numpy as np

from ._adapters import SharedBox, adapt
from ._differences import difference_hessian, difference_jacobian
from ._responses import NotProbabilitiesError, logits_from_probabilities

__all__ = ["DERIVATIVES", "BlackBoxError", "Oracle"]


class BlackBoxError(ValueError):
    """The black box raised, or its answers cannot be used."""


DERIVATIVES = ("auto", "exact", "finite_difference")
RESPONSES = ("predict", "predict_proba")

# Central differences balance truncation h^2 (Jacobian) against rounding eps / h at the cube root of eps.
_JACOBIAN_STEP = float(np.finfo(float).eps ** (1.0 / 3.0))
# Uncertainties of logits up to which they serve to fit parameters, the better first.
_PRECISE = (1e-13, 1e-12, 1e-11, 1e-10)
# Points this little outside the range, in units of `scale`, are its border but for rounding.
_ON_BORDER = 1e-9


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
    response : {"predict", "predict_proba"}, default="predict"
        What the answers are: values, or probabilities of classes, which are turned into logits; see
        `logits_from_probabilities`. Also the method that is asked of an estimator.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)`` in the black box's inputs: it is never asked outside. Infinite entries are no bounds.

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
    input_range : tuple of two ndarrays of shape (D,) or None
    reach : float
        How far from the centre every input can be moved either way, in units of `scale`; negative where the centre
        lies outside `input_range`, infinite without one.

    Raises
    ------
    BlackBoxError
        (a ValueError) From every method: if the black box raises, answers with another shape than (n,) or (n, m_L), or
        with a value that is not finite (the message names the first bad row); if points lie outside `input_range`; if
        answers are no probabilities where these are expected.

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
        self,
        black_box,
        n_inputs,
        *,
        center=None,
        scale=1.0,
        derivatives="auto",
        step_size=1e-3,
        chunk_rows=65536,
        response="predict",
        input_range=None,
    ):
        if derivatives not in DERIVATIVES:
            raise ValueError(f"derivatives must be one of {DERIVATIVES}, got {derivatives!r}.")
        if not 0 < step_size < np.inf:
            raise ValueError(f"step_size must be positive and finite, got {step_size!r}.")
        if not chunk_rows >= 1:
            raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows!r}.")
        if response not in RESPONSES:
            raise ValueError(f"response must be one of {RESPONSES}, got {response!r}.")
        self._box, self.response = adapt(black_box, response), response
        if derivatives == "exact" and not self._box.differentiable:
            raise ValueError(
                f"derivatives='exact' needs a FeedforwardNetwork or a torch.nn.Module, got {type(black_box).__name__}; "
                "use derivatives='finite_difference' or 'auto'."
            )
        differentiable = self._box.differentiable and response == "predict"
        self.exact = differentiable and derivatives != "finite_difference"
        self.n_inputs = n_inputs
        self.center = _coordinates("center", np.zeros(n_inputs) if center is None else center, n_inputs)
        self.scale = _coordinates("scale", np.full(n_inputs, scale) if np.ndim(scale) == 0 else scale, n_inputs)
        if not np.all(self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale[~(self.scale > 0)][0]}; drop constant inputs.")
        if input_range is None:
            input_range = getattr(self._box, "input_range", None)
        self.input_range = None if input_range is None else _interval(input_range, n_inputs)
        self.step_size, self.chunk_rows = step_size, chunk_rows
        self.n_queries, self.n_derivatives, self.n_outputs, self._n_columns = 0, 0, None, None
        self.one_dimensional = False
        self._counting = threading.Lock()

    def to_inputs(self, U):
        """Standardised coordinates (n, D) as the black box's inputs."""
        return self.center + self.scale * U

    def from_inputs(self, X):
        """The black box's inputs (n, D) in standardised coordinates."""
        return (X - self.center) / self.scale

    @property
    def reach(self):
        """How far every input can be moved from the centre, in units of `scale`."""
        if self.input_range is None:
            return np.inf
        low, high = self.input_range
        return float(min(np.min((self.center - low) / self.scale), np.min((high - self.center) / self.scale)))

    @property
    def restricted(self):
        """Whether not all points may be asked, or not all answers are precise."""
        return self.input_range is not None or self.response == "predict_proba"

    def shared(self):
        """The black box as this oracle asks it, for another oracle: in the same range, counted here."""
        return SharedBox(self)

    def __call__(self, U):
        """Answers at the rows of U (n, D): float64 (n, m_L), an array of the caller's own."""
        return self.ask(U)[0]

    def ask(self, U):
        """Answers (n, m_L) at the rows of U (n, D), and the uncertainty (n,) of a row's answers: 0 but for logits."""
        U = self._rows(U, at_least=0)
        return self._in_chunks(len(U), lambda rows: self.to_inputs(U[rows]))

    def at_inputs(self, X):
        """Answers (n, m_L) at inputs X (n, D) of the black box itself."""
        X = self._rows(X, at_least=0)
        return self._in_chunks(len(X), lambda rows: np.array(X[rows]))[0]

    def ask_near(self, draw, n):
        """Answers at n rows or more that may be asked and are answered precisely.

        Parameters
        ----------
        draw : callable
            ``draw(n, factor)`` gives n rows or more, (k, D), spread `factor` times as far as wanted. Asked with factor
            1 first; where logits are too uncertain, again with 2, 4, ..., 256 until there are n: further out, other
            units are on other sides, which moves the logits. Too uncertain is the least of 1e-13, 1e-12, ..., 1e-10
            that leaves half of the rows: those left out show other units than those left.
        n : int

        Returns
        -------
        U : ndarray of shape (k, D)
            Rows outside the range are moved to its border. At least one row in ten of n.
        Y : ndarray of shape (k, m_L)

        Raises
        ------
        BlackBoxError
            If hardly any row is answered precisely.
        """
        parts, missing = [], n
        for factor in 2.0 ** np.arange(9):
            U = self.confined(draw(n, factor))
            Y, error = self.ask(U)
            clear = _precise_half(error)
            if clear.all() and not parts:
                return U, Y
            parts.append((U[clear], Y[clear]))
            missing -= int(clear.sum())
            if missing <= 0:
                break
        U, Y = (np.concatenate(p) for p in zip(*parts, strict=True))
        if len(U) < 0.1 * n:
            raise BlackBoxError(
                f"of {n} rows only {len(U)} were answered with probabilities far enough from 0 and 1 to tell their "
                "logits: the classifier is too certain. Give rows X where it is less so."
            )
        return U, Y

    def confined(self, U, margin=0.0):
        """A copy of U (n, D) with every coordinate moved into the range, `margin` or more from its border."""
        if self.input_range is None:
            return np.array(U, dtype=float)
        low, high = (self.from_inputs(bound) for bound in self.input_range)
        return np.clip(U, low + margin, high - margin)

    def _rows(self, U, at_least=1):
        U = np.asarray(U, dtype=float)
        if U.ndim != 2 or U.shape[1] != self.n_inputs or len(U) < at_least:
            raise ValueError(f"points must have shape (n, {self.n_inputs}) with n >= {at_least}, got {U.shape}.")
        return U

    def _in_chunks(self, n, inputs):
        """Answers and uncertainties of n rows; ``inputs(rows)`` gives a slice of them."""
        if n == 0:
            return np.empty((0, self.n_outputs or 0)), np.empty(0)
        chunks = [slice(i, i + self.chunk_rows) for i in range(0, n, self.chunk_rows)]
        parts = [self._ask(inputs(rows), rows.start, n) for rows in chunks]
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(p) for p in zip(*parts, strict=True))

    def _ask(self, X, first_row, n_rows):
        """Answers to a chunk; the black box gets an array of its own, so it may keep or change it."""
        X = self._inside(X)
        with self._counting:
            first, self.n_queries = self.n_queries, self.n_queries + len(X)
        try:
            answers = self._box.values(X.copy())
        except BlackBoxError:
            raise
        except Exception as error:
            raise BlackBoxError(
                f"the black box raised {type(error).__name__} on a batch of {len(X)} rows, after {first} rows answered "
                f"well: {error}"
            ) from error
        Y = self._table(answers, len(X))
        bad = ~np.isfinite(Y).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            x = np.array2string(X[row], precision=4, threshold=6)
            raise BlackBoxError(
                f"the black box answered {Y[row]} (not finite) at row {first_row + row} of the {n_rows} asked, "
                f"x = {x}; {int(bad.sum())} of the {len(X)} rows in this batch are like that."
            )
        self._n_columns = Y.shape[1]
        Y, error = self._logits(Y)
        self.n_outputs = Y.shape[1]
        return Y, error

    def _inside(self, X):
        """The inputs with rounding at the border undone; points outside the range are refused."""
        if self.input_range is None:
            return X
        low, high = self.input_range
        excess = np.maximum(low - X, X - high) / self.scale
        if excess.max(initial=0.0) > _ON_BORDER:
            row, i = np.unravel_index(np.argmax(excess), excess.shape)
            raise BlackBoxError(
                f"input {i} would have been asked at {X[row, i]:.4g}, outside its input_range ({low[i]:.4g}, "
                f"{high[i]:.4g}): {excess[row, i]:.2g} standard deviations beyond."
            )
        return np.clip(X, low, high)

    def _logits(self, Y):
        if self.response == "predict":
            return Y, np.zeros(len(Y))
        try:
            return logits_from_probabilities(Y)
        except NotProbabilitiesError as error:
            raise BlackBoxError(str(error)) from error

    def _table(self, answers, n):
        """Answers as a float64 table (n, columns) that shares no memory with the black box."""
        if self.response == "predict_proba" and isinstance(answers, list) and np.ndim(answers[:1]) == 3:
            raise BlackBoxError(
                f"the black box answered with a list of {len(answers)} tables of probabilities, one a label "
                "(multilabel): identify one label at a time, with a callable that gives (n,) probabilities."
            )
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
        expected = "(n,) or (n, n_outputs)" if self._n_columns is None else f"({n}, {self._n_columns})"
        if Y.ndim != 2 or len(Y) != n or Y.shape[1] == 0 or self._n_columns not in (None, Y.shape[1]):
            raise BlackBoxError(
                f"the black box was asked {n} rows and answered with shape {np.shape(answers)}; expected {expected}."
            )
        return Y

    def ask_twice(self, U):
        """Answers (n, m_L) to rows U (n, D), and the largest difference to a second asking over the largest answer.

        Differences within the uncertainty of logits do not count.
        """
        U = self._rows(U)
        (first, error), second = self.ask(U), self(U[::-1])[::-1]
        gap = np.maximum(np.abs(first - second) - 8.0 * error[:, None], 0.0)
        noise = np.max(gap) / max(np.max(np.abs(first)), np.finfo(float).tiny)
        return first, float(noise)

    def jacobian(self, U):
        """Derivatives of the outputs by u: (n, m_L, D); ``2 D n`` queries where differences are needed."""
        U = self._rows(U)
        if self.exact:
            return self.exact_at_inputs("Jacobian", self.to_inputs(U)) * self.scale
        return difference_jacobian(self, U, _JACOBIAN_STEP)

    def hessian(self, U):
        """Second derivatives by u: (n, m_L, D, D); ``(2 D^2 + 1) n`` queries where differences are needed."""
        U = self._rows(U)
        if self.exact:
            return self.exact_at_inputs("Hessian", self.to_inputs(U)) * np.outer(self.scale, self.scale)
        return difference_hessian(self, U, self.step_size)

    def exact_at_inputs(self, what, X):
        """Exact derivatives, (n, m_L, D[, D]), at inputs X of the black box itself; what is "Jacobian" or "Hessian"."""
        X, n = self._inside(X), len(X)
        with self._counting:
            self.n_derivatives += n
        try:
            values = {"Jacobian": self._box.jacobian, "Hessian": self._box.hessian}[what](X)
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


def _precise_half(error):
    """The precise rows, (n,): by the strictest standard that at least half of them meet, or else by the mildest."""
    limits = [limit for limit in _PRECISE if 2 * np.count_nonzero(error <= limit) >= len(error)]
    return error <= (limits[0] if limits else _PRECISE[-1])


def _interval(input_range, n_inputs):
    """``(low, high)`` as two arrays (D,) with low < high; infinite entries allowed."""
    try:
        low, high = input_range
        low, high = (np.array(np.broadcast_to(np.asarray(b, dtype=float), (n_inputs,))) for b in (low, high))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"input_range must be (low, high), each a number or an array of {n_inputs} numbers, one an input; got "
            f"{input_range!r}."
        ) from error
    wrong = ~(low < high)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"input_range must have low < high; input {i} has low={low[i]}, high={high[i]}.")
    return low, high
