"""Displays: what they store, what they draw, what they refuse."""

import os
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skident import EntangledWeightExtractor, NetworkIdentifier
from skident.datasets import make_network
from skident.inspection import SpectrumDisplay, WeightRecoveryDisplay
from skident.network import FeedforwardNetwork

EPS = np.finfo(float).eps


@pytest.fixture(autouse=True)
def plt():
    """pyplot that opens no window, and no figure left behind."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def extractor():
    network = make_network((10, 8, 3), random_state=5000)
    X = np.random.default_rng(0).standard_normal((200, 10))
    return EntangledWeightExtractor(network, layer_widths=(8, 3), first_layer="hessian", random_state=0).fit(X)


def scrambled(network, error=0.0):
    """The same function with the first hidden layer's units reversed and flipped, and one weight off by `error`."""
    W, b = [w.copy() for w in network.weights], [s.copy() for s in network.biases]
    W[0], b[0], W[1] = -W[0][:, ::-1], -b[0][::-1], -W[1][::-1]
    W[-1][0, 0] += error
    return FeedforwardNetwork(W, b, network.activation, network.output_activation)


# -- WeightRecoveryDisplay ---------------------------------------------------------------------------------------------


def test_weights_are_aligned_before_they_are_compared():
    truth = make_network((6, 4, 2), random_state=5001)
    display = WeightRecoveryDisplay.from_networks(truth, scrambled(truth))
    assert display.max_error == 0.0
    assert [len(w) for w in display.true_weights] == [24, 8]
    assert [len(s) for s in display.recovered_shifts] == [4, 2]


def test_max_error_is_the_worst_of_all_layers():
    truth = make_network((6, 4, 2), random_state=5001)
    assert WeightRecoveryDisplay.from_networks(truth, scrambled(truth, 1e-3)).max_error == pytest.approx(1e-3)


def test_a_layer_has_one_colour_and_errors_stay_on_the_log_axis():
    truth = make_network((6, 4, 2), random_state=5001)
    display = WeightRecoveryDisplay.from_networks(truth, scrambled(truth, 1e-3))
    clouds = [line for line in display.ax_.lines if line.get_label().startswith("layer")]
    assert [line.get_label() for line in clouds] == [
        "layer 1, weights",
        "layer 1, shifts",
        "layer 2, weights",
        "layer 2, shifts",
    ]
    colors = [line.get_color() for line in clouds]
    assert colors[0] == colors[1] != colors[2] == colors[3]
    errors = np.concatenate([line.get_ydata() for line in display.error_ax_.lines[: len(clouds)]])
    assert errors.min() == EPS and errors.max() == pytest.approx(1e-3)
    low, high = display.error_ax_.get_ylim()
    assert display.error_ax_.get_yscale() == "log" and low < EPS and high > 1e-3


@pytest.mark.parametrize("kind", ["none", "one", "two"])
def test_plot_draws_where_it_is_told(plt, kind):
    truth = make_network((5, 3, 1), random_state=5002)
    figure, axes = plt.subplots(1, 2)
    ax = {"none": None, "one": axes[0], "two": axes}[kind]
    display = WeightRecoveryDisplay.from_networks(truth, truth, ax=ax)
    assert (display.figure_ is figure) == (kind != "none")
    if kind == "two":
        assert [display.ax_, display.error_ax_] == list(axes)
    assert display.plot() is display and display.figure_ is not figure
    display.figure_.canvas.draw()


def test_plot_takes_artist_arguments():
    truth = make_network((5, 3, 1), random_state=5002)
    kwargs = {"scatter_kwargs": {"markersize": 2}, "line_kwargs": {"color": "red"}}
    display = WeightRecoveryDisplay.from_networks(truth, truth, **kwargs)
    line, cloud = display.ax_.lines[:2]
    assert line.get_color() == "red" and cloud.get_markersize() == 2


def test_networks_of_another_kind_are_refused():
    truth = make_network((5, 3, 1), random_state=5002)
    with pytest.raises(TypeError, match="network must be a FeedforwardNetwork, got str"):
        WeightRecoveryDisplay.from_networks(truth, "network")
    with pytest.raises(ValueError, match="one architecture"):
        WeightRecoveryDisplay.from_networks(truth, make_network((5, 4, 1), random_state=0))


@pytest.mark.parametrize("ax", ["here", [None, None], [1, 2, 3]])
def test_other_axes_are_refused(ax):
    truth = make_network((5, 3, 1), random_state=5002)
    with pytest.raises(ValueError, match="ax must be None, a matplotlib Axes or a pair"):
        WeightRecoveryDisplay.from_networks(truth, truth, ax=ax)


def test_axes_placed_by_hand_cannot_be_split(plt):
    truth = make_network((5, 3, 1), random_state=5002)
    with pytest.raises(ValueError, match="pass a pair of Axes"):
        WeightRecoveryDisplay.from_networks(truth, truth, ax=plt.figure().add_axes((0.1, 0.1, 0.8, 0.8)))


# -- SpectrumDisplay ---------------------------------------------------------------------------------------------------


def test_spectrum_is_cut_at_m(extractor):
    display = SpectrumDisplay.from_estimator(extractor)
    kept, left_out = display.ax_.lines[:2]
    assert display.n_weights == 11 == len(kept.get_xdata())
    assert kept.get_ydata()[0] == 1.0 and kept.get_ydata()[-1] > left_out.get_ydata()[0]
    assert display.ax_.get_yscale() == display.phi_ax_.get_yscale() == "log"


def test_components_are_drawn_by_layer(extractor):
    display = SpectrumDisplay.from_estimator(extractor)
    first, last = (line for line in display.phi_ax_.lines if line.get_label().startswith("layer"))
    np.testing.assert_array_equal(first.get_xdata(), np.arange(1, 9))
    np.testing.assert_allclose(last.get_ydata(), 1 - extractor.phi_[8:])
    assert first.get_color() != last.get_color()


def test_components_that_hessians_do_not_show_are_left_out():
    display = SpectrumDisplay(
        singular_values=np.array([2.0, 1.0, 1e-5, 0.0]),
        n_weights=2,
        phi=np.array([1.0, 0.5, np.nan]),
        layers=np.array([0, -1, 2]),
    ).plot(spectrum_kwargs={"markersize": 3}, phi_kwargs={"marker": "s"})
    labels = [line.get_label() for line in display.phi_ax_.lines]
    assert labels[:2] == ["layer 1", "inner layers"] and "layer 3" not in labels
    assert display.phi_ax_.lines[0].get_ydata()[0] == EPS
    assert len(display.ax_.lines[1].get_xdata()) == 1
    display.figure_.canvas.draw()


def test_one_axes_is_split(plt, extractor):
    figure, axes = plt.subplots(2, 2)
    display = SpectrumDisplay.from_estimator(extractor, ax=axes[0, 0])
    assert display.figure_ is figure and len(figure.axes) == 6


def test_what_has_no_spectrum_is_refused(extractor):
    X = np.random.default_rng(0).standard_normal((50, 10))
    saturated = EntangledWeightExtractor(extractor.estimator_, layer_widths=(8, 3), random_state=0).fit(X)
    with pytest.raises(ValueError, match="sampled no Hessians"):
        SpectrumDisplay.from_estimator(saturated)
    with pytest.raises(NotFittedError):
        SpectrumDisplay.from_estimator(EntangledWeightExtractor())
    with pytest.raises(TypeError, match="must be an EntangledWeightExtractor, got NetworkIdentifier"):
        SpectrumDisplay.from_estimator(NetworkIdentifier())


# -- matplotlib --------------------------------------------------------------------------------------------------------


def test_importing_the_displays_does_not_import_matplotlib():
    code = "import sys, skident.inspection; assert 'matplotlib' not in sys.modules"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_missing_matplotlib_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    truth = make_network((5, 3, 1), random_state=5002)
    with pytest.raises(ImportError, match="WeightRecoveryDisplay needs matplotlib"):
        WeightRecoveryDisplay.from_networks(truth, truth)
