"""`Oracle`: query a black box in standardized coordinates, count the queries, check the outputs, differentiate."""

import copy
import math
import threading
import time
from dataclasses import replace

import numpy as np

from skident.budget import rows_at_once
from skident.budget.constants import CHUNK_COPIES

from ._adapters import SharedBox, SpanBox, adapt, exact_derivatives, values_of
from ._coordinates import Coordinates
from ._errors import BlackBoxError
from ._output_scaling import OutputScaling
from ._outputs import refuse_infinite, refuse_labels, table_of, training_hint
from ._parallel import ParallelQueries
from .budget import Budget, OutOfBudgetError
from .extremes import Extremes

DERIVATIVES = ("auto", "exact", "finite_difference")
RESPONSES = ("predict", "predict_proba")
_REPEAT_ULPS = 16.0  # ulps of the largest output by which two runs may differ: order of summation in a batch
_MIN_PRECISE = 0.1  # share of the rows wanted below which `query_precise` gives up
_DRAW_FACTORS = 2.0 ** np.arange(9)  # spreads that `query_precise` tries, in units of the one wanted
_MAX_SHARE = 0.05  # of max_seconds per chunk, since the budget is only checked between chunks
_MIN_SECONDS = 0.01  # duration from which a chunk measures the time per row, not the overhead of a call
_COPIES = 2  # arrays as large as a block of points: the points, and the standardized ones


class Oracle(OutputScaling, Coordinates, ParallelQueries):
    """A black box that is queried in standardized coordinates ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    black_box : callable, estimator with ``predict``, torch.nn.Module, FeedforwardNetwork or ONNX model
        Maps (n, D) to (n, m_L) or (n,). A torch module is copied, put into ``eval`` mode and evaluated in float64.
    n_inputs : int
        D.
    center : array-like of shape (D,), default=None
        Zero by default.
    scale : array-like of shape (D,) or float, default=1.0
        Positive length scale of every input; all steps and radii are in these units.
    derivatives : {"auto", "exact", "finite_difference"}, default="auto"
        ``exact`` requires a closed form (FeedforwardNetwork) or automatic differentiation (torch). ``auto`` uses it if
        the black box has it.
    step_size : float, default=1e-3
        Step of the Hessian's central differences (epsilon of eq. (19)), in units of `scale`.
    chunk_rows : int, default=65536
        Rows per call of the black box; fewer if memory or time are short.
    response : {"predict", "predict_proba"}, default="predict"
        Method of an estimator that is queried. Probabilities become logits, see `logits_from_probabilities`.
    input_range : tuple of two array-likes of shape (D,) or float, default=None
        ``(low, high)`` in the black box's inputs: it is never queried outside. Infinite entries are no bounds.
    budget : Budget, default=None
        Queries and seconds, checked before every chunk; several oracles may share one. Unlimited by default.

    Attributes
    ----------
    n_inputs, center, scale, response, step_size, chunk_rows, budget
        As given.
    exact : bool
        Whether derivatives are exact; otherwise they are differences. Always False for probabilities.
    n_queries, n_derivatives : int
        Rows queried, and rows of exact Jacobians or Hessians.
    n_outputs : int or None
        m_L, known after the first query.
    exhausted : str or None
        The budget that ended the last query, for messages.
    one_dimensional : bool
        Whether the black box's last output had shape (n,).
    output_center, output_scale : ndarray of shape (m_L,)
        Outputs are returned as ``(y - output_center) / output_scale``, see `standardize_outputs`; 0 and 1 before.
    constant_outputs : ndarray of bool, shape (m_L,)
        Linear outputs that were constant over the first queries.
    rounds_inputs : bool
        Whether `measure_accuracy` detected that the black box rounds its inputs to float32; `precision` says so too.
    precision, accuracy : Precision and Accuracy
        Number format of the outputs, from the first ones; their error, after `measure_accuracy`.
    extremes : Extremes
        Largest and smallest outputs so far, unless they are probabilities.
    output_bounds : tuple of two ndarrays of shape (m_L,) or None
        Settable ``(low, high)`` of clipped outputs: see `query`.
    input_range : tuple of two ndarrays of shape (D,) or None
    reach : float
        How far every input can move from the center in both directions, in units of `scale`; infinite without a range,
        negative if the center lies outside it.
    restricted : bool
        Whether some inputs are not allowed, or some outputs not precise.

    Raises
    ------
    ValueError
        If an option is invalid, or points do not have shape (n, D).
    BlackBoxError
        (a ValueError) If the black box raises, its outputs are not finite or have another shape than (n,) or (n, m_L),
        or points lie outside `input_range`.
    OutOfBudgetError
        If the budget's seconds or queries are exhausted.

    Notes
    -----
    Several threads may query at the same time: the counts stay correct.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> oracle = Oracle(lambda X: np.tanh(X @ [1.0, 2.0]), n_inputs=2)
    >>> print(oracle.jacobian(np.zeros((1, 2))).shape, oracle.n_queries)
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
        budget=None,
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
        self.step_size, self.chunk_rows, self.is_span, self.outputs = step_size, chunk_rows, False, ()
        self.n_derivatives, self.n_outputs, self._n_columns = 0, None, None
        self.one_dimensional, self.budget, self.exhausted = False, Budget() if budget is None else budget, None
        self._chunk_size = ChunkSize(n_inputs, self.budget.max_seconds)
        self._begin_scaling()
        self._counting = threading.Lock()

    @property
    def n_queries(self):
        """Queries so far, of all oracles with the same budget."""
        return self.budget.n_queries

    @property
    def restricted(self):
        """Whether some inputs are not allowed, or some outputs not precise."""
        return self.input_range is not None or self.output_bounds is not None or self.response == "predict_proba"

    def raw_outputs(self, X):
        """Outputs of the black box itself, probabilities too, neither counted nor checked.

        Parameters
        ----------
        X : ndarray of shape (n, D)
            Inputs of the black box.

        Returns
        -------
        array-like
        """
        return values_of(self._box, X)

    def with_response(self, response):
        """Another oracle for the same model, place and budget.

        Parameters
        ----------
        response : {"predict", "predict_proba"}
            What its outputs are taken for.

        Returns
        -------
        Oracle
        """
        place = {"center": self.center, "scale": self.scale, "budget": self.budget}
        other = Oracle(self._box, self.n_inputs, response=response, **place)
        other.outputs = self.outputs
        return other

    def as_black_box(self):
        """This oracle as the black box of another oracle.

        Returns
        -------
        SharedBox
            Same input range, logits for a classifier; its queries count here too.
        """
        return SharedBox(self)

    def zoomed_out(self, factor):
        """This oracle in coordinates and outputs that are `factor` times as large a unit: ``f(factor * v) / factor``.

        Parameters
        ----------
        factor : float

        Returns
        -------
        Oracle
            Same black box and budget.
        """
        other = copy.copy(self)
        other.scale, other.output_scale = factor * self.scale, factor * self.output_scale
        accuracy = self.accuracy
        other.accuracy = replace(accuracy, std=accuracy.std / factor, removed_offset=accuracy.removed_offset / factor)
        return other

    def within(self, basis):
        """This oracle at inputs in the span of an orthonormal basis, in its coordinates.

        Parameters
        ----------
        basis : ndarray of shape (D, r)
            Of standardized coordinates.

        Returns
        -------
        Oracle
            ``c -> f(basis @ c)`` of r inputs without center and scale: same black box, outputs and budget.
        """
        other = copy.copy(self)
        other._box, other.n_inputs = SpanBox(self._box, self.to_inputs, self.scale, basis), basis.shape[1]
        other.is_span = basis.shape[1] < self.n_inputs
        other.center, other.scale, other.extremes = np.zeros(other.n_inputs), np.ones(other.n_inputs), Extremes()
        return other

    def __call__(self, U):
        """Outputs (n, m_L) at points U (n, D), as a float64 array of the caller's own."""
        return self.query(U)[0]

    def query(self, U):
        """Outputs at points, and how uncertain they are.

        Parameters
        ----------
        U : array-like of shape (n, D)

        Returns
        -------
        Y : ndarray of shape (n, m_L)
        error : ndarray of shape (n,)
            Bound of the rounding error of a row's logits, see `logits_from_probabilities`; infinite if they are lost or
            an output reaches `output_bounds`. 0 for other outputs, whose error is in `accuracy`.
        """
        U = self._points(U, min_rows=0)
        return self._in_chunks(len(U), lambda rows: self.to_inputs(U[rows]))

    def query_inputs(self, X):
        """Outputs at inputs of the black box itself.

        Parameters
        ----------
        X : array-like of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L)
        """
        X = self._points(X, min_rows=0)
        return self._in_chunks(len(X), lambda rows: np.array(X[rows]))[0]

    def query_precise(self, draw, n):
        """Outputs at n or more points that are allowed and have precise outputs.

        Parameters
        ----------
        draw : callable
            ``draw(n, factor)`` returns at least n points (k, D), spread `factor` times as far as wanted.
        n : int

        Returns
        -------
        U : ndarray of shape (k, D)
            Points outside the range are moved to its border. At least 0.1 n rows.
        Y : ndarray of shape (k, m_L)

        Raises
        ------
        BlackBoxError
            If fewer than 0.1 n rows have precise outputs.

        Notes
        -----
        The factor is 1 at first and then 2, 4, ..., 256, until n rows are precise (see `is_precise`): farther out the
        pre-activations have other signs, which moves the logits away from the saturated ones.
        """
        return self.query_precise_with_errors(draw, n)[:2]

    def query_precise_with_errors(self, draw, n):
        """As `query_precise`, with the bounds of the rows' errors that `query` gives.

        Parameters
        ----------
        draw : callable
            See `query_precise`.
        n : int

        Returns
        -------
        U : ndarray of shape (k, D)
        Y : ndarray of shape (k, m_L)
        error : ndarray of shape (k,)

        Raises
        ------
        BlackBoxError
            See `query_precise`.
        """
        parts, missing = [], n
        for factor in _DRAW_FACTORS:
            U = self.clip_to_range(draw(n, factor))
            Y, error = self.query(U)
            precise = self.is_precise(error)
            if precise.all() and not parts:
                return U, Y, error
            parts.append((U[precise], Y[precise], error[precise]))
            missing -= int(precise.sum())
            if missing <= 0:
                break
        U, Y, error = (np.concatenate(p) for p in zip(*parts, strict=True))
        if len(U) < _MIN_PRECISE * n:
            cause = "the classifier is too confident" if self.output_bounds is None else "the outputs are clipped"
            raise BlackBoxError(
                f"only {len(U)} of {n} queries returned outputs that are precise enough: {cause}. "
                "Give rows X where this is less so."
            )
        return U, Y, error

    def query_twice(self, U):
        """Outputs at points, and the difference to a second query of the same points, reversed and in two batches.

        Parameters
        ----------
        U : array-like of shape (n, D)
            At least one row.

        Returns
        -------
        Y : ndarray of shape (n, m_L)
        noise : float
            Largest difference over the outputs' largest deviation from their mean. Differences within the uncertainty
            of logits, or within rounding, count as 0.
        """
        U = self._points(U)
        half = len(U) // 2  # smaller batches, for models whose output for a row depends on the others
        (first, error), second = self.query(U), np.concatenate([self(U[half:][::-1]), self(U[:half][::-1])])[::-1]
        gap = np.maximum(np.abs(first - second) - error[:, None], 0.0).max(axis=0)
        deviation, largest = np.abs(first - first.mean(axis=0)).max(axis=0), np.abs(first).max(axis=0)
        rounding = _REPEAT_ULPS * np.finfo(float).eps * largest
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
        Without exact derivatives: central differences of step ``eps^(1/3)``, eps the relative error of the outputs,
        with ``2 D n`` queries. The error is about 1e-10 for exact outputs.
        """
        U = self._points(U)
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
        Without exact derivatives: the differences of eq. (19) of Fiedler et al. (2021) with ``(2 D^2 + 1) n`` queries.
        The step is `step_size`, or larger if the outputs are not exact.
        """
        U = self._points(U)
        if self.exact:
            return self.derivatives_at_inputs("Hessian", self.to_inputs(U)) * np.outer(self.scale, self.scale)
        return difference_hessian(self, U, self.hessian_step)

    def derivatives_at_inputs(self, what, X):
        """Exact derivatives by the inputs of the black box itself.

        Parameters
        ----------
        what : {"Jacobian", "Hessian"}
        X : ndarray of shape (n, D)

        Returns
        -------
        ndarray of shape (n, m_L, D) or (n, m_L, D, D)
        """
        X = self._allowed(X)
        self._check_budget(0)
        with self._counting:
            self.n_derivatives += len(X)
        values = exact_derivatives(self._box, what, X)
        self.n_outputs = values.shape[1]
        return values / self.output_scale.reshape(-1, *[1] * (values.ndim - 2))

    def _points(self, U, min_rows=1):
        U = np.asarray(U, dtype=float)
        if U.ndim != 2 or U.shape[1] != self.n_inputs or len(U) < min_rows:
            raise ValueError(f"points must have shape (n, {self.n_inputs}) with n >= {min_rows}, got {U.shape}.")
        return U

    def _in_chunks(self, n, inputs):
        """Outputs and uncertainties of n rows; ``inputs(rows)`` returns a slice of them."""
        if n == 0:
            return np.empty((0, self.n_outputs or 0)), np.empty(0)
        parts = [self._query_chunk(inputs(rows), rows.start, n) for rows in self._chunk_size.chunks(n, self.chunk_rows)]
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(p) for p in zip(*parts, strict=True))

    def _check_budget(self, n_rows):
        self.exhausted = self.budget.exhausted_by(n_rows)
        if self.exhausted is not None:
            raise OutOfBudgetError(self.exhausted)

    def _query_chunk(self, X, first_row, n_rows):
        """Outputs and uncertainties of one chunk of the n_rows inputs, which begins at first_row."""
        X = self._allowed(X)
        self._check_budget(len(X))
        n_before = self.n_queries
        self.budget.spend(len(X))
        try:
            raw = values_of(self._box, X.copy())  # a copy: the black box may keep or change what it is given
        except (BlackBoxError, OutOfBudgetError):
            raise
        except Exception as error:
            raise BlackBoxError(
                f"the black box raised {type(error).__name__} on a batch of {len(X)} rows, after {n_before} rows "
                f"without an error: {error}{training_hint(error)}"
            ) from error
        refuse_labels(raw)
        Y, self.one_dimensional = table_of(raw, len(X), self._n_columns)
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


class ChunkSize:
    """Split rows into chunks that fit into memory and, for a slow black box, into a share of max_seconds."""

    def __init__(self, n_inputs, max_seconds):
        self.row_bytes = 8 * CHUNK_COPIES * n_inputs
        self.max_seconds = math.inf if max_seconds is None else _MAX_SHARE * max_seconds
        self.seconds_per_row = 0.0

    def chunks(self, n, max_rows):
        """Yield slices of n rows; the time until the next one is requested is taken as the black box's."""
        first = 0
        while first < n:
            rows = slice(first, min(first + self._n_rows(max_rows), n))
            began, first = time.perf_counter(), rows.stop
            yield rows
            self._record(rows.stop - rows.start, time.perf_counter() - began)

    def _n_rows(self, max_rows):
        n = rows_at_once(self.row_bytes, at_most=max_rows)
        return (
            n if self.seconds_per_row * n <= self.max_seconds else max(1, int(self.max_seconds / self.seconds_per_row))
        )

    def _record(self, n, seconds):
        if seconds > _MIN_SECONDS or self.seconds_per_row:
            self.seconds_per_row = min(self.seconds_per_row or math.inf, seconds / n)


def difference_jacobian(function, U, step):
    """Jacobians ``(f(u + h e_i) - f(u - h e_i)) / 2h``, (n, m_L, D), at the rows of U (n, D)."""
    D = U.shape[1]
    axes, ones = np.arange(D), np.ones(D)
    i, a = np.tile(axes, 2), np.concatenate([ones, -ones])
    F = _at_stencil(function, U, (i, i, a, 0.0 * a), step)
    return np.moveaxis((F[:, :D] - F[:, D:]) / (2.0 * step), 1, 2)


def hessian_stencil(n_features):
    """The ``2 D^2 + 1`` different points of eq. (19) around one center, in units of the step.

    Arrays i, j, a, b: offset k is ``a[k] e_{i[k]} + b[k] e_{j[k]}``. First the center, then ``+-2 e_i``, then for i < j
    the four corners ``+-e_i +- e_j``.
    """
    axes, twos = np.arange(n_features), np.full(n_features, 2.0)
    rows, cols = np.triu_indices(n_features, 1)
    ones = np.ones(len(rows))
    i = np.concatenate([[0], axes, axes, *[rows] * 4])
    j = np.concatenate([[0], axes, axes, *[cols] * 4])
    a = np.concatenate([[0.0], twos, -twos, ones, ones, -ones, -ones])
    b = np.concatenate([[0.0], 0.0 * twos, 0.0 * twos, ones, -ones, ones, -ones])
    return i, j, a, b


def difference_hessian(function, U, step):
    """Hessians (n, m_L, D, D) by the central differences of eq. (19) of Fiedler et al. (2021).

    ``2 D^2 + 1`` queries per row of U (n, D): the corners of (i, j) also serve (j, i), and the two middle points of a
    diagonal entry are the center.
    """
    n, D = U.shape
    F = _at_stencil(function, U, hessian_stencil(D), step)
    m_out = F.shape[2]
    H = np.empty((n, m_out, D, D))
    outer = F[:, 1 : 1 + D] + F[:, 1 + D : 1 + 2 * D] - 2.0 * F[:, :1]
    diagonal = np.arange(D)
    H[:, :, diagonal, diagonal] = np.swapaxes(outer, 1, 2)
    pp, pm, mp, mm = np.split(F[:, 1 + 2 * D :], 4, axis=1)
    rows, cols = np.triu_indices(D, 1)
    H[:, :, rows, cols] = np.swapaxes(pp - pm - mp + mm, 1, 2)
    H[:, :, cols, rows] = H[:, :, rows, cols]
    return H / (4.0 * step * step)


def _at_stencil(function, U, stencil, step):
    """Values (n, k, m_L) at every row of U plus every offset, a bounded number of points at a time."""
    i, j, a, b = stencil
    (n, D), k = U.shape, len(i)
    block = rows_at_once(_COPIES * 8 * D)
    parts = []
    for first in range(0, n * k, block):
        row, entry = np.divmod(np.arange(first, min(first + block, n * k)), k)
        points, every_row = U[row], np.arange(len(row))
        points[every_row, i[entry]] += step * a[entry]
        points[every_row, j[entry]] += step * b[entry]
        parts.append(function(points))
    return np.concatenate(parts).reshape(n, k, -1)
