"""Networks as C and Python source, compiled and compared; and networks in text files."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from skident.datasets import make_network
from skident.network import ACTIVATIONS, FeedforwardNetwork, bounded, clip, leaky_relu, with_linear_skip
from skident.network.tabulated import tabulate

COMPILER = shutil.which("gcc") or shutil.which("cc")
WIDTHS = [(3, 2), (1, 5, 1), (6, 5, 4, 3), (40, 30, 20, 1)]


def network_with(activation, output="identity", widths=(3, 5, 4, 2), seed=0):
    return make_network(widths, activation=activation, output_activation=output, random_state=seed, bias_scale=0.5)


CASES = {name: network_with(name) for name in ACTIVATIONS}
CASES |= {f"widths {widths}": network_with("tanh", "sigmoid", widths) for widths in WIDTHS}
CASES["leaky"] = network_with(leaky_relu(0.3), clip([-0.1, -np.inf], [0.2, 0.0]))
CASES["bounds"] = network_with("relu", bounded("tanh", [0.0, -3.0], [10.0, 5.0]))
CASES["linear units"] = with_linear_skip(network_with("relu"), np.ones((3, 2)))
ROWS = 3.0 * np.random.default_rng(0).standard_normal((50, 40))


def compiled(network, folder, *flags):
    """The C function of a network, as a function of rows."""
    (folder / "net.c").write_text(network.to_source("c"))
    command = [COMPILER, "-std=c99", "-O2", "-Wall", "-Werror", *flags, "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / "net.so", folder / "net.c", "-lm"], check=True)
    function, pointer = ctypes.CDLL(str(folder / "net.so")).network, ctypes.POINTER(ctypes.c_double)

    def outputs(X):
        Y = np.empty((len(X), network.n_outputs))
        for x, y in zip(np.ascontiguousarray(X), Y, strict=True):
            function(x.ctypes.data_as(pointer), y.ctypes.data_as(pointer))
        return Y

    return outputs


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", CASES)
def test_c_source(name, tmp_path):
    network = CASES[name]
    X = ROWS[:, : network.n_inputs]
    np.testing.assert_allclose(compiled(network, tmp_path)(X), network(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_python_source(name):
    network, names = CASES[name], {}
    exec(network.to_source("python"), names)
    X = ROWS[:, : network.n_inputs]
    outputs = [names["network"](row) for row in X.tolist()]
    np.testing.assert_allclose(outputs, network(X), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_sums_in_c_have_one_order(tmp_path):
    """The same bits at every level of optimization, and as a loop over the inputs that begins with the bias."""
    network = network_with("relu", widths=(40, 30, 20, 2))
    H = ROWS
    for k, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        Z = np.broadcast_to(b, (len(H), len(b))).copy()
        for i, row in enumerate(W):
            Z += row * H[:, i : i + 1]
        H = np.maximum(Z, 0.0) if k < 2 else Z
    for level in ("-O0", "-O3"):
        np.testing.assert_array_equal(compiled(network, tmp_path, level, "-ffp-contract=off")(ROWS), H)
        (tmp_path / "net.so").rename(tmp_path / f"{level}.so")


def test_source_refuses():
    with pytest.raises(ValueError, match=r"language must be one of \['c', 'python'\], got 'rust'"):
        CASES["tanh"].to_source("rust")
    table = tabulate(np.tanh, -2.0, 2.0, (0.0, 0.0), 1e-6)
    with pytest.raises(ValueError, match="to_source knows the activations"):
        network_with(table).to_source("c")


# -- text files --------------------------------------------------------------------------------------------------------

NNET = """// a comment
2,2,1,3,
2,3,1,
0,
-1.0,-2.0,
1.0,2.0,
0.5,-0.5,10.0,
2.0,4.0,3.0,
1.0,0.5,
-1.0,0.25,
2.0,0.0,
0.1,
-0.2,
0.0,
1.0,2.0,3.0,
0.5,
"""


def test_nnet_files_are_read_with_their_normalization(tmp_path):
    (tmp_path / "net.nnet").write_text(NNET)
    network, X = FeedforwardNetwork.load(tmp_path / "net.nnet"), ROWS[:, :2]
    U = (X - [0.5, -0.5]) / [2.0, 4.0]
    H = np.maximum(U @ [[1.0, -1.0, 2.0], [0.5, 0.25, 0.0]] + [0.1, -0.2, 0.0], 0.0)
    expected = 3.0 * (H @ [[1.0], [2.0], [3.0]] + 0.5) + 10.0
    np.testing.assert_allclose(network(X), expected, rtol=1e-13)
    assert (network.activation, network.output_activation) == ("relu", "identity")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1.0,2.0,3.0,\n0.5,\n", "1.0,2.0,3.0,\n", "not an .nnet file, or damaged"),
        ("0.5,\n", "0.5,\n7.0,\n", "9 lines of weights and biases where the widths .* need 8"),
        ("2,3,1,", "2,1e400,1,", "not an .nnet file, or damaged"),
        ("2.0,4.0,3.0,", "2.0,0.0,3.0,", "a range of its normalization is 0"),
        ("-0.2,", "word,", "not an .nnet file, or damaged: could not convert"),
        (NNET, "", "not an .nnet file, or damaged"),
    ],
)
def test_damaged_nnet_files_are_refused(tmp_path, old, new, message):
    (tmp_path / "net.nnet").write_text(new.join(NNET.rsplit(old, 1)))
    with pytest.raises(ValueError, match=message):
        FeedforwardNetwork.load(tmp_path / "net.nnet")
