"""One hidden layer of units that are linear at large inputs, from outputs with errors."""

import numpy as np

from skident.network import get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..activation.intervals import GROWING
from ..asymptotes.far_units import FARTHEST_LINE, find_far_units
from ..asymptotes.near_fit import fit_near_center
from ..attempt import polished_attempt
from ..constants import TRIES

LINEAR_FAR_OUT = GROWING
ALONE = "no other method applies"
_MOST_ON_A_LINE = 500  # units of one hidden layer that are counted by default: twice as many are allowed (budget)


class Asymptotes:
    """One hidden layer from outputs with errors, which hide the profiles of units at large inputs, then the polish.

    Units are ReLUs there, which gives hyperplanes and jumps, and a fit near the center the rest.
    """

    name = "asymptotes"

    def applies(self, problem):
        """Whether there may be one hidden layer of such units, whose outputs have errors and are allowed far out."""
        hidden, output = problem.activations
        one_layer = output == "identity" and (problem.widths is None or len(problem.widths) == 2)
        oracle = problem.oracle
        far = oracle.response == "predict" and oracle.reach >= FARTHEST_LINE * np.sqrt(oracle.n_inputs)
        return hidden in LINEAR_FAR_OUT and one_layer and far and problem.held_out.noise_std is not None

    def refuses(self, problem):
        """See `Method`: units without second derivatives have no other method."""
        name = problem.activations[0]
        if name not in LINEAR_FAR_OUT or get_activation(name).smooth:
            return None
        return (
            f"activation={name!r} has no second derivative everywhere: its networks are recovered with linear output "
            f"and strategy='auto', if there is no input_range. Got layer_widths={problem.widths}, "
            f"output_activation={problem.activations[1]!r} and strategy={problem.options.strategy!r}."
        )

    def run(self, problem, step, state):
        """See `Method`; None if units are not observed and another method follows."""
        width = None if problem.widths is None else problem.widths[0]
        with problem.log.stage("units (lines at large inputs)", problem.oracle, width, "units") as entry:
            try:
                network = _network(problem, width, entry["progress"])
            except (NotIdentified, BlackBoxError) as error:
                return raise_unless_followed(error, step, FARTHEST_LINE * np.sqrt(problem.oracle.n_inputs))
        return polished_attempt(problem, network, np.inf, "polish", self.name)


METHOD = Asymptotes()


def raise_unless_followed(error, step, farthest):
    """Raise what failed far out, up to a distance, if no other method follows or the layers have other widths."""
    if step.variant == ALONE and isinstance(error, BlackBoxError):
        raise BlackBoxError(f"{error} Queries reach {farthest:.1e} standard deviations.") from error
    if step.variant == ALONE or getattr(error, "reason", "") == "units":
        raise error


def _network(problem, width, progress):
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
            units = find_far_units(oracle, width, max_units, problem.rng, progress)
            network, explains = fit_near_center(oracle, units, names, problem.held_out.noise_std, problem.rng)
        except NotIdentified as error:
            failure = error
            continue
        if explains:
            break
    if network is None:
        raise failure
    return network
