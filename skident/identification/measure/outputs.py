"""Outputs in units of their spread with standard errors."""

import numpy as np

SIGNIFICANCE = 8.0  # standard errors of every decision: chance is 1e-15
PAIR_SHARE = 0.02  # distance of a pair of queries of a scan over the width of its interval
_FINEST = 1e-9  # relative error that no measured number is trusted beyond (conditioning)
_FINEST_ERRORS = 10.0  # `_FINEST` in errors of the outputs
_LOOSE = 1e-5  # relative error that a unit may have before it explains critical points
_TESTABLE = 1e-3  # relative error of a predicted position up to which it can be tested


class Outputs:
    """The outputs of a `DeepProbe` at points y (n, k), in units of their spread, each with its standard error.

    Attributes
    ----------
    error : float
        Standard error of an output near the center.
    pair_share : float
        Distance of a pair of queries of a scan over the width of its interval.
    exact_tol, loose_tol, testable_tol : float
        Relative errors of numbers that the outputs determine: exactly, well enough to explain critical points, and well
        enough to be tested. Decisions between exact and wrong are made at the root of the relative error.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.measure.outputs import Outputs
    >>> from skident.identification.piecewise.kernel.output_error import DeepProbe
    >>> oracle = Oracle(lambda X: X[:, 0] - X[:, 1], 2)
    >>> outputs = Outputs(DeepProbe(oracle, np.array([1.6e-9]), np.array([1.0])), np.random.RandomState(0))
    >>> F, error = outputs(np.array([[3.0, 1.0]]))
    >>> print(F.round(6)[0, 0], f"{error[0]:.1e}")
    2.0 3.2e-10
    """

    def __init__(self, probe, rng, pair_share=PAIR_SHARE):
        self.probe, self.rng, self.pair_share = probe, rng, pair_share
        self.n_inputs, self.n_outputs = probe.n_inputs, probe.n_outputs
        self.error = probe.resolution / probe.deviations
        self.exact_tol = max(_FINEST, _FINEST_ERRORS * self.error)
        self.loose_tol = max(_LOOSE, np.sqrt(self.error))
        self.testable_tol = max(_TESTABLE, _FINEST_ERRORS * np.sqrt(self.error))

    @property
    def n_queries(self):
        """Queries so far."""
        return self.probe.oracle.n_queries

    @property
    def length(self):
        """Usual distance of inputs from the center."""
        return np.sqrt(self.n_inputs)

    def __call__(self, Y):
        """Outputs (n, m_L) and standard errors (n,) at points (n, k); infinite where they are lost."""
        F, tol = self.probe.query(Y)
        return F * self.probe.resolution, tol * self.error

    def block(self, Y):
        """Outputs (..., m_L) and standard errors (...) at a block of points (..., k)."""
        F, error = self(Y.reshape(-1, Y.shape[-1]))
        return F.reshape(*Y.shape[:-1], F.shape[1]), error.reshape(Y.shape[:-1])
