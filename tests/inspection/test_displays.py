"""Displays: what they store, what they draw, what they refuse."""

import os
import subprocess
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skident import (
    EntangledWeightExtractor,
    NetworkIdentifier,
    NetworkVerifier,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
)
from skident.datasets import make_network
from skident.inspection import (
    AuditDisplay,
    EscapeDisplay,
    LandscapeDisplay,
    PhaseTransitionDisplay,
    SingularSpectrumDisplay,
    SpectrumDisplay,
    WeightRecoveryDisplay,
)
from skident.landscape import TrainingTrials, landscape_certificate, phase_transition
from skident.landscape.descent import descend
from skident.landscape.phase_transitions import fit_transition
from skident.landscape.problem import QuadraticProblem
from skident.network import FeedforwardNetwork, get_activation
from skident.saddle.plateaus import Saddle

# -- displays ----------------------------------------------------------------------------------------------------------


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
    network = make_network((10, 8, 3), random_state=0)
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
    truth = make_network((6, 4, 2), random_state=1)
    display = WeightRecoveryDisplay.from_networks(truth, scrambled(truth))
    assert display.max_error == 0.0
    assert [len(w) for w in display.true_weights] == [24, 8]
    assert [len(s) for s in display.recovered_biases] == [4, 2]


def test_max_error_is_the_worst_of_all_layers():
    truth = make_network((6, 4, 2), random_state=1)
    assert WeightRecoveryDisplay.from_networks(truth, scrambled(truth, 1e-3)).max_error == pytest.approx(1e-3)


def test_a_layer_has_one_color_and_errors_stay_on_the_log_axis():
    truth = make_network((6, 4, 2), random_state=1)
    display = WeightRecoveryDisplay.from_networks(truth, scrambled(truth, 1e-3))
    clouds = [line for line in display.ax_.lines if line.get_label().startswith("layer")]
    assert [line.get_label() for line in clouds] == [
        "layer 1, weights",
        "layer 1, biases",
        "layer 2, weights",
        "layer 2, biases",
    ]
    colors = [line.get_color() for line in clouds]
    assert colors[0] == colors[1] != colors[2] == colors[3]
    errors = np.concatenate([line.get_ydata() for line in display.error_ax_.lines[: len(clouds)]])
    assert errors.min() == EPS and errors.max() == pytest.approx(1e-3)
    low, high = display.error_ax_.get_ylim()
    assert display.error_ax_.get_yscale() == "log" and low < EPS and high > 1e-3


@pytest.mark.parametrize("kind", ["none", "one", "two"])
def test_plot_draws_where_it_is_told(plt, kind):
    truth = make_network((5, 3, 1), random_state=2)
    figure, axes = plt.subplots(1, 2)
    ax = {"none": None, "one": axes[0], "two": axes}[kind]
    display = WeightRecoveryDisplay.from_networks(truth, truth, ax=ax)
    assert (display.figure_ is figure) == (kind != "none")
    if kind == "two":
        assert [display.ax_, display.error_ax_] == list(axes)
    assert display.plot() is display and display.figure_ is not figure
    display.figure_.canvas.draw()


def test_plot_takes_artist_arguments():
    truth = make_network((5, 3, 1), random_state=2)
    kwargs = {"scatter_kwargs": {"markersize": 2}, "line_kwargs": {"color": "red"}}
    display = WeightRecoveryDisplay.from_networks(truth, truth, **kwargs)
    line, cloud = display.ax_.lines[:2]
    assert line.get_color() == "red" and cloud.get_markersize() == 2


def test_networks_of_another_kind_are_refused():
    truth = make_network((5, 3, 1), random_state=2)
    with pytest.raises(TypeError, match="network must be a FeedforwardNetwork, got str"):
        WeightRecoveryDisplay.from_networks(truth, "network")
    with pytest.raises(ValueError, match="one architecture"):
        WeightRecoveryDisplay.from_networks(truth, make_network((5, 4, 1), random_state=0))


@pytest.mark.parametrize("ax", ["here", [None, None], [1, 2, 3]])
def test_other_axes_are_refused(ax):
    truth = make_network((5, 3, 1), random_state=2)
    with pytest.raises(ValueError, match="ax must be None, a matplotlib Axes or a pair"):
        WeightRecoveryDisplay.from_networks(truth, truth, ax=ax)


def test_axes_placed_by_hand_cannot_be_split(plt):
    truth = make_network((5, 3, 1), random_state=2)
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
    with pytest.raises(NotFittedError, match="is not fitted yet"):
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
    truth = make_network((5, 3, 1), random_state=2)
    with pytest.raises(ImportError, match="WeightRecoveryDisplay needs matplotlib"):
        WeightRecoveryDisplay.from_networks(truth, truth)


# -- phase transitions and landscapes ----------------------------------------------------------------------------------


def test_a_transition_is_where_the_counts_say():
    rng = np.random.RandomState(0)
    x = np.arange(20)
    counts = rng.binomial(50, 1 / (1 + np.exp(-0.8 * (x - 11.3))))
    half, slope, (low, high) = fit_transition(x, counts, np.full(20, 50))
    assert low < 11.3 < high and high - low < 1 and abs(slope - 0.8) < 0.2
    # Downwards just as well, and shifted where the counts are.
    down = fit_transition(x, 50 - counts, np.full(20, 50))
    assert down[0] == pytest.approx(half, abs=1e-4) and down[1] == pytest.approx(-slope, rel=1e-3)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.RandomState(1)
    x, covered = np.arange(8, 16), 0
    for _ in range(30):
        counts = rng.binomial(10, 1 / (1 + np.exp(-1.5 * (x - 11.6))))
        low, high = fit_transition(x, counts, np.full(8, 10))[2]
        covered += low <= 11.6 <= high
    assert covered >= 25  # 28.5 expected; fewer than 25 has probability 2 %


@pytest.mark.parametrize("count", [0, 10])
def test_no_transition_seen_is_no_number(count):
    half, _, interval = fit_transition([1, 2, 3], [count] * 3, [10] * 3)
    assert np.isnan(half) and interval == (-np.inf, np.inf)


@pytest.fixture(scope="module")
def transition():
    return phase_transition(
        20, 8, [1, 2, 4, 6], activation="quadratic", trials=TrainingTrials(n_trials=5, n_starts=4), random_state=0
    )


def test_phase_transition_repeats_and_counts(transition):
    again = phase_transition(
        20, 8, [1, 2, 4, 6], activation="quadratic", trials=TrainingTrials(n_trials=5, n_starts=4), random_state=0
    )
    assert np.array_equal(again.losses, transition.losses)
    assert transition.probabilities[0] < 0.5 and transition.probabilities[-1] == 1.0
    assert np.all(transition.start_rates >= transition.probabilities)
    assert transition.losses.shape == (4, 5, 4) and transition.swept == "n_hidden"
    # A network that has reached the threshold is an interpolating one.
    assert transition.settings["n_samples"] == 20 and transition.settings["optimizer"] == "Levenberg-Marquardt"


def test_other_sizes_can_be_swept():
    trials = TrainingTrials(n_trials=2, n_starts=2, max_iter=40)
    swept = phase_transition([5, 60], 4, 3, activation="softplus", trials=trials, random_state=0)
    assert swept.swept == "n_samples" and swept.probabilities[0] == 1.0
    trials = replace(trials, labels="random")
    labels = phase_transition([5, 60], 4, 3, activation="quadratic", trials=trials, random_state=0)
    assert labels.start_rates[1] == 0.0


def test_phase_transition_display(transition, plt):
    display = PhaseTransitionDisplay.from_transition(transition, reference=2.5)
    assert display.ax_.get_xlabel() == "n_hidden" and display.figure_ is display.ax_.figure
    labels = display.ax_.get_legend_handles_labels()[1]
    assert f"half: {transition.half_point:.2f}" in labels and "reference: 2.50" in labels
    figure, ax = plt.subplots()
    assert PhaseTransitionDisplay(transition).plot(ax=ax).ax_ is ax


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((20, 8, 4), {}, "got none"),
        (([20, 30], [8, 9], 4), {}, "exactly one"),
        ((20, 8, [4]), {}, "at least two values"),
        ((20, 8, [4, 5]), {"activation": "relu"}, "is not smooth"),
        ((20, 8, [4, 5]), {"trials": TrainingTrials(labels="none")}, "labels must be"),
    ],
)
def test_phase_transition_errors(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        phase_transition(*sizes, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_starts": 0}, "n_starts must be an integer >= 1"),
        ({"n_trials": 1.5}, "n_trials must be an integer >= 1"),
        ({"max_iter": True}, "max_iter must be an integer >= 1"),
        ({"threshold": 0.0}, "threshold must be"),
    ],
)
def test_trials_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        TrainingTrials(**options)


def test_landscape_display(plt):
    rng = np.random.RandomState(0)
    X, y, v = rng.standard_normal((30, 3)), rng.standard_normal(30), np.repeat([1.0, -1.0], 3)
    found = descend(QuadraticProblem(X, y), np.zeros((6, 3)), v)
    W = np.zeros((6, 3))
    certificate = landscape_certificate(W, v, X, y)
    display = LandscapeDisplay.from_certificate(certificate, W, X, y, history=found.history)
    assert display.direction == "escape direction"
    assert display.line[50] == pytest.approx(0.5 * np.mean(y**2))
    assert display.line.min() < display.line[50] and display.lower_bound == pytest.approx(found.value)
    assert len(display.history_ax_.lines[0].get_xdata()) == len(found.history)
    identity = landscape_certificate(3.0 * np.eye(3), np.ones(3), X, y)
    down = LandscapeDisplay.from_certificate(identity, 3.0 * np.eye(3), X, y)
    assert down.direction == "steepest descent"
    end = LandscapeDisplay.from_certificate(landscape_certificate(found.W, v, X, y), found.W, X, y, radius=0.1)
    assert end.line.min() >= found.value - 1e-12
    tanh = landscape_certificate(found.W, v, X, y, activation=get_activation("tanh"))
    with pytest.raises(ValueError, match="not tanh ones"):
        LandscapeDisplay.from_certificate(tanh, found.W, X, y)


# -- saddles -----------------------------------------------------------------------------------------------------------


class Fitted(BaseEstimator):
    """An estimator of another kind, with the attributes that a Display reads."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def fit(self):
        return self

    def __sklearn_is_fitted__(self):
        return True


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


# -- audit -------------------------------------------------------------------------------------------------------------


class TestAudit:
    @pytest.fixture
    def verifier(self):
        network = make_network((6, 8, 2), random_state=0)
        weights = [np.array(W) for W in network.weights]
        weights[0][2, 3] *= 1.001
        X = np.random.default_rng(0).standard_normal((100, 6))
        box = network.with_parameters(weights, network.biases)
        return NetworkVerifier(box, network=network, random_state=0).fit(X)

    def test_outputs_and_weights_are_drawn(self, verifier):
        display = AuditDisplay.from_estimator(verifier)
        share, excess = display.ax_.lines[0].get_data()
        assert share[-1] == 1.0 and excess[-1] == pytest.approx(verifier.report_.excess)
        cross = display.weights_ax_.lines[-1]
        assert cross.get_xdata()[0] == pytest.approx(1e-3, rel=1e-6)
        assert "different" in display.ax_.get_title()

    def test_what_is_no_verifier_is_refused(self):
        with pytest.raises(TypeError, match="must be a NetworkVerifier"):
            AuditDisplay.from_estimator(object())
