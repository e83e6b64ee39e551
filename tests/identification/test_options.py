"""Options of the identifier: tuned in searches, and checked."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skident import EntangledWeightExtractor, IdentifierOptions, NetworkIdentifier
from skident.datasets import make_network

NETWORK = make_network((5, 4, 2), output_activation="identity", random_state=0)
X = np.random.RandomState(0).standard_normal((120, 5))


def box(U):
    return NETWORK(U)


def test_options_are_set_by_name():
    identifier = NetworkIdentifier(box).set_params(options__n_starts=5, options__n_check=30)
    assert (identifier.options.n_starts, identifier.options.n_check) == (5, 30)
    assert clone(identifier).options.n_starts == 5 and clone(identifier).options is not identifier.options
    assert identifier.get_params()["options__n_check"] == 30
    nested = NetworkIdentifier(options=IdentifierOptions(extractor=EntangledWeightExtractor()))
    assert nested.set_params(options__extractor__radius=0.2).options.extractor.radius == 0.2


def test_options_are_tuned_in_a_grid_search():
    identifier = NetworkIdentifier(box, layer_widths=(4, 2), activation="tanh", random_state=0)
    search = GridSearchCV(identifier, {"options__n_check": [20, 40]}, cv=2).fit(X, NETWORK(X))
    assert search.best_score_ > 1 - 1e-12
    assert {model["options__n_check"] for model in search.cv_results_["params"]} == {20, 40}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NetworkIdentifier().set_params(options__n_start=3), "no option 'n_start'; did you mean 'n_starts'?"),
        (lambda: IdentifierOptions().set_params(max_neuron=3), "no option 'max_neuron'; did you mean 'max_neurons'?"),
        (lambda: IdentifierOptions().set_params(zzz=3), "no option 'zzz'; options are batch_size, completion, emulate"),
    ],
)
def test_a_typo_names_the_closest_option(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_a_typo_in_the_constructor_is_an_error():
    with pytest.raises(TypeError, match="n_start"):
        IdentifierOptions(n_start=3)


@pytest.mark.parametrize(("name", "value"), [("n_check", 19), ("strategy", "guess"), ("polish", 3), ("n_starts", 0)])
def test_an_invalid_option_is_refused(name, value):
    identifier = NetworkIdentifier(box, options=IdentifierOptions(**{name: value}))
    with pytest.raises(ValueError, match=f"The '{name}' parameter of IdentifierOptions"):
        identifier.fit(X)
    with pytest.raises(ValueError, match="The 'options' parameter of NetworkIdentifier"):
        NetworkIdentifier(box, options={"n_check": 30}).fit(X)


def test_the_plan_and_what_was_tried_are_reported():
    report = NetworkIdentifier(box, layer_widths=(4, 2), activation="tanh", random_state=0).fit(X).report_
    assert len(report.plan) == 4 and all(step.startswith("Hessians (") for step in report.plan)
    assert len(report.tried) == report.attempts == 1 and report.tried[0][1].startswith("error ")
