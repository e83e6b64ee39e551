"""Reports print, display as HTML in any colors, and have all their fields."""

import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skident import (
    HierarchicalQuadraticNet,
    NetworkCompressor,
    NetworkIdentifier,
    PassiveNetworkIdentifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
    landscape_certificate,
    verify_same,
)
from skident.base.report import ReportMixin, table_lines
from skident.datasets import make_network

NETWORK = make_network((3, 2, 1), output_activation="identity", random_state=0)
X = np.random.default_rng(0).standard_normal((300, 3))


def passive():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PassiveNetworkIdentifier(layer_widths=(2, 1), random_state=0).fit(X, NETWORK(X).ravel()).report_


def fitted(estimator):
    def report():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return estimator.fit(X, NETWORK(X).ravel()).report_

    return report


FITTED = (
    HierarchicalQuadraticNet((2, 2), n_starts=1, max_iter=5, random_state=0),
    QuadraticNetRegressor(),
    SaddleEscapeAnalyzer(random_state=0, max_iter=20),
    SaddleToSaddleRegressor(max_iter=20, random_state=0),
    TensorReLURegressor(n_units=2, random_state=0),
)
REPORTS = {
    **{type(estimator).__name__: fitted(estimator) for estimator in FITTED},
    "compression": lambda: NetworkCompressor(NETWORK, random_state=0).fit(X).report_,
    "identification": lambda: NetworkIdentifier(NETWORK, random_state=0).fit(X).report_,
    "passive": passive,
    "audit": lambda: verify_same(NETWORK, NETWORK, X, random_state=0),
    "certificate": lambda: landscape_certificate(np.zeros((2, 3)), np.ones(2), X, NETWORK(X).ravel()),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_reports_are_of_one_kind(kind):
    report = REPORTS[kind]()
    html = report._repr_html_()
    assert isinstance(report, ReportMixin) and str(report).splitlines()[: len(report.lines())] == report.lines()
    assert all(len(row) == len(report.titles) for row in report.rows()) and "<div" in html
    assert "color" not in html and "background" not in html  # those of the notebook, light or dark
    with pytest.raises(AttributeError, match="nowhere"):
        report.nowhere  # noqa: B018
    assert len(repr(report)) < 2000
    assert dataclasses.is_dataclass(report) and all(hasattr(report, f.name) for f in dataclasses.fields(report))


@pytest.mark.parametrize("kind", REPORTS)
def test_a_misspelled_field_names_the_one_that_was_meant(kind):
    report = REPORTS[kind]()
    name = dataclasses.fields(report)[0].name
    with pytest.raises(AttributeError, match=f"did you mean '{name}'"):
        getattr(report, f"{name}s")


def test_reports_of_fits_have_every_field_before_and_after():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        QuadraticNetRegressor().report_  # noqa: B018
    report = REPORTS["HierarchicalQuadraticNet"]()
    assert report.held_out_score is None and report.n_iter >= 1 and report.widths == (2, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="n_iter"):
        report.n_iter = 3


def test_tables_are_aligned():
    assert table_lines([("a", "b"), ("longer", "1")]) == ["a       b", "longer  1"]
