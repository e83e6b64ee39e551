"""Linear models: one layer, by least squares on outputs near the center."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack
from skident.network import FeedforwardNetwork

from ..attempt import Attempt, max_error_over_deviation, relative_to_deviation

__all__ = ["METHOD"]

_OUTPUTS = 3  # queries per coefficient: rounding and noise average out
_FEWEST = 40  # queries at least
_PAIRS = 20  # of opposite points (budget): half of them with a bend show units
_BEND = 2.0  # errors of a linear model up to which it explains a bend: one at the center, one at the mean of a pair


class LinearFit:
    """A linear model as a network of one layer without hidden units."""

    name = "linear fit"

    def refuses(self, problem):
        """See `Method`."""
        if problem.activations[1] == "identity":
            return None
        return f"a linear model is fitted before a linear output, got output_activation={problem.activations[1]!r}."

    def run(self, problem, step, state):
        """See `Method`; None if the outputs are not linear, unless no hidden unit was detected."""
        oracle = problem.oracle
        if problem.activations[0] != "identity" and _bends(problem):
            return None
        with problem.log.stage("linear fit", oracle) as entry:
            n, rng = max(_FEWEST, _OUTPUTS * (oracle.n_inputs + 1)), problem.rng
            U, Y = oracle.query_precise(lambda n, factor: factor * rng.standard_normal((n, oracle.n_inputs)), n)
            design = np.column_stack([U, np.ones(len(U))])
            A = lapack.lstsq(design, Y, rcond=None)[0]
            entry["residual"] = float(np.abs(design @ A - Y).max())
        network = FeedforwardNetwork([A[:-1]], [A[-1]], "identity", "identity")
        held_out = problem.held_out
        error = max_error_over_deviation(held_out.outputs, network(held_out.inputs))
        if error >= problem.accepted_error and problem.activations[0] != "identity":
            return None
        return Attempt(network, error, "linear", entry["residual"], self.name, minimal=True)


def _bends(problem):
    """Whether the mean of outputs at most pairs of opposite points is not that at the center, as in a linear model."""
    oracle = problem.oracle
    V = problem.rng.standard_normal((_PAIRS, oracle.n_inputs))
    Y, error = oracle.query(np.concatenate([V, -V, np.zeros((1, oracle.n_inputs))]))
    precise = oracle.is_precise(error)
    kept = precise[:_PAIRS] & precise[_PAIRS:-1]
    if not precise[-1] or kept.sum() < _PAIRS // 2:
        return False
    bends = 0.5 * (Y[:_PAIRS] + Y[_PAIRS:-1])[kept] - Y[-1]
    sizes = [relative_to_deviation(bend[None], problem.held_out.outputs) for bend in bends]
    return bool(np.median(sizes) > _BEND * problem.accepted_error)


METHOD = LinearFit()
