"""The units in which an oracle answers, and how accurate its answers are."""

from __future__ import annotations

import numpy as np

from skident.network import output_units

from ._accuracy import EXACT, Precision, enough_to_tell, measure_accuracy, precision_of
from ._adapters import SharedBox
from ._logits import logits_from_probabilities, precise_half
from .extremes import Extremes

# Central differences balance truncation h^2 (Jacobian) against rounding eps / h at the cube root of eps.
_JACOBIAN_STEP = float(np.finfo(float).eps ** (1.0 / 3.0))


def varying_outputs(Y):
    """Which outputs differ from row to row by more than their rounding.

    Parameters
    ----------
    Y : ndarray of shape (n, m_L)

    Returns
    -------
    ndarray of bool, shape (m_L,)
    """
    return np.ptp(Y, axis=0) > 1e-13 * np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)


class AnswerUnits:
    """What an `Oracle` knows of its answers: offset, unit and constancy of outputs, precision and accuracy."""

    def _begin_units(self):
        """Nothing is known yet, but of another oracle's answers."""
        self.output_center, self.output_scale, self.precision = np.zeros(1), np.ones(1), Precision()
        self._digits_are_read = False
        self.constant_outputs = np.zeros(1, dtype=bool)
        self._answers_are_settled = isinstance(self._box, SharedBox)
        self.accuracy = self._box.accuracy if self._answers_are_settled else EXACT
        self.extremes, self.output_bounds = Extremes(), None

    def n_independent_outputs(self, n_outputs):
        """How many numbers an answer tells.

        Parameters
        ----------
        n_outputs : int
            m_L.

        Returns
        -------
        int
            One less than m_L where these are logits of more than two classes, which sum to zero.
        """
        return n_outputs - (self.response == "predict_proba" and n_outputs > 1)

    def is_precise(self, error):
        """Which rows serve to fit parameters.

        Parameters
        ----------
        error : ndarray of shape (n,)
            Of `Oracle.query`.

        Returns
        -------
        ndarray of bool, shape (n,)
            All of them, unless they are a classifier's: see `precise_half`.
        """
        return precise_half(error, self.precision)

    def values_or_logits(self, X, Y):
        """Answers as they are, or the logits of probabilities, and what rounding or clipping leaves uncertain in them.

        The first probabilities that are enough for it tell in which numbers they come.

        Parameters
        ----------
        X : ndarray of shape (n, D)
        Y : ndarray of shape (n, columns)

        Returns
        -------
        Y : ndarray of shape (n, m_L)
        error : ndarray of shape (n,)
            See `logits_from_probabilities`; of answers that are no probabilities 0, or infinite where they lie on or
            beyond `output_bounds`.

        Raises
        ------
        BlackBoxError
            If answers are no probabilities where these are expected.
        """
        if self.response == "predict":
            with self._counting:
                self.extremes.update(X, Y)
            if self.output_bounds is None:
                return Y, np.zeros(len(Y))
            low, high = self.output_bounds
            return Y, np.where(np.all((low < Y) & (high > Y), axis=1), 0.0, np.inf)
        if not self._digits_are_read and enough_to_tell(Y):
            self.precision, self._digits_are_read = precision_of(Y), True
        return logits_from_probabilities(Y, self.precision)

    def standardize_outputs(self, Y, output_activation="identity"):
        """Learn from first answers in which numbers the black box answers, and centre and scale all later ones.

        Whatever follows then sees the same answers of ``f`` and of ``a + b f``. Probabilities, answers of another
        oracle and those of outputs with limits of their own are left as they are.

        Parameters
        ----------
        Y : ndarray of shape (n, m_L)
            First answers, where the black box is used.
        output_activation : str, default="identity"

        Returns
        -------
        ndarray of shape (n, m_L)
            These answers as they would be given from now on.
        """
        if self.response == "predict":  # of probabilities they are read before these become logits
            self.precision = precision_of(Y)
        if output_activation == "identity":
            self.constant_outputs = ~varying_outputs(Y)
        if self.response == "predict" and not self._answers_are_settled:
            self.output_center, self.output_scale = output_units(Y, output_activation)
        return (Y - self.output_center) / self.output_scale

    def measure_accuracy(self, U, Y, rng):
        """Learn how accurate the answers are; see `skident.oracle.measure_accuracy`.

        Parameters
        ----------
        U : ndarray of shape (n, D)
            Where the black box is used.
        Y : ndarray of shape (k, m_L)
            Answers where it is used.
        rng : numpy.random.RandomState

        Returns
        -------
        Accuracy

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        room = min(0.5 * self.reach, 0.5)  # for the short lines on which noise is measured
        if not self._answers_are_settled:
            self.accuracy = measure_accuracy(self, self.clip_to_range(U, room), Y, rng)
        return self.accuracy

    @property
    def jacobian_step(self):
        """Step of the Jacobian's central differences: the cube root of the answers' relative error."""
        return self.accuracy.difference_step(3, _JACOBIAN_STEP)

    @property
    def hessian_step(self):
        """Step of the Hessian's central differences: `step_size`, or the fourth root of the answers' relative error."""
        return self.accuracy.difference_step(4, self.step_size)
