"""The report of an audit: verdict, differences, and what would have been missed."""

from dataclasses import dataclass, field
from math import ceil, floor, log10

import numpy as np

from skident.base.report import ReportMixin

from .quantized import KIND

IDENTICAL = "identical files"  # the kind of an audit that needs no query

_SIZES = (1e-6, 1e-4, 1e-2)  # relative changes of which a report states how surely they would have shown
_LISTED = 10  # differences that a printed report lists
_NOT_REPEATED = "  outputs do not repeat: dropout in training mode (call .eval() on the model), or sampling"
_ABOVE = 2.0  # of the tolerance, that a recommended `tol` is: noise measured again is less than twice as large


@dataclass(frozen=True)
class Difference:
    """A weight, a bias or a unit that the black box has otherwise.

    Attributes
    ----------
    layer : int
        0 for the first.
    row : int or None
        Of ``weights[layer]``; None for a bias, or for a unit as a whole.
    unit : int
        Column of ``weights[layer]``, entry of ``biases[layer]``.
    known, found : float
        In the network and in the black box; NaN for a unit as a whole.
    removed : bool
        Whether it is a unit without effect in the black box.
    """

    layer: int
    row: int | None
    unit: int
    known: float
    found: float
    removed: bool = False

    def __str__(self):
        if self.removed:
            return f"unit {self.unit} of hidden layer {self.layer + 1}: without effect in the black box"
        return f"{self.name}: {self.known:.10g} in the network, {self.found:.10g} in the black box"

    @property
    def name(self):
        """The entry of the network's arrays that it is."""
        if self.removed:
            return f"unit {self.unit} of weights[{self.layer}]"
        if self.row is None:
            return f"biases[{self.layer}][{self.unit}]"
        return f"weights[{self.layer}][{self.row}, {self.unit}]"


@dataclass(frozen=True, kw_only=True)
class AuditReport(ReportMixin):
    """Whether a black box is the network that is known, how it was queried, and what remains unseen.

    Attributes
    ----------
    same : bool or None
        True if all outputs agree within a tolerance that other networks would exceed, False if an output differs.
        None if the audit is undecided: outputs agree, but their tolerance is so wide that those of other networks would
        agree as well, or no output could be compared. ``if report.same`` is safe, since undecided does not pass. Use
        `verdict`, or ``report.same is False``, to treat different and undecided models in different ways.
    differences : list of Difference
        The fewest changes of the network with which it agrees with the black box. Empty if they are the same, or if
        no few changes explain how they differ.
    causes : list of Cause
        Ordinary causes of the differences, where no change of one weight or unit explains them: all that explain every
        output, the one with the fewest fitted numbers first; if there is none, those that leave at most half of the
        differences, the nearest first.
    instead : list of Difference
        Single changes that would explain the outputs as well as the one in `differences`.
    largest : float
        Largest difference of an output.
    excess : float
        The same over its tolerance: 1 or less where the outputs are the same.
    input : ndarray of shape (D,)
        Where the difference is largest beside its tolerance.
    kind : {"float64", "float32", "float16", "bfloat16", "decimals", "noise", "identical files"}
        The precision of the outputs, weights or inputs of the less precise of the two, which sets the tolerance.
        ``identical files``: both are ONNX files with the same content, which need no query.
    n_queries : int
        Rows queries.
    n_inputs : int
        Number of distinct samples at which outputs were compared.
    unseen_units : list of (layer, unit)
        Hidden units that do not move at any input tried within the range of X: nothing is known of them.
    constant_columns : ndarray of int
        Columns of X that do not vary: weights on them cannot be distinguished from biases.
    visible : list of ndarray
        ``visible[l]`` of shape (m_l + 1, m_{l+1}): the smallest relative change of every weight (last row: bias) that
        would have shown in an output; infinite where none would.
    excesses : ndarray of shape (n_inputs, m_L)
        Differences of all outputs over their tolerance.
    relative_tolerance : float
        Median tolerance over the standard deviation of the outputs, for the least precise output.
    batch_dependent : bool
        Whether outputs depend on the other rows of a batch, as with dynamic quantization. If so, rows were queried one
        at a time, and the report is about single rows.
    casts_inputs : bool
        Whether the black box rounds its inputs to float32, although its outputs are in double precision.
    data_rows : tuple of (int, int, int), or None
        Rows of X that were queried, rows of X in all, and rows among the queried ones at which an output differs.
    bits : tuple of (int, int), or None
        If they are the same and the known weights are float32 numbers: how many of the weights that are not 0 would
        have shown a change of their last bit, and the number of these weights. If it is all of them, the black box has
        the same weights, or several weights differ in a way that no output shows; else only the same function.
    """

    same: bool | None
    differences: list = field(default_factory=list)
    causes: list = field(default_factory=list)
    instead: list = field(default_factory=list)
    largest: float = 0.0
    excess: float = 0.0
    input: np.ndarray = field(repr=False)
    kind: str
    n_queries: int = 0
    n_inputs: int = 0
    unseen_units: list = field(default_factory=list)
    constant_columns: np.ndarray = field(repr=False)
    visible: list = field(default_factory=list, repr=False)
    excesses: np.ndarray = field(default_factory=lambda: np.zeros((0, 1)), repr=False)
    relative_tolerance: float = 0.0
    batch_dependent: bool = False
    casts_inputs: bool = False
    data_rows: tuple[int, int, int] | None = None
    bits: tuple[int, int] | None = None

    @property
    def verdict(self):
        """``the same``, ``the quantized reference``, ``different`` or ``undecided``."""
        if self.same is False and self.causes and self.causes[0].kind == KIND and self.causes[0].explains:
            return f"the {KIND}"
        return {True: "the same", False: "different", None: "undecided"}[self.same]

    def missed(self, size):
        """Probability that the change of one weight, drawn evenly from those that are not 0, would not have shown.

        Parameters
        ----------
        size : float
            Relative change, 0.01 for one per cent.

        Returns
        -------
        float
        """
        if self.kind == IDENTICAL:
            return 0.0
        sizes = np.concatenate([v.ravel() for v in self.visible])
        sizes = sizes[~np.isnan(sizes)]
        return float(np.mean(sizes > size)) if len(sizes) else 1.0

    def to_dict(self):
        """The report in numbers, lists and strings only, as for JSON.

        Returns
        -------
        dict
        """
        as_they_are = ("verdict", "same", "largest", "excess", "kind", "n_queries", "n_inputs")
        as_they_are += ("batch_dependent", "casts_inputs")
        return {name: getattr(self, name) for name in as_they_are} | {
            "differences": [_as_dict(d) for d in self.differences],
            "instead": [_as_dict(d) for d in self.instead],
            "causes": [{"kind": c.kind, "text": c.text, "explains": c.explains, "share": c.share} for c in self.causes],
            "input": [float(x) for x in self.input],
            "relative_tolerance": self.relative_tolerance if np.isfinite(self.relative_tolerance) else None,
            "data_rows": None if self.data_rows is None else [int(n) for n in self.data_rows],
            "bits": None if self.bits is None else list(self.bits),
            "unseen_units": [[int(k) for k in unit] for unit in self.unseen_units],
            "constant_columns": [int(c) for c in self.constant_columns],
            "missed": {f"{size:g}": self.missed(size) for size in _SIZES},
        }

    def lines(self):
        """Verdict, evidence and scope of the audit.

        Returns
        -------
        list of str
        """
        return [*self._finding(), *self._scope()]

    def _finding(self):
        if self.kind == IDENTICAL:
            return ["the same: both files hold the same ONNX model, so it was not queried"]
        if self.same is None:
            return self._undecided()
        if self.same:
            agree = f"{self.n_inputs} outputs agree, the worst to {self.excess:.2g} of its tolerance"
            return [f"the same: {agree}", *self._bits_line()]
        if self.verdict == f"the {KIND}":
            of_itself = f"  outputs differ from those of the reference itself by up to {self.largest:.3g}"
            return [self.causes[0].text, of_itself, *(f"  or else: {cause}" for cause in self.causes[1:])]
        lines = [f"different: by {self.largest:.3g}, {self.excess:.3g} times the tolerance"]
        if self.batch_dependent:
            lines.append("  likely cause: dynamic quantization, since outputs depend on the other rows of a batch")
        lines += [f"  {d}" for d in self.differences[:_LISTED]]
        more = len(self.differences) - _LISTED
        lines += [f"  and {more} more"] if more > 0 else []
        lines += [f"  or else {d}" for d in self.instead[:_LISTED]]
        if self.differences:
            return lines
        if any(cause.explains for cause in self.causes):
            return [*lines, *(f"  {'or else' if k else 'cause'}: {cause}" for k, cause in enumerate(self.causes))]
        nearest = [f"  {'or' if k else 'nearest cause'}: {cause}" for k, cause in enumerate(self.causes)]
        return [*lines, "  no change of one unit, of few weights or ordinary cause explains it", *nearest]

    def _bits_line(self):
        if self.bits is None:
            return []
        shown, total = self.bits
        of = f"the last bit of {shown:,} of {total:,} float32 weights"
        if shown == total:
            return [f"  the same file: a change of {of} would have shown"]
        return [f"  the same function, perhaps another file: a change of {of} would have shown"]

    def _undecided(self):
        """What happened, the likely cause, and what to set."""
        if not np.isfinite(self.relative_tolerance):
            return ["undecided: no output could be compared"]
        size = _ABOVE * self.relative_tolerance
        digit = 10.0 ** floor(log10(size))
        lines = [
            f"undecided: {self.n_inputs} outputs agree, but those of a network with other weights would agree as well",
            f"  likely cause: the outputs' precision ({self.kind}) is {self.relative_tolerance:.2g} of their deviation",
            *([f"  cause: {cause}" for cause in self.causes] or [_NOT_REPEATED] * (self.kind == "noise")),
        ]
        if self.causes or self.kind == "noise" and self.relative_tolerance > 1.0:  # no tolerance to recommend
            return lines
        setting = (
            f"  set tol={ceil(size / digit) * digit:.1g} if differences of this share of the deviation do not matter"
        )
        return [*lines, setting]

    def _remarks(self):
        lines = []
        if self.batch_dependent:
            lines.append("outputs depend on the other rows of a batch; rows were queried one at a time")
        if self.kind == "noise" and self.same is False and not self.causes:
            lines.append(_NOT_REPEATED.strip())
        if self.casts_inputs:
            lines.append("the black box rounds its inputs to float32, which counts as its precision")
        return lines

    def _scope(self):
        if self.kind == IDENTICAL:
            return []
        queried, given, differing = self.data_rows or (0, 0, 0)
        rows = f"; {queried:,} of {given:,} rows of X" + (f", of which {differing:,} differ" if differing else "")
        chances = ", ".join(f"{size:g}: {self.missed(size):.3g}" for size in _SIZES)
        lines = [
            *self._remarks(),
            f"{self.n_queries} queries{rows}; outputs: {self.kind}",
            f"share of single weights whose relative change would have been missed, by its size: {chances}",
        ]
        if self.unseen_units:
            named = ", ".join(f"{unit} of layer {layer + 1}" for layer, unit in self.unseen_units[:_LISTED])
            lines.append(f"never moving within the range of X, so unseen: {len(self.unseen_units)} units ({named})")
        if len(self.constant_columns):
            lines.append(f"{len(self.constant_columns)} columns of X are constant: weights not separate from biases")
        return lines


def _as_dict(difference):
    numbers = {k: None if np.isnan(v) else v for k, v in (("known", difference.known), ("found", difference.found))}
    place = {"layer": difference.layer, "row": difference.row, "unit": difference.unit}
    return {"name": difference.name, **place, **numbers, "removed": difference.removed}
