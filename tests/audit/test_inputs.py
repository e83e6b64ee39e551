import numpy as np

from skident.audit.inputs import InputBox, candidate_inputs, chosen_inputs, inputs_on_both_sides
from skident.audit.parameters import ParameterEffects
from skident.network import FeedforwardNetwork


def relu_network(biases):
    """Units of the first two inputs with given biases, summed."""
    m = len(biases)
    W = np.random.RandomState(0).standard_normal((2, m))
    W /= np.abs(W).sum(axis=0)
    return FeedforwardNetwork([W, np.ones((m, 1))], [np.asarray(biases, float), [0.0]], "relu")


def test_candidates_stay_in_the_range_of_every_column():
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.uniform(2, 3, 10), np.full(10, 7.0)])
    box = InputBox.of(X)
    drawn = candidate_inputs(X, box, 100, rng)
    assert drawn.shape == (100, 2)
    assert (drawn >= X.min(axis=0)).all() and (drawn <= X.max(axis=0)).all()
    assert list(box.constant) == [1]


def test_units_that_hardly_ever_move_are_found_at_a_corner():
    network, rng = relu_network([0.2, -0.98, 0.98]), np.random.RandomState(0)
    X = rng.uniform(-1, 1, (50, 2))
    box = InputBox(np.full(2, -1.0), np.full(2, 1.0))
    inner = 0.5 * X  # where the second unit rests and the third never does
    drawn = inputs_on_both_sides(network, inner, box, rng)
    on = drawn @ network.weights[0] + network.biases[0] > 0
    assert on.any(axis=0).all() and (~on).any(axis=0).all()


def test_every_unit_gets_its_inputs():
    network, rng = relu_network([0.5, -0.9, 0.0, 0.9]), np.random.RandomState(0)
    X = rng.uniform(-1, 1, (400, 2))
    effects = ParameterEffects(network, X, np.ones((400, 1)))
    rows = chosen_inputs(effects, 60, 6, rng)
    assert len(rows) == len(set(rows)) == 60
    on = X[rows] @ network.weights[0] + network.biases[0] > 0
    assert (on.sum(axis=0) >= 3).all() and ((~on).sum(axis=0) >= 3).all()
