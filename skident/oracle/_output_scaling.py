"""`OutputScaling`: standardize a black box's outputs, turn probabilities into logits, and keep their accuracy."""

import numpy as np

from skident.budget.constants import SUM_ROUNDING
from skident.network import output_scaling

from ._accuracy import EXACT, Precision, determines_precision, measure_accuracy, precision_of
from ._adapters import SharedBox
from ._logits import logits_from_probabilities, precise_half
from .extremes import Extremes

# Central differences balance truncation h^2 (Jacobian) against rounding eps / h at the cube root of eps.
_JACOBIAN_STEP = float(np.finfo(float).eps ** (1.0 / 3.0))
_CAST_ROWS = 40  # at which outputs are compared with those at inputs rounded to float32, or farther out (budget)
_FARTHER = 4.0  # times as far from the center, outputs of a network have digits before the point, or more of them
_CAST_MOVED = 0.25  # share of them that must differ at other float32 inputs nearby: ReLU units may be constant there
_LINE_ROOM = 0.5  # distance that the lines of `measure_noise` keep from the border, in standard deviations of an input


def varying_outputs(Y):
    """Which outputs (m_L,) differ between the rows of Y (n, m_L) by more than rounding."""
    return np.ptp(Y, axis=0) > SUM_ROUNDING * np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)


class OutputScaling:
    """Part of `Oracle`: center and scale of its outputs, which are constant, their number format and accuracy."""

    def _begin_scaling(self):
        """Start unscaled, with the accuracy of the other oracle if the black box is one."""
        self.output_center, self.output_scale, self.precision = np.zeros(1), np.ones(1), Precision()
        self._precision_is_known, self._measured_precision, self.rounds_inputs = False, None, False
        self.constant_outputs = np.zeros(1, dtype=bool)
        self._is_standardized = isinstance(self._box, SharedBox)
        self.accuracy = self._box.accuracy if self._is_standardized else EXACT
        self.extremes, self.output_bounds, self.uncertainty = Extremes(), None, None

    def n_independent_outputs(self, n_outputs):
        """Numbers per query: n_outputs, less one for the logits of three or more classes, which sum to zero."""
        return n_outputs - (self.response == "predict_proba" and n_outputs > 1)

    def is_precise(self, error):
        """Which rows (n,) are precise enough for a fit, by the errors of `Oracle.query`; see `precise_half`."""
        return precise_half(error, self.precision)

    def values_or_logits(self, X, Y):
        """Outputs (n, m_L), probabilities as logits, and their uncertainty (n,); inputs X, raw outputs Y."""
        if self.response == "predict":
            with self._counting:
                self.extremes.update(X, Y)
            if self.output_bounds is None:
                return Y, np.zeros(len(Y))
            inside = np.all((self.output_bounds[0] < Y) & (self.output_bounds[1] > Y), axis=1)
            return Y, np.where(inside, self.uncertainty(Y) if self.uncertainty else 0.0, np.inf)
        if not self._precision_is_known and determines_precision(Y):
            self.precision, self._precision_is_known = precision_of(Y), True
        return logits_from_probabilities(Y, self.precision)

    def standardize_outputs(self, Y, output_activation="identity"):
        """Center and scale all later outputs by the first ones, Y (n, m_L), which are returned standardized.

        Identification then runs identically for ``f`` and for ``a + b f``. Probabilities, outputs of another oracle and
        outputs with limits of their own are not changed.
        """
        if self.response == "predict":  # probabilities: read before they became logits
            self.precision = self._measured_precision or precision_of(Y)
        if output_activation == "identity":
            self.constant_outputs = ~varying_outputs(Y)
        if self.response == "predict" and not self._is_standardized:
            self.output_center, self.output_scale = output_scaling(Y, output_activation)
        return (Y - self.output_center) / self.output_scale

    def measure_accuracy(self, U, Y, rng):
        """Set and return `accuracy`, by `skident.oracle.measure_accuracy`; typical points U (n, D), outputs Y.

        A model that rounds its inputs to float32 counts as one that computes in float32: the errors are as large.
        """
        room = min(_LINE_ROOM * self.reach, _LINE_ROOM)
        if not self._is_standardized:
            U = self.clip_to_range(U, room)
            if self.response == "predict" and self.precision.kind == "decimals":
                self._distinguish_digits(U[:_CAST_ROWS])
            self.accuracy = measure_accuracy(self, U, Y, rng)
            if self.accuracy.kind == "noise" and self._sees_single(U[:_CAST_ROWS]):
                self.rounds_inputs, self._measured_precision = True, Precision("float32")
                self.precision = self._measured_precision
                self.accuracy = measure_accuracy(self, U, Y, rng)
        return self.accuracy

    def _distinguish_digits(self, U):
        """Keep decimals, or replace them by significant digits, which outputs that are larger do not have more of."""
        Y = self.output_center + self.output_scale * self(self.clip_to_range(_FARTHER * U))
        found = precision_of(Y.round(self.precision.decimals))  # what the scaling has added is gone
        if found.kind == "digits":
            self.precision = self._measured_precision = found

    def _sees_single(self, U):
        """Whether outputs at points U (n, D) and the nearest float32 inputs are the same, and many of others differ.

        Three times the rounding beyond, piecewise constant outputs are the same again, those of other inputs are not.
        """
        rounded = self._single(U)
        at, beyond = self(rounded), self(self.clip_to_range(4.0 * rounded - 3.0 * U))
        return bool(np.array_equal(self(U), at) and np.mean(np.any(at != beyond, axis=1)) > _CAST_MOVED)

    def representable(self, U):
        """The points nearest to U (n, D) whose inputs are float32 numbers, if the outputs are rounded; else U.

        A model that computes in single precision rounds its inputs first. Differences between a point and the input
        that the model sees would count as errors of its outputs.
        """
        return self._single(U) if self.precision.is_rounded else U

    def _single(self, U):
        """The points nearest to U (n, D) whose inputs are float32 numbers within the range."""
        X = self.to_inputs(U)
        with np.errstate(over="ignore"):
            rounded = X.astype(np.float32).astype(float)
        inside = np.isfinite(rounded)
        if self.input_range is not None:
            inside &= (rounded >= self.input_range[0]) & (rounded <= self.input_range[1])
        return np.where(inside, self.from_inputs(rounded), U)

    @property
    def jacobian_step(self):
        """Step of the Jacobian's central differences: the cube root of the outputs' relative error."""
        return self.accuracy.difference_step(3, _JACOBIAN_STEP)

    @property
    def hessian_step(self):
        """Step of the Hessian's central differences: `step_size`, or the fourth root of the outputs' relative error."""
        return self.accuracy.difference_step(4, self.step_size)
