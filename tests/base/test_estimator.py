"""Names that no estimator has, and pickles of another format, are refused with a message."""

import copy
import pickle

import pytest

import skident
from skident.base.estimator import Estimator

ESTIMATORS = [
    thing
    for thing in (getattr(skident, name) for name in skident.__all__)
    if isinstance(thing, type) and issubclass(thing, Estimator)
]
REMOVED = {
    "NetworkIdentifier": ("strategy", "extractor", "completion", "polish", "n_check", "n_attempts", "max_neurons"),
    "EntangledWeightExtractor": ("n_init",),
    "NetworkCompletion": ("n_init",),
    "HierarchicalQuadraticNet": ("n_init", "lr"),
    "HierarchicalQuadraticNetClassifier": ("n_init", "lr"),
    "SaddleEscapeAnalyzer": ("n_restarts",),
}
CASES = [(getattr(skident, name), removed) for name, names in REMOVED.items() for removed in names]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_names_that_do_not_exist_are_errors(kind, name):
    with pytest.raises(ValueError, match=f"Invalid parameter '{name}' for estimator {kind.__name__}"):
        kind().set_params(**{name: 1})
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        kind(**{name: 1})
    assert not hasattr(kind(), name)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pickles_of_another_format_are_refused(kind):
    estimator = kind()
    for same in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert repr(same.get_params()) == repr(estimator.get_params()) and vars(same).keys() == vars(estimator).keys()
    old = kind.__new__(kind)
    for state in ({**vars(estimator), "n_init": 3}, {}, {**vars(estimator), "_pickle_format": 0}):
        with pytest.raises(ValueError, match=f"This {kind.__name__} was pickled by another version of skident.*again"):
            old.__setstate__(state)
