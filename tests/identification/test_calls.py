"""How a model is called: batches of a fixed size, single rows, DataFrames."""

import re
import warnings

import numpy as np
import pandas
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import IdentifierOptions, NetworkIdentifier
from skident.datasets import make_network
from skident.oracle import BlackBoxError

NETWORK = make_network((5, 4, 1), output_activation="identity", random_state=0)
X = np.random.RandomState(0).standard_normal((100, 5))
FRAME = pandas.DataFrame(X, columns=list("abcde"))


def identified(model, rows=X, **options):
    return NetworkIdentifier(model, options=IdentifierOptions(**options), random_state=0).fit(rows)


@pytest.mark.parametrize("as_output", [np.asarray, torch.as_tensor, list])
def test_batches_have_a_fixed_size_and_copies_are_no_queries(as_output):
    sizes = set()

    def model(rows):
        sizes.add(len(rows))
        return as_output(NETWORK(rows))

    found = identified(model, batch_size=64)
    assert sizes == {64}
    assert found.report_.exact
    assert found.n_queries_ == identified(NETWORK.__call__).n_queries_


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_model_of_one_row(shape):
    def model(x):
        assert x.shape == (5,)
        return NETWORK(x[None]).reshape(shape)

    assert identified(model, vectorized=False).report_.exact


def test_the_output_of_one_row_may_be_a_float():
    assert identified(lambda x: float(NETWORK(x[None])[0, 0]), vectorized=False).report_.exact


def test_labels_row_by_row():
    def model(x):
        return "up" if x @ [1.0, -2.0, 0.5] > 0.3 else "down"

    options = IdentifierOptions(vectorized=False)
    found = NetworkIdentifier(model, response_method="labels", options=options, random_state=0).fit(X[:, :3])
    assert found.report_.exact
    assert list(found.classes_) == ["down", "up"]


def test_models_get_the_columns_of_a_frame():
    seen = set()

    def model(frame):
        seen.add(tuple(frame.columns))
        return NETWORK(frame[list("abcde")].to_numpy())

    assert identified(model, FRAME).report_.exact
    assert seen == {tuple("abcde")}


def pipeline():
    columns = ColumnTransformer([("scaled", StandardScaler(), ["c", "a"]), ("others", "passthrough", ["b", "d", "e"])])
    return make_pipeline(columns, MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", random_state=0))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("frozen", [False, True])
def test_columns_are_selected_by_name(frozen):
    y = NETWORK(X)[:, 0]
    model = FrozenEstimator(pipeline().fit(FRAME, y)) if frozen else pipeline()
    found = NetworkIdentifier(model, random_state=0).fit(FRAME, None if frozen else y)
    assert found.report_.exact
    assert np.allclose(found.predict(FRAME), found.estimator_.predict(FRAME), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "model",
    [
        NETWORK,
        NETWORK.to_torch(),
        FrozenEstimator(LinearRegression().fit(X, X[:, 0])),
        LinearRegression().fit(X, X[:, 0]).predict,
        lambda rows: LinearRegression().fit(X, X[:, 0]).predict(rows),
        lambda rows: NETWORK.to_torch()(torch.from_numpy(rows)),
    ],
)
def test_models_of_arrays_get_arrays_without_a_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert identified(model, FRAME).report_.exact


def test_the_error_for_a_frame_is_raised_if_arrays_fail_too():
    def model(frame):
        return frame["z"]

    with pytest.raises(BlackBoxError, match=re.escape("raised KeyError on a batch")):
        identified(model, FRAME)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (FrozenEstimator(LinearRegression().fit(X, X[:, 0])), {"vectorized": False}, "set batch_size=1"),
        (NETWORK.to_torch(), {"vectorized": False}, "set batch_size=1"),
        (lambda x: x[0], {"vectorized": False, "batch_size": 8}, "contradicts batch_size=8"),
        (lambda rows: rows[:3, 0], {"batch_size": 8}, "a batch of 8 rows and returned shape (3,)"),
        (lambda x: x[: 2 + (x[0] > 0)], {"vectorized": False}, "outputs of different shapes for single rows"),
        (lambda rows: rows[:, 0], {"batch_size": 0}, "The 'batch_size' parameter of IdentifierOptions"),
        (lambda rows: rows[:, 0], {"vectorized": "no"}, "The 'vectorized' parameter of IdentifierOptions"),
    ],
)
def test_bad_input(model, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        identified(model, **options)


def test_batch_norm_in_training_mode_is_refused_by_name():
    torch.manual_seed(0)
    layers = torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU(), torch.nn.Linear(7, 1)
    module = torch.nn.Sequential(*layers).double()
    with pytest.raises(ValueError, match=r"depends on the other rows of the call.*training mode.*batch_size=1"):
        identified(lambda rows: module(torch.from_numpy(rows)))
    assert identified(lambda rows: module.eval()(torch.from_numpy(rows))).report_.exact


def test_a_model_with_state_is_refused():
    previous = [0.0]

    def model(rows):
        outputs = NETWORK(rows) + 0.3 * previous[0]
        previous[0] = np.tanh(rows[0, 0])
        return outputs

    with pytest.raises(ValueError, match="different outputs when queried twice"):
        identified(model)


def test_a_model_that_refuses_far_rows_is_named():
    def model(rows):
        if np.abs(rows).max() > 6:
            raise ValueError("outside the training range")
        return NETWORK(rows)

    with pytest.raises(BlackBoxError, match=r"outside the training range.* standard deviations from the center"):
        identified(model)
