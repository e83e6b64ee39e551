"""What a type checker knows of the package: checked by mypy in CI, not run."""

from typing import assert_type

import numpy as np

from skident import NetworkIdentifier, metrics
from skident.network import FeedforwardNetwork
from skident.oracle import Budget, Oracle

network = FeedforwardNetwork([np.ones((2, 1))], [np.zeros(1)], "tanh")
assert_type(network.layer_widths, tuple[int, ...])
assert_type(network.align_to(network), FeedforwardNetwork)
assert_type(metrics.parameter_error(network, network), float)
assert_type(network.activations[0].smooth, bool)
oracle = Oracle(network, 2, budget=Budget(max_seconds=1.0))
assert_type(oracle.n_queries, int)
identifier = NetworkIdentifier(network, layer_widths=(1,))


def types_of_a_report(fitted: NetworkIdentifier) -> None:
    """Its fields, without a fit."""
    assert_type(fitted.report_.exact, bool)
    assert_type(fitted.report_.undetected_share, float)
