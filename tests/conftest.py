"""Fixtures for tests."""

import time

import numpy as np
import pytest

# Whole fits, dozens of them per file: not in the tier of three minutes (`pytest -m "not slow"`).
SLOW_FILES = {
    "test_metrics.py", "test_displays.py",
    "test_algorithm1.py", "test_analyzer.py", "test_backward_correction.py", "test_bad_input.py",
    "test_black_boxes.py", "test_budgets.py", "test_certify.py", "test_clipped_outputs.py",
    "test_cluster.py", "test_commands.py", "test_completion.py", "test_compressor.py", "test_deep.py",
    "test_deployed_models.py", "test_detection.py", "test_estimators.py", "test_exactness.py",
    "test_extractor.py", "test_failed_fits.py", "test_first_layer.py", "test_fits.py",
    "test_hard_tanh.py", "test_identifier.py", "test_lying_boxes.py", "test_modules.py", "test_near_data.py",
    "test_ordinary_boxes.py", "test_outputs.py", "test_parallel.py", "test_faces_route.py",
    "test_planar_escape.py", "test_polish.py", "test_profiles_route.py", "test_programming_errors.py",
    "test_posterior_means.py", "test_random_starts.py", "test_regressor.py", "test_samples.py", "test_shallow_units.py",
    "test_sign_vectors.py", "test_sklearn_checks.py", "test_solvers.py", "test_spread.py",
    "test_three_hidden_layers.py", "test_training.py", "test_unknown_widths.py", "test_verdict.py",
    "test_verify.py", "test_wheel.py",
}  # fmt: skip


def pytest_collection_modifyitems(items):
    """Mark the tests of slow files."""
    for item in items:
        if item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


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
