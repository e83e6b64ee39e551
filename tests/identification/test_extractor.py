import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from skident import EntangledWeightExtractor
from skident.datasets import make_network
from skident.linalg import svec_outer
from skident.metrics import false_positive_rate, recovery_rate
from skident.network import FeedforwardNetwork
from tests.rates import fewest_successes


def unit(V):
    return V / np.linalg.norm(V, axis=-1, keepdims=True)


def true_weights(network, center):
    """Entangled weights as unit rows, and the layer of each."""
    V = network.entangled_weights(center)
    return unit(np.hstack(V).T), np.repeat(np.arange(len(V)), network.layer_widths)


class Counting:
    """A callable that hides the network and counts rows."""

    def __init__(self, network):
        self.network, self.n_rows = network, 0

    def __call__(self, X):
        self.n_rows += len(X)
        return self.network(X)


@pytest.fixture
def X(rng):
    return rng.standard_normal((200, 12))


def extract(network, X, box=None, **options):
    names = {"activation": network.activation, "output_activation": network.output_activation}
    options = {"layer_widths": network.layer_widths, "random_state": 0, **names, **options}
    return EntangledWeightExtractor(network if box is None else box, **options).fit(X)


def check_found(network, extractor, atol=0.05):
    """Every weight within `atol`, in its layer; the last layer in order and with its sign."""
    truth, layers = true_weights(network, extractor.center_)
    assert len(extractor.components_) == len(truth)
    np.testing.assert_allclose(np.linalg.norm(extractor.components_, axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(np.sort(layers), np.sort(extractor.layer_assignment_))
    for layer in np.unique(layers):
        found = extractor.components_[extractor.layer_assignment_ == layer]
        assert recovery_rate(truth[layers == layer], found, radius=atol) == 1
        assert false_positive_rate(truth[layers == layer], found, radius=atol) == 0
    last = extractor.components_[-network.n_outputs :]
    np.testing.assert_allclose(last, truth[-network.n_outputs :], atol=atol)


def all_found(network, extractor):
    try:
        check_found(network, extractor)
    except AssertionError:
        return False
    return True


# -- every route and option --------------------------------------------------------------------------------------------

NETWORKS = {
    "tanh": make_network((12, 6, 3), random_state=0),
    "sigmoid, linear": make_network((12, 6, 3), activation="sigmoid", output_activation="identity", random_state=0),
    "erf": make_network((12, 6, 3), activation="erf", random_state=0),
    "three layers": make_network((12, 10, 7, 4), random_state=0),
    "three layers, linear": make_network((12, 10, 7, 4), output_activation="identity", random_state=0),
}


# Where weights are missed now and then: of how many networks all were found, half of them with each `last_layer`.
RATES = {
    ("tanh", "hessian"): (32, 40),
    ("erf", "hessian"): (30, 40),
    ("three layers", "saturation"): (20, 40),
    ("three layers", "hessian"): (17, 40),
}
ALWAYS = [(name, first) for name in NETWORKS for first in ("saturation", "hessian") if (name, first) not in RATES]


@pytest.mark.parametrize("last_layer", ["jacobian", "hessian"])
@pytest.mark.parametrize(("name", "first_layer"), ALWAYS)
def test_all_weights_in_their_layers(name, first_layer, last_layer, X):
    network = NETWORKS[name]
    extractor = extract(network, X, first_layer=first_layer, last_layer=last_layer, center=np.zeros(12))
    check_found(network, extractor)
    assert extractor.first_layer_method_ == first_layer
    assert extractor.layer_widths_ == network.layer_widths


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "first_layer"), RATES)
def test_how_often_all_weights_are_in_their_layers(name, first_layer, X):
    like, n_found = NETWORKS[name], 0
    for seed in range(10):
        network = make_network((12, *like.layer_widths), activation=like.activation, random_state=seed)
        options = {"last_layer": ("jacobian", "hessian")[seed % 2], "center": np.zeros(12), "random_state": seed}
        extractor = extract(network, X, first_layer=first_layer, **options)
        assert extractor.first_layer_method_ == first_layer
        assert extractor.layer_widths_ == network.layer_widths
        n_found += all_found(network, extractor)
    assert n_found >= fewest_successes(10, *RATES[name, first_layer])


@pytest.mark.parametrize("derivatives", ["exact", "finite_difference", "auto"])
def test_derivatives(derivatives, X):
    extractor = extract(NETWORKS["three layers"], X, derivatives=derivatives, center=np.zeros(12))
    check_found(NETWORKS["three layers"], extractor)
    assert (extractor.n_derivatives_ > 0) == (derivatives != "finite_difference")


def test_saturation_is_exact_where_hessians_are_close(X):
    network, center = NETWORKS["tanh"], np.zeros(12)
    truth, layers = true_weights(network, center)
    errors = {}
    for method in ("saturation", "hessian"):
        extractor = extract(network, X, first_layer=method, center=center)
        found = extractor.components_[extractor.layer_assignment_ == 0]
        errors[method] = 1 - np.abs(truth[layers == 0] @ found.T).max(axis=1).min()
    assert errors["saturation"] < 1e-12 < errors["hessian"] < 1e-3


@pytest.mark.parametrize("n_hidden", [1, 16])
def test_width_found_by_saturation(n_hidden, X):
    """Also above the number of inputs."""
    network = make_network((12, n_hidden, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    extractor = extract(network, X, layer_widths=None)
    assert extractor.layer_widths_ == (n_hidden, 2)
    check_found(network, extractor, atol=1e-6)


def test_one_layer(X):
    network = make_network((12, 4), random_state=0)
    extractor = extract(network, X)
    assert extractor.first_layer_method_ == "jacobian"
    check_found(network, extractor, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the outer products")  # four layers so narrow: not all weights are found
def test_four_layers_leave_the_inner_ones_untold(X):
    network = make_network((12, 7, 5, 4, 3), random_state=0)
    extractor = extract(network, X, center=np.zeros(12))
    assert set(extractor.layer_assignment_) == {0, -1, 3}
    assert [n for n in extractor.get_feature_names_out() if n.startswith("inner")] == [f"inner_{i}" for i in range(9)]


def test_units_of_the_inputs_do_not_matter(X, rng):
    """Centre, directions and projections follow the inputs."""
    network = NETWORKS["three layers"]
    center, scale = 1e3 * rng.standard_normal(12), np.logspace(-4, 4, 12)
    moved = FeedforwardNetwork(
        [network.weights[0] / scale[:, None], *network.weights[1:]],
        [network.biases[0] - (center / scale) @ network.weights[0], *network.biases[1:]],
        "tanh",
        "tanh",
    )
    extractor = extract(moved, center + scale * X)
    np.testing.assert_allclose(extractor.scale_, scale * X.std(axis=0))
    check_found(moved, extractor)


def test_constant_column_gets_the_others_unit(X):
    X[:, 2] = 3.0
    extractor = extract(NETWORKS["tanh"], X)
    assert extractor.scale_[2] == np.median(np.delete(extractor.scale_, 2))
    check_found(NETWORKS["tanh"], extractor)


def test_subspace_is_in_the_inputs_own_units(X):
    network = NETWORKS["three layers"]
    extractor = extract(network, X * np.logspace(-1, 1, 12), center=np.zeros(12), first_layer="hessian")
    outer = svec_outer(true_weights(network, np.zeros(12))[0])
    np.testing.assert_allclose(np.linalg.norm(outer @ extractor.subspace_, axis=1), 1, atol=0.05)
    np.testing.assert_allclose(extractor.subspace_.T @ extractor.subspace_, np.eye(21), atol=1e-12)
    assert np.all(extractor.phi_ > 0.9) and np.all(np.diff(extractor.singular_values_) <= 0)


def test_what_no_hessian_shows_has_no_phi(X):
    extractor = extract(NETWORKS["three layers, linear"], X, center=np.zeros(12))
    np.testing.assert_array_equal(np.isnan(extractor.phi_), extractor.layer_assignment_ == 2)
    without = extract(NETWORKS["tanh"], X)
    assert without.subspace_ is None and len(without.singular_values_) == 0 and np.isnan(without.phi_).all()
    assert without.n_iter_ == 1 < extractor.n_iter_


def test_hessians_on_demand(X):
    """Two layers need none with saturation, but may be asked for; then every weight is known already."""
    extractor = extract(NETWORKS["tanh"], X, n_hessians=12, center=np.zeros(12))
    check_found(NETWORKS["tanh"], extractor)
    assert extractor.subspace_.shape == (78, 9)


# -- black boxes -------------------------------------------------------------------------------------------------------


def test_kinds_of_black_boxes_agree(X, rng):
    network = make_network((12, 6, 3), output_activation="identity", random_state=0)
    regressor = network.to_sklearn()
    boxes = [lambda X: network(X), FrozenEstimator(regressor), network.to_torch()]
    expected = extract(network, X).components_
    for box in boxes:
        np.testing.assert_allclose(np.abs(unit(extract(network, X, box).components_) @ expected.T).max(axis=1), 1)


@pytest.mark.parametrize("output", ["tanh", "identity"])
def test_activations_are_read_off(output, X):
    network = make_network((12, 5, 2), output_activation=output, random_state=0)
    for box in (network, network.to_torch()):
        check_found(network, extract(network, X, box, activation="auto", output_activation="auto"))


def test_unfitted_regressor_is_fitted_on_a_copy(X):
    y = np.sin(X[:, 0])
    regressor = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", max_iter=2000, random_state=0)
    extractor = EntangledWeightExtractor(regressor, layer_widths=(4, 1), random_state=0).fit(X, y)
    check_is_fitted(extractor.estimator_)
    with pytest.raises(NotFittedError, match="MLPRegressor instance is not fitted yet"):
        check_is_fitted(regressor)
    check_found(FeedforwardNetwork.from_sklearn(extractor.estimator_), extractor, atol=1e-6)


def test_outputs_of_shape_n(X):
    network = make_network((12, 5, 1), random_state=0)
    check_found(network, extract(network, X, lambda X: network(X)[:, 0]))


@pytest.mark.parametrize("name", ["tanh", "three layers"])
@pytest.mark.parametrize("options", [{}, {"first_layer": "hessian"}, {"n_jobs": 2}])
def test_queries_are_counted(name, options, X):
    box = Counting(NETWORKS[name])
    extractor = extract(NETWORKS[name], X, box, **options)
    assert extractor.n_queries_ == box.n_rows
    assert sum(stage.queries for stage in extractor.report_.stages) <= box.n_rows


# -- determinism -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_layer", ["saturation", "hessian"])
def test_same_seed_same_result_whatever_the_number_of_jobs(first_layer, X):
    network = NETWORKS["three layers"]
    box = lambda X: network(X)  # noqa: E731
    fits = [extract(network, X, box, first_layer=first_layer, n_jobs=n_jobs) for n_jobs in (None, 1, 2)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].components_, other.components_)


def test_global_random_streams_are_left_alone(X):
    np.random.seed(7)
    torch.manual_seed(7)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    extract(NETWORKS["three layers"], X, first_layer="hessian")
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


# -- a scikit-learn transformer ----------------------------------------------------------------------------------------


def test_projections(X):
    extractor = extract(NETWORKS["three layers"], X)
    np.testing.assert_allclose(extractor.transform(X), X @ extractor.components_.T)
    names = extractor.get_feature_names_out()
    assert list(names[:2]) == ["layer1_0", "layer1_1"] and names[-1] == "layer3_3" and len(names) == 21


def test_frames(X):
    frame = pd.DataFrame(X, columns=list("abcdefghijkl"))
    extractor = extract(NETWORKS["tanh"], frame).set_output(transform="pandas")
    Z = extractor.transform(frame)
    assert list(Z.columns) == list(extractor.get_feature_names_out()) and len(Z) == 200
    assert list(extractor.feature_names_in_) == list("abcdefghijkl")
    with pytest.raises(ValueError, match="feature names"):
        extractor.transform(frame[list("bacdefghijkl")])
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        extractor.get_feature_names_out(list("bacdefghijkl"))
    with pytest.raises(ValueError, match="should have length equal"):
        extractor.get_feature_names_out(["a"])


def test_clone_and_pickle(X):
    extractor = extract(NETWORKS["tanh"], X)
    again = clone(extractor)
    assert not hasattr(again, "components_") and again.layer_widths == (6, 3)
    copy = pickle.loads(pickle.dumps(extractor))
    np.testing.assert_array_equal(copy.transform(X), extractor.transform(X))


def test_progress(X, capsys):
    extract(NETWORKS["three layers"], X, verbose=1)
    err = capsys.readouterr().err
    assert all(f"{stage}: " in err for stage in ("first layer (saturation)", "Hessians", "power method"))
    extract(NETWORKS["three layers"], X)
    assert capsys.readouterr() == ("", "")


# -- bad input ---------------------------------------------------------------------------------------------------------


class Flaky:
    """A network that raises, or outputs with what `after` makes of the output, from call `k` on."""

    def __init__(self, network, k, after):
        self.network, self.k, self.after, self.calls = network, k, after, 0

    def __call__(self, X):
        self.calls += 1
        return self.network(X) if self.calls <= self.k else self.after(self.network(X))


def raising(outputs):
    raise OSError("disk full")


def with_nan(outputs):
    outputs[3] = np.nan
    return outputs


BREAKS = {
    "raises": (raising, "raised OSError on a batch of .* disk full"),
    "nan": (with_nan, r"returned \[nan.*\] \(not finite\) at row 3"),
    "fewer rows": (lambda Y: Y[:-1], "returned shape"),
    "fewer columns": (lambda Y: Y[:, :2], r"returned shape .* expected \(\d+, 4\)"),
    "complex": (lambda Y: Y + 0j, "cannot be read as real numbers"),
}
# The first answer's columns are taken as they are.
WHEN = [(name, k) for name in BREAKS for k in (0, 2, 4) if (name, k) != ("fewer columns", 0)]


@pytest.fixture(scope="module", params=["saturation", "hessian"])
def earlier(request):
    """Fitted to three layers, the first of them found in one way or the other."""
    X = np.random.default_rng(0).standard_normal((200, 12))
    return extract(NETWORKS["three layers"], X, first_layer=request.param)


@pytest.mark.parametrize(("name", "k"), WHEN)
def test_a_black_box_that_breaks(name, k, earlier, X):
    """Nothing half-fitted is left, also where an earlier fit had succeeded."""
    network, (after, message) = NETWORKS["three layers"], BREAKS[name]
    extractor = copy.deepcopy(earlier)
    extractor.set_params(estimator=Flaky(network, k, after))
    with pytest.raises(ValueError, match=message):
        extractor.fit(X)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        check_is_fitted(extractor)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        extractor.transform(X)
    fitted = {name for name in vars(extractor) if name.endswith("_")}
    assert fitted <= {"n_features_in_", "feature_names_in_"}


def test_exceptions_that_are_no_errors_pass_through(X):
    def interrupted(outputs):
        raise KeyboardInterrupt("by hand")

    extractor = extract(NETWORKS["tanh"], X)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        extractor.set_params(estimator=Flaky(NETWORKS["tanh"], 2, interrupted)).fit(X)
    assert not hasattr(extractor, "components_")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_X_not_finite(value, X):
    X[3, 1] = value
    with pytest.raises(ValueError, match="contains (NaN|infinity)"):
        extract(NETWORKS["tanh"], X)


def test_one_row(X):
    with pytest.raises(ValueError, match="1 sample"):
        extract(NETWORKS["tanh"], X[:1])


def test_two_rows(X):
    check_found(NETWORKS["tanh"], extract(NETWORKS["tanh"], X[:2]))


def test_one_feature(X):
    with pytest.raises(ValueError, match="n_features=1"):
        EntangledWeightExtractor(np.tanh).fit(X[:, :1])


WRONG_WIDTHS = [
    ((6, 4), {}, r"ends in 4 but the black box gives 3 .* write layer_widths=\(6, 4, 3\) \(or \(6, 3\)"),
    ((5, 3), {}, r"says 5 first-layer units, but 6 .* try layer_widths=\(6, 3\)"),
    ((25, 3), {"first_layer": "hessian"}, "28 units in the Hessians, 0 of them .* span .* Give the widths"),
    ((76, 3), {"first_layer": "hessian"}, r"m = 79 weights .* D = 12 inputs at most D \(D \+ 1\) / 2 = 78"),
    ((6, 0, 3), {}, "must be positive integers"),
    ((6.5, 3), {}, "must be positive integers"),
    ((), {}, "must be positive integers"),
    (("a", 3), {}, "must be positive integers"),
    (((6, 3), (1, 2)), {}, "must be positive integers"),
]


@pytest.mark.parametrize(("widths", "options", "message"), WRONG_WIDTHS)
def test_wrong_widths(widths, options, message, X):
    with pytest.raises(ValueError, match=message):
        extract(NETWORKS["tanh"], X, layer_widths=widths, **options)


def test_too_large_a_first_layer_is_said(X):
    with pytest.warns(ConvergenceWarning, match="only 6 of 7 first-layer units"):
        extractor = extract(NETWORKS["tanh"], X, layer_widths=(7, 3))
    assert np.sum(extractor.layer_assignment_ == 0) == 6


def test_too_few_hessians(X):
    with pytest.raises(ValueError, match="6 Hessians .* raise n_hessians"):
        extract(NETWORKS["tanh"], X, first_layer="hessian", n_hessians=2)


def test_algorithm_5_with_one_output(X):
    network = make_network((12, 8, 4, 1), random_state=0)
    with pytest.raises(ValueError, match="needs at least 2 outputs, got 1; use last_layer='jacobian'"):
        extract(network, X, first_layer="hessian", last_layer="hessian")


def test_hessians_of_relu(X):
    network = make_network((12, 6, 3), activation="relu", output_activation="identity", random_state=0)
    with pytest.raises(ValueError, match="activation='relu' has no second derivative"):
        extract(network, X)
    with pytest.raises(ValueError, match="layer_widths=None needs a first layer that saturates"):
        extract(network, X, layer_widths=None)
    with pytest.raises(ValueError, match="activation='relu' does not saturate"):
        extract(network, X, first_layer="saturation")


def test_noisy(X, rng):
    box = lambda X: NETWORKS["tanh"](X) + 0.2 * rng.standard_normal((len(X), 3))  # noqa: E731
    with pytest.raises(ValueError, match="returned different outputs when queried twice: relative difference"):
        extract(NETWORKS["tanh"], X, box)


@pytest.mark.parametrize("value", [0.0, -3.5, 1e9])
def test_constant(value, X):
    with pytest.raises(ValueError, match="the black box is constant: 100 rows .* nothing to identify"):
        extract(NETWORKS["tanh"], X, lambda X: np.full((len(X), 3), value))


def test_one_constant_output(X):
    box = lambda X: NETWORKS["tanh"](X) * [1, 0, 1]  # noqa: E731
    with pytest.raises(ValueError, match="output 1 does not change"):
        extract(NETWORKS["tanh"], X, box)


def test_outputs_of_very_different_units(X):
    box = lambda X: NETWORKS["sigmoid, linear"](X) * [1e8, 1, 1e-8]  # noqa: E731
    check_found(NETWORKS["sigmoid, linear"], extract(NETWORKS["sigmoid, linear"], X, box), atol=1e-4)


def test_unfitted_frozen(X):
    with pytest.raises(NotFittedError, match="FrozenEstimator instance is not fitted yet"):
        EntangledWeightExtractor(FrozenEstimator(MLPRegressor())).fit(X)


@pytest.mark.parametrize("frozen", [True, False])
def test_classifier(frozen, X):
    y = X[:, 0] > 0
    classifier = FrozenEstimator(LogisticRegression().fit(X, y)) if frozen else LogisticRegression()
    with pytest.raises(ValueError, match="is a classifier; only regressors"):
        EntangledWeightExtractor(classifier).fit(X, y)


@pytest.mark.parametrize("estimator", [None, MLPRegressor()])
def test_y_missing(estimator, X):
    with pytest.raises(ValueError, match=r"requires y to be passed.*FrozenEstimator\(regressor\)"):
        EntangledWeightExtractor(estimator).fit(X)


@pytest.mark.parametrize("estimator", [3, "a", object()])
def test_no_black_box(estimator, X):
    with pytest.raises(ValueError, match="the black box must be a callable"):
        EntangledWeightExtractor(estimator).fit(X)


@pytest.mark.parametrize("center", [np.zeros(11), np.zeros((1, 12)), [0.0]])
def test_center_of_the_wrong_shape(center, X):
    with pytest.raises(ValueError, match=r"center must have shape \(12,\)"):
        extract(NETWORKS["tanh"], X, center=center)


def test_center_not_finite(X):
    with pytest.raises(ValueError, match="center contains NaN"):
        extract(NETWORKS["tanh"], X, center=np.full(12, np.nan))


def test_exact_derivatives_of_a_callable(X):
    with pytest.raises(ValueError, match="derivatives='exact' needs a FeedforwardNetwork"):
        extract(NETWORKS["tanh"], X, lambda X: NETWORKS["tanh"](X), derivatives="exact")


NO_NETWORKS = {
    "sin|x|": lambda X: np.sin(np.abs(X)).sum(axis=1),
    "gauss": lambda X: np.exp(-0.5 * np.sum(X**2, axis=1)),
    "steps": lambda X: np.sign(X).sum(axis=1),
    "linear": lambda X: X @ np.arange(1.0, 13.0),
}
NO_NETWORK = "do not change at all|does not saturate|no step is a smooth sigmoid|does not change at the center"
NO_NETWORK += r"|the power method recovered \d of the [46] weights"


@pytest.mark.parametrize("options", [{}, {"layer_widths": (6, 1)}, {"layer_widths": (4, 1), "first_layer": "hessian"}])
@pytest.mark.parametrize("name", [*NO_NETWORKS, "tree"])
def test_no_network_at_all(name, options, X):
    """An error or a warning, soon."""
    box = NO_NETWORKS.get(name) or FrozenEstimator(DecisionTreeRegressor(max_depth=3).fit(X, X[:, 0]))
    box = Counting(box if callable(box) else box.predict)
    with pytest.raises((ValueError, ConvergenceWarning), match=NO_NETWORK):
        EntangledWeightExtractor(box, random_state=0, **options).fit(X)
    assert box.n_rows < 200_000


def test_weights_that_are_none_are_said(X):
    """With units to spare the subspace has room for vectors that are no weights, at a high phi.

    Here they nearly depend on each other. That is not so of most networks (ten of twelve); see the next test.
    """
    network = make_network((X.shape[1], 6, 4, 3), random_state=0)
    with pytest.warns(ConvergenceWarning, match="nearly|the power method recovered"):
        EntangledWeightExtractor(
            network, layer_widths=(10, 4, 3), first_layer="hessian", center=np.zeros(X.shape[1]), random_state=0
        ).fit(X)


def test_a_spectrum_without_a_drop_is_said(X):
    """Where widths are right, it drops behind the weights; with units to spare mostly not, and that is warned about."""
    said = {6: 0, 9: 0}
    for seed in range(40, 46):
        network = make_network((X.shape[1], 6, 3), random_state=seed)
        for width in said:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                EntangledWeightExtractor(
                    network, layer_widths=(width, 3), first_layer="hessian", center=np.zeros(X.shape[1]), random_state=0
                ).fit(X)
            said[width] += any("may be wrong, whatever phi_ is" in str(w.message) for w in caught)
    assert said[6] <= 1 and said[9] >= 4, said
