"""What known units leave over of the answers."""

from __future__ import annotations

import numpy as np

from ..kernel.output_error import Probe

__all__ = ["Rest"]


class Rest(Probe):
    """What known units leave over of a probe's answers: kinks of other units show alone, however faint.

    Parameters
    ----------
    probe : Probe
    units : ReLUUnits
        The known ones, accurate to rounding.
    """

    def __init__(self, probe, units):
        super().__init__(probe.oracle, probe.noise, probe.exact)
        self._units = units

    def __call__(self, U):
        return super().__call__(U) - self._of_units(U)

    def ask(self, U):
        """Answers less those of the units, and how accurate each is.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        F : ndarray of shape (n, m_L)
        tol : ndarray of shape (n,)
        """
        F, tol = super().ask(U)
        return F - self._of_units(U), 2.0 * tol

    def _of_units(self, U):
        return 0.5 * np.abs(U @ self._units.weights + self._units.biases) @ self._units.outgoing
