"""What the steps of the second layer's identification share: the black box downstream an exact first layer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

from .kernel.charts import ErfChart, TanhChart
from .kernel.patch import SATURATED, reach_patch

__all__ = ["Downstream", "PatchSample"]

_FURTHER = 2.0  # pre-activation beyond saturation: shifts are not known yet


@dataclass(frozen=True)
class Downstream:
    """A black box downstream a first layer whose directions and lengths are exact.

    Attributes
    ----------
    query : callable
        Points (n, D) to answers (n, m_L) of a network with linear output.
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
        Up to shifts.
    activation : {"tanh", "erf"}
    theta : ndarray of shape (m_1,) or None
        What is to be added to the pre-activations, as outputs ``g(shift)``; None where patches have to tell it.
    n_outputs : int
    rng : numpy.random.RandomState
    farthest : float
        See `reach_patch`.
    deadline : float
        No step of a fit is made after this time, of `time.perf_counter`.
    """

    query: Callable
    weights: np.ndarray
    biases: np.ndarray
    activation: str
    theta: np.ndarray | None
    n_outputs: int
    rng: np.random.RandomState
    farthest: float = 3e4
    deadline: float = np.inf

    @property
    def shape(self):
        """``(D, m_1)``."""
        return self.weights.shape

    def look_at_the_time(self):
        """Go on, if there is time.

        Raises
        ------
        NotIdentified
            If it is over.
        """
        if time.perf_counter() > self.deadline:
            raise NotIdentified("second layer", "budget", "its share of max_seconds is over", final=True)

    def chart(self, units):
        """Hidden coordinates of free units.

        Parameters
        ----------
        units : ndarray of int, shape (k,)

        Returns
        -------
        TanhChart or ErfChart
        """
        return TanhChart() if self.theta is None else ErfChart(self.theta[units])

    def patch(self, free, n_patterns):
        """See `reach_patch`.

        Parameters
        ----------
        free : ndarray of int, shape (k,)
        n_patterns : int

        Returns
        -------
        Patch
        """
        options = {"margin": SATURATED[self.activation] + _FURTHER, "farthest": self.farthest}
        return reach_patch(self.weights, self.biases, free, n_patterns, self.rng, **options)


@dataclass(frozen=True)
class PatchSample:
    """What one patch tells of the second layer.

    Attributes
    ----------
    patch : Patch
    coefficients : ndarray of shape (n, m_L, m_2)
        Of the powers of the second layer's rows at every point: ``v_k g^(p)(y_k) / p!``.
    values : ndarray of shape (n, m_L)
        Answers there.
    """

    patch: object
    coefficients: np.ndarray
    values: np.ndarray
