"""Faces of the cube of first-layer outputs, derivatives on them, and the second layer that these show."""

import math

import numpy as np
import pytest

from skident.identification.smooth.cube import saturated
from skident.identification.smooth.curves import fit_curve, taylor_term
from skident.identification.smooth.derivatives import Stencils, mixed
from skident.identification.smooth.design import cheapest_design
from skident.identification.smooth.edges import query_edges
from skident.identification.smooth.engine import recover_two_layers
from skident.identification.smooth.levels import Levels
from skident.identification.smooth.products import Products
from skident.identification.smooth.second_layer import find_second_layer
from skident.metrics import relative_max_error
from skident.oracle import NotIdentified

NAMES = ["tanh", "sigmoid", "erf"]


@pytest.mark.parametrize("sizes", [(6, 12, 5, 1), (8, 6, 5, 1), (4, 9, 3, 2)])
def test_units_of_a_face_are_free_and_others_saturated(sizes, make_planted, make_cube):
    cube = make_cube(make_planted(sizes), shifts=0.0)
    face = cube.face([0, 2], 5)
    Z = face.points @ cube.weights + cube.biases
    np.testing.assert_allclose(Z[:, [0, 2]], 0.0, atol=1e-6)
    others = np.setdiff1d(np.arange(sizes[1]), [0, 2])
    if sizes[1] > sizes[0]:
        assert np.abs(Z[:, others]).min() > saturated("tanh", 0.0) and np.all(Z * face.Z >= 0.0)
        assert len(np.unique(Z[:, others] > 0, axis=0)) == len(Z)
    else:
        np.testing.assert_allclose(Z, face.Z, atol=1e-6)
    moved = (face.points + np.array([0.3, -0.2]) @ face.moves) @ cube.weights + cube.biases
    np.testing.assert_allclose(moved[:, [0, 2]], [[0.3, -0.2]] * len(Z), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_against_the_network(name, make_planted, make_cube):
    """By outputs of the units, mapped to [-1, 1], at any level; the error is that of the square of the step."""
    network = make_planted((8, 6, 4, 2), activation=name)
    cube, g = make_cube(network, shifts=0.0), network.activations[0]
    face = cube.face([0, 1, 2], 4).at_levels(np.linspace(-0.5, 0.5, 12).reshape(4, 3))
    T, _ = Stencils.of([mixed(S) for S in ((0, 2), (1, 1), (0, 0, 0))], 3).derivatives(cube, face, 1e-3)
    y = g(face.points @ cube.weights + cube.biases) @ network.weights[1] + network.biases[1]
    W, V = network.weights[1] * (g.limits[1] - g.limits[0]) / 2.0, network.weights[2]
    for t, S in zip(np.moveaxis(T, 2, 0), ((0, 2), (1, 1), (0, 0, 0)), strict=True):
        derivative = math.factorial(len(S)) * taylor_term(name, len(S))(y)
        np.testing.assert_allclose(t, (derivative * np.prod(W[list(S)], axis=0)) @ V, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_levels_of_free_units_show_their_norms_and_biases(name, make_planted, make_cube):
    """In outputs of the units themselves, derivatives are products of the second layer's weights."""
    network = make_planted((7, 10, 10, 2), seed=3, scale=1.0, activation=name)
    cube, rng = make_cube(network, factors=0.1), np.random.RandomState(0)
    face, products = cube.face([0, 2, 5, 6], 30), Products(4, 3, "once", (), 2)
    face = face.at_levels(rng.uniform(-0.6, 0.6, (40, 4)))
    T, _ = Stencils.of(products.stencils, 4).derivatives(cube, face, 2e-2)
    levels = Levels(cube.g, face.Z[:, face.free])
    x = levels.fitted(products, T, 10, 10, rng)
    norms = np.linalg.norm(network.weights[0], axis=0) / np.linalg.norm(cube.weights, axis=0)
    np.testing.assert_allclose(np.exp(x[:4]), norms[face.free], rtol=1e-2)
    np.testing.assert_allclose(x[4:], (network.biases[0] - cube.biases * norms)[face.free], atol=1e-2)
    C = products.rows(products.values(T, *levels.relative(x)))
    true = products.of(network.weights[1][face.free].T, network.weights[2])
    outside = C - C @ np.linalg.pinv(true) @ true
    assert np.linalg.norm(outside) < 1e-3 * np.linalg.norm(C)


@pytest.mark.parametrize(("sizes", "width"), [((12, 8, 5, 1), None), ((8, 11, 4, 2), 4), ((9, 8, 8, 3), None)])
def test_directions_of_the_second_layer(sizes, width, make_planted, make_cube):
    """Up to norms, and to slopes of first-layer units at their hyperplanes, whatever biases are known."""
    network = make_planted(sizes, seed=2, scale=1.0)
    cube = make_cube(network, factors=0.1)
    found = find_second_layer(cube, width)
    norms = np.linalg.norm(cube.weights, axis=0) / np.linalg.norm(network.weights[0], axis=0)
    slopes = network.activations[0].jet(network.biases[0] - cube.biases / norms, 1)[1] / norms
    true, U = network.weights[1] * slopes[:, None], found.U
    cosines = np.abs((true / np.linalg.norm(true, axis=0)).T @ (U / np.linalg.norm(U, axis=0)))
    assert U.shape == (sizes[1], sizes[2])
    np.testing.assert_allclose(cosines.max(axis=1), 1.0, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_norms_and_biases_from_edges(name, make_planted, make_cube):
    network = make_planted((7, 6, 4, 1), seed=1, scale=1.0, activation=name)
    cube, g = make_cube(network, factors=0.1), network.activations[0]
    edges, cube = query_edges(cube)
    norms = np.linalg.norm(network.weights[0], axis=0) / np.linalg.norm(cube.weights, axis=0)
    shifts = network.biases[0] - norms * cube.biases
    _, slope, bend = g.jet(shifts, 2)
    for i in range(6):
        log_norm, bias, residual = edges.norm_and_bias(i, norms[i] * bend[i] / slope[i])
        assert residual < 1e-6
        assert log_norm == pytest.approx(np.log(norms[i]), abs=1e-3) and bias == pytest.approx(shifts[i], abs=1e-3)


def test_a_hyperplane_far_off_is_moved_to_the_center_of_its_unit(make_planted, make_cube):
    network = make_planted((7, 6, 4, 1), seed=1)
    cube = make_cube(network, shifts=0.0).rescaled(np.array([1, 8, 1, 1, 0.2, 1.0]), np.array([0, 0, 6, 0, 0, -5.0]))
    cube = query_edges(cube)[1]
    np.testing.assert_allclose(np.linalg.norm(cube.weights / network.weights[0], axis=0), np.sqrt(7), rtol=1.5)
    assert np.abs(cube.biases - network.biases[0]).max() < 2.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [2, 3, 4])
def test_curves_from_their_points(name, order, rng):
    x, term = rng.uniform(-3.0, 3.0, 60), taylor_term(name, order)
    C = term(1.3 * x - 0.4)[:, None] * np.array([1.0, -2.0])
    norm, bias, residual = fit_curve(x, C, term)
    assert (norm, bias) == (pytest.approx(1.3, rel=1e-5), pytest.approx(-0.4, abs=1e-5)) and residual < 1e-5


def test_designs():
    """The fewest free units whose products are generic; none if there are too few inputs."""
    assert cheapest_design(8, 20, 16, 1).order == 3 and cheapest_design(32, 16, 16, 1).order == 2
    assert cheapest_design(3, 10, 10, 1) is None


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((10, 8, 5, 1), "tanh"),
        ((9, 12, 6, 2), "tanh"),
        ((9, 8, 6, 1), "sigmoid"),
        ((9, 8, 4, 3), "erf"),
        ((7, 10, 10, 1), "tanh"),
        ((6, 9, 8, 2), "sigmoid"),
        ((6, 8, 9, 1), "erf"),
    ],
)
def test_rate_of_recovery(sizes, name, make_planted, make_cube, rng):
    X, n_good = rng.standard_normal((300, sizes[0])), 0
    for seed in range(3):
        network = make_planted(sizes, seed=seed, scale=1.0, activation=name)
        try:
            found = recover_two_layers(make_cube(network, seed)).network
        except NotIdentified:
            continue
        n_good += found.layer_widths == sizes[1:] and relative_max_error(network(X), found(X)) < 1e-4
    assert n_good >= 2


@pytest.mark.parametrize("model", ["three layers", "no network"])
def test_other_models_are_refused(model, make_planted, make_cube):
    network = make_planted((12, 8, 6, 5, 1), seed=1)
    query = network if model == "three layers" else lambda X: np.sin(network(X) * 5.0)
    cube = make_cube(network)
    with pytest.raises(NotIdentified, match="no second layer|relative residual"):
        recover_two_layers(type(cube)(query, cube.weights, cube.biases, cube.g, 1, cube.rng))
