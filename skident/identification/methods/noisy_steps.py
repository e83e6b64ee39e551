"""One hidden layer of saturating units from outputs with large errors: steps far out, then a joint fit."""

from __future__ import annotations

from skident.network import get_activation

from ..attempt import Attempt, max_error_over_deviation
from ..constants import COARSE
from ..saturating.noisy.network import find_noisy_network

__all__ = ["METHOD"]

_QUERIES = 500_000  # max_queries from which so many are spent: 250,000 to 480,000 on 10-32-1


class NoisySteps:
    """One hidden layer of saturating units and one output with large errors, of unknown width."""

    name = "noisy steps"

    def refuses(self, problem):
        """See `Method`."""
        oracle, (hidden, output) = problem.oracle, problem.activations
        if not get_activation(hidden).saturating or output != "identity" or oracle.n_outputs != 1:
            return "noisy steps are those of one output of saturating units."
        if oracle.restricted or oracle.response == "predict_proba" or oracle.n_inputs < 2:
            return "noisy steps need at least two inputs, and queries far from the center."
        if oracle.budget.queries_left < _QUERIES:
            return f"noisy steps take up to {_QUERIES:,} queries."
        accuracy = oracle.accuracy
        if accuracy.exact or not accuracy.is_plausible or accuracy.relative_error < COARSE:
            return "the outputs are precise enough for other methods, or not those of a network."
        return None

    def run(self, problem, step, state):
        """See `Method`; None if no such network explains the outputs, as with more hidden layers."""
        oracle, held_out = problem.oracle, problem.held_out
        with problem.log.stage("one hidden layer (noisy steps)", oracle, None, "units") as entry:
            found = find_noisy_network(
                oracle, activation=problem.activations[0], rng=problem.rng, callback=entry["progress"]
            )
        if found is None:
            return None
        error = max_error_over_deviation(held_out.outputs, found.network(held_out.inputs))
        return Attempt(found.network, error, "polish", found.scale, self.name, minimal=True, sample=found.sample)


METHOD = NoisySteps()
