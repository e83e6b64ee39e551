"""The activation of units that grow linearly, from the profile of one unit far out: its name, or a table of it."""

import numpy as np

from skident.network import get_activation
from skident.network.tabulated import tabulate
from skident.oracle import NotIdentified

from .profiles import DISTANCE, profile_at, profile_residual, shape_of

_HEIGHT = 0.25  # largest difference of a table from its two lines: sets the scale of its argument; GELU has 0.17
_VISIBLE = 30.0  # roundings by which outputs leave the lines where the unit bends
_LENGTH = 2.0  # length of a table over the part where the unit bends: exponentials fall by a factor of 1e10 or more
_CLEAR_OF = 8.0  # half length of a profile over that of its table: four times wider units are linear there
_TOO_LONG = 0.1  # part of a profile over which an activation with tails of powers bends
_TABLE_ROUNDINGS = 64.0  # roundings up to which a table follows the outputs
_NAMED = 1e-7  # residual of a named activation, relative to the bend: rounding of profiles leaves 1e-9
_COMPARED = 201  # at which names are compared with a table


def measured_activation(oracle, crossings, names, left):
    """The activation of units at crossings (the best first): one of `names` if the profile is its own, else a table.

    Its slope is `left` far on the left, and 1 on the right.

    The profile is measured as near to the center as other units and the lines allow, where outputs round least. Some
    1,000 queries.
    """
    failure = None
    for crossing in crossings:
        try:
            table = _table(oracle, crossing, left)
        except NotIdentified as error:
            failure = failure or error
            continue
        z = np.linspace(table.jet.edges[0], table.jet.edges[-1], _COMPARED)
        found = min((profile_residual(get_activation(name), z, shape_of(table)(z)), name) for name in names)
        return get_activation(found[1]) if found[0] < _NAMED else table
    raise failure


def _table(oracle, crossing, left):
    """The table of the unit at a crossing."""
    far = profile_at(oracle, crossing)[1]
    extent = _extent(far)
    distance = DISTANCE * min(1.0, _CLEAR_OF * max(_LENGTH * extent, abs(far.corner)) / far.half)
    profile = profile_at(oracle, crossing, distance)[1]
    extent = _LENGTH * _extent(profile)
    if extent > profile.half:
        raise NotIdentified("profiles", "slow tails", _TAILS)
    _, differences = profile.near()
    scale = _HEIGHT / np.abs(differences).max()

    def values(z):
        return np.where(z > 0, z, left * z) + (1.0 - left) * scale * profile.difference(z / scale)

    table = tabulate(values, -scale * extent, scale * extent, (left, 1.0), _TABLE_ROUNDINGS * profile.rounding * scale)
    if table is None:
        raise NotIdentified("profiles", "activation", "the profile of a unit far out has too many bends for a table.")
    return table


_TAILS = (
    "the units grow linearly, but approach their asymptotes like a power of the input (slow tails): the profile of no "
    "unit is free of the others."
)


def _extent(profile):
    """The distance from the corner within which the unit bends visibly."""
    if profile is None:
        raise NotIdentified("profiles", "units", "a profile far out is not that of one unit.")
    move, differences = profile.near()
    bent = np.abs(move)[np.abs(differences) > _VISIBLE * profile.rounding]
    if not len(bent):
        raise NotIdentified("profiles", "corner", "a unit bends at a point, as ReLUs do, and others do not.")
    if bent.max() > _TOO_LONG * profile.half:
        raise NotIdentified("profiles", "slow tails", _TAILS)
    return float(bent.max())
