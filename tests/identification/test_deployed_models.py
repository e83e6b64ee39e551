"""Models as they are deployed: single precision, converted to ONNX and run by onnxruntime, or torch modules."""

import warnings

import numpy as np
import onnxruntime
import torch
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier
from tests.rates import fewest_successes

X, Y = (scale(part) for part in load_diabetes(return_X_y=True))
SEEDS = range(3)


def trained(activation, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPRegressor(hidden_layer_sizes=(10,), activation=activation, max_iter=300, random_state=seed)
        return mlp.fit(X, Y)


def in_onnxruntime(mlp):
    """The answers of the converted model, (n, 1) in float32."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = to_onnx(mlp, X[:1].astype(np.float32)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda A: session.run(None, {name: A.astype(np.float32)})[0]


def is_found(box, truth, **options):
    """Right widths, and an error of some roundings of the answers at most; it must not be called exact."""
    fresh = np.random.RandomState(0).standard_normal((1000, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make_identifier(box, random_state=0, **options).fit(X)
    assert not model.report_.exact
    rounding = relative_max_error(truth(fresh), box(fresh))
    error = relative_max_error(truth(fresh), model.network_(fresh))
    return model.layer_widths_ == truth.layer_widths and error < 20.0 * rounding


def test_tanh_in_onnxruntime():
    successes = 0
    for seed in SEEDS:
        mlp = trained("tanh", seed)
        successes += is_found(in_onnxruntime(mlp), FeedforwardNetwork.from_sklearn(mlp))
    assert successes >= fewest_successes(len(SEEDS), 10, 10)


def test_relu_in_onnxruntime():
    mlp = trained("relu", 0)
    assert is_found(in_onnxruntime(mlp), FeedforwardNetwork.from_sklearn(mlp), activation="relu")


def test_a_torch_module_behind_a_callable():
    """Trained in single precision; the callable takes and gives arrays."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(10, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    inputs, targets = torch.tensor(X, dtype=torch.float32), torch.tensor(Y[:, None], dtype=torch.float32)
    for _ in range(200):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(net(inputs), targets).backward()
        optimiser.step()

    def box(A):
        with torch.no_grad():
            return net(torch.as_tensor(A, dtype=torch.float32)).numpy()

    weights = [net[i].weight.detach().double().numpy().T for i in (0, 2)]
    biases = [net[i].bias.detach().double().numpy() for i in (0, 2)]
    assert is_found(box, FeedforwardNetwork(weights, biases, "tanh", "identity"))
