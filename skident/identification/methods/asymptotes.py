"""One hidden layer of units that are linear at large inputs: every unit from its own profile there."""

from __future__ import annotations

import numpy as np

from skident.network import get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..asymptotes.far_units import FARTHEST_LINE, find_far_units
from ..asymptotes.near_fit import fit_near_center
from ..asymptotes.network import FARTHEST, find_asymptotic_network
from ..attempt import polished_attempt
from ..constants import TRIES

__all__ = ["ALONE", "LINEAR_FAR_OUT", "METHOD"]

LINEAR_FAR_OUT = ("softplus", "gelu", "silu", "elu")
ALONE = "no other method applies"
_MOST_ON_A_LINE = 500  # units of one hidden layer that are counted by default: twice as many are allowed (budget)


class Asymptotes:
    """One hidden layer from the profiles of its units on a line at large inputs, then the polish.

    Rounding at the distance of the profiles hides those of float32 outputs. Units are ReLUs there, which gives
    hyperplanes and jumps, and a fit near the center the rest.
    """

    name = "asymptotes"

    def applies(self, problem):
        """Whether every unit may be observed alone: one hidden layer, exact outputs, queries allowed far out."""
        hidden, output = problem.activations
        one_layer = output == "identity" and (problem.widths is None or len(problem.widths) == 2)
        oracle = problem.oracle
        farthest = FARTHEST if problem.held_out.noise_std is None else FARTHEST_LINE
        anywhere = oracle.response == "predict" and oracle.reach >= farthest * np.sqrt(oracle.n_inputs)
        return hidden in LINEAR_FAR_OUT and one_layer and anywhere

    def refuses(self, problem):
        """See `Method`: only ELU units have no other method."""
        if problem.activations[0] != "elu":
            return None
        return (
            "activation='elu' has no second derivative at 0: its networks are recovered with one hidden layer, linear "
            "output and strategy='auto', if there is no input_range. Got "
            f"layer_widths={problem.widths}, output_activation={problem.activations[1]!r} and "
            f"strategy={problem.options.strategy!r}."
        )

    def run(self, problem, step, state):
        """See `Method`; None if units are not observed and another method follows."""
        width = None if problem.widths is None else problem.widths[0]
        alone = step.variant == ALONE
        exact = problem.held_out.noise_std is None
        with problem.log.stage("units (profiles at large inputs)", problem.oracle, width, "units") as entry:
            try:
                network = (_exact_network if exact else _noisy_network)(problem, width, entry["progress"])
            except (NotIdentified, BlackBoxError) as error:
                if alone and isinstance(error, BlackBoxError):
                    farthest = (FARTHEST if exact else FARTHEST_LINE) * np.sqrt(problem.oracle.n_inputs)
                    raise BlackBoxError(f"{error} Queries reach {farthest:.1e} standard deviations.") from error
                if alone:
                    raise
                return None
        n_units = network.layer_widths[0]
        if width is not None and n_units > width:
            raise NotIdentified(
                "profiles",
                "units",
                f"layer_widths={problem.widths}, but {n_units} hidden units were detected; set "
                f"layer_widths=({n_units}, {problem.widths[-1]}).",
            )
        return polished_attempt(problem, network, np.inf, "polish", self.name)


METHOD = Asymptotes()


def _exact_network(problem, width, progress):
    return find_asymptotic_network(
        problem.oracle,
        get_activation(problem.activations[0]),
        max_units=max(problem.max_neurons(_MOST_ON_A_LINE), width or 0),
        rng=problem.rng,
        callback=progress,
    )


def _noisy_network(problem, width, progress):
    """The network from outputs with errors; a detected activation is one of those that grow linearly.

    Lines far out miss a unit of a small jump here and there, and the fit that finds it later may end in a local
    minimum: other lines are tried then.
    """
    oracle, names = problem.oracle, problem.activations[:1]
    max_units = max(problem.max_neurons(_MOST_ON_A_LINE), width or 0)
    names = LINEAR_FAR_OUT if problem.options.activations[0] == "auto" else names
    network = failure = None
    for _ in range(TRIES):
        if problem.out_of_time and (network or failure):
            break
        try:
            units = find_far_units(oracle, max_units, problem.rng, progress)
            network, explains = fit_near_center(oracle, units, names, problem.held_out.noise_std, problem.rng)
        except NotIdentified as error:
            failure = error
            continue
        if explains:
            break
    if network is None:
        raise failure
    return network
