"""One hidden layer of units that are the largest of several linear functions: max pooling and maxout."""

import numpy as np
import pytest
import torch

from skident import NetworkIdentifier
from skident.identification.piecewise.kernel.output_error import probe_of
from skident.identification.piecewise.maxout.network import find_maxout_network
from skident.identification.piecewise.maxout.terms import Maxout, units_of_facets
from skident.oracle import NotIdentified, Oracle

D = 5
X = np.random.RandomState(0).standard_normal((200, D))
FAR = 100.0 * np.random.RandomState(1).standard_normal((500, D))


def maxout(n_units, size, n_outputs=1, seed=0, floor=0.0):
    """The largest of `size` linear functions and the floor per unit, and a linear layer."""
    rng = np.random.RandomState(seed)
    W, b, V = rng.standard_normal((D, n_units * size)), rng.standard_normal(n_units * size), rng.standard_normal
    V = V((n_units, n_outputs))

    def model(rows):
        return np.maximum((rows @ W + b).reshape(len(rows), n_units, size).max(axis=2), floor) @ V

    return model


def found(model, n_inputs=D):
    oracle, rng = Oracle(model, n_inputs), np.random.RandomState(0)
    return find_maxout_network(probe_of(oracle, rng), 200, rng)


@pytest.mark.parametrize(("size", "n_outputs", "floor"), [(2, 1, 0.0), (2, 3, 0.0), (3, 1, -np.inf)])
def test_units_of_several_linear_functions(size, n_outputs, floor):
    model = maxout(4, size, n_outputs, floor=floor)
    result = found(model)
    assert result.sizes == (3, 3, 3, 3)
    truth = model(FAR)
    assert np.abs(result.network(FAR) - truth).max() < 1e-10 * np.abs(truth).max()


def test_the_default_call_finds_max_pooling():
    model = maxout(5, 2)
    identifier = NetworkIdentifier(lambda rows: model(rows), random_state=0).fit(X)
    report, truth = identifier.report_, model(FAR)
    assert report.exact and not report.determined
    assert "5 units are the largest of up to 3 linear functions (max pooling" in report.undetermined
    assert np.abs(identifier.predict(FAR) - truth).max() < 1e-10 * np.abs(truth).max()


@pytest.mark.slow
def test_convolutions_with_max_pooling():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()
        module = torch.nn.Sequential(*layers, torch.nn.Linear(8, 3)).double().requires_grad_(False)
    model, rows = lambda rows: module(torch.as_tensor(rows).reshape(-1, 1, 6, 6)).numpy(), 36
    result = found(model, rows)
    assert result.sizes[0] == 5 and len(result.sizes) == 8
    points = 3.0 * np.random.RandomState(2).standard_normal((500, rows))
    assert np.abs(result.network(points) - model(points)).max() < 1e-9


@pytest.mark.parametrize("widths", [(8, 1), (8, 6, 1)])
def test_dense_layers_have_no_such_units(widths):
    rng = np.random.RandomState(0)
    layers = [(rng.standard_normal(s), rng.standard_normal(s[1])) for s in zip((D, *widths[:-1]), widths, strict=True)]

    def model(rows):
        for W, b in layers[:-1]:
            rows = np.maximum(rows @ W + b, 0.0)
        return rows @ layers[-1][0]

    with pytest.raises(NotIdentified, match="after 3 lines"):
        found(model)


class KnownFacets:
    """Facets of ``max(0, a, b)`` with errors of 1e-12, oriented at random."""

    def __init__(self, terms, rng):
        self.n_inputs = terms.shape[1] - 1
        pairs = [(k, m) for k in range(len(terms)) for m in range(k)]
        jumps, points = [], []
        for k, m in pairs:
            jump = terms[k] - terms[m]
            for _ in range(1000):
                x = 3.0 * rng.standard_normal(self.n_inputs)
                x -= (jump[:-1] @ x + jump[-1]) * jump[:-1] / (jump[:-1] @ jump[:-1])
                values = terms @ np.append(x, 1.0)
                if values.max() - values[k] < 1e-9:
                    jumps.append(rng.choice([-1.0, 1.0]) * jump)
                    points.append(x)
                    break
        self.jumps, self.points = np.array(jumps), np.array(points)
        self.errors, self.outgoing = np.full(len(jumps), 1e-12), np.ones((len(jumps), 1))

    def __len__(self):
        return len(self.errors)


@pytest.mark.parametrize("n_terms", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_terms_from_their_ties(n_terms, seed):
    """The unit is the largest of its terms, up to a linear function."""
    rng = np.random.RandomState(seed)
    terms = np.vstack([np.zeros(D + 1), rng.standard_normal((n_terms - 1, D + 1))])
    (unit, *more), n_triples = units_of_facets(KnownFacets(terms, rng))
    assert not more and len(unit.terms) == n_terms and n_triples == (n_terms > 2)
    X1 = np.column_stack([FAR, np.ones(len(FAR))])
    left = unit(X1)[:, 0] - (X1 @ terms.T).max(axis=1)
    assert np.abs(left - X1 @ np.linalg.lstsq(X1, left, rcond=None)[0]).max() < 1e-9


def test_the_largest_term():
    unit = Maxout(np.array([[0.0, 0.0], [1.0, -1.0]]), np.array([2.0]))
    points = np.array([[0.0, 1.0], [3.0, 1.0]])
    assert unit.which(points).tolist() == [0, 1]
    np.testing.assert_array_equal(unit(points), [[0.0], [4.0]])
