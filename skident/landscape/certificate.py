"""The result of certifying a point of a loss landscape: status, bounds, curvature; and the options of certificates."""

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from skident.base.report import ReportMixin

from .problem import NO_TERMS, LossTerms

_REASONS = {
    "global": "the loss {loss:.3e} is within {gap:.1e} of a proven lower bound ({how})",
    "saddle": "no slope (gradient {gradient_norm:.1e}), but the loss has curvature {curvature:.3e} along "
    "escape_direction",
    "not stationary": "the gradient, of norm {gradient_norm:.3e}, leads down",
    "undecided": "no slope (gradient {gradient_norm:.1e}), no downward curvature detected (lowest {curvature:.1e}), "
    "but the loss {loss:.3e} is {gap:.1e} above the best lower bound known ({how})",
}


@dataclass(frozen=True)
class CertificateOptions:
    """Tolerance and budget of a certificate.

    Attributes
    ----------
    tol : float, default=1e-10
        Largest gap to the lower bound that counts as zero, relative to the loss of the best constant (of 0 without
        intercept).
    max_products : int, default=400
        Maximum number of Hessian products for the curvature. Near a degenerate optimum more do not help.
    max_dense : int, default=6000
        Largest order of a matrix factorized for the lower bound; beyond, points whose loss is neither zero nor bounded
        by duality at the point itself stay undecided.

    Raises
    ------
    ValueError
        If `tol` is not a finite number > 0, `max_products` not an integer >= 1, or `max_dense` not an integer >= 0.

    Notes
    -----
    Inputs too collinear for double precision are decided in ball arithmetic up to order 250,
    ``min(n, d (d + 1) / 2 + terms)``, and undecided beyond.
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
    """The lowest curvature detected at a point."""

    value: float
    bound: float  # proven: no curvature is below this
    direction: np.ndarray | None  # (k, d), of unit norm; or None
    n_products: int  # Hessian products used
    converged: bool  # whether `value` is the smallest eigenvalue


@dataclass(frozen=True)
class Proof:
    """The best lower bound of the loss known, its source, and whether it proves a point optimal."""

    value: float
    how: str
    gap: float
    proven: bool
    radius: float = np.inf  # of the networks that the bound is about


@dataclass(frozen=True)
class LandscapeCertificate(ReportMixin):
    """What is proven or measured at a point of a shallow network's loss landscape.

    Attributes
    ----------
    status : {"global", "saddle", "not stationary", "undecided"}
        ``global``: proven global optimum. ``saddle``: zero gradient, and `escape_direction` leads down. ``not
        stationary``: the gradient leads down. ``undecided``: zero gradient, no negative curvature detected, no proof.
    is_global : bool
    reason : str
        The argument, or what is missing for one.
    loss : float
        Ridge included; constant and linear terms optimal. In double precision, or better if large units cancel.
    lower_bound : float
        Proven, rounding included: no network with output weights of these signs has a lower loss. 0 if nothing better
        is known, and for all activations other than the quadratic one.
    gap : float
        ``loss - lower_bound`` plus a bound on the rounding of the loss: for quadratic units proven to be at least the
        difference of the exact loss and `lower_bound`. Nonnegative.
    null_loss : float
        Loss of the network W = 0: the scale of losses.
    gradient_norm : float
        Frobenius norm of the gradient with respect to W.
    residual_norm : float
        Spectral norm of the gradient with respect to ``M = W^T D_v W``, which is ``R = 1/n sum_i r_i x_i x_i^T`` plus
        alpha M; nan for other activations than the quadratic one. Zero proves global optimality.
    wrong_norm : float
        Largest magnitude of the gradient's eigenvalues along which units of these signs can descend; nan likewise.
    curvature : float
        Of the loss along `escape_direction`, per squared length: the smallest Hessian eigenvalue, or an upper bound of
        it if `curvature_converged` is False.
    curvature_bound : float
        No curvature is below this, up to rounding.
    curvature_converged : bool
    escape_direction : ndarray of shape (k, d) or None
        Unit norm; None without negative curvature. For other than squared losses, minus the gradient's direction if
        the point is not stationary.
    n_products : int
        Hessian products used.
    radial_slope : float
        ``<W, gradient>``.
    output_weights : ndarray of shape (k,)
    activation : str
    terms : LossTerms
        Of the certified loss.
    loss_name : {"squared", "logistic", "huber", "poisson"}
    radius : float
        The proof covers networks with ``||M||_F^2 + ||b||^2 / linear_weight`` up to the square of this: infinite for
        squared losses and with a ridge, finite for other losses without ridge, at least 1000 times the norm of a
        "global" point and 1000.

    Notes
    -----
    "global" is a theorem about the exact real numbers in the arrays X, y, W and v: no network with output weights of
    these signs, of any width, has a loss lower by more than `gap`, which is at most ``tol`` times the loss of the best
    constant (of 0 without intercept), plus the square of four roundings of the targets; with an intercept their offset
    is subtracted exactly first. The other three statuses are measured in double precision.
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
    loss_name: str = "squared"
    radius: float = np.inf

    titles = ("quantity", "value")

    def lines(self):
        """Status and its argument.

        Returns
        -------
        list of str
        """
        return [f"{self.status}: {self.reason}"]

    def rows(self):
        """What was proven or measured.

        Returns
        -------
        list of tuple of 2 str
        """
        names = ("loss", "lower_bound", "gap", "null_loss", "gradient_norm", "curvature", "curvature_bound")
        return [(name.replace("_", " "), f"{getattr(self, name):.6g}") for name in names]

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
            If the activation is not quadratic, the loss not squared, or the output weights are not all equal.
        """
        self._require_quadratic("theorem_bound")
        if self.loss_name != "squared":
            raise ValueError(f"theorem_bound is about squared losses; the loss here is {self.loss_name}.")
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
        """Upper bound on the decrease of the loss by a network with output weights of these signs and bounded M'.

        Parameters
        ----------
        nuclear_norm : float
            Largest sum of the magnitudes of the eigenvalues of M'.
        planted : bool, default=False
            Whether M' is known to fit the data exactly and there is no ridge: then the loss itself is bounded.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the activation is not quadratic.

        Notes
        -----
        From convexity in M alone: ``f(M) - f(M') <= <G, M> - <G, M'> <= 1/2 <W, gradient> + wrong_norm ||M'||_*``. For
        data that M' fits exactly, without ridge, half of that: ``1/4 <W, gradient> + 1/2 (-lambda_min R)_+ ||M'||_*``.
        It needs no assumption on the data and holds with certainty; it is about ten times tighter than `theorem_bound`.
        """
        self._require_quadratic("deterministic_bound")
        bound = 0.5 * self.radial_slope + self.wrong_norm * nuclear_norm
        return float((0.5 if planted else 1.0) * max(bound, 0.0))

    def _require_quadratic(self, name):
        """Raise ValueError unless the activation is quadratic."""
        if self.activation != "quadratic":
            raise ValueError(f"{name} is about quadratic units; the activation here is {self.activation}.")


def certificate_of(proof, curvature, slope, loss, is_stationary, flat, missing, **fields):
    """The `LandscapeCertificate` of a point with a `Proof`, a `Curvature` and the gradient `slope` (k, d).

    Curvatures above ``-flat`` are not negative; `missing` says what an undecided point lacks, `fields` are the others.
    """
    bent, gradient_norm = curvature.value < -flat, float(np.linalg.norm(slope))
    status = "global" if proof.proven else "not stationary" if not is_stationary else "saddle" if bent else "undecided"
    numbers = {"loss": loss, "gap": proof.gap, "gradient_norm": gradient_norm}
    reason = _REASONS[status].format(how=proof.how, curvature=curvature.value, **numbers)
    leads_down = curvature.value < 0 and status in ("saddle", "not stationary")
    return LandscapeCertificate(
        status,
        proof.proven,
        reason + (missing if status == "undecided" else ""),
        lower_bound=proof.value,
        radius=proof.radius,
        curvature=curvature.value,
        curvature_bound=curvature.bound,
        curvature_converged=curvature.converged,
        escape_direction=curvature.direction if leads_down else None,
        n_products=curvature.n_products,
        **numbers,
        **fields,
    )
