"""The report of an identification: result of the validation, plan, stages; as a table, HTML and a picture."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch

from skident.base.report import ReportMixin
from skident.base.undetected import CONFIDENCE, undetected_share
from skident.linalg import column_units

__all__ = ["IdentificationReport", "ReportInNotebooks", "report_of"]


class IdentificationReport(ReportMixin, Bunch):
    """The entries of `NetworkIdentifier.report_`; prints as a table, displays in notebooks, and draws itself (`plot`).

    Parameters
    ----------
    **entries
        As `NetworkIdentifier` describes them; ``exact``, ``agrees``, ``relative_max_error``, ``checked``, ``noise``,
        ``route``, ``reason``, ``attempts``, ``n_queries`` and ``stages`` are shown.

    Examples
    --------
    >>> from skident.identification import IdentificationReport
    >>> stage = {"name": "polish", "seconds": 0.25, "queries": 98, "residual": 3e-16}
    >>> report = IdentificationReport(
    ...     exact=True,
    ...     agrees=True,
    ...     relative_max_error=2e-15,
    ...     checked=200,
    ...     noise=0.0,
    ...     route="saturation",
    ...     reason="one hidden layer",
    ...     attempts=1,
    ...     n_queries=300,
    ...     stages=[stage],
    ... )
    >>> print(report)
    exact: relative maximum error 2.0e-15 on 200 held-out samples
    method: saturation (one hidden layer), 1 attempt
    stage                     seconds  queries  residual
    polish                       0.25       98   3.0e-16
    detection and validation               202
    total                        0.25      300
    """

    titles = ("stage", "seconds", "queries", "residual")
    optional = (
        "activation",
        "bits",
        "deviates_at",
        "explained",
        "lost",
        "probability_error",
        "sign_doubt",
        "undetected_share",
        "undetected_share_of_X",
        "undetermined",
    )

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
        seen, bits, left = self.get("activation"), self.get("bits"), self.get("undetermined")
        if self.route == "labels":  # a basis (k, F, K)
            left = f"{len(left)} combinations of output weights" if len(left) else None
        error = f"relative maximum error {self.relative_max_error:.1e} on {self.checked} held-out samples{noise}"
        return [
            f"{validated}: {error}",
            *self._undetected(),
            f"method: {self.route} ({self.reason}), {attempts}",
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

    def rows(self):
        """The rows of the table: stages, other queries, and the total.

        Returns
        -------
        list of tuple of 4 str
            Name, seconds, queries and residual; empty where there is none.
        """
        stages = [
            (
                s["name"],
                f"{s['seconds']:.2f}",
                f"{s['queries']}",
                "" if s["residual"] is None else f"{s['residual']:.1e}",
            )
            for s in self.stages
        ]
        seconds, queries = (sum(s[key] for s in self.stages) for key in ("seconds", "queries"))
        stages.append(("detection and validation", "", f"{self.n_queries - queries}", ""))
        return [*stages, ("total", f"{seconds:.2f}", f"{self.n_queries}", "")]

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
    report = IdentificationReport(
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
        route=result.best.method,
        reason=steps[0].reason,
        noise=problem.held_out.relative_noise,
        repeatable=problem.held_out.accuracy.repeatable,
        activation=problem.detected,
        bits=bits,
        **{"determined": validation.determined, **result.best.evidence},  # within input_range: the determined share
    )
    if validation.probability_error is not None:
        report.update(probability_error=validation.probability_error, lost=validation.lost)
    return report


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
