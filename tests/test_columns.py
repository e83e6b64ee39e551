"""Columns of DataFrames: every estimator uses them by name, or raises the model's own error; never by position."""

import functools
import re
import warnings

import numpy as np
import pandas
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skident import (
    EntangledWeightExtractor,
    NetworkCompressor,
    NetworkIdentifier,
    NetworkVerifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
    verify_same,
)
from skident.datasets import make_network
from skident.oracle import BlackBoxError

NAMES = list("abcd")
X = np.random.RandomState(0).standard_normal((60, 4)) * [1.0, 2.0, 0.5, 1.0]
FRAME = pandas.DataFrame(X, columns=NAMES)
Y = np.tanh(X @ [1.0, 0.5, -1.0, 0.3]) - 0.5 * X[:, 1]
CHANGES = {
    "swapped": FRAME[list("bacd")],
    "reversed": FRAME[NAMES[::-1]],
    "renamed": FRAME.rename(columns={"c": "e"}),
    "reversed and renamed": FRAME[NAMES[::-1]].rename(columns={"c": "e"}),
    "extra": FRAME.assign(e=X[:, 0] + X[:, 1] ** 2),
}


@pytest.fixture(scope="module")
def mlp():
    options = {"hidden_layer_sizes": (3,), "activation": "tanh", "solver": "lbfgs", "max_iter": 60, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPRegressor(**options).fit(FRAME, Y)


def trained(model, frame=FRAME):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(frame, Y)


def pipeline(mlp):
    return trained(make_pipeline(StandardScaler(), mlp.__class__(**mlp.get_params())))


def by_name(mlp):
    named = ColumnTransformer([("scaled", StandardScaler(), ["c", "a"]), ("others", "passthrough", ["b", "d"])])
    return trained(make_pipeline(named, mlp.__class__(**mlp.get_params())))


def aligned(mlp):
    """Rows are put into the order of the training columns; one that is missing is NaN."""
    return lambda Z: mlp.predict(pandas.DataFrame(Z, columns=NAMES))


def selected(mlp):
    return lambda Z: mlp.predict(Z[NAMES] if hasattr(Z, "columns") else pandas.DataFrame(Z, columns=NAMES))


def wrapped_error(mlp):
    def service(Z):
        try:
            return mlp.predict(Z)
        except ValueError as error:
            raise RuntimeError("status 500") from error

    return service


MODELS = {
    "estimator": lambda mlp: mlp,
    "bound method": lambda mlp: mlp.predict,
    "partial": lambda mlp: functools.partial(functools.partial(mlp.predict)),
    "function": lambda mlp: lambda Z: mlp.predict(Z),
    "service": wrapped_error,
    "frozen": FrozenEstimator,
    "pipeline": lambda mlp: pipeline(mlp),
    "method of a pipeline": lambda mlp: pipeline(mlp).predict,
    "transformed targets": lambda mlp: trained(TransformedTargetRegressor(mlp, transformer=StandardScaler())),
    "search": lambda mlp: trained(GridSearchCV(mlp, {"alpha": [1e-4]}, cv=2)),
    "selects by name": by_name,
    "selects by name, method": lambda mlp: by_name(mlp).predict,
    "aligns": aligned,
    "selects": selected,
}
KNOWN = ("estimator", "frozen", "pipeline", "transformed targets")


def outputs_by_name(model, frame):
    """What a model gives for a frame: by itself, or with its columns in the order of the fit; None if columns lack."""
    predict = getattr(model, "predict", model)
    return predict(frame[NAMES]) if set(NAMES) <= set(frame.columns) else None


def identified(model, frame):
    return NetworkIdentifier(model, layer_widths=(3, 1), activation="tanh", random_state=0).fit(frame)


def is_right(fit, model, frame):
    """Whether a result has the model's outputs at a frame, by name, or fitting raises an error about names."""
    try:
        found = fit(model, frame)
    except ValueError as error:
        return re.search("feature|column|NaN|status 500", str(error)) is not None
    expected = outputs_by_name(model, frame)
    return expected is not None and np.allclose(np.ravel(found.predict(frame)), np.ravel(expected), atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_identified_by_name_or_refused(model, mlp):
    model = MODELS[model](mlp)
    assert [name for name, frame in CHANGES.items() if not is_right(identified, model, frame)] == []
    assert np.allclose(np.ravel(identified(model, FRAME).predict(FRAME)), np.ravel(outputs_by_name(model, FRAME)))


def compressed(model, frame):
    return NetworkCompressor(model, tol=1e-7, max_iter=5, random_state=0).fit(frame)


@pytest.mark.parametrize("model", KNOWN)
def test_compressed_by_name_or_refused(model, mlp):
    model = MODELS[model](mlp)
    assert [name for name, frame in CHANGES.items() if not is_right(compressed, model, frame)] == []
    assert np.allclose(compressed(model, FRAME).predict(FRAME), model.predict(FRAME), atol=1e-5)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", KNOWN)
def test_audits_of_other_columns_are_refused(model, change, mlp):
    model = MODELS[model](mlp)
    for black_box in (model, model.predict, lambda Z: model.predict(np.asarray(Z))):
        with pytest.raises(ValueError, match=r"[Ff]eature"):
            verify_same(black_box, model, CHANGES[change], random_state=0)
    with pytest.raises(ValueError, match=r"[Ff]eature"):
        NetworkVerifier(model, random_state=0).fit(CHANGES[change])


@pytest.mark.parametrize("model", ["estimator", "bound method", "pipeline", "selects", "aligns", "function"])
def test_audits_query_frames(model, mlp):
    network = pipeline(mlp) if model == "pipeline" else mlp
    assert verify_same(MODELS[model](mlp), network, FRAME, random_state=0).same is True
    assert NetworkVerifier(MODELS[model](mlp), network=network, random_state=0).fit(FRAME).same_ is True


def needs_frame(Z):
    return NETWORK(Z[NAMES].to_numpy())


NETWORK = make_network((4, 3, 2), output_activation="identity", random_state=0)


def test_callables_that_need_a_frame():
    assert verify_same(needs_frame, NETWORK, FRAME, random_state=0).same is True
    assert NetworkVerifier(needs_frame, network=NETWORK, random_state=0).fit(FRAME).same_ is True
    extractor = EntangledWeightExtractor(needs_frame, layer_widths=(3, 2), random_state=0).fit(FRAME)
    assert extractor.components_.shape == (5, 4)
    assert identified(lambda Z: needs_frame(Z)[:, 0], FRAME).report_.exact
    for fit in (lambda frame: verify_same(needs_frame, NETWORK, frame), lambda frame: identified(needs_frame, frame)):
        with pytest.raises(BlackBoxError, match=r"KeyError on a batch.* Give X with the columns that it knows"):
            fit(CHANGES["renamed"])


def test_estimators_without_names_that_need_a_frame():
    class Selecting:
        def get_params(self):
            return {}

        def predict(self, Z):
            return needs_frame(Z)

    assert verify_same(Selecting(), NETWORK, FRAME, random_state=0).same is True


def test_models_are_trained_on_frames(mlp):
    model = make_pipeline(
        by_name(mlp)[0], MLPRegressor(hidden_layer_sizes=(2,), activation="tanh", solver="lbfgs", max_iter=30)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in (NetworkVerifier, NetworkCompressor, EntangledWeightExtractor):
            fitted = estimator(model, random_state=0).fit(FRAME, Y)
            assert list(fitted.estimator_.feature_names_in_) == NAMES, estimator.__name__


def test_results_check_names(mlp):
    for found in (identified(mlp, FRAME), compressed(mlp, FRAME)):
        for change in ("swapped", "renamed", "extra"):
            with pytest.raises(ValueError, match="feature names should match"):
                found.predict(CHANGES[change])


def test_classifiers(mlp):
    labels = np.where(Y > 0, "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = MLPClassifier((3,), alpha=1.0, solver="lbfgs", max_iter=50, random_state=0).fit(FRAME, labels)
    for model in (classifier, classifier.predict_proba):
        with pytest.raises(ValueError, match="feature names should match"):
            NetworkIdentifier(model, response_method="predict_proba").fit(CHANGES["reversed"])
    with pytest.raises(ValueError, match="feature names should match"):
        NetworkIdentifier(classifier.predict, response_method="labels").fit(CHANGES["swapped"])


# -- tables ------------------------------------------------------------------------------------------------------------

ESTIMATORS = {
    "identifier": lambda: NetworkIdentifier(NETWORK),
    "compressor": lambda: NetworkCompressor(NETWORK),
    "verifier": lambda: NetworkVerifier(NETWORK),
    "extractor": lambda: EntangledWeightExtractor(NETWORK),
    "tensor": TensorReLURegressor,
    "saddle": SaddleToSaddleRegressor,
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_duplicate_names(estimator):
    twice = FRAME.set_axis(list("aabc"), axis=1)
    with pytest.raises(ValueError, match=r"duplicate column names: 'a'\. .* X\.to_numpy\(\)"):
        ESTIMATORS[estimator]().fit(twice, Y)
    with pytest.raises(ValueError, match="duplicate column names"):
        verify_same(NETWORK, NETWORK, twice)
    assert verify_same(NETWORK, NETWORK, twice.to_numpy(), random_state=0).same


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_columns_of_text(estimator):
    with pytest.raises(ValueError, match=r"column 'b' of X is not numeric: its first value is 'low'"):
        ESTIMATORS[estimator]().fit(FRAME.assign(b=["low", "high"] * 30), Y)


def test_the_remedy_for_columns_of_text_runs(mlp):
    frame = FRAME.assign(b=["low", "high"] * 30)
    encoder = ColumnTransformer([("b", OneHotEncoder(drop="first"), ["b"])], remainder=StandardScaler())
    model = trained(make_pipeline(encoder, mlp.__class__(**mlp.get_params())), frame)
    with pytest.raises(ValueError, match=r"pass its last step, pipeline\[-1\], with X=pipeline\[:-1\].transform\(X\)"):
        NetworkIdentifier(model).fit(frame)
    assert NetworkIdentifier(model[-1], random_state=0).fit(model[:-1].transform(frame)).report_.exact


class Table:
    """A table of no library: names, and a conversion to an array."""

    def __init__(self, frame):
        self.frame, self.columns, self.shape = frame, list(frame.columns), frame.shape

    def __len__(self):
        return len(self.frame)

    def __dataframe__(self, **options):
        return self.frame.__dataframe__(**options)

    def to_numpy(self):
        return self.frame.to_numpy()


def test_tables_of_other_libraries(mlp):
    found = identified(mlp, Table(FRAME))
    assert list(found.feature_names_in_) == NAMES
    assert np.array_equal(found.predict(Table(FRAME)), found.predict(FRAME))
    assert verify_same(needs_frame, NETWORK, Table(FRAME), random_state=0).same is True
    for change in CHANGES.values():
        with pytest.raises(ValueError, match="feature names should match"):
            identified(mlp, Table(change))
        with pytest.raises(ValueError, match="feature names should match"):
            found.predict(Table(change))


class PolarsFrame:
    """As much of `polars.DataFrame` as building one from rows and names takes."""

    def __init__(self, data, schema):
        self.data, self.columns = np.array(data), list(schema)

    def to_numpy(self):
        return self.data


def test_models_get_frames_of_the_library_of_x(monkeypatch):
    monkeypatch.setattr(PolarsFrame, "__module__", "polars.dataframe.frame")
    from skident.oracle.black_box import named_rows

    framed = named_rows(X[:2], PolarsFrame(X, NAMES))
    assert type(framed) is PolarsFrame and framed.columns == NAMES and np.array_equal(framed.to_numpy(), X[:2])


def test_polars(mlp):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X, schema=NAMES)
    assert np.allclose(identified(mlp, frame).predict(frame), mlp.predict(FRAME))
    assert verify_same(lambda Z: NETWORK(Z.select(NAMES).to_numpy()), NETWORK, frame, random_state=0).same is True
    for change in CHANGES.values():
        with pytest.raises(ValueError, match="feature names should match"):
            identified(mlp.predict, polars.DataFrame(change.to_numpy(), schema=list(change.columns)))


def test_models_of_arrays_get_arrays():
    """A model without names takes columns by position: there is nothing else it could mean."""
    seen = set()

    def model(Z):
        seen.add(type(Z))
        return NETWORK(Z.reshape(len(Z), 4))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verify_same(model, NETWORK, CHANGES["renamed"], random_state=0).same is True
        assert verify_same(LinearRegression().fit(X, NETWORK(X)).predict, NETWORK, FRAME).same is False
    assert seen == {np.ndarray, pandas.DataFrame}  # only the first call
