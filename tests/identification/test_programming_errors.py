"""An exception that no stage raises on purpose is a programming error: it reaches the user, whatever else was tried."""

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest

import skident
from skident import EntangledWeightExtractor, NetworkIdentifier
from skident.datasets import make_network
from skident.identification import diagnosis
from skident.identification.activation import ActivationEvidence
from skident.oracle import BlackBoxError, NotIdentified, Oracle
from tests.identifiers import make_identifier

PACKAGE = "skident.identification."
TWO_TANH = {"layer_widths": (6, 4, 1), "activation": "tanh", "output_activation": "identity"}
ONE_TANH = {"layer_widths": (5, 1), "activation": "tanh", "output_activation": "identity"}
RELU = {"layer_widths": (5, 1), "activation": "relu", "output_activation": "identity"}

# Where the error is put, the options under which it is met, and the network: widths with the inputs, activation.
PLACES = {
    "piecewise linear, one layer": ("methods.relu.find_relu_network", RELU, (4, 5, 1), "relu"),
    "piecewise linear, deep": (
        "methods.relu.find_piecewise_network",
        {**RELU, "layer_widths": (5, 3, 1)},
        (4, 5, 3, 1),
        "relu",
    ),
    "piecewise linear, activation detected": ("methods.relu.find_relu_network", {}, (4, 5, 1), "relu"),
    "signs of shallow units": ("piecewise.shallow.signs.solve_signs", RELU, (2, 5, 1), "relu"),
    "first layer": ("methods.first_layer.find_first_layer", TWO_TANH, (6, 6, 4, 1), "tanh"),
    "behind the first layer": (
        "methods.saturating.fit_downstream",
        {**TWO_TANH, "layer_widths": (5, 4, 4, 1)},
        (6, 5, 4, 4, 1),
        "tanh",
    ),
    "fewer units than given": (
        "methods.saturating._recover",
        {**TWO_TANH, "layer_widths": (8, 4, 1)},
        (6, 6, 4, 1),
        "tanh",
    ),
    "second layer from faces": (
        "methods.second_layer.recover_two_layers",
        {**TWO_TANH, "layer_widths": (7, 5, 1)},
        (8, 7, 5, 1),
        "tanh",
    ),
    "second layer from fits": (
        "methods.second_layer.recover_by_fit",
        {**TWO_TANH, "layer_widths": (5, 7, 1)},
        (3, 5, 7, 1),
        "tanh",
    ),
    "profiles": ("methods.relu_limit.network_from_limit", {"activation": "softplus"}, (4, 5, 1), "softplus"),
    "widths unknown": ("methods.discovery.redundant_units", {"layer_widths": "auto"}, (5, 4, 1), "tanh"),
    "hessians": ("methods.hessians.design_points", {**ONE_TANH, "strategy": "hessian"}, (5, 5, 1), "tanh"),
    "extractor": ("extractor.find_entangled_weights", {**TWO_TANH, "strategy": "hessian"}, (9, 6, 4, 1), "tanh"),
    "near the data": (
        "methods.near_data.fit_network",
        {**TWO_TANH, "input_range": (-3.0, 3.0), "layer_widths": (12, 12, 1)},
        (2, 12, 12, 1),
        "tanh",
    ),
    "polish": ("attempt.polish_from_oracle", ONE_TANH, (5, 5, 1), "tanh"),
    "activation detection": ("observe.detect_activation", {}, (5, 5, 1), "tanh"),
    "redundant units": ("validate.redundant_units", ONE_TANH, (5, 5, 1), "tanh"),
}


class Raises:
    """A stage that raises."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [ValueError, IndexError, np.linalg.LinAlgError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_programming_error_surfaces(place, error, monkeypatch):
    path, options, sizes, activation = PLACES[place]
    module, name = path.rsplit(".", 1)
    stage = Raises(error("operands could not be broadcast together"))
    monkeypatch.setattr(importlib.import_module(PACKAGE + module), name, stage)
    network = make_network(sizes, activation=activation, output_activation="identity", random_state=3)
    X = np.random.RandomState(0).standard_normal((60, sizes[0])).clip(-2.9, 2.9)
    identifier = make_identifier(lambda X: network(X), random_state=0, **options)
    with pytest.raises(error, match="operands could not be broadcast") as caught:
        identifier.fit(X)
    assert stage.calls == 1 and caught.type is error
    assert not hasattr(identifier, "network_")


@pytest.mark.parametrize("after", [0, 30, 3000])
def test_a_model_that_raises_a_value_error_is_quoted_as_the_model(after):
    network, n_rows = make_network((5, 4, 1), random_state=0), [0]

    def model(X):
        n_rows[0] += len(X)
        if n_rows[0] > after:
            raise ValueError("operands could not be broadcast together")
        return network(X)

    with pytest.raises(BlackBoxError, match="black box raised ValueError .*operands could not be broadcast"):
        NetworkIdentifier(model, random_state=0).fit(np.random.RandomState(0).standard_normal((60, 5)))


def test_not_identified_says_where_and_why():
    error = NotIdentified("second layer", "rank", "10 units, not 11", n_seen=10)
    assert (error.stage, error.reason, error.n_seen, error.final) == ("second layer", "rank", 10, True)
    assert str(error) == "10 units, not 11" and isinstance(error, ValueError)


def test_not_identified_travels_between_processes():
    import pickle

    error = NotIdentified("plan", "options", "no", final=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_an_extractor_passes_programming_errors_on(monkeypatch):
    monkeypatch.setattr(
        importlib.import_module(PACKAGE + "extractor"), "find_entangled_weights", Raises(IndexError("index 7"))
    )
    network = make_network((6, 4, 3), random_state=0)
    extractor = EntangledWeightExtractor(network, layer_widths=(4, 3), first_layer="hessian", random_state=0)
    with pytest.raises(IndexError, match="index 7"):
        extractor.fit(np.random.RandomState(0).standard_normal((60, 6)))


def test_hints_are_added_to_refusals_only():
    oracle = Oracle(make_network((4, 3, 1), random_state=0), 4)

    class Problem:
        activations, detected = ("tanh", "identity"), ActivationEvidence("tanh", "", "settles")

    Problem.oracle = oracle
    with pytest.raises(NotIdentified, match=r"no units\. Detected activation: tanh") as caught:
        with diagnosis.explained(Problem):
            raise NotIdentified("first layer", "units", "no units.")
    assert (caught.value.stage, caught.value.reason) == ("first layer", "units")
    with pytest.raises(ValueError, match=r"^no units\.$"):
        with diagnosis.explained(Problem):
            raise ValueError("no units.")


WIDE = {
    "ValueError",
    "Exception",
    "BaseException",
    "LinAlgError",
    "IndexError",
    "TypeError",
    "RuntimeError",
    "KeyError",
}
STAGES = ("identification", "fitting", "samples", "compression", "hierarchical", "saddle")
# File: what it converts from the user; a stage itself catches nothing that it has not raised on purpose.
USER_INPUT = {
    "identification/completion.py": "start, two arrays as given",
    "saddle/gradient_at_zero.py": "a loss as given",
}


def handlers(tree):
    """Line and names of every exception handler."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = [] if node.type is None else getattr(node.type, "elts", [node.type])
            yield node.lineno, {getattr(c, "attr", getattr(c, "id", "")) for c in caught} or {"BaseException"}


def test_no_stage_catches_what_programming_errors_raise():
    root = Path(skident.__file__).parent
    paths = [path for stage in STAGES for path in (root / stage).rglob("*.py")]
    wide = {
        path.relative_to(root).as_posix(): line
        for path in paths
        for line, names in handlers(ast.parse(path.read_text(encoding="utf-8")))
        if names & WIDE
    }
    assert wide.keys() == USER_INPUT.keys(), wide


def test_wide_handlers_are_found():
    source = "try: f()\nexcept (np.linalg.LinAlgError, OSError): pass\nexcept: pass"
    assert [names & WIDE for _, names in handlers(ast.parse(source))] == [{"LinAlgError"}, {"BaseException"}]


def test_a_reading_that_the_model_refuses_does_not_hide_another_error(monkeypatch):
    """Logits of a classifier may be lost where one reading needs them; the other one states what failed."""
    module = importlib.import_module(PACKAGE + "identifier")

    def pose(reading, *_):
        raise reading

    monkeypatch.setattr(module, "pose", pose)
    monkeypatch.setattr(module, "sharp_bends_of", lambda problem: None)
    first, second = NotIdentified("layers", "unexplained", "first"), BlackBoxError("second")
    for readings in ([first, second], [second, first]):
        with pytest.raises(NotIdentified, match="first"):
            module._recover(readings, None, None, None)
    with pytest.raises(BlackBoxError, match="second"):
        module._recover([second], None, None, None)
