"""The first units of a search: hyperplanes that bends of the boundary share, from facets around one another."""

from ...constants import TARGETS
from .aiming import aim_along
from .beyond import facet_beyond
from .growth import pencil_at
from .surfaces import Surface, departure
from .two_units import units_at_corner, units_of_three

_FIRST_PATHS = 30  # in a row from the first facets without a new bend: few units have few bends
_MAX_PENCILS = 16  # bends of which no two belong to one hyperplane, after which there are no units


def find_first_units(search, base):
    """Follow measured facets until bends give one unit or two; none if the boundary is flat around the facet `base`.

    A path along one bend to where another one continues ends at a corner of both units, which few boundary points
    determine there. Elsewhere two bends share a hyperplane.
    """
    labels, rng, units = search.labels, search.rng, search.units
    facets, bends, clean, aims = [base], [], 0, []
    while clean < _FIRST_PATHS and len(bends) < _MAX_PENCILS:
        anywhere = facets[rng.randint(len(facets))], labels.draw(1, rng, TARGETS)[0], None
        facet, target, corner = aims.pop() if aims else anywhere
        path = Surface(facet, units).path(facet.point, target).before_walls(labels.room)
        touch = departure(labels, path, facet.pair) if len(path.lengths) else None
        clean += 1
        if touch is None or touch.third_class or units.has_ridge(touch.point):
            continue
        d = path.directions[0]
        beyond = facet_beyond(labels, facet.plane, facet.pair, touch.point, d, rng)
        if beyond is None:
            continue
        search.keep(beyond)
        if corner is not None and (H := units_at_corner(*[f.plane for f in corner], beyond.plane)) is not None:
            _both(search, H)
            return
        clean, facets = 0, [*facets, beyond]
        if search.add(pencil_at(facet.plane, beyond, touch.point)) or _from_three(search, facet, beyond, bends):
            return
        others = [other for ends in bends for at, other in (ends, ends[::-1]) if at is facet]
        aims += [(beyond, aim_along(beyond, facet, other), (facet, beyond, other)) for other in others]
        bends.append((facet, beyond))
    search.scattered += len(bends)
    if search.scattered >= _MAX_PENCILS:
        search.refuse_scattered(search.scattered)


def _from_three(search, facet, beyond, bends):
    """Whether the bend between both facets and an earlier one give the only two units of a network."""
    for ends in bends:
        for middle, outer in ((facet, beyond), (beyond, facet)):
            other = next((end for end, at in (ends, ends[::-1]) if at is middle), None)
            H = None if other is None else units_of_three(outer.plane, middle.plane, other.plane)
            if H is not None:
                _both(search, H)
                return True
    return False


def _both(search, H):
    for w in H:
        search.units.append(w)
    search.said()
