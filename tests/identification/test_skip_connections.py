"""ReLU networks with concatenated skips, and averages of unequal depth: the function is exact, the widths are not."""

import numpy as np
import pytest

from skident import NetworkIdentifier

D, WIDTHS = 6, (6, 5)
X = np.random.RandomState(0).standard_normal((200, D))
FAR = 1e3 * np.random.RandomState(1).standard_normal((500, D))


def layer(rng, n_in, n_out):
    return rng.standard_normal((n_in, n_out)) / np.sqrt(n_in), 0.5 * rng.standard_normal(n_out)


def concatenated(rng):
    """The second layer and the outputs read the inputs too."""
    (W, b), (V, c) = layer(rng, D, WIDTHS[0]), layer(rng, D + WIDTHS[0], WIDTHS[1])
    outgoing = rng.standard_normal(D + sum(WIDTHS))

    def model(rows):
        first = np.hstack([np.maximum(rows @ W + b, 0.0), rows])
        return np.hstack([np.maximum(first @ V + c, 0.0), first]) @ outgoing

    return model


def average(rng):
    """The mean of a network with one hidden layer and a network with two."""
    (U, a), (W, b), (V, c) = layer(rng, D, 4), layer(rng, D, WIDTHS[0]), layer(rng, *WIDTHS)
    out = rng.standard_normal(4), rng.standard_normal(WIDTHS[1])

    def model(rows):
        deep = np.maximum(np.maximum(rows @ W + b, 0.0) @ V + c, 0.0)
        return (np.maximum(rows @ U + a, 0.0) @ out[0] + deep @ out[1]) / 2.0

    return model


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("make", "least"), [(concatenated, 2), pytest.param(average, 1, marks=pytest.mark.slow)])
def test_exact_everywhere(make, least):
    """Six of ten averages are recovered: of three none with probability 0.06."""
    n_exact = 0
    for seed in range(3):
        model = make(np.random.RandomState(seed))
        identifier = NetworkIdentifier(model, random_state=seed).fit(X)
        report, truth = identifier.report_, model(FAR)
        if report.exact:
            n_exact += 1
            assert not report.determined and "skip connections" in report.undetermined
            assert np.abs(identifier.predict(FAR) - truth).max() < 1e-10 * np.abs(truth).max()
    assert n_exact >= least
