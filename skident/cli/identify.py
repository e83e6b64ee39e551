"""``skident identify``: recover the network in a file from its outputs alone."""

from __future__ import annotations

import dataclasses
import warnings
from html import escape
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from skident.identification import NetworkIdentifier
from skident.oracle import OutOfBudgetError
from skident.oracle.black_box import n_inputs_of

from .models import black_box_from, check_destination, write_network
from .results import FOUND, NOT_FOUND, Result
from .tables import read_table

__all__ = ["identify"]
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
pre {{ overflow-x: auto; background: #f4f4f4; padding: 1em }}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def identify(options, box=None):
    """Identify the network in a file, and write it if it agrees with the black box up to noise and rounding."""
    check_destination(options.output)
    check_destination(options.report, (".html", ".htm"))
    box = black_box_from(options.model) if box is None else box
    X, names = read_table(options.data, n_inputs_of(box))
    identifier = NetworkIdentifier(
        box,
        layer_widths=options.widths,
        activation=options.activation,
        output_activation=options.output_activation,
        response_method=options.response,
        input_range=options.input_range,
        tol=options.tol,
        max_seconds=options.max_seconds,
        max_queries=options.max_queries,
        weight_dtype=options.weight_dtype,
        n_jobs=options.jobs,
        random_state=options.seed,
        verbose=0 if options.quiet else 1,
    )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            identifier.fit(X)
    except ValueError as error:
        if not isinstance(error.__cause__, OutOfBudgetError):
            raise
        return Result(NOT_FOUND, f"not identified: {error}", {"identified": False, "warning": str(error)})
    notes = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
    return _result(options, identifier, names, notes)


def _result(options, identifier, names, notes):
    """Result of a fit, after writing the network and the page."""
    network, report = identifier.network_, identifier.report_
    written, before = None, identifier._reduced_outputs
    if options.output is not None and report.agrees and before is None:
        write_network(network, options.output)
        written = options.output
    elif options.output is not None:
        reason = "the network was not identified" if before is None or not report.agrees else f"it lacks the {before}"
        notes = [*notes, f"{options.output} was not written, since {reason}."]
    text = f"{network.summary()}\n\n{report}"
    if options.report is not None:
        parameters = network.to_frame(stderr=identifier.stderr_, feature_names=names).to_string()
        parts = [("Network", network.summary(), False), ("Identification", report._repr_html_(), True)]
        parts += [("Notes", "\n".join(notes), False)] if notes else []
        write_page(options.report, f"{options.model}, identified", [*parts, ("Parameters", parameters, False)])
    numbers = {
        "identified": report.agrees,
        "layer_widths": network.layer_widths,
        "activation": network.activation,
        "output_activation": network.output_activation,
        "report": dataclasses.asdict(report),
        "warning": " ".join(notes) or None,
        "written": written,
    }
    return Result(FOUND if report.agrees else NOT_FOUND, text, numbers, notes)


def write_page(path, title, parts):
    """Write a page; `parts` are (heading, content, whether the content is HTML)."""
    shown = (
        f"<h2>{escape(heading)}</h2>\n{content if is_html else f'<pre>{escape(content)}</pre>'}"
        for heading, content, is_html in parts
    )
    page = _PAGE.format(title=escape(title), body="\n".join(shown))
    Path(path).write_text(page, encoding="utf-8")
