"""What reports have in common: a finding, a table, and both as HTML for notebooks, in light and dark."""

from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from functools import cache
from html import escape

import numpy as np

from .progress import Stage

_TABLE = "border-collapse: collapse; margin: 0.5em 0"  # no colors: those of the notebook hold, light or dark
_CELL = "padding: 0.1em 0.8em; text-align: {}"


def table_lines(rows):
    """Rows of a table as aligned text: the first column left, the others right; the first row holds titles."""
    first, *others = (max(len(row[i]) for row in rows) for i in range(len(rows[0])))
    return [f"{row[0]:<{first}}  {'  '.join(f'{c:>{w}}' for c, w in zip(row[1:], others))}".rstrip() for row in rows]


def table_html(rows):
    """Rows of a table as HTML that inherits all colors; the first row holds titles."""
    made = [_row("td" if i else "th", row) for i, row in enumerate(rows)]
    return f'<table style="{_TABLE}">{"".join(made)}</table>'


def _row(kind, cells):
    sides = ("left", *["right"] * (len(cells) - 1))
    style = "; border-bottom: 1px solid" if kind == "th" else ""
    made = (f'<{kind} style="{_CELL.format(side)}{style}">{escape(c)}</{kind}>' for side, c in zip(sides, cells))
    return f"<tr>{''.join(made)}</tr>"


class ReportMixin:
    """Printing and display of a report, from `lines` (its finding), and `rows` of a table under `titles`."""

    titles = ()

    def __getattr__(self, name):
        near = get_close_matches(name, [known for known in dir(type(self)) if known[0] != "_"] + list(vars(self)), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{meant}", name=name, obj=self)

    def lines(self):
        """The result, a sentence per line.

        Returns
        -------
        list of str
        """
        return []

    def rows(self):
        """The rows of the table; empty strings for absent values.

        Returns
        -------
        list of tuple of str
        """
        return []

    def __str__(self):
        rows = self.rows()
        return "\n".join([*self.lines(), *(table_lines([self.titles, *rows]) if rows else [])])

    def _repr_pretty_(self, printer, cycle):
        """What IPython prints."""
        printer.text(f"{type(self).__name__}(...)" if cycle else str(self))

    def _repr_html_(self):
        """What notebooks show."""
        rows = self.rows()
        head = "".join(f'<div style="white-space: pre-wrap">{escape(line)}</div>' for line in self.lines())
        return f"<div>{head}{table_html([self.titles, *rows]) if rows else ''}</div>"


@dataclass(frozen=True)
class StageReport(ReportMixin):
    """The stages of a fit: name, seconds, queries and residual of each; prints as a table.

    Attributes
    ----------
    stages : list of Stage
    """

    stages: list[Stage]

    titles = ("stage", "seconds", "queries", "residual")

    def rows(self):
        """The rows of the table: stages, queries besides if there are any, and the total.

        Returns
        -------
        list of tuple of 4 str
            Name, seconds, queries and residual; empty where there is none.
        """
        seconds, queries = sum(s.seconds for s in self.stages), sum(s.queries for s in self.stages)
        total = getattr(self, "n_queries", queries)
        return [
            *((s.name, f"{s.seconds:.2f}", f"{s.queries}", _residual(s.residual)) for s in self.stages),
            *([("detection and validation", "", f"{total - queries}", "")] if total > queries else []),
            ("total", f"{seconds:.2f}", f"{total}", ""),
        ]


def _residual(value):
    return "" if value is None else f"{value:.1e}"


class _FitReport(ReportMixin):
    """Results of a fit, a row a field: fitted attributes without their underscore, None where there is none."""

    titles = ("result", "value")

    def rows(self):
        """Names and values.

        Returns
        -------
        list of tuple of 2 str
        """
        return [(f.name, _shown(getattr(self, f.name))) for f in fields(self)]


def _shown(value):
    """A value in a few characters: an array of many entries is its shape, a report its first line."""
    if isinstance(value, ReportMixin):
        return value.lines()[0]
    if isinstance(value, list) and value and is_dataclass(value[0]):
        return f"{len(value)} of {type(value[0]).__name__}"
    if np.ndim(value) and np.size(value) > 6:
        return f"array of shape {np.shape(value)}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return np.array2string(value, precision=3, separator=", ") if isinstance(value, np.ndarray) else str(value)


@cache
def _report_class(kind):
    names = [name.rstrip("_") for name in kind._reported]
    return make_dataclass(f"{kind.__name__}Report", names, bases=(_FitReport,), frozen=True, eq=False)


def fit_report(estimator):
    """A frozen dataclass of the fitted attributes that ``_reported`` names."""
    return _report_class(type(estimator))(*(getattr(estimator, name, None) for name in estimator._reported))
