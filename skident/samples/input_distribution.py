"""Distribution of the inputs: distance of columns from Gaussian ones, discrete columns, repeated samples."""

import numpy as np

from skident.budget.constants import REPEATED_ROWS

FEW_VALUES = 10  # distinct values up to which a column is discrete (statistics: none in 50 rows of a density)
_SKEWNESS = 1.0  # of a column, from which it is not Gaussian (uniform 0, exponential 2)
_KURTOSIS = 1.5  # excess, from which a column is not Gaussian (uniform -1.2, Laplace 3)
_FLATNESS = 1.0  # minus the excess kurtosis, as for `_KURTOSIS`: 1.2 is uniform, 2 the most there is
SAMPLING_ERRORS = 4.0  # and at least so many sampling errors of a Gaussian column
_VALUED = 2**12  # rows whose values are counted


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
