import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline

from skident.network import FeedforwardNetwork
from skident.oracle import DERIVATIVES, Oracle
from tests.references import reference_hessian, reference_jacobian

EPS = np.finfo(float).eps
D = 4
CENTER, SCALE = np.array([0.3, -0.2, 0.5, 0.1]), np.array([0.5, 2.0, 1.0, 0.7])


def small_network(output_activation="tanh", activation="tanh", widths=(5, 3)):
    rng = np.random.default_rng(0)
    sizes = (D, *widths)
    weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [rng.normal(0, 0.5, m) for m in widths], activation, output_activation)


def points(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, D))


NET = small_network()


def module(net=NET):
    """A torch module of the same function that skident did not make."""
    layers = []
    for W, b in zip(net.weights, net.biases):
        linear = torch.nn.Linear(*W.shape, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(W.T.copy()))
            linear.bias.copy_(torch.from_numpy(b.copy()))
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def fitted_mlp(n_outputs):
    net = small_network("identity", widths=(5, n_outputs))
    return net.to_sklearn(), net


class Spy:
    """A callable that remembers the batches it was queried."""

    def __init__(self, function=NET):
        self.function, self.batches = function, []

    def __call__(self, X):
        self.batches.append(X.copy())
        return self.function(X)

    @property
    def rows(self):
        return np.concatenate(self.batches)


# -- values: every kind of black box -----------------------------------------------------------------------------------

MLP, MLP_NET = fitted_mlp(3)
SCALAR_MLP, SCALAR_NET = fitted_mlp(1)
BOXES = {
    "(n, m) callable": (lambda X: np.tanh(X[:, :2]), lambda X: np.tanh(X[:, :2])),
    "(n, 1) callable": (lambda X: X[:, :1] ** 2, lambda X: X[:, :1] ** 2),
    "(n,) callable": (lambda X: np.sin(X[:, 0]), lambda X: np.sin(X[:, :1])),
    "list answers": (lambda X: X[:, 0].tolist(), lambda X: X[:, :1]),
    "frame answers": (lambda X: pd.DataFrame(X), lambda X: X),
    "integer answers": (lambda X: np.ones(len(X), dtype=int), lambda X: np.ones((len(X), 1))),
    "tensor answers": (lambda X: torch.from_numpy(X[:, :2]), lambda X: X[:, :2]),
    "sklearn": (MLP, MLP_NET),
    "sklearn scalar": (SCALAR_MLP, SCALAR_NET),
    "frozen": (FrozenEstimator(MLP), MLP_NET),
    "network": (NET, NET),
    "torch": (module(), NET),
}


@pytest.mark.parametrize("box", BOXES)
def test_values(box):
    black_box, expected = BOXES[box]
    oracle, U = Oracle(black_box, D, center=CENTER, scale=SCALE), points(7)
    assert oracle.n_outputs is None
    Y = oracle(U)
    assert Y.dtype == np.float64
    np.testing.assert_allclose(Y, expected(CENTER + SCALE * U), rtol=1e-12, atol=1e-14)
    assert (oracle.n_queries, oracle.n_derivatives, oracle.n_outputs) == (7, 0, Y.shape[1])


def test_single_precision_outputs():
    oracle, U = Oracle(lambda X: NET(X).astype(np.float32), D), points(7)
    assert oracle(U).dtype == np.float64
    np.testing.assert_allclose(oracle(U), NET(U), rtol=1e-6)


def test_single_precision_module_is_evaluated_in_double_precision():
    single, U = module().float(), points(7)
    rounded = [W.astype(np.float32) for W in NET.weights], [b.astype(np.float32) for b in NET.biases]
    net = FeedforwardNetwork(*rounded, "tanh", "tanh")
    oracle = Oracle(single, D)
    np.testing.assert_allclose(oracle(U), net(U), rtol=1e-12)
    np.testing.assert_allclose(oracle.hessian(U), net.hessian(U), rtol=1e-10, atol=1e-12)


def test_torch_module_is_left_alone():
    box = torch.nn.Sequential(torch.nn.Linear(D, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Tanh())
    box.train()
    before = {k: v.clone() for k, v in box.state_dict().items()}
    random_state = torch.random.get_rng_state()
    oracle = Oracle(box, D)
    oracle(points(5)), oracle.jacobian(points(5)), oracle.hessian(points(5))
    assert box.training and all(child.training for child in box)
    assert all(p.requires_grad and p.grad is None and p.dtype == torch.float32 for p in box.parameters())
    assert all(torch.equal(v, before[k]) for k, v in box.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random_state)
    assert oracle.query_twice(points(5))[1] == 0.0  # eval mode: no dropout


def test_a_torch_module_that_cannot_be_batched():
    """An RNNCell writes in place, which vmap refuses; its rows are differentiated one by one."""
    torch.manual_seed(0)
    cell = torch.nn.RNNCell(D, 3).double()
    parts = [getattr(cell, name).detach().numpy() for name in ("weight_ih", "bias_ih", "bias_hh")]
    network, U = FeedforwardNetwork([parts[0].T], [parts[1] + parts[2]], "tanh", "tanh"), points(4)
    oracle = Oracle(cell, D, center=CENTER, scale=SCALE)
    same = Oracle(network, D, center=CENTER, scale=SCALE)
    np.testing.assert_allclose(oracle.jacobian(U), same.jacobian(U), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(oracle.hessian(U), same.hessian(U), rtol=1e-12, atol=1e-14)
    assert oracle.exact and oracle.n_queries == 0


def test_torch_module_changed_later_does_not_change_the_oracle():
    box, U = module(), points(3)
    oracle = Oracle(box, D)
    torch.nn.init.zeros_(box[0].weight)
    np.testing.assert_allclose(oracle(U), NET(U), rtol=1e-12)


class RowSum(torch.nn.Module):
    """No parameters, outputs (n,)."""

    def forward(self, x):
        return (x**3).sum(1)


def test_module_without_parameters_and_with_flat_outputs():
    oracle, U = Oracle(RowSum(), D), points(3)
    np.testing.assert_allclose(oracle(U), (U**3).sum(axis=1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(oracle.jacobian(U), 3 * U[:, None] ** 2, rtol=1e-13)
    np.testing.assert_allclose(oracle.hessian(U), 6 * U[:, None, :, None] * np.eye(D), rtol=1e-13)


@pytest.mark.parametrize("wrap", [lambda model: model, FrozenEstimator])
def test_regressor_fitted_on_a_frame_is_queried_with_names(wrap):
    X = pd.DataFrame(points(20), columns=list("abcd"))
    plain = LinearRegression().fit(X, X["a"])
    by_name = make_pipeline(ColumnTransformer([("some", "passthrough", ["c", "a"])]), LinearRegression()).fit(X, X["a"])
    for model in (plain, by_name):
        np.testing.assert_allclose(Oracle(wrap(model), D)(points(3)), points(3)[:, :1], atol=1e-12)
    with pytest.raises(ValueError, match="raised ValueError"):
        Oracle(wrap(plain), 3)(points(1)[:, :3])


def test_other_warnings_of_the_black_box_are_seen():
    def box(X):
        warnings.warn("something else", UserWarning, stacklevel=1)
        return X

    with pytest.warns(UserWarning, match="something else"):
        Oracle(box, D)(points(1))


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [1, 3, 7, 100])
def test_chunks(chunk_rows):
    spy = Spy()
    oracle = Oracle(spy, D, center=CENTER, scale=SCALE, chunk_rows=chunk_rows)
    whole = Oracle(NET, D, center=CENTER, scale=SCALE)
    differences = Oracle(lambda X: NET(X), D, center=CENTER, scale=SCALE)
    U = points(7)
    np.testing.assert_allclose(oracle(U), whole(U), rtol=1e-13)
    assert [len(b) for b in spy.batches] == [min(chunk_rows, 7 - i) for i in range(0, 7, chunk_rows)]
    np.testing.assert_allclose(oracle.jacobian(U), differences.jacobian(U), atol=1e-9)
    np.testing.assert_allclose(oracle.hessian(U[:2]), differences.hessian(U[:2]), atol=1e-8)
    assert max(len(b) for b in spy.batches) <= chunk_rows
    assert oracle.n_queries == len(spy.rows)


def test_points_are_made_a_bounded_number_at_a_time(monkeypatch):
    monkeypatch.setattr("skident.oracle._oracle.rows_at_once", lambda row_bytes, **_: 5)
    spy, U = Spy(), points(3)
    few, many = Oracle(spy, D), Oracle(lambda X: NET(X), D)
    monkeypatch.undo()
    expected = many.jacobian(U), many.hessian(U)
    monkeypatch.setattr("skident.oracle._oracle.rows_at_once", lambda row_bytes, **_: 5)
    np.testing.assert_allclose(few.jacobian(U), expected[0], atol=1e-9)
    np.testing.assert_allclose(few.hessian(U), expected[1], atol=1e-8)
    assert max(len(b) for b in spy.batches) == 5
    assert few.n_queries == many.n_queries


def test_no_rows():
    oracle = Oracle(NET, D)
    assert oracle(np.empty((0, D))).shape == (0, 0) and oracle.n_queries == 0
    oracle(points(1))
    assert oracle(np.empty((0, D))).shape == (0, 3)


def test_black_box_that_writes_into_its_input():
    """It gets an array of its own: neither the caller's points, nor later rows, nor error messages suffer."""

    def box(X):
        Y = NET(X)
        X[:] = 7.0
        return Y

    U = points(9)
    before = U.copy()
    for chunk_rows in (4, 100):
        oracle = Oracle(box, D, chunk_rows=chunk_rows)
        np.testing.assert_allclose(oracle(U), NET(before), rtol=1e-13)
        np.testing.assert_array_equal(U, before)
        np.testing.assert_allclose(oracle.hessian(U), Oracle(lambda X: NET(X), D).hessian(U), atol=1e-8)
        assert oracle.query_twice(U)[1] < 1e-14

    def poisoned(X):
        X[:] = 7.0
        return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match=r"x = \[0\.5 +0\.25 +-?0\. +0\. *\]"):
        Oracle(poisoned, D)(np.array([[0.5, 0.25, 0.0, 0.0]]))


def test_black_box_that_reuses_its_output():
    """Two calls output with one buffer: the first outputs must not change under the caller's feet."""
    buffer = np.empty((3, 3))

    def box(X):
        buffer[: len(X)] = NET(X)
        return buffer[: len(X)]

    U = points(7)
    np.testing.assert_allclose(Oracle(box, D, chunk_rows=3)(U), NET(U), rtol=1e-13)
    oracle = Oracle(box, D)
    first = oracle(U[:3])
    oracle(U[3:6])
    np.testing.assert_allclose(first, NET(U[:3]), rtol=1e-13)


def test_outputs_do_not_share_memory_with_the_points():
    U = points(3)
    Y = Oracle(lambda X: X, D)(U)
    Y[:] = 0.0
    np.testing.assert_array_equal(U, points(3))


def test_coordinates():
    oracle, X = Oracle(NET, D, center=CENTER, scale=SCALE), points(5)
    np.testing.assert_allclose(oracle.to_inputs(oracle.from_inputs(X)), X, rtol=1e-14)
    np.testing.assert_allclose(oracle.from_inputs(CENTER[None]), 0.0)
    np.testing.assert_array_equal(Oracle(NET, D, scale=2.0).to_inputs(X), 2.0 * X)


# -- derivatives -------------------------------------------------------------------------------------------------------

EXACT = {"network": NET, "torch": module(), "single torch": module().float()}


@pytest.mark.parametrize("derivatives", ["auto", "exact"])
@pytest.mark.parametrize("box", ["network", "torch"])
def test_exact_derivatives(box, derivatives):
    oracle, U = Oracle(EXACT[box], D, center=CENTER, scale=SCALE, derivatives=derivatives), points(3)
    f = lambda u: NET(CENTER + SCALE * u)  # noqa: E731
    J, H = oracle.jacobian(U), oracle.hessian(U)
    np.testing.assert_allclose(J, [reference_jacobian(f, u) for u in U], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(H, [reference_hessian(f, u) for u in U], rtol=1e-4, atol=1e-5)
    X = CENTER + SCALE * U
    np.testing.assert_allclose(J, NET.jacobian(X) * SCALE, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(H, NET.hessian(X) * np.outer(SCALE, SCALE), rtol=1e-11, atol=1e-13)
    assert oracle.exact and (oracle.n_queries, oracle.n_derivatives, oracle.n_outputs) == (0, 6, 3)


@pytest.mark.parametrize("box", [*EXACT, "callable", "sklearn"])
def test_differences_on_request_and_where_there_is_nothing_else(box):
    """Single precision weights, not outputs: the differences are as good as the exact derivatives."""
    black_box = {**EXACT, "callable": lambda X: NET(X), "sklearn": MLP}[box]
    oracle = Oracle(black_box, D, center=CENTER, scale=SCALE, derivatives="finite_difference")
    exact = Oracle(MLP_NET if box == "sklearn" else EXACT.get(box, NET), D, center=CENTER, scale=SCALE)
    assert not oracle.exact and exact.exact
    U = points(3)
    np.testing.assert_allclose(oracle.jacobian(U), exact.jacobian(U), atol=1e-9)
    np.testing.assert_allclose(oracle.hessian(U), exact.hessian(U), atol=3e-5)
    assert (oracle.n_queries, oracle.n_derivatives) == (3 * 2 * D + 3 * (2 * D * D + 1), 0)


RATES = np.array([[1.0, -0.5, 0.3, 0.0], [0.2, 0.8, -1.0, 0.6]])


def exponentials(X):
    """``exp(a_p . x)``: all derivatives known."""
    return np.exp(X @ RATES.T)


def test_jacobian_differences_are_as_good_as_the_mathematics_says():
    U = 0.3 * points(5)
    J = Oracle(exponentials, D).jacobian(U)
    F = exponentials(U)
    h = EPS ** (1 / 3)
    truncation, rounding = h**2 / 6 * np.abs(RATES) ** 3, 4 * EPS / h
    assert (np.abs(J - F[:, :, None] * RATES) <= 1.01 * F[:, :, None] * (truncation + rounding)).all()


@pytest.mark.parametrize("h", [1e-4, 1e-3, 1e-2, 1e-1])
def test_hessian_differences_are_as_good_as_the_mathematics_says(h):
    """Truncation ``h^2 (f_iiij + f_ijjj) / 6``, on the diagonal ``h^2 f_iiii / 3``; rounding ``eps / h^2``."""
    U = 0.3 * points(5)
    H = Oracle(exponentials, D, step_size=h).hessian(U)
    F = exponentials(U)[:, :, None, None]
    outer = RATES[:, :, None] * RATES[:, None, :]
    squares = RATES[:, :, None] ** 2 + RATES[:, None, :] ** 2
    truncation = h**2 / 6 * np.abs(outer) * squares
    higher = h**4  # a_i <= 1
    assert (np.abs(H - F * outer) <= F * (truncation + higher + 8 * EPS / h**2)).all()
    np.testing.assert_array_equal(H, np.swapaxes(H, 2, 3))
    if h == 1e-1:  # the leading term of the truncation is really there
        np.testing.assert_allclose(H - F * outer, F * h**2 / 6 * outer * squares, rtol=0.1, atol=2e-5)


def test_quadratic_functions_have_exact_differences():
    A = np.arange(16.0).reshape(4, 4)
    A = A + A.T
    H = Oracle(lambda X: 0.5 * np.einsum("ni,ij,nj->n", X, A, X), D, step_size=0.5).hessian(points(2))
    np.testing.assert_allclose(H[:, 0], [A, A], atol=1e-12)


def test_step_is_in_units_of_the_scale():
    """The same function in other units: the same points queried, the same derivatives."""
    units = np.array([1e6, 1e-6, 3.0, 0.01])
    spies = Spy(), Spy(lambda X: NET(X / units))
    plain, scaled = Oracle(spies[0], D), Oracle(spies[1], D, scale=units)
    U = points(2)
    np.testing.assert_allclose(scaled.hessian(U), plain.hessian(U), atol=1e-8)
    np.testing.assert_allclose(scaled.jacobian(U), plain.jacobian(U), atol=1e-9)
    np.testing.assert_allclose(spies[1].rows / units, spies[0].rows, atol=1e-14)


def unique_rows(rows):
    return len(np.unique(np.round(rows, 9), axis=0))


@pytest.mark.parametrize("n_inputs", [1, 2, 3, 6])
@pytest.mark.parametrize("n", [1, 3])
def test_query_counts_and_no_point_queried_twice(n, n_inputs):
    U = np.random.default_rng(0).normal(size=(n, n_inputs))
    for method, expected in [("jacobian", 2 * n_inputs * n), ("hessian", (2 * n_inputs**2 + 1) * n)]:
        spy = Spy(lambda X: np.stack([np.exp(X.sum(axis=1)), np.cos(X[:, 0])], axis=1))
        oracle = Oracle(spy, n_inputs, step_size=1e-3)
        answer = getattr(oracle, method)(U)
        assert answer.shape == (n, 2, n_inputs) + (n_inputs,) * (method == "hessian")
        if method == "jacobian":  # steps of 6e-6
            spy.batches = [b * 100 for b in spy.batches]
        assert oracle.n_queries == len(spy.rows) == unique_rows(spy.rows) == expected


def test_chain_rule_for_differences():
    oracle, U = Oracle(lambda X: NET(X), D, center=CENTER, scale=SCALE), points(2)
    X = CENTER + SCALE * U
    np.testing.assert_allclose(oracle.jacobian(U), NET.jacobian(X) * SCALE, atol=1e-9)
    np.testing.assert_allclose(oracle.hessian(U), NET.hessian(X) * np.outer(SCALE, SCALE), atol=3e-5)


class Stubborn(torch.nn.Module):
    """Its values are fine, but no batched derivative exists."""

    def forward(self, x):
        return torch.from_numpy(np.tanh(x.detach().numpy()))


def test_module_that_cannot_be_differentiated():
    with pytest.raises(ValueError, match="exact Jacobian failed with RuntimeError.*derivatives='finite_difference'"):
        Oracle(Stubborn(), D).jacobian(points(1))
    J = Oracle(Stubborn(), D, derivatives="finite_difference").jacobian(np.zeros((1, D)))
    np.testing.assert_allclose(J[0], np.eye(D), atol=1e-9)


@pytest.mark.parametrize("box", ["network", "torch", "callable"])
def test_threads(box):
    """joblib asks from several threads at once."""
    oracle, U = Oracle({**EXACT, "callable": lambda X: NET(X)}[box], D), points(40).reshape(8, 5, D)
    with ThreadPoolExecutor(4) as pool:
        results = [list(pool.map(method, U)) for method in (oracle, oracle.jacobian, oracle.hessian)]
    np.testing.assert_allclose(results[0], [NET(u) for u in U], rtol=1e-12)
    np.testing.assert_allclose(results[1], [NET.jacobian(u) for u in U], atol=1e-9)
    np.testing.assert_allclose(results[2], [NET.hessian(u) for u in U], atol=1e-5)
    assert oracle.n_queries == 40 * (1 if oracle.exact else 1 + 2 * D + 2 * D * D + 1)


def test_network_with_boundaries():
    oracle = Oracle(small_network(activation="relu", output_activation="identity"), D)
    assert oracle.jacobian(points(1)).shape == (1, 3, D)
    with pytest.raises(ValueError, match=r"\['relu'\]"):
        oracle.hessian(points(1))


def test_exact_derivatives_that_are_not_finite():
    box = torch.nn.Sequential(torch.nn.Linear(D, 1), Root())
    torch.nn.init.zeros_(box[0].weight), torch.nn.init.zeros_(box[0].bias)
    with pytest.raises(ValueError, match="Jacobian is not finite at row 0 of 2"):
        Oracle(box, D).jacobian(points(2))


class Root(torch.nn.Module):
    def forward(self, x):
        return torch.sqrt(torch.abs(x))


# -- noise -------------------------------------------------------------------------------------------------------------


def test_noise():
    rng = np.random.default_rng(0)
    assert Oracle(NET, D).query_twice(points(20))[1] < 1e-14
    noisy = Oracle(lambda X: 10.0 + X[:, 0] + 1e-4 * rng.uniform(-1, 1, len(X)), D)
    assert 1e-6 < noisy.query_twice(points(50))[1] < 2.1e-4  # relative to the deviation, whatever the offset
    assert Oracle(lambda X: 10.0 + 1e-4 * rng.uniform(-1, 1, len(X)), D).query_twice(points(50))[1] > 1.0
    assert noisy.n_queries == 100
    assert Oracle(lambda X: np.zeros(len(X)), D).query_twice(points(3))[1] == 0.0
    counter = iter(range(1000))
    assert Oracle(lambda X: np.array([float(next(counter)) for _ in X]), D).query_twice(points(3))[1] > 0.1


# -- errors ------------------------------------------------------------------------------------------------------------


def test_black_box_that_raises_in_the_middle():
    def box(X):
        if len(calls) == 3:
            raise MemoryError("out of patience")
        calls.append(X)
        return X[:, 0]

    calls = []
    oracle = Oracle(box, D, chunk_rows=2)
    message = "raised MemoryError on a batch of 2 rows, after 6 rows without an error: out of patience"
    with pytest.raises(ValueError, match=message) as error:
        oracle(points(11))
    assert isinstance(error.value.__cause__, MemoryError)
    assert oracle.n_queries == 8


def test_unfitted_regressor():
    with pytest.raises(ValueError, match="raised NotFittedError .* after 0 rows"):
        Oracle(MLPRegressor(), D)(points(1))


def test_interrupts_pass():
    def box(X):
        raise KeyboardInterrupt("by hand")

    with pytest.raises(KeyboardInterrupt, match="by hand"):
        Oracle(box, D)(points(1))


WRONG_SHAPES = [
    (lambda X: 1.0, r"\(\)"),
    (lambda X: X[:-1], r"\(2, 4\)"),
    (lambda X: X.sum(), r"\(\)"),
    (lambda X: X[None], r"\(1, 3, 4\)"),
    (lambda X: X[:, :0], r"\(3, 0\)"),
    (lambda X: None, r"\(\)"),
    (lambda X: X.T, r"\(4, 3\)"),
]


@pytest.mark.parametrize(("box", "shape"), WRONG_SHAPES)
def test_wrong_shape(box, shape):
    message = rf"queried at 3 rows and returned shape {shape}; expected \(n,\) or \(n, n_outputs\)"
    with pytest.raises(ValueError, match=message):
        Oracle(box, D)(points(3))


def test_changing_number_of_outputs():
    oracle = Oracle(lambda X: X[:, : 1 + len(X)], D)
    oracle(points(1))
    with pytest.raises(ValueError, match=r"returned shape \(2, 3\); expected \(2, 2\)"):
        oracle(points(2))
    assert oracle.n_outputs == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("chunk_rows", [3, 100])
def test_first_bad_row_is_named(bad, chunk_rows):
    U = points(10)

    def box(X):
        Y = NET(X)
        Y[np.isin(X[:, 0], U[[7, 8], 0]), 1] = bad
        return Y

    with pytest.raises(ValueError, match=r"\(not finite\) at row 7 of 10") as error:
        Oracle(box, D, chunk_rows=chunk_rows)(U)
    text = str(error.value)
    assert str(bad) in text
    assert np.array2string(U[7], precision=4) in text and "2 of the" in text


NOT_NUMERIC = [
    lambda X: np.array(["a"] * len(X)),
    lambda X: [object()] * len(X),
    lambda X: [[1.0], [1.0, 2.0], [1.0]],
    lambda X: X[:, 0] + 1j,
    lambda X: {"y": X},
]


def test_tensors_with_gradients_are_detached():
    X = points(3)
    np.testing.assert_array_equal(Oracle(lambda X: torch.from_numpy(X).requires_grad_() * 2, D)(X), 2.0 * X)


@pytest.mark.parametrize("box", NOT_NUMERIC)
def test_outputs_that_are_not_numbers(box):
    with pytest.raises(ValueError, match=r"outputs .*cannot be read as real numbers"):
        Oracle(box, D)(points(3))


def test_masked_outputs_are_refused():
    def box(X):
        return np.ma.masked_where(X[:, :1] > X[0, 0], X[:, :1])

    with pytest.raises(ValueError, match=r"cannot be read as real numbers: [12] of them are masked"):
        Oracle(box, D)(points(3))
    np.testing.assert_array_equal(Oracle(lambda X: np.ma.masked_array(X), D)(points(3)), points(3))


@pytest.mark.parametrize("box", [None, 3, "predict", np.zeros(3)])
def test_unknown_kinds(box):
    with pytest.raises(ValueError, match=f"must be a callable, .* got {type(box).__name__}"):
        Oracle(box, D)


@pytest.mark.parametrize("box", [lambda X: X, MLP])
def test_exact_derivatives_of_a_value_box(box):
    with pytest.raises(ValueError, match="derivatives='exact' needs .*use derivatives='finite_difference' or 'auto'"):
        Oracle(box, D, derivatives="exact")


BAD_SETTINGS = [
    ({"derivatives": "numeric"}, r"derivatives must be one of .* got 'numeric'"),
    ({"step_size": 0.0}, "step_size must be positive and finite, got 0.0"),
    ({"step_size": np.nan}, "step_size must be positive and finite, got nan"),
    ({"step_size": np.inf}, "step_size must be positive and finite, got inf"),
    ({"chunk_rows": 0}, "chunk_rows must be at least 1, got 0"),
    ({"center": np.zeros(3)}, "center must hold 4 finite numbers"),
    ({"center": [0.0, np.nan, 0.0, 0.0]}, "center must hold 4 finite numbers"),
    ({"scale": np.ones((4, 1))}, "scale must hold 4 finite numbers"),
    ({"scale": np.inf}, "scale must hold 4 finite numbers"),
    ({"scale": 0.0}, "scale must be positive, got 0.0"),
    ({"scale": [1.0, 1.0, -2.0, 1.0]}, "scale must be positive, got -2.0"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Oracle(NET, D, **settings)


@pytest.mark.parametrize("method", ["__call__", "jacobian", "hessian", "query_twice"])
@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 5), (1, 3, 4)])
def test_points_of_the_wrong_shape(method, shape):
    oracle = Oracle(lambda X: X, D)
    with pytest.raises(ValueError, match=r"points must have shape \(n, 4\)"):
        getattr(oracle, method)(np.zeros(shape))
    assert oracle.n_queries == 0


@pytest.mark.parametrize("method", ["jacobian", "hessian", "query_twice"])
def test_derivatives_need_a_row(method):
    with pytest.raises(ValueError, match="with n >= 1"):
        getattr(Oracle(NET, D), method)(np.empty((0, D)))


def test_names_of_derivatives():
    assert DERIVATIVES == ("auto", "exact", "finite_difference")
