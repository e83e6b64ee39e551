"""Faces of the cube of first-layer outputs, derivatives on them, and the second layer that these show."""

import numpy as np
import pytest

from skident.identification.smooth.cube import saturated
from skident.identification.smooth.curves import fit_curve, taylor_term
from skident.identification.smooth.derivatives import Stencils, curvature, square_free
from skident.identification.smooth.design import cheapest_design
from skident.identification.smooth.edges import query_edges
from skident.identification.smooth.engine import recover_two_layers
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
    """Those by different units are products of weights and slopes; the error is that of the square of the step."""
    network = make_planted((8, 6, 4, 2), activation=name)
    cube, g = make_cube(network, shifts=0.0), network.activations[0]
    face = cube.face([0, 1, 2], 4)
    T, _ = Stencils.of([square_free((0, 2)), curvature(1, ())], 3).derivatives(cube, face, 1e-3)
    h, slope, bend = g.jet(face.points @ cube.weights + cube.biases, 2)
    _, slope_2, bend_2 = g.jet(h @ network.weights[1] + network.biases[1], 2)
    W, V = network.weights[1], network.weights[2]
    mixed = (bend_2 * W[0] * W[2]) @ V * (slope[:, 0] * slope[:, 2])[:, None]
    twice = (bend_2 * W[1] ** 2) @ V * slope[:, [1]] ** 2 + (slope_2 * W[1]) @ V * bend[:, [1]]
    np.testing.assert_allclose(T[..., 0], mixed, atol=1e-5)
    np.testing.assert_allclose(T[..., 1], twice, atol=1e-5)


def test_products_with_one_entry_squared(make_planted, make_cube):
    """The curvatures of first-layer units that make their products those of the second layer, and the products."""
    network = make_planted((7, 10, 10, 1), seed=3, scale=1.0)
    cube, g = make_cube(network), network.activations[0]
    face, products = cube.face([0, 2, 5, 6], 30, held=True), Products(4, 3, twice=True)
    assert len(products) == 16 and len(face.points) == 30
    T, _ = Stencils.of(products.stencils, 4).derivatives(cube, face, 2e-3)
    norms = np.linalg.norm(cube.weights, axis=0) / np.linalg.norm(network.weights[0], axis=0)
    _, slope, bend = g.jet(network.biases[0] - cube.biases / norms, 2)
    curvatures = products.curvatures(T, 4)
    np.testing.assert_allclose(curvatures, (bend / slope)[face.free], atol=1e-3)
    C, true = products.values(T, curvatures)[:, 0], products.of((network.weights[1] * slope[:, None])[face.free].T)
    outside = C - C @ np.linalg.pinv(true) @ true
    assert np.linalg.norm(outside) < 1e-3 * np.linalg.norm(C)


def test_held_units_do_not_move(make_planted, make_cube):
    network = make_planted((6, 8, 8, 1), seed=1, scale=1.0)
    cube = make_cube(network, shifts=0.0)
    face = cube.face([0, 1, 2, 3], 25, held=True)
    t = np.array([0.3, -0.2, 0.1, 0.2])
    moved = (face.points[:, None] + t @ face.moves[:, None])[:, 0] @ cube.weights + cube.biases
    still = np.abs(face.Z) < saturated("tanh", 0.0)
    still[:, face.free] = False
    np.testing.assert_allclose(moved[:, face.free], np.tile(t, (25, 1)), atol=1e-6)
    np.testing.assert_allclose(moved[still], face.Z[still], atol=1e-6)
    assert still.sum() == 25 - 8 and np.abs(moved[:, 4:][~still[:, 4:]]).min() > saturated("tanh", 0.0)


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
