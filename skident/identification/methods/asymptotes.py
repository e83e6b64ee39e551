"""One hidden layer of units that are linear at large inputs: every unit from its own profile there."""

from __future__ import annotations

import numpy as np

from skident.network import get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..asymptotes.network import FARTHEST, find_asymptotic_network
from ..attempt import polished_attempt

__all__ = ["ALONE", "LINEAR_FAR_OUT", "METHOD"]

LINEAR_FAR_OUT = ("softplus", "gelu", "silu", "elu")
ALONE = "no other method applies"


class Asymptotes:
    """One hidden layer from the profiles of its units on a line at large inputs, then the polish."""

    name = "asymptotes"

    def applies(self, problem):
        """Whether every unit may be observed alone: one hidden layer, exact outputs, queries allowed far out."""
        hidden, output = problem.activations
        one_layer = output == "identity" and (problem.widths is None or len(problem.widths) == 2)
        oracle = problem.oracle
        anywhere = oracle.response == "predict" and oracle.reach >= FARTHEST * np.sqrt(oracle.n_inputs)
        return hidden in LINEAR_FAR_OUT and one_layer and anywhere and problem.held_out.noise_std is None

    def refuses(self, problem):
        """See `Method`: only ELU units have no other method."""
        if problem.activations[0] != "elu":
            return None
        return (
            "activation='elu' has no second derivative at 0: its networks are recovered with one hidden layer, linear "
            "output and strategy='auto', if outputs are exact in double precision and there is no input_range. Got "
            f"layer_widths={problem.widths}, output_activation={problem.activations[1]!r}, "
            f"strategy={problem.options.strategy!r}, and outputs with errors of {problem.held_out.relative_noise:.1e}."
        )

    def run(self, problem, step, state):
        """See `Method`; None if units are not observed and another method follows."""
        width = None if problem.widths is None else problem.widths[0]
        alone = step.variant == ALONE
        with problem.log.stage("units (profiles at large inputs)", problem.oracle, width, "units") as entry:
            try:
                network = find_asymptotic_network(
                    problem.oracle,
                    get_activation(problem.activations[0]),
                    max_units=max(problem.options.max_neurons, width or 0),
                    rng=problem.rng,
                    callback=entry["progress"],
                )
            except (NotIdentified, BlackBoxError) as error:
                if alone and isinstance(error, BlackBoxError):
                    farthest = FARTHEST * np.sqrt(problem.oracle.n_inputs)
                    raise BlackBoxError(f"{error} Queries reach {farthest:.1e} standard deviations.") from error
                if alone:
                    raise
                return None
        n_units = network.layer_widths[0]
        if width is not None and n_units > width:
            raise NotIdentified(
                "profiles",
                "units",
                f"layer_widths={problem.widths}, but {n_units} hidden units were found; set "
                f"layer_widths=({n_units}, {problem.widths[-1]}).",
            )
        return polished_attempt(problem, network, np.inf, "polish", self.name)


METHOD = Asymptotes()
