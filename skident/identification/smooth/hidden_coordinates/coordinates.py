"""The model as a function of first-layer outputs, and its derivatives by them."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logit

from skident.budget.constants import FAR_SATURATED
from skident.fitting.directions_at_saturation import EXPONENTIAL_RATES
from skident.linalg import lapack
from skident.network import get_activation
from skident.oracle import Oracle

from ...saturating.biases import gradient_step, preactivation_gradients
from ...saturating.first_layer import FirstLayer
from ...saturating.norms import refine_norms

HESSIAN_STEP = 3e-3  # of second differences in outputs of tanh units: truncation 1e-5, rounding 1e-10
_PLACES = 3  # profiles per unit: one in 16 is flat, and the median ignores one of three
_INVERSES = {"tanh": np.arctanh, "sigmoid": logit}


def hessian_queries(n):
    """Queries of one Hessian in n coordinates."""
    return 2 * n**2 + 1


@dataclass(frozen=True)
class HiddenModel:
    """The model behind an exact first layer with ``m_1 <= D`` units, whose outputs h (n, m_1) are free coordinates.

    For ``m_1 <= D`` every h is reached by ``x = pinv(W_1^T)(g^-1(h) - b_1)``.
    """

    oracle: Oracle
    first: FirstLayer
    activation: str

    def __post_init__(self):
        object.__setattr__(self, "_inverse", lapack.pinv(self.first.weights))

    @property
    def unit(self):
        """Length of a step that is 1 in the outputs of tanh units: sigmoid ones have half their range."""
        return 0.5 * EXPONENTIAL_RATES[self.activation]

    @property
    def n_outputs(self):
        """m_L."""
        return self.oracle.n_outputs

    @property
    def center(self):
        """The outputs of units with pre-activation 0, (m_1,)."""
        return get_activation(self.activation)(np.zeros(len(self.first.biases)))

    def clipped(self, H, largest):
        """Outputs H (n, m_1), no farther from the center than `largest`, in units of the limits' distance."""
        return self.center + np.clip(H - self.center, -largest * self.unit, largest * self.unit)

    def random_preactivations(self, spread, count, rng):
        """Normal pre-activations (n, m_1) with standard deviation `spread` over the rate of the activation."""
        return spread / EXPONENTIAL_RATES[self.activation] * rng.standard_normal((count, len(self.first.biases)))

    def at_preactivations(self, Z):
        """Outputs (n, m_L) at first-layer pre-activations Z (n, m_1)."""
        return self.oracle((Z - self.first.biases) @ self._inverse)

    def __call__(self, H):
        """Outputs (n, m_L) at first-layer outputs H (n, m_1)."""
        return self.at_preactivations(_INVERSES[self.activation](H))

    def gradients(self, Z):
        """Derivatives (n, m_L, m_1) by pre-activations Z (n, m_1)."""
        step = gradient_step(self.oracle.accuracy)
        return preactivation_gradients(self.oracle, self.first.weights, self.first.biases, Z, step)

    def hessians(self, H, basis):
        """Second derivatives (n, m_L, k, k) at H (n, m_1) along orthonormal columns of `basis` (m_1, k)."""
        found = []
        for h in H:
            local = Oracle(lambda C, h=h: self(h + C @ basis.T), basis.shape[1], step_size=HESSIAN_STEP * self.unit)
            found.append(local.hessian(np.zeros((1, basis.shape[1])))[0])
        return np.array(found)


def measured_nearby(oracle, first, activation, rng):
    """The first layer with norms and biases from profiles at which all other units are barely saturated.

    On circles of radius 1e5 an error of 1e-8 in a direction moves the hyperplane by 1e-3. With all weights known,
    ``m_1 <= D`` and x = pinv(W^T)(z - b), the other units can be saturated close to the center.
    """
    m, g = len(first.biases), get_activation(activation)
    far, inverse, found = FAR_SATURATED / EXPONENTIAL_RATES[activation], lapack.pinv(first.weights), []
    for _ in range(_PLACES):
        corners = far * rng.choice([-1.0, 1.0], size=(m, m))
        np.fill_diagonal(corners, 0.0)
        found.append(refine_norms(oracle, replace(first, points=(corners - first.biases) @ inverse), g))
    norms = np.median([part.norms for part in found] + 2 * [first.norms], axis=0)
    biases = np.median([part.biases for part in found], axis=0)
    return replace(first, weights=first.directions * norms, biases=biases)
