"""Rows in whitened inputs, merged and split."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.samples.passive.whitened_table import Table

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 3)) @ np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 50.0]]) + 7.0
Y = RNG.standard_normal((60, 2)) * [1.0, 30.0]


def test_inputs_are_white_and_targets_standardised():
    rows = Table(X, Y, None, True).rows(slice(None))
    np.testing.assert_allclose(rows.U.T @ rows.U / 60, np.eye(3), atol=1e-12)
    np.testing.assert_allclose([rows.Y.mean(axis=0), rows.Y.std(axis=0)], [[0, 0], [1, 1]], atol=1e-12)


def test_repeated_rows_are_weights():
    counts = RNG.randint(0, 4, 60)
    repeated = Table(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0), None, True)
    weighted = Table(X, Y, counts.astype(float), True)
    for name in ("X", "Y", "weight", "whitener", "effective_rows"):
        np.testing.assert_array_equal(getattr(repeated, name), getattr(weighted, name))
    assert repeated.effective_rows == pytest.approx(counts.sum() ** 2 / np.sum(counts**2))


def test_equal_inputs_stay_on_one_side():
    table = Table(np.repeat(X, 2, axis=0), RNG.standard_normal((120, 1)), None, True)
    fitted, held_out = table.split(0.3, 1000, np.random.RandomState(0))
    assert (len(fitted), len(held_out), table.n_distinct) == (84, 36, 60)
    assert not {tuple(x) for x in table.X[fitted]} & {tuple(x) for x in table.X[held_out]}


def test_networks_go_to_whitened_inputs_and_back():
    network = make_network((3, 4, 2), output_activation="identity", random_state=1)
    table = Table(X, Y, None, True)
    inside = table.in_whitened(network)
    rows = table.rows(slice(None))
    np.testing.assert_allclose(inside(rows.U) * table.unit + table.offset, network(table.X), atol=1e-12)
    np.testing.assert_allclose(table.in_inputs(inside).weights[0], network.weights[0], atol=1e-12)


def test_columns_without_a_density_and_without_variation_are_told():
    columns = np.column_stack([X[:, 0], np.sign(X[:, 1] - 7), np.ones(60), 2 * X[:, 0] + 1])
    table = Table(columns, Y, None, True)
    assert list(table.discrete) == [False, True, True, False] and table.lost == 2


def test_blocks_are_the_rows():
    table = Table(X, Y, np.arange(1.0, 61.0), True)
    parts = list(table.blocks(17))
    np.testing.assert_array_equal(np.concatenate([p[0] for p in parts]), table.rows(slice(None)).U)
    assert sum(p[2].sum() for p in parts) == pytest.approx(table.effective_rows)
