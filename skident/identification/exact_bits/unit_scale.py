"""The scale at which the weights of a ReLU unit are numbers of a binary format."""

import flint
import numpy as np

from .grid import FAR_OFF, INFORMATIVE, RELATIVE_ERRORS, Evidence, distances, evidence_of, integer_multiples, spacing

_MAX_ENTRIES = 6  # entries of a unit in the lattice: 2 to 4 determine its scale (budget)
_LATTICE_BITS = 20  # binary digits of lattice entries behind the point: rounding far below their tolerance of 1
_NEGLIGIBLE = 2.0**-26  # relative size of an entry whose spacing is the error of double precision: perhaps 0
_MIN_NATS = 18.0  # evidence beyond the 2^digits scales that are possible: one false scale in 6e7
_NATS_PER_ENTRY = 10.0  # evidence of one entry at least: an entry off the grid rules a multiple out
_ODD_FACTORS = np.arange(3, 32, 2)  # scales by such a factor that also lie on the grid make a scale ambiguous


def scale_of_unit(values, digits):
    """The scale in [1, 2) times a power of two that puts weights and bias (d,) of a ReLU unit on the grid.

    Returns scale and `Evidence`; None if there is no such scale, or more than one, as for small integers. At the scale,
    the largest entry is an integer M with `digits` binary digits, and M r_i is one for every other entry, with r_i
    their known ratios up to a power of two. This simultaneous approximation is the shortest vector of a lattice of a
    few entries, reduced by LLL; all entries then confirm it.

    Notes
    -----
    Entries of the lattice: Lenstra, Lenstra, Lovasz (1982), "Factoring polynomials with rational coefficients",
    Proposition 1.39.
    """
    values = values[np.abs(values) > _NEGLIGIBLE * np.abs(values).max(initial=0.0)]
    if len(values) < 2 or integer_multiples(values) is not None:
        return None
    order = np.argsort(-np.abs(values))
    size = np.abs(values[order[0]])
    for error in RELATIVE_ERRORS:
        leading = _with_odd_multiples(_leading_integers(values[order[:_MAX_ENTRIES]], error, digits), digits)
        for scale in _plausible(at_power_of_two(leading / size), values, error, digits):
            found = evidence_of(scale * values, scale * size, digits)
            if found.n_off == 0 and found.nats > digits * np.log(2.0) + _MIN_NATS:
                return None if _is_ambiguous(scale * values, found, digits) else (scale, found)
    return None


def at_power_of_two(scale):
    """Positive scales, divided by powers of two so that they lie in [1, 2)."""
    return 2.0 * np.frexp(scale)[0]


def _leading_integers(values, error, digits):
    """Candidates of the first value's integer, from the two shortest vectors of a reduced lattice."""
    ratios = values[1:] / values[0]
    ratios = ratios / spacing(ratios, 1)  # in [1, 2), with the sign
    tol = 2.0**digits * error * np.abs(values[0] / values[1:])
    k, one = len(ratios), 1 << _LATTICE_BITS
    rows = [[max(one >> digits, 1), *(round(float(r / t) * one) for r, t in zip(ratios, tol))]]
    rows += [[0] * (i + 1) + [round(one / float(tol[i]))] + [0] * (k - i - 1) for i in range(k)]
    reduced = flint.fmpz_mat(rows).lll().table()
    first = sorted(([int(entry) for entry in row] for row in reduced), key=lambda row: sum(e * e for e in row))[:2]
    leading = (abs(row[0]) // rows[0][0] for row in first)
    return [number for number in leading if 0 < number < 2**digits]


def _with_odd_multiples(numbers, digits):
    """Numbers and their odd multiples: integers of the few entries in the lattice may share a factor."""
    multiples = np.multiply.outer(np.array(numbers, dtype=float), np.append(1, _ODD_FACTORS)).ravel()
    return multiples[multiples < 2.0**digits]


def _plausible(scales, values, error, digits):
    """Those of some scales (k,) that leave no value (d,) with this relative error off the grid."""
    at = scales[:, None] * values
    step = spacing(at, digits)
    informative = step > INFORMATIVE * error * np.abs(at).max(axis=1, initial=0.0, keepdims=True)
    return scales[~np.any(informative & (distances(at, digits) > FAR_OFF * step), axis=1)]


def _is_ambiguous(values, found: Evidence, digits):
    """Whether an odd multiple of the values lies on the grid as well: their integers are small."""
    factors = _plausible(_ODD_FACTORS.astype(float), values, found.error, digits)
    others = (evidence_of(factor * values, factor * np.abs(values).max(), digits) for factor in factors)
    return any(other.nats > found.nats - _NATS_PER_ENTRY for other in others)
