"""The report of an identification: result of the validation, plan, stages; as a table, HTML and a picture."""

from dataclasses import dataclass, field

import numpy as np

from skident.base.report import StageReport
from skident.base.undetected import CONFIDENCE, undetected_share
from skident.linalg import column_units

from .exact_bits.bits import Bits


@dataclass(frozen=True, eq=False, repr=False)
class IdentificationReport(StageReport):
    """Validation of a network recovered from queries, its method and stages; `plot` draws the stages.

    Attributes
    ----------
    stages : list of Stage
    exact : bool
        The network agrees with the black box to `tol` on held-out samples, no unit is redundant, neither noise nor
        rounding could hide more, and no far output or plateau contradicts it.
    agrees : bool
        Exact, or as close as noise and rounding allow.
    relative_max_error : float
        On held-out samples; for labels the largest residual at the decision boundary.
    checked : int
        Number of held-out samples.
    noise : float
        Of the outputs, relative to their standard deviation.
    route, reason : str
        Successful method, and why it came first.
    attempts, n_queries : int
    undetected_share, undetected_share_of_X : float
        Bounds on the share of the normal distribution of X, and of the distribution of X, with other outputs.
    checked_spread : ndarray of shape (D,), or None
        Standard deviations of held-out samples.
    checked_range : tuple of two ndarrays of shape (D,), or None
        Their range.
    deviates_at : ndarray of shape (D,), or None
        The input of a local deviation.
    input_rounding : float
        Error of the outputs by rounding of the inputs, relative to their largest deviation.
    undetermined : str or ndarray of shape (k, F, K)
        What the outputs do not determine; for labels a basis of it.
    redundant_units : list of int
        Units of each hidden layer that another one, or none, may replace.
    plan : list of str
        Steps, in the order in which they are tried.
    tried : list of (str, str)
        Steps, and how they ended.
    reductions : list of str
        What made the problem simpler before it was solved, in turn.
    rejected : str
        A reduction that was accepted first, and that this network does without: none was recovered behind it.
    repeatable : bool
        Whether the same input has the same outputs again.
    activation : object
        The detected activation, or None if it was given.
    bits : Bits or None
        Weights rounded to `weight_dtype`.
    probability_error, lost : float or None
        For probabilities: their largest error, and the share of samples whose logits are lost.
    determined : float or None
        Share of the parameters that outputs within `input_range` determine.
    spectrum : ndarray or None
        Singular values behind that share.
    never_active, always_active : list of int, or None
        Units of each hidden ReLU layer near the center.
    explained, explained_of : float and int, or None
        Share of further samples that a deep ReLU network explains, and their number.
    sign_doubt : float or None
        Least deviation of other signs of its units.
    boundary_errors, contradicting_labels, compared_labels : int or None
        For labels: wrong ones beside the boundary, and among those queried away from it.
    class_pairs : list of (int, int), or None
        Classes whose common boundary was recovered.
    signs_determined : bool or None

    Examples
    --------
    >>> from skident import NetworkIdentifier
    >>> from skident.datasets import make_network
    >>> network = make_network((6, 5, 2), output_activation="identity", random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((200, 6))
    >>> report = NetworkIdentifier(network, random_state=0).fit(X).report_
    >>> print(report.exact, sum(stage.queries for stage in report.stages) < report.n_queries)
    True True
    """

    exact: bool
    agrees: bool
    relative_max_error: float
    checked: int
    noise: float
    route: str
    reason: str
    attempts: int
    n_queries: int
    undetected_share: float
    undetected_share_of_X: float | None = None
    checked_spread: np.ndarray | None = None
    checked_range: tuple[np.ndarray, np.ndarray] | None = None
    deviates_at: np.ndarray | None = None
    input_rounding: float = 0.0
    undetermined: str | np.ndarray = ""
    redundant_units: list = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    tried: list[tuple[str, str]] = field(default_factory=list)
    reductions: list[str] = field(default_factory=list)
    rejected: str = ""
    repeatable: bool = True
    activation: object = None
    bits: Bits | None = None
    probability_error: float | None = None
    lost: float | None = None
    determined: float | None = None
    spectrum: np.ndarray | None = None
    never_active: list[int] | None = None
    always_active: list[int] | None = None
    explained: float | None = None
    explained_of: int | None = None
    sign_doubt: float | None = None
    boundary_errors: int | None = None
    contradicting_labels: int | None = None
    compared_labels: int | None = None
    class_pairs: list[tuple[int, int]] | None = None
    signs_determined: bool | None = None

    def __repr__(self):
        return f"<{self._validation()}, error {self.relative_max_error:.1e}>"

    def _validation(self):
        return "exact" if self.exact else "agrees" if self.agrees else "not exact"

    def lines(self):
        """Validation, method and activation.

        Returns
        -------
        list of str
        """
        validated = {
            "exact": "exact",
            "agrees": "agrees to within noise and rounding",
            "not exact": "not exact",
        }[self._validation()]
        noise = f", noise of the outputs {self.noise:.1e}" if self.noise else ""
        attempts = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        seen, bits, left = self.activation, self.bits, self.undetermined
        if self.route == "labels":  # a basis (k, F, K)
            left = f"{len(left)} combinations of output weights" if len(left) else None
        error = f"relative maximum error {self.relative_max_error:.1e} on {self.checked} held-out samples{noise}"
        return [
            f"{validated}: {error}",
            *self._undetected(),
            f"method: {self.route} ({self.reason}), {attempts}",
            *([f"reduced: {', then '.join(self.reductions)}"] if self.reductions else []),
            *([f"rejected: {self.rejected}"] if self.rejected else []),
            *([] if seen is None else [f"activation: {seen}"]),
            *([f"not determined: {left}"] if left else []),
            *([] if bits is None else [f"bits: {bits}"]),
        ]

    def _undetected(self):
        """What the held-out samples cannot rule out, in a list."""
        if self.undetected_share is None or not self.agrees:
            return []
        if self.route == "labels":
            where = f"{self.undetected_share:.2g} of the decision boundary, as lines through X meet it"
            return [f"undetected: other labels at no more than {where} (confidence {CONFIDENCE:g})"]
        return [
            f"undetected: other outputs on at most {self.undetected_share:.2g} of inputs N(mean, std^2) of X, and "
            f"{self.undetected_share_of_X:.2g} of X (confidence {CONFIDENCE:g})"
        ]

    def plot(self, ax=None, **kwargs):
        """Draw seconds, queries and residual of every stage.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            See `skident.inspection.IdentificationDisplay.plot`, which also takes the other arguments.
        **kwargs
            Further arguments of it.

        Returns
        -------
        skident.inspection.IdentificationDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `ax` is neither an Axes nor a pair.
        """
        from skident.inspection import IdentificationDisplay

        return IdentificationDisplay.from_report(self, ax=ax, **kwargs)


def report_of(validation, steps, bits=None):
    """The public report of a validation, the plan that led to it, and the `Bits` of rounded weights."""
    problem, result = validation.problem, validation.result
    X, held_out, further = problem.oracle.to_inputs(problem.held_out.inputs), problem.held_out, validation.further
    n_rows, n_normal = held_out.n_rows + further.n_rows, held_out.n_normal + further.n_normal
    claimed = validation.agrees
    return IdentificationReport(
        relative_max_error=validation.error,
        exact=validation.exact,
        agrees=validation.agrees,
        checked=len(X) + further.n,
        checked_spread=column_units(X, constant=0.0)[1],
        checked_range=(np.minimum(X.min(axis=0), further.low), np.maximum(X.max(axis=0), further.high)),
        undetected_share=undetected_share(n_normal) if claimed else 1.0,
        undetected_share_of_X=undetected_share(n_rows, len(problem.X)) if claimed else 1.0,
        deviates_at=further.worst,
        input_rounding=validation.input_rounding,
        undetermined=result.best.undetermined,
        redundant_units=validation.redundant,
        stages=problem.log.stages,
        n_queries=problem.oracle.n_queries,
        attempts=result.n_attempts,
        plan=[str(step) for step in steps],
        tried=[(str(step), end) for step, end in result.tried],
        reductions=validation.reductions,
        rejected=validation.rejected,
        route=result.best.method,
        reason=steps[0].reason,
        noise=problem.held_out.relative_noise,
        repeatable=problem.held_out.accuracy.repeatable,
        activation=problem.detected,
        bits=bits,
        probability_error=validation.probability_error,
        lost=validation.lost,
        **{"determined": validation.determined, **result.best.evidence},
    )


class ReportInNotebooks:
    """Mixin: the HTML display of a fitted estimator ends with its report."""

    @property
    def _repr_html_(self):
        diagram = super()._repr_html_  # AttributeError if the display is not a diagram
        return lambda: diagram() + self._report_html()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._report_html()
        return bundle

    def _report_html(self):
        report = getattr(self, "report_", None)
        return "" if report is None else report._repr_html_()
