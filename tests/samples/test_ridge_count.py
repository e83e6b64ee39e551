"""Ridges added and taken away: their number, and out of local minima."""

import numpy as np
import pytest

from skident.samples.ridges import fit_ridges, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.unit_count import (
    add_ridge,
    determined_units,
    escape,
    remove_ridge,
    remove_to,
    select_size,
)
from tests.rates import fewest_successes
from tests.samples.planted import in_z, planted


@pytest.mark.parametrize("size", [0, 1, 3])
def test_size_is_found_from_below_and_above(size):
    sample, U, b, _ = planted(9, 4, 3, 3000, noise=0.1)
    rng = np.random.RandomState(0)
    U, b = in_z(sample, U, b)
    start = fit_ridges(sample, regress_on_ridges(sample, U[:size] + 0.2, b[:size]).model)
    assert select_size(sample, start, rng, max_units=6).model.n_units == 3


def test_ridges_added_and_removed():
    sample, U, b, _ = planted(10, 4, 2, 2000, noise=0.1)
    rng = np.random.RandomState(0)
    fit = fit_ridges(sample, regress_on_ridges(sample, *in_z(sample, U, b)).model)
    wider = add_ridge(sample, fit, rng)
    assert wider.model.n_units == 3 and wider.rss < fit.rss
    back = remove_ridge(sample, wider, rng)
    # Both ended where the residual sum changes by less than 1e-4 a step.
    assert back.model.n_units == 2 and back.rss < fit.rss * 1.001


def test_out_of_a_local_minimum():
    """Two units in the place of one leave another one out; adding one and taking one away mends it."""
    n_stuck = 0
    for seed in range(20):
        sample, U, b, _ = planted(seed, 4, 3, 3000, noise=0.05)
        U, b = in_z(sample, U, b)
        fit = fit_ridges(sample, regress_on_ridges(sample, U[[0, 0, 1]] * 1.0, b[[0, 0, 1]] + [0.3, -0.3, 0]).model)
        stuck = fit.rss > 2 * 0.05**2 * sample.total
        better, found_more = escape(sample, fit, np.random.RandomState(0), max_units=6)
        assert found_more == stuck and better.model.n_units == 3 and better.rss < 1.05 * 0.05**2 * sample.total
        n_stuck += stuck
    # The fit itself gets out of most such starts: 7 of 20 were stuck.
    assert n_stuck >= fewest_successes(20, 7, 20)


def test_rows_determine_so_many_units():
    """A unit has as many parameters as a linear function: k + 1."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((11, 2))
    assert [determined_units(Sample(X[:n], X[:n, 0] ** 2)) for n in (5, 6, 8, 9, 11)] == [0, 1, 1, 2, 2]


def test_ridges_are_taken_away_down_to_a_number():
    sample, U, b, _ = planted(10, 4, 2, 1000, noise=0.1)
    fit = regress_on_ridges(sample, *in_z(sample, U[[0, 1, 1]], b[[0, 1, 1]] + [0, 0.1, -0.1]))
    start, seen = fit_ridges(sample, fit.model), []
    fits = [remove_to(sample, start, m, np.random.RandomState(0), seen.append) for m in (5, 3, 2, 0)]
    assert fits[0] is start and fits[1] is start
    assert [f.model.n_units for f in fits] == [3, 3, 2, 0] and [f.model.n_units for f in seen] == [2, 2, 1, 0]
