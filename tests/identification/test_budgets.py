"""Time and questions are bounded, wherever an identification is when they run out."""

import time

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_network
from skident.identification.methods import second_layer
from skident.oracle import Budget, NotIdentified, Oracle, OutOfBudgetError
from tests.identifiers import make_identifier

NETWORK = make_network((8, 6, 4, 1), bias_scale=0.5, output_activation="identity", random_state=0)
WIDE = make_network((17, 40, 40, 1), bias_scale=0.3, output_activation="identity", random_state=1)
# Beyond the limit a step of a fit that has begun is made to its end; without the limit these cases take minutes.
SLACK = 20.0
pytestmark = pytest.mark.usefixtures("own_seconds")


def identifier(box, widths, **options):
    return make_identifier(box, layer_widths=widths, activation="tanh", random_state=0, **options)


class Timed:
    """A black box that knows when it was asked."""

    def __init__(self, function, seconds=0.0):
        self.function, self.seconds, self.asked = function, seconds, []

    def __call__(self, X):
        self.asked.append(time.perf_counter())
        time.sleep(self.seconds)
        return self.function(X)


def bounded(box, n_inputs, widths, max_seconds):
    """A fit, of which it is asserted that nothing was asked when time was over, and that it ended soon after."""
    X, began = np.random.RandomState(0).standard_normal((100, n_inputs)), time.perf_counter()
    try:
        return identifier(box, widths, max_seconds=max_seconds).fit(X)
    finally:
        assert max(box.asked) - began < max_seconds + 0.5
        assert time.perf_counter() - began < max_seconds + box.seconds + SLACK


def test_what_was_found_in_time_is_returned(monkeypatch):
    monkeypatch.setattr(second_layer, "applies", lambda problem: False)  # which find it within seconds
    with pytest.warns(ConvergenceWarning, match="The search was ended: max_seconds=3|random starts is over"):
        found = bounded(Timed(WIDE), 17, (40, 40, 1), 3.0)
    assert not found.report_.exact and found.layer_widths_ == (40, 40, 1)


@pytest.mark.parametrize(
    ("box", "n_inputs", "widths", "said"),
    [
        (Timed(WIDE), 17, "auto", "max_seconds=1.5"),
        (
            Timed(NETWORK, 0.2),
            8,
            (6, 4, 1),
            "no network was recovered until then, with|before any unit was recovered",
        ),
        (Timed(lambda X: np.sign(X[:, 0]) * (X[:, 1] > 0.3)), 5, (5, 4, 1), "1.5 are over|does not|no |class labels"),
    ],
)
def test_time_is_bounded(box, n_inputs, widths, said):
    with pytest.raises(ValueError, match=said):
        bounded(box, n_inputs, widths, 1.5)


@pytest.mark.parametrize("max_queries", [30, 500, 1000, 1500])
def test_questions_are_bounded(max_queries):
    asked = []

    def box(X):
        asked.append(len(X))
        return NETWORK(X)

    with pytest.raises(ValueError, match=f"max_queries={max_queries} does not allow"):
        identifier(box, (6, 4, 1), max_queries=max_queries).fit(np.random.RandomState(0).standard_normal((100, 8)))
    assert sum(asked) <= max_queries


def test_a_budget_that_suffices_changes_nothing():
    X = np.random.RandomState(0).standard_normal((100, 8))
    free = identifier(lambda U: NETWORK(U), (6, 4, 1)).fit(X)
    bounded = identifier(lambda U: NETWORK(U), (6, 4, 1), max_queries=free.n_queries_, max_seconds=1000.0).fit(X)
    assert bounded.network_ == free.network_ and bounded.n_queries_ == free.n_queries_ and bounded.report_.exact


def test_the_polish_ends_where_questions_end():
    """What was found until then is returned, with a warning."""
    X = np.random.RandomState(0).standard_normal((100, 8))
    free = identifier(lambda U: NETWORK(U), (6, 4, 1)).fit(X)
    polish = sum(stage.queries for stage in free.report_.stages if stage.name == "polish")
    later = polish + free.report_.checked - 200  # with the held-out samples beyond the first 200
    with pytest.warns(ConvergenceWarning, match="The search was ended: max_queries"):
        found = identifier(lambda U: NETWORK(U), (6, 4, 1), max_queries=free.n_queries_ - later + 5).fit(X)
    assert not found.report_.exact and found.layer_widths_ == (6, 4, 1)
    assert found.report_.relative_max_error < 1e-2


def test_a_clock():
    clock = Budget(max_seconds=0.5, max_queries=10)
    assert clock.exhausted_by(10) is None and "max_queries=10" in clock.exhausted_by(11)
    late = Budget(max_seconds=0.5, began=time.perf_counter() - 1.0)
    assert late.out_of_time and late.share(3.0) > time.perf_counter() and Budget().deadline == np.inf
    oracle = Oracle(NETWORK, 8, budget=late)
    for ask in (oracle, oracle.jacobian, oracle.hessian):
        with pytest.raises(OutOfBudgetError, match="max_seconds=0.5 are over"):
            ask(np.zeros((1, 8)))
    assert oracle.n_queries == 0


def _linear(seed):
    return make_network((5, 2), output_activation="identity", random_state=seed)


def _forest(seed):
    X = np.random.RandomState(seed).standard_normal((200, 4))
    return RandomForestRegressor(10, random_state=seed).fit(X, np.sin(X[:, 0]) + X[:, 1]).predict


def _network(*sizes, activation):
    return lambda seed: make_network(
        sizes, activation=activation, output_activation="identity", bias_scale=0.5, random_state=seed
    )


SMALL = {
    "relu": (_network(4, 6, 1, activation="relu"), 4),
    "tanh": (_network(4, 6, 1, activation="tanh"), 4),
    "softplus": (_network(4, 3, 1, activation="softplus"), 4),
    "linear": (_linear, 5),
    "forest": (_forest, 4),
}


def _outcome(model, n_inputs, max_queries=None):
    """How a fit with no other options ends, and its queries."""
    asked = []

    def box(U):
        asked.append(len(U))
        return model(U)

    fit = make_identifier(box, max_queries=max_queries, random_state=0).fit
    try:
        return fit(np.random.RandomState(1).standard_normal((100, n_inputs))).report_.exact, sum(asked)
    except NotIdentified as error:
        return error.reason, sum(asked)


@pytest.mark.parametrize("kind", SMALL)
def test_a_tenth_more_queries_than_needed_suffice(kind):
    """No decision depends on `max_queries` beyond what a fit takes."""
    model, n_inputs = SMALL[kind][0](3), SMALL[kind][1]
    end, n_queries = _outcome(model, n_inputs)
    assert end is True or end == "tree ensemble"
    assert _outcome(model, n_inputs, int(1.1 * n_queries))[0] == end
