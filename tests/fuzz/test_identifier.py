"""`NetworkIdentifier` on any rows of X, with a cheap black box: it ends with a network, or says why not.

A few examples, always the same; ``SKIDENT_FUZZ=2000`` tries as many, and others every time.
"""

import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_network
from skident.linalg import column_units
from tests.fuzz.test_samples import EXTREME, FUZZ, tables
from tests.identifiers import make_identifier

NETWORKS = {
    D: make_network((D, 3, 2), bias_scale=0.5, output_activation="identity", random_state=D) for D in (2, 3, 4, 6)
}


def box_of(X, kind):
    """A network in the units of X, as far as it has some."""
    D, A = X.shape[1], X.astype(float)
    with np.errstate(all="ignore"):
        unit = np.nan_to_num(np.abs(A - A.mean(axis=0)).max(axis=0), posinf=0.0)
        unit, centre = np.where(unit > 0, unit, 1.0), np.nan_to_num(A.mean(axis=0), posinf=0.0, neginf=0.0)
    network = NETWORKS.get(D, NETWORKS[2])
    weights = network.weights[0][:D]

    def box(rows):
        Z = np.clip((np.asarray(rows, dtype=float) - centre) / unit, -1e9, 1e9)
        answers = np.tanh(2.0 * Z @ weights + network.biases[0]) @ network.weights[1]
        return {"exact": answers, "float32": answers.astype(np.float32), "one": answers[:, 0]}[kind]

    return box


@FUZZ
@given(
    tables(EXTREME),
    st.sampled_from(["exact", "exact", "float32", "one"]),
    st.sampled_from([None, None, (3, 2), "auto", (3, 2, 2)]),
)
def test_an_identification_works_or_says_why_not(X, kind, widths):
    box = box_of(X, kind)
    few = {"n_attempts": 1, "n_starts": 2, "max_neurons": 8}  # no limit of time: examples must end as they did
    model = make_identifier(box, layer_widths=widths, activation="tanh", random_state=0, **few)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X)
        except ValueError as error:
            assert len(str(error)) > 20 and "math domain" not in str(error)
            assert not vars(model).keys() & {"n_features_in_", "network_"}
            return
    assert [str(w.message) for w in caught if w.category is not ConvergenceWarning] == []
    answers = model.predict(X)
    assert len(answers) == len(X) and np.isfinite(answers).all()
    if model.report_.exact:
        mean, unit = column_units(X.astype(float))
        rows = mean + unit * np.random.RandomState(1).standard_normal((200, X.shape[1]))
        truth = np.asarray(box(rows), dtype=float)
        assert np.abs(model.predict(rows) - truth).max() < 1e-6 * np.abs(truth - truth.mean(axis=0)).max()
