"""How far the columns of a sample are from Gaussian ones."""

from __future__ import annotations

import numpy as np

__all__ = ["departures"]

_SKEWNESS, _KURTOSIS = 1.0, 1.5  # of a column, beyond which it is not called Gaussian
_FLATNESS = 1.0  # minus the excess kurtosis, likewise: 1.2 is uniform, 2 the most there is
_SAMPLING_ERRORS = 4.0  # and at least so many sampling errors of a Gaussian column


def departures(sample):
    """Skewness and excess kurtosis of every column over their bounds, the larger of the two.

    Parameters
    ----------
    sample : Sample

    Returns
    -------
    ndarray of shape (d,)
        Above 1 where a column is called not Gaussian.
    """
    skewness, kurtosis = np.abs(sample.skewness), sample.kurtosis
    skewness_error, kurtosis_error = np.sqrt(np.array([6.0, 24.0]) / sample.effective_rows)
    skewness = skewness / max(_SKEWNESS, _SAMPLING_ERRORS * skewness_error)
    tails = kurtosis / max(_KURTOSIS, _SAMPLING_ERRORS * kurtosis_error)
    # Samples of Gaussian columns err less to the side of light tails.
    flatness = -kurtosis / max(_FLATNESS, 0.5 * _SAMPLING_ERRORS * kurtosis_error)
    return np.max([skewness, tails, flatness], axis=0)
