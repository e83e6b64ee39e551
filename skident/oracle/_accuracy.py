"""How accurate a black box's answers are: exact arithmetic, single precision, rounded to decimals, or noisy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ._noise import measure_noise

__all__ = ["EXACT", "MAX_NOISE", "Accuracy", "Precision", "measure_accuracy", "precision_of"]

MAX_NOISE = 0.02  # relative; what looks like more is no noise around a network, but steps or something else
_MOST_DECIMALS = 12
_DOUBLE, _SINGLE = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
_UNIFORM = 12.0**-0.5  # standard deviation of an error spread evenly over one unit
_ROUNDINGS = 64  # units in the last place of the largest answer that a network's own arithmetic may lose
_OF_OFFSET = 1e-12  # relative error up to which the rounding of an offset is taken as that of exact answers
_OF_LOGITS = 1e-9  # error of logits up to which it is the rounding of probabilities near 1, and they serve to fit
_CONSTANT = 1e-14  # deviation beside the offset that is rounding
_FEWEST = 12  # numbers that a precision is read off; one in 2^29 doubles is a single by chance


class Precision(NamedTuple):
    """The numbers in which a black box answers.

    Attributes
    ----------
    kind : {"float64", "float32", "decimals"}
    decimals : int or None
        The fewest that show all answers, where they are rounded.
    """

    kind: str = "float64"
    decimals: int | None = None


@dataclass(frozen=True)
class Accuracy:
    """The error in the answers of a black box.

    Attributes
    ----------
    std : ndarray of shape (m_L,)
        Standard deviation of every output's error where the box is used, in the units in which the oracle answers.
    output_std : ndarray of shape (m_L,)
        Standard deviation of the answers themselves, in the same units.
    eps : float
        Relative rounding of a single answer: the spacing of the numbers in which the box answers, 2^-52 or 2^-23.
    removed_offset : ndarray of shape (m_L,)
        What the oracle has taken away from the answers, in the same units: it is rounded with them.
    kind : {"float64", "float32", "decimals", "noise"}
        Exact double precision; answers that are all single precision numbers; multiples of ``10^-decimals``; or other
        errors.
    decimals : int or None
    repeatable : bool
        Whether the same question gets the same answer.
    """

    std: np.ndarray
    output_std: np.ndarray
    eps: float
    removed_offset: np.ndarray
    kind: str = "float64"
    decimals: int | None = None
    repeatable: bool = True

    @property
    def exact(self):
        """Whether there is no more than the rounding of double precision."""
        return self.kind == "float64"

    @property
    def noise_std(self):
        """`std`, or None where answers are exact."""
        return None if self.exact else self.std

    @property
    def relative_error(self):
        """Error of the worst output over the deviation of its answers; outputs that are constant do not count."""
        varies = self.output_std > _CONSTANT * np.abs(self.removed_offset)
        return float(np.max(self.std[varies] / self.output_std[varies], initial=0.0)) if varies.any() else np.inf

    @property
    def is_plausible(self):
        """Whether the errors are small enough to be errors of a network's answers: 2 % at most."""
        return self.relative_error <= MAX_NOISE

    def as_exact(self):
        """The same errors reduced to rounding: what looked like noise turned out to be none.

        Returns
        -------
        Accuracy
        """
        return replace(self, std=np.zeros_like(self.std), kind="float64", decimals=None)

    def std_at(self, Y):
        """Standard deviation of the errors of answers that may be larger than usual.

        Parameters
        ----------
        Y : ndarray of shape (n, m_L)
            Answers of the oracle.

        Returns
        -------
        ndarray of shape (m_L,)
        """
        return np.maximum(self.std, _UNIFORM * self.eps * (np.abs(Y).max(axis=0) + np.abs(self.removed_offset)))

    def difference_step(self, order, min_step):
        """The step of a difference formula that balances its truncation against the answers' error.

        Parameters
        ----------
        order : int
            Of the derivative plus that of the truncation: the error of the answers counts as ``step^-order`` beside it.
        min_step : float
            For exact answers.

        Returns
        -------
        float
        """
        if not self.is_plausible:
            return min_step
        # The step for exact answers is the one for their rounding; only that of an offset is more.
        error = self.relative_error / _ROUNDINGS if self.exact else self.relative_error
        return max(min_step, error ** (1.0 / order))


EXACT = Accuracy(np.zeros(1), np.ones(1), _DOUBLE, np.zeros(1))


def enough_to_tell(Y):
    """Whether answers are many enough to read off in which numbers they come.

    Parameters
    ----------
    Y : ndarray of shape (n, m_L)

    Returns
    -------
    bool
    """
    return len(np.unique(Y[(Y != 0) & np.isfinite(Y)])) >= _FEWEST


def precision_of(Y):
    """The numbers in which answers come.

    Parameters
    ----------
    Y : ndarray of shape (n, m_L)
        Answers as the black box gave them.

    Returns
    -------
    Precision

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import precision_of
    >>> Y = np.random.default_rng(0).standard_normal((20, 1))
    >>> print(precision_of(Y).kind, precision_of(Y.astype(np.float32).astype(float)).kind, precision_of(Y.round(3)))
    float64 float32 Precision(kind='decimals', decimals=3)
    """
    if not enough_to_tell(Y):
        return Precision()
    values = Y[(Y != 0) & np.isfinite(Y)]
    with np.errstate(over="ignore"):
        single = bool(np.all(values.astype(np.float32) == values))
    lost = 2.0 * (_SINGLE if single else _DOUBLE) * np.abs(values)
    for decimals in range(_MOST_DECIMALS + 1):
        shown, blurred = values * 10.0**decimals, lost * 10.0**decimals
        if blurred.max() > 1e-2:  # any number would do
            break
        if np.all(np.abs(shown - np.rint(shown)) <= blurred):
            return Precision("decimals", decimals)
    return Precision("float32" if single else "float64")


def measure_accuracy(oracle, U, Y, rng):
    """The accuracy of an oracle's answers, by `measure_noise` and what the answers' digits tell.

    Parameters
    ----------
    oracle : Oracle
        Once it has its units, see `Oracle.standardize_outputs`.
    U : ndarray of shape (n, D)
        Where the black box is used, away from the border of its range by half a standard deviation or so.
    Y : ndarray of shape (k, m_L)
        Answers of the oracle where the black box is used.
    rng : numpy.random.RandomState

    Returns
    -------
    Accuracy

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    55 queries, or up to 44 more at a time where answers are coarse or steep. Answers rounded to decimals have an error
    of ``10^-k / sqrt(12)`` at least, single precision one of ``2^-23 / sqrt(12)`` of the answer. Logits of a classifier
    are exact where they are good to 1e-9: those of probabilities near 1 are no better.
    """
    noise, told = measure_noise(oracle, U, rng), oracle.precision
    offset, largest = np.abs(oracle.output_center / oracle.output_scale), np.abs(Y).max(axis=0)
    unit = _SINGLE if told.kind == "float32" else _DOUBLE
    found = Accuracy(noise.std, Y.std(axis=0), unit, offset, told.kind, told.decimals, noise.repeatable)
    if told.kind == "decimals":
        return replace(found, std=np.maximum(noise.std, _UNIFORM * 10.0**-told.decimals / oracle.output_scale))
    if told.kind == "float32":
        return replace(found, std=np.maximum(noise.std, _UNIFORM * unit * np.sqrt(np.mean(Y**2, axis=0) + offset**2)))
    rounding = _ROUNDINGS * _DOUBLE * np.maximum(largest, np.finfo(float).tiny)
    if oracle.response == "predict_proba":
        rounding = np.maximum(rounding, _OF_LOGITS / oracle.output_scale)
    with_offset = np.minimum(_ROUNDINGS * _DOUBLE * (largest + offset), _OF_OFFSET * largest)
    if np.all(noise.std <= np.maximum(rounding, with_offset)):
        return replace(found, std=np.maximum(noise.std, _UNIFORM * unit * (largest + offset)))
    return replace(found, std=np.maximum(noise.std, rounding), kind="noise")
