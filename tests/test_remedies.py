"""What messages recommend can be done: every parameter exists and takes the value, and the calls run."""

import ast
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor

import skident
from skident import EntangledWeightExtractor, IdentifierOptions, NetworkCompletion, NetworkIdentifier
from skident.datasets import make_network
from skident.landscape import TrainingTrials, phase_transition
from skident.oracle import Oracle
from tests.identifiers import make_identifier

NAMES = {
    "EntangledWeightExtractor": EntangledWeightExtractor,
    "NetworkCompletion": NetworkCompletion,
    "FrozenEstimator": FrozenEstimator,
    "IdentifierOptions": IdentifierOptions,
    "low": -1.0,
    "high": 1.0,
}
# A parameter and a value of it in a message, such as "n_starts=100" or "completion=NetworkCompletion(n_starts=20)".
VALUE = r"'[^']*'|\w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\([^()]*\)|[\w.+-]*\w"
SETTING = re.compile(
    rf"\b(?:try|use|set|take|takes|with|and|or|as|leave|units|solver|for|\() ?(?<![\w.])([a-z_]+)=({VALUE})"
)


def settings(text):
    """Pairs of name and value, as written, that a text recommends."""
    return [(name, value) for name, value in SETTING.findall(text) if "..." not in value]


def texts(tree):
    """Strings of a module that are no docstrings, with ... for what is filled in."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (documented | parts):
            yield node.value


def recommended():
    """Package, name and value of everything that is recommended with its value in a text of the package."""
    root = Path(skident.__file__).parent
    sources = {path: ast.parse(path.read_text(encoding="utf-8")) for path in root.rglob("*.py")}
    return sorted(
        {
            (path.relative_to(root).parts[0], *setting)
            for path, tree in sources.items()
            for text in texts(tree)
            for setting in settings(text)
        }
    )


RECOMMENDED = recommended()
# Parameters of something that is not an estimator of the package: whose they are, and how they are tried.
OTHERS = {
    ("network", "loss", "'squared_error'"): lambda value: MLPRegressor(loss=value)._validate_params(),
    ("oracle", "derivatives", "'finite_difference'"): lambda value: Oracle(np.sum, 2, derivatives=value),
    ("landscape", "sharpness", "10"): lambda value: phase_transition(
        8, 2, [1, 2], sharpness=value, trials=TrainingTrials(n_trials=1, n_starts=1, max_iter=3), random_state=0
    ),
    ("saddle", "loss", "'squared_error'"): lambda value: skident.SaddleEscapeAnalyzer(loss=value)._validate_params(),
}


def estimators_with(name):
    """Public estimators that have a parameter."""
    members = [getattr(skident, member) for member in skident.__all__]
    found = [member() for member in members if isinstance(member, type) and issubclass(member, BaseEstimator)]
    return [estimator for estimator in found if name in estimator.get_params(deep=False)]


def test_there_are_recommendations():
    assert len(RECOMMENDED) > 20


@pytest.mark.parametrize(("package", "name", "value"), RECOMMENDED)
def test_a_recommended_setting_is_valid(package, name, value):
    evaluated = eval(value, {}, NAMES)
    if (package, name, value) in OTHERS:
        OTHERS[package, name, value](evaluated)
        return
    owners = [e for e in estimators_with(name) if type(e).__module__.startswith(f"skident.{package}")]
    owners = owners or estimators_with(name)
    assert owners, f"no estimator has a parameter {name}"
    taken = []
    for estimator in owners:
        try:
            estimator.set_params(**{name: evaluated})._validate_params()
            taken.append(estimator)
        except ValueError:
            continue
    assert taken, f"{name}={value} is valid for none of {owners}"


def said_by(estimator, X, y=None):
    """What a fit warns of, or raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y)
        except ValueError as error:
            return str(error)
    return " ".join(str(warning.message) for warning in caught)


def with_remedy(estimator, said):
    """The estimator as the message says that it should be."""
    found = settings(said)
    assert found, f"no setting is recommended: {said}"
    name, value = found[0]
    return estimator.set_params(**{name: eval(value, {}, NAMES)})


RNG = np.random.RandomState(0)
X = RNG.standard_normal((120, 5))
LINEAR = {"output_activation": "identity", "random_state": 0}
SHALLOW, DEEP = make_network((5, 4, 1), **LINEAR), make_network((5, 4, 3, 1), **LINEAR)
RELU = make_network((5, 6, 1), activation="relu", **LINEAR)
SOFTPLUS = make_network((5, 4, 1), activation="softplus", **LINEAR)
HARD = make_network((5, 3, 1), activation="hard_tanh", **LINEAR)


def service(network, beyond, limits=(-6.0, 6.0)):
    """Queries a network within limits; beyond them it raises, or returns a value."""

    def box(X):
        outside = np.any((limits[0] > X) | (limits[1] < X), axis=1)
        if beyond == "raises" and outside.any():
            raise ValueError("input out of range")
        return network(X) if beyond == "raises" else np.where(outside[:, None], beyond, network(X))

    return NetworkIdentifier(box, random_state=0)


UNEQUAL = -np.arange(4.0, 9.0), np.arange(5.0, 10.0)
CLASSES = (X[:, 0] > 0).astype(int)
CLASSIFIER = LogisticRegression().fit(X, CLASSES)


def identifier(network, **options):
    return make_identifier(lambda X: network(X), random_state=0, **options)


# What is said, and what the remedy gives: a fit that is exact, or one that goes through.
CASES = {
    "one hidden layer by default": (
        identifier(DEEP, layer_widths=None, activation="tanh"),
        "set layer_widths='auto'",
        "exact",
    ),
    "too many tanh units": (
        identifier(SHALLOW, layer_widths=(6, 1), activation="tanh"),
        "layer_widths",
        None,
    ),
    "too few first-layer units": (
        identifier(DEEP, layer_widths=(3, 3, 1), activation="tanh", output_activation="identity"),
        "4 different ones",
        "exact",
    ),
    "too few ReLU units": (
        identifier(RELU, layer_widths=(4, 1), activation="relu"),
        "6 activation boundaries",
        "exact",
    ),
    "too few softplus units": (
        identifier(SOFTPLUS, layer_widths=(3, 1), activation="softplus"),
        "4 activation boundaries were detected",
        "exact",
    ),
    "too few hard tanh units": (
        identifier(HARD, layer_widths=(2, 1), activation="hard_tanh"),
        "3 pairs of parallel",
        "exact",
    ),
    "a smooth model taken as ReLU": (identifier(SHALLOW, activation="relu"), "try activation='tanh'", "exact"),
    "ReLU by saturation": (
        identifier(RELU, activation="relu", strategy="saturation"),
        "use options=IdentifierOptions(strategy='auto')",
        "exact",
    ),
    "softplus by saturation": (
        identifier(SOFTPLUS, layer_widths=(4, 1), activation="softplus", strategy="saturation"),
        "use options=IdentifierOptions(strategy='hessian')",
        "fits",
    ),
    **{
        f"a service, {beyond} beyond a range, {name}": (service(network, beyond), "input_range=(-5.", "exact")
        for beyond in ("raises", np.nan, 0.0, -1.0)
        for name, network in (("ReLU", RELU), ("tanh", SHALLOW))
    },
    "a service with limits per input": (service(RELU, "raises", UNEQUAL), "set input_range=", "exact"),
    "a service with a sentinel, given activation": (
        service(RELU, 0.0).set_params(activation="relu"),
        "the outputs jump to 0 at a limit",
        "exact",
    ),
    "labels of a classifier": (
        NetworkIdentifier(FrozenEstimator(CLASSIFIER), response_method="predict", random_state=0),
        "use response_method='predict_proba'",
        "runs",
    ),
    "one output, last layer by Hessians": (
        EntangledWeightExtractor(
            make_network((5, 4, 1), random_state=0),
            layer_widths=(4, 1),
            output_activation="tanh",
            last_layer="hessian",
            first_layer="hessian",
        ),
        "use last_layer='jacobian'",
        "fits",
    ),
    "derivatives of a callable": (
        EntangledWeightExtractor(lambda X: SHALLOW(X), layer_widths=(4, 1), derivatives="exact", random_state=0),
        "use derivatives='finite_difference'",
        "fits",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_recommended_works(case):
    estimator, said, then = CASES[case]
    message = said_by(estimator, X)
    assert said in message
    if then is None:
        return
    again = with_remedy(estimator, message)
    after = said_by(again, X)
    if then == "exact":
        assert again.report_.exact, after
    elif then == "fits":
        assert hasattr(again, "n_features_in_"), after
