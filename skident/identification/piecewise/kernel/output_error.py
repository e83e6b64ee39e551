"""What a piecewise linear black box answers, in units of its rounding, and how accurate every answer is."""

from __future__ import annotations

import numpy as np

__all__ = ["Answers", "Probe"]

_EPS = float(np.finfo(float).eps)
_ON_BORDER = 1e-12


class Probe:
    """The oracle's answers, every output in units of its error near the centre, and how accurate each answer is.

    Parameters
    ----------
    oracle : Oracle
    noise : ndarray of shape (m_L,)
        As `rounding_between_kinks` gives it: error of the answers near the centre, with a margin.
    exact : bool, default=True
        Whether that is the rounding of double precision.

    Attributes
    ----------
    oracle, noise, exact
        As given.
    unit : float
        ``sqrt(D)``, the usual distance of inputs from the centre.
    faint : float
        Size, in units of `noise`, below which no kink is seen.
    strong : float
        And above which it is seen on every line.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.kernel.output_error import Probe
    >>> F, tol = Probe(Oracle(lambda X: X[:, 0] - X[:, 1], 2), np.array([1e-3])).ask(np.array([[3.0, 1.0]]))
    >>> print(F.round(6)[0, 0], tol.round(3)[0])
    2000.0 3.236
    """

    def __init__(self, oracle, noise, exact=True):
        self.oracle, self.noise, self.exact, self.unit = oracle, noise, exact, np.sqrt(oracle.n_inputs)
        self.faint, self.strong = (100.0, 1e5) if exact else (12.0, 1e3)
        # Rounding to decimals, and noise, are the same everywhere; that of binary digits grows with the answers.
        self._grows = exact or oracle.accuracy.kind == "float32"

    def __call__(self, U):
        """Answers (n, m_L) at points (n, D)."""
        return self.oracle(U) / self.noise

    def ask(self, U):
        """Answers and how accurate each is.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        F : ndarray of shape (n, m_L)
            In units of `noise`.
        tol : ndarray of shape (n,)
            Accuracy of the answers in the same units: 1 near the centre and growing with the distance and the answers,
            larger where logits are uncertain, infinite where they are lost and outside the oracle's range.
        """
        Y, error = self._ask_inside(U)
        F = Y / self.noise
        tol = self.tol(U)[:, 0]
        if self._grows:
            tol = np.maximum(tol, 16.0 * _EPS * np.abs(F).max(axis=1, initial=0.0))
        return F, tol + error / self.noise.min()

    def _ask_inside(self, U):
        """Answers and uncertainties, infinite ones outside the range."""
        inside = self.inside(U)
        if inside.all():
            return self.oracle.query(U)
        Y, error = np.zeros((len(U), len(self.noise))), np.full(len(U), np.inf)
        Y[inside], error[inside] = self.oracle.query(U[inside])
        return Y, error

    def inside(self, U):
        """Which points may be asked.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if self.oracle.input_range is None:
            return np.ones(len(U), dtype=bool)
        return np.all(np.abs(self.oracle.clip_to_range(U) - U) < _ON_BORDER, axis=1)

    def tol(self, U):
        """Accuracy that answers have where they are not uncertain in themselves.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        ndarray of shape (n, 1)
        """
        return (1.0 + np.linalg.norm(U, axis=1) / self.unit * self._grows)[:, None]


class Answers(Probe):
    """A probe of boxes with several hidden layers: all answers are taken to lose accuracy with the distance.

    Parameters
    ----------
    oracle : Oracle
    noise : ndarray of shape (m_L,)
        Rounding of every output near the centre, in the oracle's units.
    spread : ndarray of shape (m_L,)
        Deviation of every output's answers, in the same units.

    Attributes
    ----------
    n_inputs, n_outputs : int
    resolution : float
        Rounding over deviation, of the output where that is best.
    """

    def __init__(self, oracle, noise, spread):
        super().__init__(oracle, noise)
        self.n_inputs, self.n_outputs = oracle.n_inputs, len(noise)
        self.resolution = float(np.min(noise / np.maximum(spread, np.finfo(float).tiny)))

    def ask(self, U):
        """Answers and their accuracy.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        F : ndarray of shape (n, m_L)
            In units of the rounding near the centre; 0 where it may not be asked.
        tol : ndarray of shape (n,)
            Accuracy of a row in the same units: 1 near the centre, growing with the distance and with the uncertainty
            of logits; infinite where these are lost and outside the range.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        Y, error = self._ask_inside(U)
        return Y / self.noise, self.tol(U)[:, 0] + error / self.noise.min()

    def query_block(self, U):
        """Answers (..., m_L) and their accuracies (...) at a block of points (..., D); see `ask`.

        Parameters
        ----------
        U : ndarray of shape (..., D)

        Returns
        -------
        F : ndarray of shape (..., m_L)
        tol : ndarray of shape (...)

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        F, tol = self.ask(U.reshape(-1, U.shape[-1]))
        return F.reshape(*U.shape[:-1], -1), tol.reshape(U.shape[:-1])
