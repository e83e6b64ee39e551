"""Units of the engine: open parts, errors, and signs that belong to the units of today."""

import numpy as np
import pytest

from skident.identification.measure.normals import jacobians
from skident.identification.measure.outputs import Outputs
from skident.identification.piecewise.engine import _Engine
from skident.identification.units.prefix import Layer, Prefix
from skident.identification.units.unit import Unit


def open_unit(coef, n_open):
    """A unit whose last coefficients are open, and known otherwise."""
    unit = Unit(np.where(np.arange(len(coef)) < len(coef) - n_open, coef, 0.0), np.eye(len(coef))[:, -n_open:], None)
    unit.half = 1e-9 * np.eye(len(coef))[:, :-n_open]
    return unit


@pytest.mark.parametrize(("error", "shift", "closes"), [(1e-9, 0.0, True), (1e-9, 0.5, False), (10.0, 0.0, False)])
def test_equations_close_open_parts_if_they_hold(error, shift, closes, rng):
    """Consistent equations determine the part, contradictory or vague ones leave the unit as it was."""
    coef, rows = rng.standard_normal(6), rng.standard_normal((5, 6))
    unit = open_unit(coef, 1)
    rows -= np.outer(rows @ coef, coef) / (coef @ coef)
    rows[0] += shift * coef
    assert unit.close(rows, np.full(5, error), 1e-3) is closes
    assert unit.nullity == (not closes)
    assert np.allclose(unit.coef, coef, atol=1e-6) is closes


def test_as_many_equations_as_open_parts_close_nothing(rng):
    coef = rng.standard_normal(6)
    rows = rng.standard_normal((2, 6))
    assert not open_unit(coef, 1).close(rows - np.outer(rows @ coef, coef) / (coef @ coef), np.full(2, 1e-9), 1e-3)


def test_exact_equations_count_however_wrong_the_first_guess_is(rng):
    """Residuals that the errors of the guess explain are no outliers."""
    coef, rows = rng.standard_normal(6), rng.standard_normal((12, 6))
    rows -= np.outer(rows @ coef, coef) / (coef @ coef)
    unit = Unit(coef + 1e-3 * rng.standard_normal(6), np.zeros((6, 0)), None)
    unit.half = 1e-3 * np.eye(6)
    unit.learn(rows, np.full(12, 1e-12))
    unit.settle()
    assert np.linalg.norm(np.outer(unit.coef, coef) - np.outer(coef, unit.coef)) < 1e-9 * np.linalg.norm(coef) ** 2
    assert unit.error(rows).max() < 1e-11


def test_errors_of_features_are_those_of_their_units(rng):
    """Of units drawn from their covariances: variances behind two layers within sampling errors."""
    W, V, X = rng.standard_normal((5, 6)), rng.standard_normal((6, 4)), rng.standard_normal((3, 5))
    halves = [1e-6 * rng.standard_normal((6, 6, 3)), 1e-6 * rng.standard_normal((4, 7, 3))]

    def layers(noise):
        """The two layers, their coefficients shifted by random parts of their errors."""
        found = []
        for w, half in zip((W, V), halves, strict=True):
            shift = noise * (half @ rng.standard_normal((len(half), 3, 1)))[:, :, 0].T
            units = [Unit(np.zeros(half.shape[1]), np.zeros((half.shape[1], 0)), None) for _ in half]
            for unit, root in zip(units, half, strict=True):
                unit.half = root
            found.append(Layer.of(w + shift[:-1], shift[-1], units=units))
        return found

    claimed = np.sqrt(Prefix(5, layers(0.0)).variances(X))[:, :-1]
    outputs = np.array([Prefix(5, layers(1.0)).evaluate(X)[1] for _ in range(2000)])[:, :, :-1]
    measured = outputs.std(axis=0)
    some = claimed > 1e-9
    assert some.any() and np.all(np.abs(measured[some] / claimed[some] - 1.0) < 0.15)  # 9 standard errors


def test_signs_are_those_of_the_units_of_today(planted):
    net = planted((8, 7, 5, 1), 1)
    engine = _Engine(net.probe(), net.rng, False, None, 100, np.zeros((0, 8)), 10**6)
    engine.find_first_layer()
    engine.climb()
    assert engine.is_signed(1) and len(engine.levels) == 2
    engine.levels[0].units.pop()
    assert not engine.is_signed(1) and len(engine.levels) == 1 and not engine.signs


def test_the_error_of_a_jacobian_holds_although_a_bend_hides_in_a_step(planted):
    """Steps across a tiny bend: what the check does not refute, it adds to the error."""
    net = planted((6, 8, 1), 3)
    outputs = Outputs(net.probe(), net.rng)
    X, free = net.rng.standard_normal((400, 6)), np.full(400, 0.02)
    J, errors, good = jacobians(outputs, X, free)
    active = net.pre_activations(X)[0] > 0
    truth = (active * net.network.weights[1][:, 0]) @ net.network.weights[0].T
    scale = net.oracle.output_scale[0] * net.spread[0]
    apart = np.linalg.norm(J[:, 0] - truth / scale, axis=1)[good] / (np.sqrt(6) * errors[good])
    assert good.sum() > 300 and np.quantile(apart, 0.99) < 8.0


def test_a_unit_of_two_is_open_where_both_are():
    rng = np.random.default_rng(0)
    coef, other = rng.standard_normal((2, 8))

    def part(coef, hidden, factor):
        """The unit times a factor, without hidden coefficients, to which an equation that it fulfills is known."""
        unit = Unit(factor * np.where(np.isin(range(8), hidden), 0.0, coef), np.eye(8)[:, hidden], None)
        row = np.where(np.isin(range(8), hidden), 0.0, rng.standard_normal(8))
        unit.learn((row - (row @ unit.coef) / (unit.coef @ unit.coef) * unit.coef)[None], np.array([1e-10]))
        return unit

    one, two = part(coef, [1, 3], 2.0), part(coef, [3, 6], -0.5)
    joint = one.joined(two, 1e-6)
    assert joint.nullity == 1 and abs(joint.V[3, 0]) == pytest.approx(1.0)
    known = np.delete(np.arange(8), 3)
    np.testing.assert_allclose(joint.coef[known], 2.0 * coef[known], rtol=1e-9)
    np.testing.assert_allclose(joint.errors[1:], 4e-10)
    assert one.joined(part(other, [3, 6], 1.0), 1e-6) is None  # both are open in the third coefficient
    assert one.joined(part(coef, [0, 2, 4, 5, 6], 1.0), 1e-6) is None  # any two units agree
