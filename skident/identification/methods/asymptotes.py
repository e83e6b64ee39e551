"""The route by profiles: one hidden layer of units that are linear far out."""

from __future__ import annotations

import numpy as np

from skident.network import get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..asymptotes.network import FARTHEST, find_asymptotic_network
from ..solve import polished_attempt

__all__ = ["LINEAR_FAR_OUT", "by_profiles", "has_profiles"]

LINEAR_FAR_OUT = ("softplus", "gelu", "silu", "elu")


def has_profiles(inquiry):
    """Whether units of an inquiry may show far out, each by itself: one hidden layer, asked anywhere, answers exact.

    Parameters
    ----------
    inquiry : Inquiry

    Returns
    -------
    bool
    """
    hidden, output = inquiry.activations
    one_layer = output == "identity" and (inquiry.widths is None or len(inquiry.widths) == 2)
    oracle = inquiry.oracle
    anywhere = oracle.response == "predict" and oracle.reach >= FARTHEST * np.sqrt(oracle.n_inputs)
    return hidden in LINEAR_FAR_OUT and one_layer and anywhere and inquiry.fresh.sigma is None


def by_profiles(inquiry, earlier, *, alone):
    """One hidden layer from the profiles of its units on a line far out, then the polish.

    Parameters
    ----------
    inquiry : Inquiry
    earlier : list of Attempt
    alone : bool
        Whether there is no other route.

    Returns
    -------
    Attempt or None
        None where units do not show, and there is another route.

    Raises
    ------
    NotIdentified
        (a ValueError) If units do not show, and there is no other route.
    ValueError
        If there are more units than were asked for.
    """
    asked = None if inquiry.widths is None else inquiry.widths[0]
    with inquiry.log.stage("units (profiles far out)", inquiry.oracle, asked, "units") as entry:
        try:
            network = find_asymptotic_network(
                inquiry.oracle,
                get_activation(inquiry.activations[0]),
                max_units=max(inquiry.limits.max_neurons, asked or 0),
                rng=inquiry.rng,
                callback=entry["progress"],
            )
        except (NotIdentified, BlackBoxError) as error:
            if alone and isinstance(error, BlackBoxError):
                farthest = FARTHEST * np.sqrt(inquiry.oracle.n_inputs)
                raise BlackBoxError(f"{error} Units show up to {farthest:.1e} standard deviations away.") from error
            if alone:
                raise
            return None
    found = network.layer_widths[0]
    if asked is not None and found > asked:
        raise NotIdentified(
            "profiles",
            "units",
            f"layer_widths={inquiry.widths}, but {found} hidden units were found; set "
            f"layer_widths=({found}, {inquiry.widths[-1]}).",
        )
    return polished_attempt(inquiry, network, np.inf, "polish", "profiles")
