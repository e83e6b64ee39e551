"""Validation of a network recovered from samples: what may be claimed, and what is undetermined."""

from dataclasses import dataclass

import numpy as np

from skident.base.report import ReportMixin
from skident.base.undetected import CONFIDENCE, undetected_share
from skident.budget.constants import FEWEST_COMPARED, NOISELESS, OUTLIER
from skident.fitting.lack_of_fit import NO_NOISE
from skident.fitting.pruning import redundant_units
from skident.network import get_activation

from .undetermined import Information

# Noise of an exact fit: fits end at 1e-12; beside nearly parallel units other minima come as close as 1e-9.
_EXACT = 1e-11
_UNITS = 10.0  # of rounding of targets with an offset
_ENOUGH = 1.5  # distinct outputs per parameter that a claim needs
_MANY_OUT = 0.2  # share of samples from which these are not outliers but another distribution
_IDLE = 3.0  # standard errors


@dataclass(frozen=True, eq=False, repr=False)
class PassiveReport(ReportMixin):
    """What may be claimed of a network recovered from samples; prints as text, and displays in notebooks.

    Attributes
    ----------
    exact : bool
        Whether held-out rows are met to `tol`, nothing is undetermined, and no unit is redundant.
    open : list of str
        What is undetermined.
    held_out_error : float
        Of a fit without the held-out rows: largest error over largest deviation of the targets.
    n_held_out : int
    undetected_share : float
        Rows from the same distribution whose targets may differ from the network although all held-out ones agree: at
        most this share, with confidence 0.999, about ``6.9 / n_held_out``.
    noise : float
        Of the targets, relative to their deviation, per degree of freedom.
    lack_of_fit : float
        Chance that noise alone is as close to functions of X as the residuals; below 0.001 they are called no noise.
    spectrum : ndarray of shape (P,)
        Eigenvalues of the Gauss-Newton matrix scaled to unit diagonal, ascending.
    n_undetermined : int
        Parameters with an infinite standard error.
    n_resampled : int
        Fits to targets with fresh noise that the standard errors come from; 0 if they are of first order.
    n_minima : int
        Networks of these widths that the noise does not distinguish.
    n_rows, n_distinct, n_parameters : int
    values_per_parameter : float
    idle_features : list of int
        Columns of X that do not matter.
    tried : list
        Sizes and what they came to.
    work : float
        Products formed.
    stopped_by : {"max_work", "max_seconds"} or None
    seconds : float
    """

    exact: bool
    open: list[str]
    held_out_error: float
    n_held_out: int
    undetected_share: float
    noise: float
    lack_of_fit: float
    spectrum: np.ndarray
    n_undetermined: int
    n_resampled: int
    n_minima: int
    n_rows: int
    n_distinct: int
    n_parameters: int
    values_per_parameter: float
    idle_features: list[int]
    tried: list
    work: float
    stopped_by: str | None
    seconds: float = 0.0

    def __repr__(self):
        return f"<{'exact' if self.exact else 'not exact'}, error {self.held_out_error:.1e}>"

    def lines(self):
        """Validation, numbers and what is undetermined.

        Returns
        -------
        list of str
        """
        head = "exact" if self.exact else "not exact"
        share = f"undetected: other targets on at most {self.undetected_share:.2g} of such rows"
        lines = [
            f"{head}: relative maximum error {self.held_out_error:.1e} on {self.n_held_out} held-out rows",
            *([f"{share} (confidence {CONFIDENCE:g})"] if self.exact else []),
            f"{self.n_rows} rows, {self.n_parameters} parameters, noise {self.noise:.1e} of the targets' deviation",
        ]
        return [*lines, *(f"undetermined: {text}" for text in self.open)]


@dataclass(frozen=True)
class Evidence:
    """What a fit left for the validation, in standardized targets.

    Attributes
    ----------
    held_out_error : float
        Largest error on rows that were not fitted, over the targets' largest deviation; NaN without such rows.
    n_held_out : int
    residuals : ndarray of shape (n, m_L)
        Of the rows searched, after the last fit.
    noise : float
        Standard deviation of the residuals per degree of freedom.
    settled : bool
        See `Found`.
    lack_of_fit : float
        See `lack_of_fit`.
    n_lone : int
        See `lone_rows`.
    n_undetermined : int
        See `Spread`.
    info : Information
    """

    held_out_error: float
    n_held_out: int
    residuals: np.ndarray
    noise: float
    settled: bool
    lack_of_fit: float
    n_lone: int
    n_undetermined: int
    info: Information

    @property
    def entries(self):
        """Those of the report."""
        return {
            "held_out_error": self.held_out_error,
            "n_held_out": self.n_held_out,
            "undetected_share": undetected_share(self.n_held_out),
            "noise": self.noise,
            "lack_of_fit": self.lack_of_fit,
            "spectrum": self.info.spectrum,
        }


def judge(network, table, evidence, tol):
    """Whether the network may be called exact, and what is undetermined."""
    fits = evidence.held_out_error <= tol and evidence.noise <= NOISELESS
    opened = [*_about_the_rows(network, table), *_about_the_fit(network, evidence, fits)]
    if fits and not opened:
        opened = _about_a_claim(network, table, evidence)
    return bool(fits and not opened), opened


def _about_the_rows(network, table):
    """Of inputs and their number."""
    opened, n = [], table.n_distinct
    if n < len(table.X):
        opened.append(f"only {n} of {len(table.X)} rows differ in X: repeated rows give the noise, and nothing else")
    if n * table.n_outputs < _ENOUGH * network.n_parameters or len(network.weights) == 1 and n <= 4 * table.n_inputs:
        opened.append(f"{n} different rows are too few to determine a network of one hidden unit or more")
    if table.lost:
        opened.append(
            f"X does not vary in {table.lost} of {len(table.center)} directions (columns that are constant or "
            "combinations of others): weights along them are undetermined, and set as small as they can be"
        )
    if table.discrete.all():
        opened.append("all columns of X are discrete: between their values the network is undetermined")
    elif table.discrete.any() and get_activation(network.activation).symmetry == "sine":
        opened.append("columns of X are discrete: the frequencies of sin units along them are undetermined")
    return opened


def _about_the_fit(network, evidence, fits):
    """Of residuals and parameters."""
    opened = []
    no_noise = evidence.noise > NOISELESS and evidence.lack_of_fit < NO_NOISE
    if no_noise and not fits:
        opened.append(
            "not a network of this class, or not recovered in the time and rows there are: functions of X explain what "
            f"it leaves (p = {evidence.lack_of_fit:.0e}), which is no noise"
        )
    elif len(network.weights) == 1 and evidence.settled:
        opened.append("no hidden unit explains more than noise does beside a linear function")
    elif not evidence.settled and not fits:
        opened.append(
            "not a network of this class, or not recovered in the time and rows there are: no small network leaves "
            "only noise, and wider ones still leave less"
        )
    elif evidence.noise <= NOISELESS and not fits and evidence.n_held_out:
        opened.append(f"rows that were not fitted are missed by {evidence.held_out_error:.1e}: too few rows")
    if fits and evidence.n_held_out < FEWEST_COMPARED:
        opened.append(f"only {evidence.n_held_out} rows could be held out, too few for a claim: give more rows")
    if evidence.info.n_open:
        opened.append(f"the rows leave {evidence.info.n_open} directions of the parameters open")
    if evidence.n_undetermined and not evidence.info.n_open:
        opened.append(
            f"the rows do not determine {evidence.n_undetermined} of {network.n_parameters} parameters at this noise: "
            "their standard errors are infinite"
        )
    surplus = sum(redundant_units(network)) if len(network.weights) > 1 else 0
    if surplus:
        opened.append(f"{surplus} hidden units could be left out without a change: their weights are undetermined")
    n_out = _outliers(evidence.residuals) if evidence.noise > NOISELESS else 0
    if n_out:
        opened.append(
            f"{n_out} targets lie beyond {OUTLIER:.0f} robust deviations: outliers pull least squares; leave them out"
        )
    if evidence.n_lone:
        opened.append(
            f"{evidence.n_lone} rows decide parameters alone: outliers that units were spent on, or too few rows"
        )
    return opened


def _about_a_claim(network, table, evidence):
    """What speaks against exactness where all else is met."""
    unit = np.finfo(float).eps * float(np.max(np.abs(table.offset / table.unit))) + np.finfo(float).eps
    if evidence.noise > max(_EXACT, _UNITS * unit):
        return [
            f"residuals of {evidence.noise:.1e} of the targets' deviation are more than rounding: rounded targets, or "
            "another network that is close"
        ]
    if any(g.symmetry == "homogeneous" for g in network.activations[:-1]):
        return [
            f"the rows cannot separate {network.activation} units that bend between the same rows: held-out rows "
            "are met, which is no claim about the rows between"
        ]
    return []


def _outliers(residuals):
    """Rows far outside of what most others are like; 0 where they are too many to be outliers."""
    size = np.abs(residuals).max(axis=1)
    spread = np.median(np.abs(residuals)) / 0.6745
    n_out = int(np.sum(size > OUTLIER * spread))
    return n_out if n_out <= _MANY_OUT * len(size) else 0


def idle_features(network, stderr):
    """Columns of X whose weights are all zero to within their standard errors.

    stderr (D, m_1).
    """
    W = np.abs(network.weights[0])
    rounding = 1e-9 * W.max()
    return np.flatnonzero((W <= np.maximum(_IDLE * np.where(np.isfinite(stderr), stderr, 0.0), rounding)).all(axis=1))
