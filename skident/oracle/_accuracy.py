"""`Accuracy`: the standard deviation of each output's error, from its number format and its measured noise."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skident.budget.constants import CONSTANT_TOL, EPS, EPS32, FEW_ROUNDINGS, UNIFORM

from ._noise import ROUNDING_ULPS, measure_noise

MAX_NOISE = 0.02  # relative to the outputs' standard deviation; more is no noise, but steps or an unsuitable model
_MAX_DECIMALS = 12  # more decimals of an output of order 1 are the rounding of double precision
_EPS16 = float(np.finfo(np.float16).eps)  # spacing of half precision numbers at 1
_EPS_BFLOAT16 = 2.0**-7  # spacing of bfloat16 numbers at 1: 7 bits are stored
_BFLOAT16_BITS = np.uint32(0xFFFF)  # last bits of a float32, all zero for a bfloat16
_LOGIT_ERROR = 1e-9  # error of a logit up to which it is the rounding of probabilities near 1
_MIN_NUMBERS = 12  # numbers that determine a format: a double is also a single with probability 2^-29 each
_MOST_DIGITS = 13  # significant digits; more are the rounding of double precision
_MIN_ZEROS = 6  # last digits that are 0 if outputs have so many decimals: 1e-6 by chance, unless digits are rounded
_MAX_ULP_SHARE = 1e-2  # ulps per decimal place above which every number would pass as rounded to that place


class Precision(NamedTuple):
    """Number format of a black box's outputs.

    Attributes
    ----------
    kind : {"float64", "float32", "float16", "bfloat16", "decimals", "digits"}
    decimals : int or None
        Decimal places to which all outputs are rounded, for kind "decimals"; significant digits, for kind "digits".
    """

    kind: str = "float64"
    decimals: int | None = None

    @property
    def eps(self):
        """Spacing of the binary format, or of numbers with so many digits, at 1; of double precision for decimals."""
        return 10.0 ** (1 - self.decimals) if self.kind == "digits" else _SPACINGS.get(self.kind, EPS)

    @property
    def computed_eps(self):
        """Spacing at 1 of the numbers in which a model whose outputs have errors may compute; digits are of doubles."""
        return EPS if self.kind == "digits" else EPS32

    @property
    def is_rounded(self):
        """Whether the outputs are rounded more coarsely than double precision: to digits or to decimals."""
        return self.kind != "float64"

    @property
    def is_relative(self):
        """Whether rounding coarser than that of double precision grows with the outputs: binary or decimal digits."""
        return self.is_coarse_binary or self.kind == "digits"

    @property
    def is_coarse_binary(self):
        """Whether the outputs are binary numbers coarser than double precision: rounding grows with their size."""
        return self.kind in _SPACINGS


_SPACINGS = {"float32": EPS32, "float16": _EPS16, "bfloat16": _EPS_BFLOAT16}


@dataclass(frozen=True)
class Accuracy:
    """Error of a black box's outputs, in the oracle's standardized units.

    Attributes
    ----------
    std : ndarray of shape (m_L,)
        Standard deviation of every output's error at typical inputs.
    output_std : ndarray of shape (m_L,)
        Standard deviation of the outputs themselves.
    eps : float
        Spacing of the number format at 1: 2^-52 (float64), 2^-23 (float32), 2^-10 (float16), 2^-7 (bfloat16) or
        10^(1-k) (k digits).
    removed_offset : ndarray of shape (m_L,)
        Magnitude of the center that the oracle subtracts: the black box rounds it together with the output.
    kind : {"float64", "float32", "float16", "bfloat16", "decimals", "digits", "noise"}
        Source of the error: rounding to a binary format, to `decimals` or digits, or anything larger.
    decimals : int or None
        Decimal places, for kind "decimals"; significant digits, for kind "digits".
    repeatable : bool
        Whether the same input gives the same output again.
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
        """Whether the only error is the rounding of double precision."""
        return self.kind == "float64"

    @property
    def noise_std(self):
        """`std`, or None for exact outputs."""
        return None if self.exact else self.std

    @property
    def grows(self):
        """Whether the error grows with the distance and with the outputs, as that of digits does."""
        return self.exact or self.kind in _SPACINGS or self.kind == "digits"

    @property
    def relative_error(self):
        """Largest `std` over `output_std`, of the outputs that vary; infinite if none does."""
        varies = self.output_std > FEW_ROUNDINGS * np.abs(self.removed_offset)
        return float(np.max(self.std[varies] / self.output_std[varies], initial=0.0)) if varies.any() else np.inf

    @property
    def is_plausible(self):
        """Whether `relative_error` is at most `MAX_NOISE`, so that it can be noise on a network's outputs."""
        return self.relative_error <= MAX_NOISE

    def as_exact(self):
        """The same outputs without noise: what looked like noise turned out to be the function itself.

        Returns
        -------
        Accuracy
        """
        return replace(self, std=np.zeros_like(self.std), kind="float64", decimals=None)

    def std_at(self, Y):
        """Standard deviation of the error of outputs that may be larger than at typical inputs.

        Parameters
        ----------
        Y : ndarray of shape (n, m_L)
            Outputs of the oracle.

        Returns
        -------
        ndarray of shape (m_L,)
        """
        return np.maximum(self.std, UNIFORM * self.eps * (np.abs(Y).max(axis=0) + np.abs(self.removed_offset)))

    def std_of(self, U, Y):
        """Standard deviation of the error of every output.

        Parameters
        ----------
        U : ndarray of shape (n, D)
            Points in standardized coordinates.
        Y : ndarray of shape (n, m_L)
            Outputs of the oracle there.

        Returns
        -------
        ndarray of shape (n, m_L)

        Notes
        -----
        Rounding to digits is proportional to the numbers that a network adds up. These grow with the distance
        ``|u| / sqrt(D)`` from the center, where a unit's sum of inputs has its usual size at a distance of 1, and they
        are at least as large as the output. Errors of other kinds are equal everywhere.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.oracle import Accuracy
        >>> accuracy = Accuracy(np.array([1e-7]), np.ones(1), 2.0**-23, np.zeros(1), "float32")
        >>> print(
        ...     accuracy.std_of(np.array([[1.0, 1.0], [30.0, 40.0]]), np.ones((2, 1)))
        ...     .ravel()
        ...     .round(8)
        ... )
        [1.00e-07 3.54e-06]
        """
        if not self.grows:
            return np.broadcast_to(self.std, Y.shape).copy()
        distance = np.maximum(1.0, np.linalg.norm(U, axis=1) / np.sqrt(U.shape[1]))
        return np.maximum(self.std * distance[:, None], UNIFORM * self.eps * (np.abs(Y) + self.removed_offset))

    def difference_step(self, order, min_step):
        """Step h of a difference formula at which truncation and the outputs' error balance.

        Parameters
        ----------
        order : int
            Order of the derivative plus that of the truncation: the formula's error is ``h^order + relative_error``
            up to constants.
        min_step : float
            Step for exact outputs.

        Returns
        -------
        float
        """
        if not self.is_plausible:
            return min_step
        # min_step already accounts for the rounding of exact outputs: only the rounding of a large offset adds to it.
        error = self.relative_error / ROUNDING_ULPS if self.exact else self.relative_error
        return max(min_step, error ** (1.0 / order))


EXACT = Accuracy(np.zeros(1), np.ones(1), EPS, np.zeros(1))  # of outputs in double precision


def determines_precision(Y):
    """Whether the outputs Y (n, m_L) hold enough different numbers to determine their format."""
    return len(np.unique(Y[(Y != 0) & np.isfinite(Y)])) >= _MIN_NUMBERS


def precision_of(Y):
    """Number format of outputs: double, single or half precision, bfloat16, or rounded to decimals or digits.

    Parameters
    ----------
    Y : ndarray of shape (n, m_L)
        Outputs as the black box returned them.

    Returns
    -------
    Precision
        Double precision if there are fewer than 12 different numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import precision_of
    >>> Y = np.random.default_rng(0).standard_normal((20, 1))
    >>> print(
    ...     precision_of(Y).kind,
    ...     precision_of(Y.astype(np.float32).astype(float)).kind,
    ...     precision_of(Y.round(3)),
    ... )
    float64 float32 Precision(kind='decimals', decimals=3)
    """
    if not determines_precision(Y):
        return Precision()
    values = np.unique(Y[(Y != 0) & np.isfinite(Y)])  # equal ones are no further evidence
    kind = _binary_format(values)
    ulps = 2.0 * (EPS if kind == "float64" else EPS32) * np.abs(values)
    for decimals in range(_MAX_DECIMALS + 1):
        scaled, tol = values * 10.0**decimals, ulps * 10.0**decimals
        if tol.max() > _MAX_ULP_SHARE:
            break
        if np.all(np.abs(scaled - np.rint(scaled)) <= tol):
            return _digits_of(values, ulps, decimals) or Precision("decimals", decimals)
    return (_digits_of(values, ulps, None) if kind == "float64" else None) or Precision(kind)


def _digits_of(values, ulps, decimals):
    """`Precision` of values rounded to significant digits, if these explain more than `decimals` do; None otherwise."""
    exponents = np.floor(np.log10(np.abs(values) + ulps))
    for digits in range(1, _MOST_DIGITS + 1):
        places = digits - 1.0 - exponents  # decimal places of each value
        with np.errstate(over="ignore", invalid="ignore"):  # subnormal numbers have too many
            scaled, tol = values * 10.0**places, ulps * 10.0**places
            whole = np.all(np.abs(scaled - np.rint(scaled)) <= tol)
        if whole:
            zeros = _MIN_ZEROS if decimals is None else np.sum(np.maximum(decimals - places, 0.0))
            return Precision("digits", digits) if zeros >= _MIN_ZEROS else None
    return None


def _binary_format(values):
    """Coarsest binary format that holds all values."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
        if not np.all(single == values):
            return "float64"
        if not np.any(single.view(np.uint32) & _BFLOAT16_BITS):
            return "bfloat16"
        return "float16" if np.all(values.astype(np.float16) == values) else "float32"


def measure_accuracy(oracle, U, Y, rng):
    """Error of an oracle's outputs, from `measure_noise` and their number format.

    Parameters
    ----------
    oracle : Oracle
        After `Oracle.standardize_outputs`.
    U : ndarray of shape (n, D)
        Typical inputs, half a standard deviation or more inside of the range.
    Y : ndarray of shape (k, m_L)
        Outputs of the oracle at typical inputs.
    rng : numpy.random.RandomState

    Returns
    -------
    Accuracy

    Notes
    -----
    55 queries, and 44 more per change of spacing if outputs are coarse or steep. Outputs rounded to k decimals have an
    error of ``10^-k / sqrt(12)`` or more, in single precision of ``2^-23 / sqrt(12)`` of the output, with k digits of
    ``10^(1-k) / sqrt(12)`` of it. Logits of a classifier count as exact up to an error of 1e-9, since those of
    probabilities near 1 are no better.
    """
    noise, precision = measure_noise(oracle, U, rng), oracle.precision
    offset, largest = np.abs(oracle.output_center / oracle.output_scale), np.abs(Y).max(axis=0)
    eps = precision.eps
    measured = Accuracy(noise.std, Y.std(axis=0), eps, offset, precision.kind, precision.decimals, noise.repeatable)
    if precision.kind == "decimals":
        return _at_least(measured, UNIFORM * 10.0**-precision.decimals / oracle.output_scale)
    if precision.is_relative:
        return _at_least(measured, UNIFORM * eps * np.sqrt(np.mean(Y**2, axis=0) + offset**2))
    rounding = ROUNDING_ULPS * EPS * np.maximum(largest, np.finfo(float).tiny)
    if oracle.response == "predict_proba":
        rounding = np.maximum(rounding, _LOGIT_ERROR / oracle.output_scale)
    with_offset = np.minimum(ROUNDING_ULPS * EPS * (largest + offset), CONSTANT_TOL * largest)
    if np.all(noise.std <= np.maximum(rounding, with_offset)):
        return _at_least(measured, UNIFORM * eps * (largest + offset))
    return replace(_at_least(measured, rounding), kind="noise")


def _at_least(accuracy, std):
    return replace(accuracy, std=np.maximum(accuracy.std, std))
