"""The steps of learning, one after the other, where the regressor's own tests do not see them."""

import numpy as np
import pytest

from skident.samples.learning import Search, learn_relu_network
from tests.samples.planted import planted


def test_all_rows_enter_at_the_end(monkeypatch):
    monkeypatch.setattr("skident.samples.learning._WORKING_ROWS", 1024)
    sample, _, b, _ = planted(3, 5, 2, 6000, noise=0.1)
    for n_units in (None, 2):
        learned = learn_relu_network(sample, Search(5, n_units), rng=np.random.RandomState(0))
        fit = learned.signed.fit
        assert fit.model.n_units == len(b) and learned.settled and not learned.exact
        # The parameters of 6000 rows explain chance, those of 1024 rows would leave it: 1 - 17 / 6000 of the noise.
        assert fit.rss == pytest.approx(0.01 / 1.01 * sample.total, rel=0.03)


def test_a_known_noise_is_enough():
    sample, *_ = planted(3, 5, 2, 3000, noise=0.1)
    variance = 0.01 / 1.01  # in variances of y
    search = Search(5, 2, noise_variance=variance)
    assert search.is_enough(sample, variance * sample.total) and not search.is_enough(
        sample, 1.2 * variance * sample.total
    )
    assert not Search(5, 2).is_enough(sample, variance * sample.total) and Search(5, 2).is_enough(sample, 0.0)
    said = []
    learn_relu_network(sample, search, rng=np.random.RandomState(0), say=said.append)
    assert said and all(line.startswith(("tensors", "polish")) for line in said)  # no further unit is tried
