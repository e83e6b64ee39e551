"""What a certificate of a landscape says."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from .problem import NO_TERMS, LossTerms

__all__ = ["CertificateOptions", "Curvature", "LandscapeCertificate", "reason_of", "status_of"]

_REASONS = {
    "global": "the loss {loss:.3e} is within {gap:.1e} of a proven lower bound ({how})",
    "saddle": "no slope (gradient {gradient_norm:.1e}), but the loss has curvature {curvature:.3e} along "
    "escape_direction",
    "not stationary": "the gradient, of norm {gradient_norm:.3e}, leads down",
    "undecided": "no slope (gradient {gradient_norm:.1e}), no downward curvature found (lowest {curvature:.1e}), "
    "but the loss {loss:.3e} is {gap:.1e} above the best lower bound known ({how})",
}


@dataclass(frozen=True)
class CertificateOptions:
    """What a certificate counts as none, and how much may be spent on it.

    Attributes
    ----------
    tol : float, default=1e-10
        Gap to the lower bound, relative to the loss of the best constant (of 0 without intercept), that counts as none.
    max_products : int, default=400
        Hessian products spent on the curvature at most. Near a degenerate optimum more do not help.
    max_dense : int, default=6000
        Largest order of a matrix factorised for the lower bound; beyond, points whose loss is neither zero nor bounded
        by duality at the point itself stay undecided. Inputs too collinear for double precision are settled in balls
        up to order 250, ``min(n, d (d + 1) / 2 + terms)``, and undecided beyond.

    Raises
    ------
    ValueError
        If `tol` is not a finite number > 0, or one of the others no integer, below 1 or below 0.
    """

    tol: float = 1e-10
    max_products: int = 400
    max_dense: int = 6000

    def __post_init__(self):
        if not (isinstance(self.tol, Real) and 0 < self.tol < np.inf):
            raise ValueError(f"tol must be > 0, got {self.tol!r}.")
        for name, least in (("max_products", 1), ("max_dense", 0)):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and value >= least):
                raise ValueError(f"{name} must be an integer >= {least}, got {value!r}.")


@dataclass(frozen=True)
class Curvature:
    """The lowest curvature that was found at a point.

    Attributes
    ----------
    value : float
    bound : float
        Proven: no curvature is below this.
    direction : ndarray of shape (k, d) or None
        Of unit norm.
    n_products : int
        Hessian products spent.
    converged : bool
        Whether `value` is the smallest eigenvalue.
    """

    value: float
    bound: float
    direction: np.ndarray | None
    n_products: int
    converged: bool


def status_of(proven, stationary, bent):
    """The status that three facts about a point make.

    Parameters
    ----------
    proven : bool
        Whether the loss is at a lower bound.
    stationary : bool
        Whether the gradient is none.
    bent : bool
        Whether there is downward curvature.

    Returns
    -------
    {"global", "not stationary", "saddle", "undecided"}
    """
    if proven:
        return "global"
    return "not stationary" if not stationary else "saddle" if bent else "undecided"


def reason_of(status, how, *, loss, gap, gradient_norm, curvature):
    """The argument for a status, with its numbers.

    Parameters
    ----------
    status : str
        As `status_of` gives it.
    how : str
        Where the lower bound comes from.
    loss, gap, gradient_norm, curvature : float
        Of the point, the gap to the lower bound.

    Returns
    -------
    str
    """
    return _REASONS[status].format(how=how, loss=loss, gap=gap, gradient_norm=gradient_norm, curvature=curvature)


@dataclass(frozen=True)
class LandscapeCertificate:
    """What is known about a point of a shallow network's loss landscape.

    Attributes
    ----------
    status : {"global", "saddle", "not stationary", "undecided"}
        ``global``: proven, for the exact real numbers that the arrays X, y, W and v hold: no network with output
        weights of these signs, of any width, has a loss lower by more than `gap`, which is at most ``tol`` times the
        loss of the best constant (of 0 without intercept), plus the square of four roundings of the targets; with an
        intercept their offset is subtracted exactly first. The other three are what was
        seen in double precision: ``saddle``: no slope, and `escape_direction` leads down; ``not stationary``: the
        gradient leads down; ``undecided``: no slope, no downward curvature, no proof.
    is_global : bool
    reason : str
        The argument, or what is missing.
    loss : float
        Ridge included; constant and linear terms at their best. In double precision, more where large units cancel.
    lower_bound : float
        Proven, rounding included: no network with output weights of these signs is below it. 0 if nothing better is
        known; for other activations than the quadratic one that is all that is claimed.
    gap : float
        ``loss - lower_bound`` and what rounding may have done to the loss: for quadratic units proven to be no less
        than by how much the exact loss is above `lower_bound`. Not below 0.
    null_loss : float
        Loss of the network W = 0: the unit of losses.
    gradient_norm : float
        Frobenius norm of the gradient with respect to W.
    residual_norm : float
        Spectral norm of the gradient with respect to ``M = W^T D_v W``, which is ``R = 1/n sum_i r_i x_i x_i^T`` plus
        alpha M; nan for other activations than the quadratic one. Zero proves global optimality.
    wrong_norm : float
        Magnitude of the gradient's worst eigenvalue among those that units of these signs can follow; nan likewise.
    curvature : float
        Of the loss along `escape_direction`, per squared length: the smallest Hessian eigenvalue, or above it where
        `curvature_converged` is false.
    curvature_bound : float
        No curvature is below this, up to rounding.
    curvature_converged : bool
    escape_direction : ndarray of shape (k, d) or None
        Unit norm; None where there is no downward curvature.
    n_products : int
        Hessian products spent.
    radial_slope : float
        ``<W, gradient>``.
    output_weights : ndarray of shape (k,)
    activation : str
    terms : LossTerms
        Of the loss that it is about.
    """

    status: str
    is_global: bool
    reason: str
    loss: float
    lower_bound: float
    gap: float
    null_loss: float
    gradient_norm: float
    residual_norm: float
    wrong_norm: float
    curvature: float
    curvature_bound: float
    curvature_converged: bool
    escape_direction: np.ndarray | None = field(repr=False, compare=False)
    n_products: int
    radial_slope: float = field(repr=False)
    output_weights: np.ndarray = field(repr=False, compare=False)
    activation: str = "quadratic"
    terms: LossTerms = field(default=NO_TERMS, repr=False)

    def theorem_bound(self, nuclear_norm):
        """Theorem 2.2's bound on the loss, with its constants, for equal output weights and planted Gaussian data.

        Parameters
        ----------
        nuclear_norm : float
            Of the planted ``W*^T D_v* W*``.

        Returns
        -------
        float
            ``eps_g / sqrt(nu) max(sqrt(1 + 14 m), 4 eps_g / sqrt(nu)) + eps_H m / (2 nu)`` with the gradient norm, the
            proven bound of the curvature and m = `nuclear_norm`. It holds with high probability over the inputs.

        Raises
        ------
        ValueError
            If the activation is not quadratic, or the output weights are not all equal.
        """
        self._require_quadratic("theorem_bound")
        nu = np.abs(self.output_weights)
        if not len(nu) or nu.min() <= 0 or np.ptp(self.output_weights) > 1e-12 * nu.max():
            raise ValueError(
                "theorem_bound needs output weights that are all equal, as Theorem 2.2 does; they lie between "
                f"{self.output_weights.min():.3g} and {self.output_weights.max():.3g}. Use deterministic_bound."
            )
        eps_g, eps_h, root = self.gradient_norm, max(0.0, -self.curvature_bound), np.sqrt(nu[0])
        slope = eps_g / root * max(np.sqrt(1.0 + 14.0 * nuclear_norm), 4.0 * eps_g / root)
        return float(slope + eps_h * nuclear_norm / (2.0 * nu[0]))

    def deterministic_bound(self, nuclear_norm, *, planted=False):
        """How much lower a network with output weights of these signs can be, if its M is not too large.

        Convexity in M alone: ``f(M) - f(M') <= <G, M> - <G, M'> <= 1/2 <W, gradient> + wrong_norm ||M'||_*``. For data
        that M' fits exactly, without ridge, half of that: ``1/4 <W, gradient> + 1/2 (-lambda_min R)_+ ||M'||_*``. No
        assumption on the data and no probability; some ten times tighter than `theorem_bound`.

        Parameters
        ----------
        nuclear_norm : float
            Largest sum of the magnitudes of the eigenvalues of M'.
        planted : bool, default=False
            Whether M' is known to fit the data exactly and there is no ridge: then it bounds the loss.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the activation is not quadratic.
        """
        self._require_quadratic("deterministic_bound")
        bound = 0.5 * self.radial_slope + self.wrong_norm * nuclear_norm
        return float((0.5 if planted else 1.0) * max(bound, 0.0))

    def _require_quadratic(self, name):
        if self.activation != "quadratic":
            raise ValueError(f"{name} is about quadratic units; the activation here is {self.activation}.")
