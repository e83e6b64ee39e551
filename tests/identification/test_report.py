"""How a fitted identifier shows itself."""

import dataclasses
import pickle
import re
import warnings
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.inspection import IdentificationDisplay
from tests.identifiers import make_identifier

NETWORK = make_network((6, 5, 2), bias_scale=0.5, output_activation="identity", random_state=0)
X = np.random.RandomState(0).standard_normal((200, 6))


def fitted(box, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_identifier(box, random_state=0, **{"layer_widths": (5, 2), **options}).fit(X)


EXACT = fitted(lambda X: NETWORK(X))
ROUNDED = fitted(lambda X: NETWORK(X).round(5))
WRONG = fitted(lambda X: NETWORK(X) + 1e-3 * np.sin(3.0 * X[:, :1]), n_attempts=1)


def test_the_judgement():
    assert (EXACT.report_.exact, EXACT.report_.agrees) == (True, True)
    assert (ROUNDED.report_.exact, ROUNDED.report_.agrees) == (False, True)
    assert (WRONG.report_.exact, WRONG.report_.agrees) == (False, False)
    starts = [str(one.report_).split(":")[0] for one in (EXACT, ROUNDED, WRONG)]
    assert starts == ["exact", "agrees to within noise and rounding", "not exact"]
    assert re.fullmatch(r"<exact, error \d\.\de-\d\d>", repr(EXACT.report_))


@pytest.mark.parametrize("identifier", [EXACT, ROUNDED, WRONG], ids=["exact", "rounded", "wrong"])
def test_the_table_adds_up(identifier):
    report = identifier.report_
    lines = str(report).splitlines()
    undetected = lines.pop(1) if report.agrees else f"{report.undetected_share:.2g}"
    assert len(lines) == 3 + 1 + len(report.stages) + 2 and f"{report.undetected_share:.2g}" in undetected
    assert f"relative maximum error {report.relative_max_error:.1e} on {report.checked} held-out samples" in lines[0]
    assert lines[2] == f"activation: {report.activation}"
    assert lines[3].split() == ["stage", "seconds", "queries", "residual"]
    rows = report.rows()
    assert sum(int(row[2]) for row in rows[:-1]) == int(rows[-1][2]) == identifier.n_queries_ == report.n_queries
    for stage, line in zip(report.stages, lines[4:]):
        assert line.startswith(stage.name) and f" {stage.queries}" in line


def test_every_field_is_there_and_none_can_change():
    report = pickle.loads(pickle.dumps(EXACT.report_))
    assert report.exact is True and str(report) == str(EXACT.report_)
    fields = {field.name for field in dataclasses.fields(report)}
    assert {"stages", "route", "noise", "checked_range"} <= fields == set(vars(report)) == set(vars(ROUNDED.report_))
    with pytest.raises(dataclasses.FrozenInstanceError, match="exact"):
        report.exact = False
    with pytest.raises(AttributeError, match="IdentificationReport has no attribute 'relativ_max_error'; did you mean"):
        _ = report.relativ_max_error


class Cells(HTMLParser):
    """Texts of the cells of all tables, and the tags that are open."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.texts.append(data)


def test_html_holds_the_same_table():
    cells = Cells(ROUNDED.report_._repr_html_())
    assert cells.open == []
    assert cells.texts == [text for row in [("stage", "seconds", "queries", "residual"), *ROUNDED.report_.rows()]
                           for text in row if text]  # fmt: skip
    report = dataclasses.replace(ROUNDED.report_, reason="<b>a & b</b>")
    assert "&lt;b&gt;a &amp; b" in report._repr_html_()


def test_notebooks_show_it_below_the_estimator():
    shown, bundle = EXACT._repr_html_(), EXACT._repr_mimebundle_()
    for html in (shown, bundle["text/html"]):
        assert "sk-estimator" in html and html.endswith(EXACT.report_._repr_html_())
    assert "&lt;exact, error" in shown  # in scikit-learn's own table of attributes
    fresh = NetworkIdentifier()
    assert "residual" not in fresh._repr_html_() and "text/html" in fresh._repr_mimebundle_()
    with sklearn.config_context(display="text"):
        assert not hasattr(EXACT, "_repr_html_") and "text/html" not in EXACT._repr_mimebundle_()


def test_ipython_prints_the_table():
    class Printer:
        def text(self, text):
            self.shown = text

    printer = Printer()
    EXACT.report_._repr_pretty_(printer, False)
    assert printer.shown == str(EXACT.report_)


@pytest.fixture
def plt():
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("identifier", [EXACT, ROUNDED], ids=["exact", "rounded"])
def test_plot(identifier, plt):
    display, stages = identifier.report_.plot(), identifier.report_.stages
    assert isinstance(display, IdentificationDisplay)
    assert [bar.get_width() for bar in display.ax_.patches] == [stage.seconds for stage in stages]
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == [stage.name for stage in stages]
    assert [t.get_text().split()[-1] for t in display.ax_.texts] == ["queries"] * len(stages)
    shown = display.residual_ax_.lines[0].get_xdata()
    assert len(shown) == sum(stage.residual is not None for stage in stages)
    assert len(display.residual_ax_.patches) == (identifier is ROUNDED)  # the noise
    display.figure_.canvas.draw()


def test_plot_takes_axes(plt):
    _, pair = plt.subplots(1, 2)
    display = IdentificationDisplay.from_estimator(EXACT, ax=pair, bar_kwargs={"color": "red"})
    assert display.ax_ is pair[0] and display.residual_ax_ is pair[1]
    with pytest.raises(ValueError, match="ax must be None, a matplotlib Axes or a pair"):
        EXACT.report_.plot(ax=3)
    with pytest.raises(TypeError, match="report must be report_ of a fitted NetworkIdentifier, got NoneType"):
        IdentificationDisplay.from_estimator(NetworkIdentifier())


@pytest.mark.parametrize(("widths", "proposed"), [([8], r"\(8, 1\)"), ((8, 5), r"\(8, 5, 1\)")])
def test_widths_without_the_output_are_mended(widths, proposed):
    message = rf"last, the number of outputs: for hidden layers of .* units write layer_widths={proposed}"
    with pytest.raises(ValueError, match=message):
        NetworkIdentifier(lambda X: NETWORK(X)[:, 0], layer_widths=widths, activation="tanh").fit(X)
