"""Old names of constructor parameters: they work as the new ones do, with a FutureWarning."""

import numpy as np
import pytest
from sklearn.base import clone

from skident import (
    EntangledWeightExtractor,
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    NetworkCompletion,
    SaddleEscapeAnalyzer,
)
from skident.datasets import make_network

RNG = np.random.RandomState(0)
X = RNG.standard_normal((40, 3))
Y = (X[:, 0] + X[:, 1]) ** 2
LINEAR = HierarchicalQuadraticNet((2,), readout="linear", l2=1e-2, max_iter=60, random_state=0)
ADAM = HierarchicalQuadraticNet((2,), solver="adam", max_epochs=2, random_state=0)
CLASSIFIER = HierarchicalQuadraticNetClassifier((2,), solver="lbfgs", max_iter=60, random_state=0)
ESCAPES = SaddleEscapeAnalyzer("squared_error", width=3, max_iter=60, random_state=0)


@pytest.mark.parametrize(
    ("estimator", "y", "old", "new", "value"),
    [
        (LINEAR, Y, "n_init", "n_starts", 1),
        (ADAM, Y, "lr", "learning_rate", 0.02),
        (CLASSIFIER, Y > 1, "n_init", "n_starts", 1),
        (ESCAPES, Y, "n_restarts", "n_starts", 2),
    ],
)
def test_old_names_work_with_a_warning(estimator, y, old, new, value):
    renamed = clone(estimator).set_params(**{new: value}).fit(X, y)
    given = clone(clone(estimator).set_params(**{old: value}))
    assert given.get_params()[old] == value
    with pytest.warns(FutureWarning, match=f"{old} is renamed: write .*{new}={value}"):
        given.fit(X, y)
    np.testing.assert_array_equal(given.transform(X), renamed.transform(X))


def test_old_names_of_the_pipeline_of_entangled_weights():
    network = make_network((3, 2, 2), random_state=0)
    extractor = EntangledWeightExtractor(network, layer_widths=(2, 2), random_state=0)
    with pytest.warns(FutureWarning, match=r"n_init is renamed: write EntangledWeightExtractor\(n_starts=5\)"):
        Z = clone(extractor).set_params(n_init=5).fit_transform(X)
    completion = NetworkCompletion((2, 2), output_activation="tanh", random_state=0)
    with pytest.warns(FutureWarning, match=r"n_init is renamed: write NetworkCompletion\(n_starts=2\)"):
        old = clone(completion).set_params(n_init=2).fit(Z, network(X))
    np.testing.assert_array_equal(old.predict(Z), completion.set_params(n_starts=2).fit(Z, network(X)).predict(Z))
    with pytest.warns(FutureWarning, match="misfit_ is now residual_"):
        assert old.misfit_ == old.residual_
    with pytest.warns(FutureWarning, match="shifts_ is now biases_"):
        assert old.shifts_ is old.biases_


@pytest.mark.parametrize("old", ["n_init", "lr"])
def test_old_names_are_validated(old):
    with pytest.raises(ValueError, match=f"The '{old}' parameter"):
        clone(LINEAR).set_params(**{old: 0}).fit(X, Y)
