"""Black boxes as people have them: classifiers, scaled pipelines, and boxes that answer in a range only."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skident import EntangledWeightExtractor, IdentifierOptions, NetworkIdentifier
from skident.datasets import make_network
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork, center_outputs, change_inputs
from skident.oracle import probabilities_from_logits
from tests.identifiers import make_identifier


def trained(estimator, X, y):
    """Fitted, whether or not the solver is content."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def classifier(solver="lbfgs", seed=0, units=10, **options):
    return MLPClassifier((units,), activation="tanh", solver=solver, random_state=seed, **options)


def fresh(X, n=500):
    return X.mean(axis=0) + X.std(axis=0) * np.random.default_rng(7).standard_normal((n, X.shape[1]))


# -- classifiers -------------------------------------------------------------------------------------------------------

DATA = {"cancer": load_breast_cancer(return_X_y=True), "digits": load_digits(return_X_y=True)}
# The bounds asked for. Raw columns differ by 1e5 in unit, and weights of a small one count as much as those of a large.
CLASSIFIERS = [(data, solver, scaled) for data in DATA for solver in ("adam", "lbfgs") for scaled in (True, False)]


@pytest.mark.parametrize(("data", "solver", "scaled"), CLASSIFIERS)
def test_trained_classifiers(data, solver, scaled):
    """From probabilities alone: the same probabilities and logits on fresh inputs, and the same parameters."""
    X, y = DATA[data]
    X = StandardScaler().fit_transform(X) if scaled else X
    mlp = trained(classifier(solver, max_iter=60), X, y)
    truth = center_outputs(FeedforwardNetwork.from_sklearn(mlp))
    model = NetworkIdentifier(
        mlp.predict_proba, response_method="predict_proba", layer_widths=(10, truth.n_outputs), random_state=0
    ).fit(X)
    X_new = fresh(X)
    assert model.report_.exact and model.report_.probability_error < 1e-9
    assert np.abs(model.predict_proba(X_new) - mlp.predict_proba(X_new)).max() < 1e-10
    assert relative_max_error(truth(X_new), model.network_(X_new)) < 1e-10
    assert parameter_error(truth, model.network_) < 1e-6


@pytest.fixture
def blobs(rng):
    """Three classes of 4 features, and the labels as text."""
    X = rng.standard_normal((150, 4)) * [1.0, 2.0, 5.0, 0.1] + [0.0, 3.0, 0.0, 1.0]
    k = (X[:, 0] + 0.5 * np.sin(X[:, 1]) > 0).astype(int) + (X[:, 2] > 4)
    return X, np.array(["ant", "bee", "cow"])[k]


@pytest.fixture
def three(blobs):
    return trained(classifier(units=5, alpha=1e-2, max_iter=200), *blobs)


@pytest.mark.parametrize("kind", ["frozen", "fitted first", "in a pipeline", "in frames"])
def test_a_classifier_is_identified_as_one(kind, blobs, three):
    """`predict` gives labels, `decision_function` logits, `score` the accuracy, as scikit-learn's classifiers do."""
    X, y = blobs
    box = {
        "frozen": FrozenEstimator(three),
        "fitted first": clone(three).set_params(max_iter=3000),
        "in a pipeline": FrozenEstimator(trained(make_pipeline(StandardScaler(), clone(three)), X, y)),
        "in frames": None,
    }[kind]
    if kind == "in frames":
        X = pd.DataFrame(X, columns=list("abcd"))
        box = FrozenEstimator(trained(clone(three), X, y))
    model = NetworkIdentifier(box, random_state=0)
    assert is_classifier(model) and not is_regressor(model)
    model.fit(X, y)
    asked = model.estimator_
    assert model.report_.exact and list(model.classes_) == ["ant", "bee", "cow"]
    np.testing.assert_array_equal(model.predict(X), asked.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), asked.predict_proba(X), atol=1e-10)
    np.testing.assert_allclose(model.decision_function(X).mean(axis=1), 0.0, atol=1e-10)
    np.testing.assert_allclose(probabilities_from_logits(model.decision_function(X)), model.predict_proba(X))
    assert model.score(X, y) == asked.score(X, y)
    truth = center_outputs(FeedforwardNetwork.from_sklearn(asked))
    assert parameter_error(truth, model.network_) < 1e-6


def test_activations_are_read_off(blobs, three):
    X, y = blobs
    mlp = trained(clone(three).set_params(activation="logistic"), X, y)
    model = NetworkIdentifier(FrozenEstimator(make_pipeline(StandardScaler().fit(X), mlp)), random_state=0).fit(X)
    assert (model.network_.activation, model.network_.output_activation) == ("sigmoid", "identity")
    assert model.report_.exact


def test_two_classes_give_log_odds(blobs):
    """One output; positive where the second class is the likelier, as scikit-learn's `decision_function`."""
    X, y = blobs
    mlp = trained(classifier(units=4), X, y == "bee")
    model = NetworkIdentifier(FrozenEstimator(mlp), random_state=0).fit(X, y == "bee")
    assert model.network_.n_outputs == 1 and model.classes_.dtype == bool
    z = FeedforwardNetwork.from_sklearn(mlp)(X)[:, 0]
    np.testing.assert_allclose(model.decision_function(X), z, atol=1e-9 * np.abs(z).max())
    np.testing.assert_array_equal(model.predict(X), mlp.predict(X))


@pytest.mark.parametrize("columns", ["(n,)", "(n, 1)", "(n, 2)"])
def test_probabilities_of_a_callable(columns, blobs):
    """Classes are numbered, since a callable has no names for them."""
    X, y = blobs
    mlp = trained(classifier(units=3, max_iter=100), X, y == "bee")
    part = {"(n,)": lambda P: P[:, 1], "(n, 1)": lambda P: P[:, 1:], "(n, 2)": lambda P: P}[columns]
    box = lambda X: part(mlp.predict_proba(X))  # noqa: E731
    model = NetworkIdentifier(box, response_method="predict_proba", random_state=0).fit(X)
    assert list(model.classes_) == [0, 1] and model.predict(X).tolist() == mlp.predict(X).astype(int).tolist()
    assert parameter_error(FeedforwardNetwork.from_sklearn(mlp), model.network_) < 1e-8


def test_a_softmax_over_two_classes(blobs, three):
    """torch answers both columns to full relative precision, so no log-odds are lost however large they are."""
    X, _ = blobs
    net = make_network((4, 5, 2), output_activation="identity", random_state=0)
    net = FeedforwardNetwork([net.weights[0], 40.0 * net.weights[1]], net.biases, "tanh", "identity")
    box = torch.nn.Sequential(net.to_torch(), torch.nn.Softmax(dim=1))
    model = NetworkIdentifier(box, response_method="predict_proba", activation="tanh", random_state=0).fit(X)
    difference = FeedforwardNetwork(
        [net.weights[0], np.diff(net.weights[1])], [net.biases[0], np.diff(net.biases[1])], "tanh", "identity"
    )
    assert model.report_.exact and model.report_.lost == 0
    assert np.abs(difference(X)).max() > 30 and parameter_error(difference, model.network_) < 1e-10


def test_two_hidden_layers(blobs):
    X, y = blobs
    mlp = trained(MLPClassifier((4, 3), activation="tanh", solver="lbfgs", alpha=0.1, random_state=1), X, y)
    model = NetworkIdentifier(FrozenEstimator(mlp), layer_widths=(4, 3, 3), random_state=0).fit(X)
    truth = center_outputs(FeedforwardNetwork.from_sklearn(mlp))
    assert model.report_.exact and parameter_error(truth, model.network_) < 1e-6


def test_overtrained_classifiers_are_identified_where_they_are_in_doubt(blobs):
    """Log-odds of 40 are lost in rounding, those of other inputs are not; the report says how many rows are lost."""
    X, y = blobs
    mlp = trained(classifier(units=5, alpha=1e-9, max_iter=2000), X, y == "bee")
    truth = FeedforwardNetwork.from_sklearn(mlp)
    assert truth(X).max() > 20
    model = NetworkIdentifier(mlp.predict_proba, response_method="predict_proba", random_state=0).fit(X)
    some = X[np.linspace(0, len(X) - 1, 100).astype(int)]  # those that the report compares
    lost = np.mean(truth(some) > np.log(1e-9 / 2.0**-53))
    assert model.report_.exact and model.report_.lost == pytest.approx(lost, abs=0.02)
    assert parameter_error(truth, model.network_) < 1e-8


def test_certain_everywhere(blobs):
    X, _ = blobs
    box = lambda X: 1 / (1 + np.exp(-300.0 - np.tanh(X).sum(axis=1)))  # noqa: E731
    with pytest.raises(ValueError, match="is constant: .* the same probabilities, to rounding"):
        NetworkIdentifier(box, response_method="predict_proba", random_state=0).fit(X)


def test_classifiers_in_scikit_learn_s_tools(blobs, three):
    X, y = blobs
    model = NetworkIdentifier(FrozenEstimator(three), layer_widths=(5, 3), random_state=0)
    assert cross_val_score(model, X, y, cv=2).min() > 0.8
    model.fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    regressor = NetworkIdentifier(lambda X: X, random_state=0)
    assert is_regressor(regressor) and not hasattr(regressor, "predict_proba")
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        clone(model).predict_proba(X)


WRONG_CLASSIFIERS = {
    "labels": (lambda X, y: trained(classifier(), X, y), {"response_method": "predict"}, "queries .* for labels"),
    "no probabilities": (lambda X, y: LinearRegression().fit(X, X[:, 0]), {}, "has no predict_proba; use .*'predict'"),
    "margins": (lambda X, y: SVC().fit(X, y), {}, "has no predict_proba"),
    "multilabel": (
        lambda X, y: trained(classifier(), X, X > 1),
        {},
        "sum to .* instead of 1: .*multilabel",
    ),
    "multilabel list": (
        lambda X, y: MultiOutputClassifier(RandomForestClassifier(2)).fit(X, X > 1),
        {},
        "list of 4 tables of probabilities.*multilabel",
    ),
}


@pytest.mark.parametrize("name", WRONG_CLASSIFIERS)
def test_classifiers_that_cannot_be_asked(name, blobs):
    make, options, message = WRONG_CLASSIFIERS[name]
    options = {"response_method": "predict_proba", **options}
    with pytest.raises(ValueError, match=message):
        make_identifier(FrozenEstimator(make(*blobs)), **options).fit(blobs[0])


def test_multilabel_targets(blobs):
    with pytest.raises(ValueError, match=r"y has 4 labels per sample \(multilabel\)"):
        NetworkIdentifier(classifier()).fit(blobs[0], (blobs[0] > 1).astype(int))


def test_continuous_targets(blobs):
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        NetworkIdentifier(classifier()).fit(blobs[0], blobs[0][:, 0])


@pytest.mark.parametrize("box", [lambda X: X, lambda X: 2 + np.tanh(X)], ids=["negative", "above 1"])
def test_answers_that_are_no_probabilities(box, blobs):
    with pytest.raises(ValueError, match="expects probabilities, but outputs range from"):
        NetworkIdentifier(box, response_method="predict_proba").fit(blobs[0])


def test_a_sigmoid_before_the_softmax(blobs, three):
    box = FrozenEstimator(three)
    with pytest.raises(ValueError, match="output_activation='logistic' would come before the softmax"):
        NetworkIdentifier(box, output_activation="logistic").fit(blobs[0])


def test_probabilities_taken_as_they_are(blobs, three):
    """A callable does not tell what its answers are, but they show it: where nothing is named, they are identified."""
    model = NetworkIdentifier(three.predict_proba, layer_widths=(5, 3), random_state=0).fit(blobs[0])
    assert model.report_.exact and model.report_.activation.output.name == "softmax"
    assert np.abs(model.predict(blobs[0]) - three.predict_proba(blobs[0])).max() < 1e-9
    model = NetworkIdentifier(
        three.predict_proba,
        layer_widths=(5, 3),
        options=IdentifierOptions(n_attempts=1),
        activation="tanh",
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="not exact.* sum to 1: .* use response_method='predict_proba'"):
        model.fit(blobs[0])


def test_labels_are_missing(blobs):
    with pytest.raises(ValueError, match=r"MLPClassifier is not fitted and y is None.* FrozenEstimator\(classifier\)"):
        NetworkIdentifier(classifier()).fit(blobs[0])


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (GaussianNB, "sum to .* instead of 1|fewer than the 5 asked for|not exact"),
        (DecisionTreeClassifier, "a tree ensemble"),
    ],
)
def test_classifiers_that_are_no_networks(kind, match, blobs):
    with pytest.raises((ValueError, ConvergenceWarning), match=match):
        NetworkIdentifier(
            FrozenEstimator(kind().fit(*blobs)),
            layer_widths=(5, 3),
            options=IdentifierOptions(n_attempts=1),
            random_state=0,
        ).fit(blobs[0])


# -- scaled pipelines --------------------------------------------------------------------------------------------------

X_D, Y_D = load_diabetes(return_X_y=True, scaled=False)
Y_D = (Y_D - Y_D.mean()) / Y_D.std()
STEPS = {
    "standard": lambda: [StandardScaler()],
    "min-max": lambda: [MinMaxScaler((-1, 1))],
    "robust, max-abs": lambda: [RobustScaler(), MaxAbsScaler()],
    "pca": lambda: [StandardScaler(), PCA(6, whiten=True)],
    "selection": lambda: [StandardScaler(), SelectKBest(f_regression, k=5)],
    "columns": lambda: [
        ColumnTransformer([("a", StandardScaler(), [0, 1, 2, 3]), ("b", MinMaxScaler(), [4, 5, 6, 7, 8, 9])])
    ],
}


def regressor(seed=0):
    return MLPRegressor(
        hidden_layer_sizes=(8,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=300, random_state=seed
    )


@pytest.mark.parametrize("steps", STEPS)
def test_pipelines(steps):
    """The network is a function of raw inputs."""
    pipe = trained(make_pipeline(*STEPS[steps](), regressor()), X_D, Y_D)
    model = NetworkIdentifier(FrozenEstimator(pipe), random_state=0).fit(X_D)
    assert model.report_.exact
    assert parameter_error(FeedforwardNetwork.from_sklearn(pipe), model.network_) < 1e-8
    # The whole pipeline as one network, without asking it.
    np.testing.assert_allclose(FeedforwardNetwork.from_sklearn(pipe)(X_D)[:, 0], pipe.predict(X_D), atol=1e-10)


def test_scaled_targets():
    inner = make_pipeline(StandardScaler(), regressor())
    box = trained(TransformedTargetRegressor(inner, transformer=StandardScaler()), X_D, 150 + 70 * Y_D)
    model = NetworkIdentifier(FrozenEstimator(box), random_state=0).fit(X_D)
    assert model.report_.exact and parameter_error(FeedforwardNetwork.from_sklearn(box), model.network_) < 1e-8


def test_a_pipeline_that_is_not_affine():
    """It can be asked, but is no network of its raw inputs."""
    pipe = trained(make_pipeline(PowerTransformer(), regressor()), X_D[:, 2:6], Y_D)
    with pytest.raises(ValueError, match="Pipeline is not affine"):
        FeedforwardNetwork.from_sklearn(pipe)


# -- a stated range of inputs ------------------------------------------------------------------------------------------


class Ranged:
    """A network of inputs within `width` standard deviations; others it clips or refuses."""

    def __init__(self, sizes, width=4.0, output="tanh", seed=0, refuses=True, activation="tanh"):
        rng = np.random.default_rng(seed)
        center, scale = rng.uniform(-5, 5, sizes[0]), rng.uniform(0.2, 4, sizes[0])
        self.X = center + scale * rng.standard_normal((200, sizes[0]))
        network = make_network(sizes, activation=activation, output_activation=output, random_state=seed)
        self.network = change_inputs(network, -center / scale, 1 / scale)
        self.range, self.refuses = (center - width * scale, center + width * scale), refuses

    def __call__(self, X):
        clipped = np.clip(X, *self.range)
        if self.refuses and not np.array_equal(clipped, X):
            raise RuntimeError("outside")
        return self.network(clipped)

    def identify(self, **options):
        net = self.network
        names = {"activation": net.activation, "output_activation": net.output_activation}
        options = {"estimator": self, "layer_widths": net.layer_widths, "input_range": self.range, **names, **options}
        return make_identifier(random_state=0, **options).fit(self.X)


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize(("sizes", "output"), [((8, 6, 1), "tanh"), ((8, 6, 1), "identity"), ((20, 20, 5), "tanh")])
def test_never_asked_outside(sizes, output, refuses):
    box = Ranged(sizes, output=output, refuses=refuses)
    model = box.identify()
    assert model.report_.exact and model.extractor_.first_layer_method_ == "hessian"
    assert parameter_error(box.network, model.network_) < 1e-8


def test_three_layers_in_a_range():
    box = Ranged((14, 12, 6, 4))
    model = box.identify()
    assert model.report_.exact and parameter_error(box.network, model.network_) < 1e-8


def test_exact_derivatives_in_a_range():
    """A network that is handed over is differentiated in closed form, still inside the range only."""
    box = Ranged((8, 6, 1))
    model = box.identify().set_params(estimator=box.network).fit(box.X)
    assert model.report_.exact and not [s for s in model.report_.stages if s.name == "Hessians" and s.queries]


def test_a_range_that_is_large_enough_changes_nothing():
    box = Ranged((8, 6, 2), width=1e9)
    model, free = box.identify(), box.identify(input_range=None)
    assert model.report_.exact and model.n_queries_ == free.n_queries_
    assert box.identify(strategy="saturation").report_.exact


def test_infinite_bounds_are_none():
    box = Ranged((8, 6, 2), width=np.inf)
    assert box.identify(input_range=(-np.inf, np.inf)).report_.exact


@pytest.mark.parametrize("sizes", [(8, 6, 3), (8, 6, 1)])
def test_a_classifier_in_a_range(sizes):
    box = Ranged(sizes, output="identity")
    model = box.identify(estimator=lambda X: probabilities_from_logits(box(X)), response_method="predict_proba")
    assert model.report_.exact and parameter_error(center_outputs(box.network), model.network_) < 1e-8


def test_rows_outside_are_not_asked():
    box = Ranged((8, 6, 2), output="identity")
    box.X[3] += 100.0 * box.X.std(axis=0)
    box.range = tuple(np.median(box.X, axis=0) + s * 2.0 * np.ptp(box.X[10:], axis=0) for s in (-1, 1))
    assert box.identify().report_.exact


RANGES = [
    ((1.0, -1.0), "must have low < high; input 0 has low=1.0, high=-1.0"),
    ((-1.0,), r"must be \(low, high\), each a number or an array of 8"),
    ((np.zeros(3), np.ones(3)), r"must be \(low, high\), each a number or an array of 8"),
    ((np.nan, 1.0), "must have low < high"),
    (("a", "b"), r"must be \(low, high\)"),
    ((1e3, 2e3), "only 0 of the 200 rows of X lie inside input_range"),
]


@pytest.mark.parametrize(("input_range", "message"), RANGES)
def test_impossible_ranges(input_range, message):
    with pytest.raises(ValueError, match=message):
        Ranged((8, 6, 1)).identify(input_range=input_range)


SMALL = (
    "input_range leaves [34].* standard deviations around the center, but the search for saturation queries up to 8.5e"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "saturation"}, f"{SMALL}.*; use strategy='auto'"),
        ({"extractor": EntangledWeightExtractor(first_layer="saturation")}, f"{SMALL}.*; use strategy='auto'"),
        ({"extractor": EntangledWeightExtractor(radius=5.0)}, "too near the border.*need 5 standard deviations"),
    ],
)
def test_ranges_that_leave_no_way(options, message):
    with pytest.raises(ValueError, match=message):
        Ranged((8, 6, 1)).identify(**options)


@pytest.mark.parametrize("unknown", [None, "auto"])
def test_unknown_widths_in_a_range(unknown):
    box = Ranged((8, 6, 1), output="identity")
    model = box.identify(layer_widths=unknown)
    assert model.report_.exact and parameter_error(box.network, model.network_) < 1e-8


def test_activations_that_do_not_saturate_stay_near_anyway():
    """The room for derivatives is all that they need."""
    box = Ranged((8, 5, 2), output="identity", activation="softplus")
    assert box.identify().report_.exact
    with pytest.raises(ValueError, match="too near the border"):
        box.identify(extractor=EntangledWeightExtractor(radius=5.0))


@pytest.mark.parametrize("activation", ["relu", "softplus"])
def test_a_centre_outside_is_said_for_every_activation(activation):
    box = Ranged((8, 5, 1), output="identity", activation=activation)
    with pytest.raises(ValueError, match=r"the center is too near the border: input \d is .* outside its input_range"):
        box.identify(extractor=EntangledWeightExtractor(center=box.range[1] + 1.0))


def test_data_at_the_border_of_the_range():
    """Most rows lie on it; nothing that starts there leads outside."""
    box = Ranged((8, 6, 2), width=0.3)
    box.X = np.clip(box.X, *box.range)
    assert box.identify().report_.exact


@pytest.mark.parametrize(("place", "message"), [(0.999, "standard deviations from its"), (1.1, "outside its")])
def test_a_centre_at_the_border(place, message):
    box = Ranged((8, 6, 1))
    low, high = box.range
    center = 0.5 * (low + high)
    center[1] += place * 0.5 * (high - low)[1]
    with pytest.raises(ValueError, match=f"the center is too near the border: input 1 is .*{message}"):
        box.identify(extractor=EntangledWeightExtractor(center=center))


@pytest.mark.parametrize(("sizes", "output"), [((8, 6, 1), "identity"), ((8, 6, 2), "tanh"), ((8, 6, 4, 2), "tanh")])
def test_clipping_without_a_statement(sizes, output):
    """Never a false claim; the message names what helps, with the borders as far as they can be seen."""
    box = Ranged(sizes, output=output, refuses=False)
    low, high = (b[0] for b in box.range)
    message = rf"clip its inputs: 8 of 8 .*input 0 outside \({low:.4g}, {high:.4g}\).*input_range=\(low, high\)"
    with pytest.raises((ValueError, ConvergenceWarning), match=message):
        box.identify(input_range=None, n_attempts=1, n_starts=4)


def test_clipped_outputs_of_a_given_activation():
    network = make_network((6, 5, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    X = np.random.RandomState(0).standard_normal((100, 6))
    spread = network(X).std(axis=0)
    clipped = NetworkIdentifier(
        lambda X: np.clip(network(X), -0.7 * spread, 0.6 * spread),
        layer_widths=(5, 2),
        activation="tanh",
        options=IdentifierOptions(n_attempts=1),
        max_queries=9999,
        random_state=0,
    )
    assert clipped.fit(X).report_.exact
    assert np.abs(clipped.network_(X) - np.clip(network(X), -0.7 * spread, 0.6 * spread)).max() < 1e-9


def test_refusal_without_a_statement():
    with pytest.raises(ValueError, match=r"outside.*search for saturation.*set input_range="):
        Ranged((8, 6, 1)).identify(input_range=None)
