"""SingularSpectrumDisplay and EscapeDisplay: what they draw, and what they refuse."""

import matplotlib
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skident import SaddleEscapeAnalyzer, SaddleToSaddleClassifier
from skident.inspection import EscapeDisplay, SingularSpectrumDisplay
from skident.saddle.plateaus import Saddle


class Fitted(BaseEstimator):
    """An estimator of another kind, with the attributes that a Display reads."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def fit(self):
        return self

    def __sklearn_is_fitted__(self):
        return True


@pytest.fixture(autouse=True)
def plt():
    """pyplot that opens no window, and no figure left behind."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture
def trained():
    """Any estimator with the fitted attributes will do."""
    t = np.arange(20.0)
    history = {"steps": t, "losses": 20 - t, "singular_values": [np.outer(t, [2.0, 1.0, 0.5])] * 4}
    saddles = [Saddle(0.0, 20.0, 8.0, (0, 0, 0, 0), (0.9,) * 4), Saddle(15.0, 5.0, None, (1, 1, 1, 1), (0.1,) * 4)]
    return Fitted(record_every=1, history_=history, saddles_=saddles)


def test_a_panel_a_layer_and_a_line_a_singular_value(plt, trained):
    display = SingularSpectrumDisplay.from_estimator(trained, n_singular_values=2)
    assert display.n_layers == len(display.axes_) == 4 and display.figure_ is display.axes_[0].figure
    for ax in display.axes_:
        curves = [line for line in ax.lines if len(line.get_xdata()) == 20]
        assert sorted(line.get_ydata()[-1] for line in curves) == [19.0, 38.0]
        assert [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2] == [8.0]
    _, given = plt.subplots(1, 4)
    assert SingularSpectrumDisplay.from_estimator(trained, ax=given).axes_ == list(given)
    with pytest.raises(ValueError, match="4 matplotlib Axes"):
        SingularSpectrumDisplay.from_estimator(trained, ax=given[:2])


def test_the_loss_with_its_saddles(trained):
    display = EscapeDisplay.from_estimator(trained)
    assert [text.get_text() for text in display.ax_.texts] == ["origin", "ranks 1,1,1,1"]
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in display.ax_.lines if line.get_marker() == "o"]
    assert dots == [(0.0, 20.0), (15.0, 5.0)]


def test_speeds_of_restarts_without_the_dead():
    analyzer = Fitted(n_starts=4, restart_speeds_=np.array([0.2, np.nan, 0.5, 0.3]), shallow_speed_=0.4)
    display = EscapeDisplay.from_estimator(analyzer, line_kwargs={"color": "k"})
    points, shallow = display.ax_.lines
    np.testing.assert_array_equal(points.get_ydata(), [0.5, 0.3, 0.2])
    assert shallow.get_ydata()[0] == 0.4 and points.get_color() == "k"


@pytest.mark.parametrize("display", [EscapeDisplay, SingularSpectrumDisplay])
def test_what_they_do_not_draw(display):
    with pytest.raises(TypeError, match="SaddleToSaddleClassifier"):
        display.from_estimator(object())
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        display.from_estimator(SaddleToSaddleClassifier())


def test_an_analyzer_must_be_fitted():
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        EscapeDisplay.from_estimator(SaddleEscapeAnalyzer())
