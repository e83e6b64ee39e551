"""When a plateau is left, told from the record on it."""

import numpy as np
import pytest

from skident.saddle.forecast import describe_plateau, expected_escape


@pytest.mark.parametrize("start", [1e-8, 1e-5])
def test_exponential_departures_are_foreseen(start):
    t = np.arange(0.0, 60.0, 4.0)
    left = 12.0 * np.log(0.02 / start)
    assert expected_escape(t, 2.0 * (1.0 - start * np.exp(t / 12.0))) == pytest.approx(left, abs=2.0)


def test_a_steady_fall_is_continued():
    t = np.arange(0.0, 50.0, 10.0)
    assert expected_escape(t, 1.0 - 1e-4 * t) == pytest.approx(40 + 200, rel=0.01)


@pytest.mark.parametrize("losses", [np.ones(6), np.arange(6.0), [1.0, 0.9], [1, 1, np.nan, 1]])
def test_no_escape_in_sight(losses):
    history = {"steps": np.arange(len(losses)), "losses": losses}
    assert expected_escape(**history) == np.inf
    assert describe_plateau(history).endswith("no escape in sight")
