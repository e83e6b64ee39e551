"""Linear models: one layer, by least squares on outputs near the center."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork

from ..attempt import Attempt, max_error_over_deviation

__all__ = ["METHOD"]

_OUTPUTS = 3  # queries per coefficient: rounding and noise average out
_FEWEST = 40  # queries at least


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
        with problem.log.stage("linear fit", oracle) as entry:
            n, rng = max(_FEWEST, _OUTPUTS * (oracle.n_inputs + 1)), problem.rng
            U, Y = oracle.query_precise(lambda n, factor: factor * rng.standard_normal((n, oracle.n_inputs)), n)
            design = np.column_stack([U, np.ones(len(U))])
            A = np.linalg.lstsq(design, Y, rcond=None)[0]
            entry["residual"] = float(np.abs(design @ A - Y).max())
        network = FeedforwardNetwork([A[:-1]], [A[-1]], "identity", "identity")
        held_out = problem.held_out
        error = max_error_over_deviation(held_out.outputs, network(held_out.inputs))
        if error >= problem.accepted_error and problem.activations[0] != "identity":
            return None
        return Attempt(network, error, "linear", entry["residual"], self.name, minimal=True)


METHOD = LinearFit()
