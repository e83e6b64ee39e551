"""Scans of lines and normals against the truth: no boundary is lost, and errors are what is claimed."""

import numpy as np
import pytest

from skident.identification.measure.outputs import Outputs
from skident.identification.measure.record import Record, between, through
from skident.identification.measure.scan import scan
from skident.identification.piecewise.kernel.lines import Segments, random_segments
from skident.identification.piecewise.kernel.output_error import DeepProbe, measure_rounding
from skident.oracle import Oracle

ERRORS = {"exact": 0.0, "8 decimals": 1e-8, "noise": 1e-8}


def record_of(net, kind):
    """A `Record` of a planted network whose outputs have errors of a kind."""
    noise = np.random.RandomState(1)
    outputs = {
        "exact": net.network,
        "8 decimals": lambda X: np.round(net.network(X), 8),
        "noise": lambda X: net.network(X) + 1e-8 * noise.standard_normal((len(X), net.network.n_outputs)),
    }[kind]
    oracle = Oracle(outputs, net.network.n_inputs)
    rounding = measure_rounding(net.oracle, net.rng) if kind == "exact" else np.full(net.network.n_outputs, 3e-8)
    probe = DeepProbe(oracle, rounding, net.network(net.rng.standard_normal((200, net.network.n_inputs))).std(axis=0))
    probe.deviations = 16.0 if kind == "exact" else 3.0
    return Record(Outputs(probe, net.rng))


def crossings(net, lines):
    """Lines and positions of all changes of signs, layer by layer, from 60,000 points per line."""
    found = []
    for k in range(len(lines)):
        t = np.sinh(np.linspace(np.arcsinh(lines.low[k]), np.arcsinh(lines.high[k]), 60_000))
        for Z in net.pre_activations(lines.origins[k] + t[:, None] * lines.directions[k]):
            i, j = np.nonzero(Z[1:] * Z[:-1] < 0)
            a, b = Z[i, j], Z[i + 1, j]
            found += [(k, s) for s in t[i] + (t[i + 1] - t[i]) * a / (a - b)]
    return np.array(found)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("widths", [(6, 8, 1), (8, 7, 6, 1), (6, 6, 5, 4, 3)], ids=str)
def test_no_boundary_is_lost_and_none_is_invented(widths, kind, planted):
    net = planted(widths, 0)
    record = record_of(net, kind)
    lines = random_segments(record.outputs.probe, 3, net.rng, reach=10.0)
    record.add(lines, through(record.outputs, lines, 60))
    truth, bends = crossings(net, lines), record.bends
    # Positions from a fine grid are wrong by the square of its spacing.
    gap, wrong = np.array([np.abs(bends.t[bends.line == k] - t).min() for k, t in truth]), 1e-2
    visible = np.ones(len(truth), dtype=bool)
    if kind != "exact" or len(widths) > 3:  # others are where the outputs do not change, or too small a bend
        X = lines.at(truth[:, 0].astype(int), truth[:, 1])
        d, h = lines.directions[truth[:, 0].astype(int)], 1e-3
        visible = np.abs(net.network(X + h * d) - 2.0 * net.network(X) + net.network(X - h * d)).max(axis=1) > 1e-4 * h
    assert np.all(gap[visible] < wrong * (1.0 + np.abs(truth[visible, 1]))) and visible.sum() > 10
    off = np.array([np.abs(truth[truth[:, 0] == k, 1] - t).min() for k, t in zip(bends.line, bends.t, strict=True)])
    assert np.all(off < wrong * (1.0 + np.abs(bends.t)))


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_positions_and_normals_are_those_claimed(kind, planted):
    net = planted((6, 8, 1), 1)
    record = record_of(net, kind)
    X = net.rng.standard_normal((2, 4, 6))
    lines = record.add(*between(*X, 20, net.rng))
    record.measure_normals(lines, np.full((len(record), 6), np.nan), np.zeros(len(record)))
    W, b = net.network.weights[0], net.network.biases[0]
    Z = record.points @ W + b
    k = np.argmin(np.abs(Z) / np.linalg.norm(W, axis=0), axis=1)
    slope = (record.directions @ W)[np.arange(len(k)), k]
    ratio = np.abs(Z[np.arange(len(k)), k] / slope) / record.bends.t_error
    assert len(ratio) > 8 and ratio.max() < 8.0
    measured = record.with_normals()
    truth = W[:, k[measured]].T / slope[measured, None]
    apart = np.linalg.norm(record.normals[measured] - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert len(measured) >= 0.5 * len(k) and np.max(apart / record.normal_errors[measured]) < 8.0


def test_known_normals_are_not_measured_again(planted):
    net = planted((6, 8, 1), 2)
    record = record_of(net, "exact")
    lines = record.add(*between(*net.rng.standard_normal((2, 2, 6)), 20, net.rng))
    record.measure_normals(lines, np.full((len(record), 6), np.nan), np.zeros(len(record)))
    known, before = record.normals.copy(), record.outputs.n_queries
    record.measure_normals(lines, known, np.zeros(len(record)))
    assert record.outputs.n_queries == before


@pytest.mark.parametrize("seed", [148, 180, 248])
def test_rounded_pieces_may_be_parallel(seed):
    rng = np.random.RandomState(seed)
    W, b, a = (
        rng.standard_normal((4, 6)),
        rng.standard_normal(6),
        rng.standard_normal(6) * 10.0 ** rng.uniform(-3, 0, 6),
    )
    oracle = Oracle(lambda X: np.round(np.maximum(X @ W + b, 0.0) @ a, 5), 4)
    outputs = Outputs(DeepProbe(oracle, np.array([5e-6]), np.array([1.0])), rng)
    origins, V, half = rng.standard_normal((20, 4)), rng.standard_normal((20, 4)), np.full(20, 0.05)
    lines = Segments(origins, V / np.linalg.norm(V, axis=1, keepdims=True), -half, half)
    bends = scan(outputs, lines, np.linspace(-1.0, 1.0, 6) * half[:, None])[0]
    assert np.all(np.abs(bends.t) < 0.05)
