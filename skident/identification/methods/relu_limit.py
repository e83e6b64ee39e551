"""Units that grow linearly, from the ReLU network that they tend to at large inputs."""

from dataclasses import replace

import numpy as np

from skident.network import change_outputs
from skident.oracle import BlackBoxError, NotIdentified, Oracle

from ..asymptotes.deep_limit import network_from_limit
from ..attempt import polished_attempt
from ..problem import HeldOut
from . import relu
from .asymptotes import LINEAR_FAR_OUT, raise_unless_followed

_SCALE = 1e13  # factor R of the inputs: units bend over 1e-12 of a standard deviation, and biases vanish as much
_N_HELD_OUT = 200  # samples of the limit (budget)


class ReluLimit:
    """The ReLU limit ``f(R u) / R`` gives all weights but scales, profiles give scales and biases, and the polish ends.

    Outputs must be exact and allowed far out.
    """

    name = "ReLU limit"

    def applies(self, problem):
        """Whether there are such units, whose outputs are exact and allowed far out."""
        hidden, output = problem.activations
        exact = problem.held_out.noise_std is None and problem.oracle.response == "predict"
        return hidden in LINEAR_FAR_OUT and output == "identity" and exact and problem.oracle.reach == np.inf

    def refuses(self, problem):
        """See `Method`."""
        return None if self.applies(problem) else "the ReLU limit needs units that grow linearly and exact outputs."

    def run(self, problem, step, state):
        """See `Method`; None if that fails and another method follows, but for layers of other widths."""
        best, detected = None, problem.detected
        named = detected is None or not detected.doubt
        choices = [problem.activations[:1]] if named else []
        choices += [] if detected is None else [LINEAR_FAR_OUT]  # or a table, if none of these is the activation
        try:
            inner = _limit_problem(problem, named)
            limit = _best_limit(problem, inner, step, state)
            limit = change_outputs(limit, inner.oracle.output_center, inner.oracle.output_scale)
            for names in choices:
                with problem.log.stage("scales and biases (profiles far out)", problem.oracle) as entry:
                    network = network_from_limit(problem.oracle, limit, names, problem.rng)
                    entry["residual"] = None
                attempt = polished_attempt(problem, network, np.inf, "polish", self.name)
                best = attempt if best is None or attempt.error < best.error else best
                if best.error < problem.accepted_error or problem.out_of_time:
                    break
        except (NotIdentified, BlackBoxError) as error:
            return best or raise_unless_followed(error, step, _SCALE)
        return best


METHOD = ReluLimit()


def _best_limit(problem, inner, step, state):
    """The ReLU limit; once more if units of the first one are missing."""
    found = relu.METHOD.run(inner, step, state)
    if found.error > problem.accepted_error and not problem.out_of_time:
        found = min(found, relu.METHOD.run(inner, step, state), key=lambda attempt: attempt.error)
    return found.network


def _limit_problem(problem, named):
    """The problem of the ReLU limit; units without a name may be leaky ones there."""
    oracle, rng, D = problem.oracle, problem.rng, problem.oracle.n_inputs
    inner = Oracle(lambda U: oracle(_SCALE * U) / _SCALE, D, budget=oracle.budget.copy())
    U = rng.standard_normal((_N_HELD_OUT, D))
    inner.standardize_outputs(inner(U))
    Y = inner(U)
    held_out = HeldOut(U, Y, inner.measure_accuracy(U, Y, rng))
    changes = {"oracle": inner, "X": U, "held_out": held_out, "activations": ("relu", "identity")}
    return replace(problem, **changes, detected=None if named else problem.detected, prediction=None)
