"""Fixtures for tests."""

import time

import numpy as np
import pytest


@pytest.fixture
def rng():
    """A generator that starts at the same place in every test."""
    return np.random.default_rng(0)


@pytest.fixture
def own_seconds(monkeypatch):
    """`time.perf_counter` counts the seconds that this process works, and `time.sleep` only adds to them.

    So a budget of seconds ends at the same place on a machine that has other work.
    """
    slept = []
    monkeypatch.setattr(time, "perf_counter", lambda: time.process_time() + sum(slept))
    monkeypatch.setattr(time, "sleep", slept.append)
