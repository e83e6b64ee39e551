"""The one object that asks a black box: it counts, chunks, checks, and differentiates."""

from __future__ import annotations

import threading
import warnings

import numpy as np

from ._adapters import SharedBox, adapt, exact_derivatives, values_of
from ._answers import refuse_infinite, refuse_labels, table_of
from ._coordinates import Coordinates
from ._differences import difference_hessian, difference_jacobian
from ._elsewhere import AskedElsewhere
from ._errors import BlackBoxError
from ._pace import Pace
from ._units import AnswerUnits
from .clock import Clock, OutOfBudgetError

__all__ = ["DERIVATIVES", "Oracle"]

DERIVATIVES = ("auto", "exact", "finite_difference")
RESPONSES = ("predict", "predict_proba")
_RENAMED = {  # since 0.2; the old names go in 0.3
    "ask": "query",
    "ask_near": "query_precise",
    "ask_twice": "query_twice",
    "ask_elsewhere": "query_in_parallel",
    "at_inputs": "query_inputs",
    "exact_at_inputs": "derivatives_at_inputs",
    "settle_units": "standardize_outputs",
    "confined": "clip_to_range",
    "shared": "as_black_box",
    "precise": "is_precise",
    "n_told": "n_independent_outputs",
    "offset": "output_center",
    "unit": "output_scale",
    "constant": "constant_outputs",
    "bounds": "output_bounds",
}


class Oracle(AnswerUnits, Coordinates, AskedElsewhere):
    """Asks a black box in standardised coordinates ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    black_box : callable, estimator with ``predict``, torch.nn.Module, FeedforwardNetwork or ONNX model
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
        Rows handed to the black box at once; fewer where memory or time are short.
    response : {"predict", "predict_proba"}, default="predict"
        What the answers are: values, or probabilities of classes, which are turned into logits; see
        `logits_from_probabilities`. Also the method that is asked of an estimator.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)`` in the black box's inputs: it is never asked outside. Infinite entries are no bounds.
    clock : Clock, default=None
        Looked at before every chunk; without one there is no limit.

    Attributes
    ----------
    n_inputs, center, scale, response, step_size, chunk_rows, clock
        As given.
    exact : bool
        Whether derivatives are exact; else they are differences. Never where probabilities are asked.
    n_queries, n_derivatives : int
        Rows the black box was asked, and rows of exact Jacobians or Hessians.
    n_outputs : int or None
        m_L, known after the first answer.
    refusal : str or None
        Which budget the clock refused.
    one_dimensional : bool
        Whether the last answer had shape (n,).
    output_center, output_scale, constant_outputs : ndarray of shape (m_L,)
        Outputs are returned as ``(y - output_center) / output_scale``, see `standardize_outputs`; 0 and 1 until then.
        Which linear outputs are constant, as far as the first ones show.
    precision, accuracy : Precision and Accuracy
        Numbers in which the black box answers, as far as first answers tell; their error, after `measure_accuracy`.
    extremes : Extremes
        Of the answers so far, where these are no probabilities.
    output_bounds : tuple of two ndarrays of shape (m_L,) or None
        Settable ``(low, high)`` of clipped outputs: see `query`.
    input_range : tuple of two ndarrays of shape (D,) or None
    reach : float
        How far from the centre every input can be moved either way, in units of `scale`; negative where the centre
        lies outside `input_range`, infinite without one.
    restricted : bool
        Whether not all points may be asked, or not all answers are precise.

    Raises
    ------
    ValueError
        If an option is invalid, or points do not have shape (n, D).
    BlackBoxError
        (a ValueError) If the model raises, its outputs are not finite or have another shape than (n,) or (n, m_L), or
        points lie outside `input_range`.
    OutOfBudgetError
        If the clock's time or queries are used up.

    Notes
    -----
    Threads may ask at the same time: counts are right, and answers do not depend on it where the black box's do not.

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
        clock=None,
    ):
        _check_options(derivatives, step_size, chunk_rows, response)
        self._box, self.response = adapt(black_box, response), response
        if derivatives == "exact" and not self._box.differentiable:
            raise ValueError(
                f"derivatives='exact' needs a FeedforwardNetwork or a torch.nn.Module, got {type(black_box).__name__}; "
                "use derivatives='finite_difference' or 'auto'."
            )
        if input_range is None:
            input_range = getattr(self._box, "input_range", None)
        super().__init__(n_inputs, center, scale, input_range)
        differentiable = self._box.differentiable and response == "predict"
        self.exact = differentiable and derivatives != "finite_difference"
        self.step_size, self.chunk_rows = step_size, chunk_rows
        self.n_queries, self.n_derivatives, self.n_outputs, self._n_columns = 0, 0, None, None
        self.one_dimensional, self.clock, self.refusal = False, Clock() if clock is None else clock, None
        self._pace = Pace(n_inputs, self.clock.max_seconds)
        self._begin_units()
        self._counting = threading.Lock()

    def __getattr__(self, name):
        """Names of version 0.1, with a warning."""
        if name not in _RENAMED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"Oracle.{name} is Oracle.{_RENAMED[name]} since 0.2.", FutureWarning, stacklevel=2)
        return getattr(self, _RENAMED[name])

    @property
    def restricted(self):
        """Whether not all points may be asked, or not all answers are precise."""
        return self.input_range is not None or self.output_bounds is not None or self.response == "predict_proba"

    def as_black_box(self):
        """The black box as this oracle asks it, for another oracle.

        Returns
        -------
        SharedBox
            A black box in the same range, answering with logits where this oracle does. What it is asked counts here
            too.
        """
        return SharedBox(self)

    def __call__(self, U):
        """Answers at points.

        Parameters
        ----------
        U : array-like of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L)
            Float64, an array of the caller's own.
        """
        return self.query(U)[0]

    def query(self, U):
        """Answers at points, and how uncertain they are.

        Parameters
        ----------
        U : array-like of shape (n, D)

        Returns
        -------
        Y : ndarray of shape (n, m_L)
        error : ndarray of shape (n,)
            Bound of the error that rounding leaves in a row's logits, see `logits_from_probabilities`; infinite where
            they are lost or an output reaches `output_bounds`, 0 for other answers (whose error is in `accuracy`).
        """
        U = self._rows(U, at_least=0)
        return self._in_chunks(len(U), lambda rows: self.to_inputs(U[rows]))

    def query_inputs(self, X):
        """Answers at inputs of the black box itself.

        Parameters
        ----------
        X : array-like of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L)
        """
        X = self._rows(X, at_least=0)
        return self._in_chunks(len(X), lambda rows: np.array(X[rows]))[0]

    def query_precise(self, draw, n):
        """Answers at n rows or more that may be asked and are answered precisely.

        Parameters
        ----------
        draw : callable
            ``draw(n, factor)`` gives n rows or more, (k, D), spread `factor` times as far as wanted. Asked with factor
            1 first; where logits are too uncertain (see `precise_half`), again with 2, 4, ..., 256 until there are n:
            further out, other units are on other sides, which moves the logits.
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
            U = self.clip_to_range(draw(n, factor))
            Y, error = self.query(U)
            clear = self.is_precise(error)
            if clear.all() and not parts:
                return U, Y
            parts.append((U[clear], Y[clear]))
            missing -= int(clear.sum())
            if missing <= 0:
                break
        U, Y = (np.concatenate(p) for p in zip(*parts, strict=True))
        if len(U) < 0.1 * n:
            why = "probabilities far enough from 0 and 1 to tell their logits: the classifier is too certain"
            why = why if self.output_bounds is None else "outputs that are not clipped"
            raise BlackBoxError(f"of {n} rows only {len(U)} were answered with {why}. Give rows X where it is less so.")
        return U, Y

    def query_twice(self, U):
        """Answers at points, and whether they come again.

        Parameters
        ----------
        U : array-like of shape (n, D)
            At least one row; asked again in reverse order.

        Returns
        -------
        Y : ndarray of shape (n, m_L)
        noise : float
            The largest difference of an output to its second answers, over its largest deviation from its mean.
            Differences within the uncertainty of logits, or the rounding of the answers, do not count.
        """
        U = self._rows(U)
        (first, error), second = self.query(U), self(U[::-1])[::-1]
        gap = np.maximum(np.abs(first - second) - error[:, None], 0.0).max(axis=0)
        deviation, largest = np.abs(first - first.mean(axis=0)).max(axis=0), np.abs(first).max(axis=0)
        rounding = 16.0 * np.finfo(float).eps * largest
        noise = np.where(gap > rounding, gap, 0.0) / np.maximum(deviation, np.maximum(rounding, np.finfo(float).tiny))
        return first, float(np.max(noise))

    def jacobian(self, U):
        """First derivatives of the outputs by u.

        Parameters
        ----------
        U : array-like of shape (n, D)
            At least one row.

        Returns
        -------
        ndarray of shape (n, m_L, D)

        Notes
        -----
        Without exact derivatives central differences of step ``eps^(1/3)``, eps the answers' relative error: ``2 D n``
        queries, an error of 1e-10 or so of exact answers.
        """
        U = self._rows(U)
        if self.exact:
            return self.derivatives_at_inputs("Jacobian", self.to_inputs(U)) * self.scale
        return difference_jacobian(self, U, self.jacobian_step)

    def hessian(self, U):
        """Second derivatives of the outputs by u.

        Parameters
        ----------
        U : array-like of shape (n, D)
            At least one row.

        Returns
        -------
        ndarray of shape (n, m_L, D, D)

        Notes
        -----
        Without exact derivatives the differences of eq. (19) of Fiedler et al. (2021): ``(2 D^2 + 1) n`` queries. The
        step is `step_size`, or more where answers are not exact.
        """
        U = self._rows(U)
        if self.exact:
            return self.derivatives_at_inputs("Hessian", self.to_inputs(U)) * np.outer(self.scale, self.scale)
        return difference_hessian(self, U, self.hessian_step)

    def derivatives_at_inputs(self, what, X):
        """Exact derivatives at inputs of the black box itself, by these inputs.

        Parameters
        ----------
        what : {"Jacobian", "Hessian"}
        X : ndarray of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L, D) or (n, m_L, D, D)
        """
        X = self._inside(X)
        self._look_at_clock(0)
        with self._counting:
            self.n_derivatives += len(X)
        values = exact_derivatives(self._box, what, X)
        self.n_outputs = values.shape[1]
        return values / self.output_scale.reshape(-1, *[1] * (values.ndim - 2))

    def _rows(self, U, at_least=1):
        U = np.asarray(U, dtype=float)
        if U.ndim != 2 or U.shape[1] != self.n_inputs or len(U) < at_least:
            raise ValueError(f"points must have shape (n, {self.n_inputs}) with n >= {at_least}, got {U.shape}.")
        return U

    def _in_chunks(self, n, inputs):
        """Answers and uncertainties of n rows; ``inputs(rows)`` gives a slice of them."""
        if n == 0:
            return np.empty((0, self.n_outputs or 0)), np.empty(0)
        parts = [self._ask(inputs(rows), rows.start, n) for rows in self._pace.chunks(n, self.chunk_rows)]
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(p) for p in zip(*parts, strict=True))

    def _look_at_clock(self, n_rows):
        self.refusal = self.clock.refusal(self.n_queries + n_rows)
        if self.refusal is not None:
            raise OutOfBudgetError(self.refusal)

    def _ask(self, X, first_row, n_rows):
        """Answers to a chunk; the black box gets an array of its own, so it may keep or change it."""
        X = self._inside(X)
        self._look_at_clock(len(X))
        with self._counting:
            first, self.n_queries = self.n_queries, self.n_queries + len(X)
        try:
            answers = values_of(self._box, X.copy())
        except (BlackBoxError, OutOfBudgetError):
            raise
        except Exception as error:
            raise BlackBoxError(
                f"the black box raised {type(error).__name__} on a batch of {len(X)} rows, after {first} rows answered "
                f"well: {error}"
            ) from error
        if self.response == "predict_proba":
            refuse_labels(answers)
        Y, self.one_dimensional = table_of(answers, len(X), self._n_columns)
        refuse_infinite(Y, X, first_row, n_rows)
        self._n_columns = Y.shape[1]
        Y, error = self.values_or_logits(X, Y)
        self.n_outputs = Y.shape[1]
        return (Y - self.output_center) / self.output_scale, error


def _check_options(derivatives, step_size, chunk_rows, response):
    if derivatives not in DERIVATIVES:
        raise ValueError(f"derivatives must be one of {DERIVATIVES}, got {derivatives!r}.")
    if not 0 < step_size < np.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size!r}.")
    if not chunk_rows >= 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows!r}.")
    if response not in RESPONSES:
        raise ValueError(f"response must be one of {RESPONSES}, got {response!r}.")
