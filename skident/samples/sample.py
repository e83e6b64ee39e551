"""Samples (X, y) read in blocks of rows, in whitened coordinates, and the distribution of their inputs."""

import copy
import functools

import numpy as np

from skident.budget.constants import COLLINEAR, CONSTANT, REPEATED_ROWS
from skident.optim import in_order

_BLOCK_NUMBERS = 2**19  # of a block of rows where no batch size is given: 4 MB
_KEPT_NUMBERS = 2**24  # whitened rows kept in memory: 128 MB
_STRETCH = 64  # rows that stay together when some are drawn
FEW_VALUES = 10  # distinct values up to which a column is discrete (statistics: none in 50 rows of a density)
_SKEWNESS = 1.0  # of a column, from which it is not Gaussian (uniform 0, exponential 2)
_KURTOSIS = 1.5  # excess, from which a column is not Gaussian (uniform -1.2, Laplace 3)
_FLATNESS = 1.0  # minus the excess kurtosis, as for `_KURTOSIS`: 1.2 is uniform, 2 the most there is
SAMPLING_ERRORS = 4.0  # and at least so many sampling errors of a Gaussian column
_VALUED = 2**12  # rows whose values are counted


def _as_float(block):
    X, y, w = block
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return X, y, np.ones(len(X)) if w is None else np.asarray(w, dtype=np.float64)


def _whitened(block, center, whitener, y_center, y_scale):
    X, y, w = _as_float(block)
    return (X - center) @ whitener, (y - y_center) / y_scale, w


def _on_block(block, function, transform, args):
    return function(*_whitened(block, *transform), *args)


def _first_sums(block, shift):
    X, y, w = _as_float(block)
    with np.errstate(over="ignore", invalid="ignore"):  # given by _check_range
        X = X - shift
        Xw = w[:, None] * X
        return np.asarray(w.sum()), Xw.sum(axis=0), Xw.T @ X, np.asarray(w @ y), w @ np.abs(X)


def _shape_sums(block, center, inverse_sd, y_center):
    X, y, w = _as_float(block)
    U, r = (X - center) * inverse_sd, y - y_center
    U2 = U * U
    with np.errstate(over="ignore", invalid="ignore"):
        return w @ (U2 * U), w @ (U2 * U2), np.asarray(w @ (r * r)), np.asarray(w @ np.abs(r))


def _check_range(name, squares, spread):
    """An error where squares are beyond what a float holds, though the spreads (mean absolute deviations) are not 0."""
    bad = ~np.isfinite(squares) | ((squares < np.finfo(np.float64).tiny) & (spread > 0))
    if np.any(bad):
        raise ValueError(
            f"{name} spreads by {np.max(spread, where=bad, initial=0.0):.3g}, whose squares float64 cannot "
            f"hold: rescale {name}, for instance to a standard deviation of 1."
        )


def _added_up(results):
    """The sum of tuples of arrays, in their order."""
    sums = None
    for result in results:
        if sums is None:
            sums = [np.array(a, dtype=np.float64) for a in result]
        else:
            for total, a in zip(sums, result):
                total += a
    return sums


def _whitener(covariance, sd):
    """(d, k): makes the covariance the identity, leaving out directions in which there is nothing."""
    inverse_sd = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    correlation = covariance * np.outer(inverse_sd, inverse_sd)
    values, vectors = np.linalg.eigh(correlation)
    kept = values > COLLINEAR * max(values[-1], 1.0)
    scaled = vectors[:, kept] / np.sqrt(values[kept])
    if kept.all():
        scaled = scaled @ vectors.T  # the symmetric root: it hardly moves when the data do
    return inverse_sd[:, None] * scaled


class Sample:
    """Weighted rows ``(x_n, y_n)``, transformed to ``z = (x - center) @ whitener`` and ``(y - y_center) / y_scale``.

    Attributes
    ----------
    n_rows : int
        Rows with positive weight.
    origin : ndarray of shape (n,) or None
        Their indices in the data of the user; None if they are the same.
    total : float
        Sum of weights.
    effective_rows : float
        ``(sum w)^2 / sum w^2``: so many rows of equal weight hold as much. Statistics count with it, and so do not
        depend on the unit of the weights.
    dim : int
        Coordinates k of z: d less the directions in which X is constant.
    center, whitener : ndarray of shape (d,) and (d, k)
        Weighted mean, and a matrix that makes the weighted covariance of z the identity. It is the inverse symmetric
        root of the covariance of the standardized columns where that has full rank, and its eigenvectors otherwise.
    y_center, y_scale : float
        Weighted mean and standard deviation; the latter is 0 where y is constant.
    skewness, kurtosis : ndarray of shape (d,)
        Of the columns of X; the excess kurtosis, 0 for Gaussian ones. Of constant columns 0.

    Two passes of ``O(n d^2)``; memory for a block, or for the whitened rows where those fit in 128 MB.
    """

    def __init__(self, X, y, weights=None, *, origin=None, batch_size=None, n_jobs=None):
        n, d = X.shape
        self.batch_size = int(batch_size or max(256, _BLOCK_NUMBERS // d))
        self.n_rows = n if weights is None else int(np.count_nonzero(weights))
        self.X, self.y, self.weights, self.origin, self.n_jobs = X, y, weights, origin, n_jobs
        shift = np.asarray(X[:1024], dtype=np.float64).mean(axis=0)
        total, s1, s2, sy, spread = self._sum(_first_sums, shift)
        _check_range("X", np.diag(s2), spread / total)
        self.total, mean = float(total), s1 / total
        self.effective_rows = self._effective()
        self.center, self.y_center, self.y_scale = shift + mean, float(sy / total), 1.0
        covariance = s2 / total - np.outer(mean, mean)
        sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        # A spread that is rounding of the mean is none.
        sd[sd <= CONSTANT * np.abs(self.center)] = 0.0
        self.whitener = _whitener(covariance, sd)
        inverse_sd = np.divide(1.0, sd, out=np.zeros(d), where=sd > 0)
        m3, m4, variance, spread = self._sum(_shape_sums, self.center, inverse_sd, self.y_center)
        spread = float(spread / total)
        _check_range("y", variance, spread if spread > CONSTANT * abs(self.y_center) else 0.0)
        self.skewness, self.kurtosis = m3 / total, np.where(sd > 0, m4 / total - 3.0, 0.0)
        self.y_scale = float(np.sqrt(variance / total))
        if self.y_scale <= CONSTANT * abs(self.y_center):
            self.y_scale = 0.0
        self._kept = None
        if n * self.dim <= _KEPT_NUMBERS and self.y_scale > 0:
            self._kept = [_whitened(block, *self._transform) for block in self._blocks()]

    def _effective(self):
        if self.weights is None:
            return self.total
        w = self.weights / self.weights.max()
        return float(w.sum() ** 2 / (w @ w))

    @property
    def dim(self):
        """Coordinates k of z."""
        return self.whitener.shape[1]

    @property
    def _transform(self):
        return self.center, self.whitener, self.y_center, self.y_scale

    def _blocks(self):
        for start in range(0, len(self.X), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self.X[rows], self.y[rows], None if self.weights is None else self.weights[rows]

    def _whitened_blocks(self):
        return self._kept or (_whitened(block, *self._transform) for block in self._blocks())

    def _sum(self, function, *args):
        blocks = ((block, *args) for block in self._blocks())
        return _added_up(in_order(function, blocks, self.n_jobs, prefer="threads"))

    def reduce(self, function, *args):
        """The sum over blocks of ``function(Z, y, w, *args)``."""
        if self._kept is not None:
            return _added_up(function(*block, *args) for block in self._kept)
        on_block = functools.partial(_on_block, function=function, transform=self._transform, args=args)
        return self._sum(on_block)

    def extremes(self, count):
        """The `count` smallest values of every coordinate of z, ascending, and the largest, descending.

        Among rows with positive weight. Returns two arrays (count, k), with fewer rows if there are fewer.
        """
        low = high = np.empty((0, self.dim))
        for Z, _, w in self._whitened_blocks():
            Z = Z[w > 0]
            if len(Z) > 2 * count:
                Z = np.partition(Z, (count - 1, len(Z) - count), axis=0)
            low = np.sort(np.concatenate([low, Z[:count]]), axis=0)[:count]
            high = -np.sort(-np.concatenate([high, Z[-count:]]), axis=0)[:count]
        return low, high

    def arrays(self, dtype):
        """All whitened rows at once.

        Returns Z (n, k), y, w (n,).
        """
        parts = [tuple(a.astype(dtype) for a in block) for block in self._whitened_blocks()]
        return tuple(np.concatenate(arrays) for arrays in zip(*parts))

    def draw(self, n_rows, rng):
        """Some of the rows, kept in memory, with the same coordinates."""
        if n_rows >= len(self.X):
            return self
        n_stretches = -(-len(self.X) // _STRETCH)
        starts = np.sort(rng.choice(n_stretches, -(-n_rows // _STRETCH), replace=False)) * _STRETCH
        rows = (starts[:, None] + np.arange(_STRETCH)).ravel()
        return self.take(rows[rows < len(self.X)])

    def column_scale(self):
        """Standard deviations (d,) of the columns of X, up to the directions in which X is constant."""
        return np.linalg.norm(np.linalg.pinv(self.whitener), axis=0)

    def standardized(self):
        """The same rows with standardized columns instead of whitened ones."""
        other, scale = copy.copy(self), self.column_scale()
        other.whitener = np.diag(np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0))
        other._kept = None
        return other

    def take(self, rows):
        """Given rows, kept in memory, with the same coordinates."""
        part = copy.copy(self)
        part.X, part.y = np.asarray(self.X[rows]), np.asarray(self.y[rows])
        part.weights = None if self.weights is None else np.asarray(self.weights[rows])
        part.origin = None if self.origin is None else self.origin[rows]
        part.n_rows = len(rows) if part.weights is None else int(np.count_nonzero(part.weights))
        part.total = float(len(rows) if part.weights is None else part.weights.sum())
        part.effective_rows = part._effective()
        part._kept = [_whitened(block, *self._transform) for block in part._blocks()]
        return part


def departures(sample):
    """Skewness and excess kurtosis of every column over their bounds, the larger of the two.

    Returns (d,).
    """
    skewness, kurtosis = np.abs(sample.skewness), sample.kurtosis
    skewness_error, kurtosis_error = np.sqrt(np.array([6.0, 24.0]) / sample.effective_rows)
    skewness = skewness / max(_SKEWNESS, SAMPLING_ERRORS * skewness_error)
    tails = kurtosis / max(_KURTOSIS, SAMPLING_ERRORS * kurtosis_error)
    # Samples of Gaussian columns err less to the side of light tails.
    flatness = -kurtosis / max(_FLATNESS, 0.5 * SAMPLING_ERRORS * kurtosis_error)
    return np.max([skewness, tails, flatness], axis=0)


def distinct_rows(sample):
    """Number of different rows of X among those that count; of more than 131 072 rows, their number."""
    if len(sample.X) > REPEATED_ROWS:
        return sample.n_rows
    X = np.asarray(sample.X if sample.weights is None else sample.X[np.flatnonzero(sample.weights)])
    return len(np.unique(along_a_line(X)))


def along_a_line(X):
    """Products of the rows with a fixed random direction, which are equal where rows are.

    X (n, d); returns (n,).
    """
    # Not a matrix product: equal rows have equal products in any block.
    return np.einsum("nd,d->n", X, np.random.RandomState(0).standard_normal(X.shape[1]), dtype=np.float64)


def values_of_columns(sample):
    """Number of values that every column of X takes in the first 4096 rows.

    Returns (d,).
    """
    return np.array([len(np.unique(column)) for column in np.asarray(sample.X[:_VALUED]).T])
