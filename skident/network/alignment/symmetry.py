"""Symmetries of a traced module at work: its blocks moved, and the standard scales of its units.

Arrays are those of the module's tensors by name, in float64. A unit's *factor* is what its values are multiplied by; an
*order* puts unit ``order[i]`` in place i first.
"""

from __future__ import annotations

import numpy as np

_BALANCING_SWEEPS = 3


def moved_block(block, arrays, orders, factors):
    """One block of a module whose units are permuted and multiplied.

    Parameters
    ----------
    block : Block
    arrays : dict of str to ndarray
    orders : list of ndarray (m,) or None
        One a space; None leaves the order.
    factors : list of ndarray (m,)
        One a factor, as they belong to the permuted units.

    Returns
    -------
    ndarray (m, h, r)
    """
    values = _ordered(block, arrays[block.tensor], orders)
    for axis, powers in enumerate(block.powers):
        for factor, power in powers.items():
            values = values * _along(factors[factor] ** power, axis)
    if block.norm is None:
        return values
    c = factors[block.norm.factor]
    if block.norm.variance is None:
        return values * _along(c, 0)
    v = _ordered(block, arrays[block.norm.variance], orders)
    size = _along(np.abs(c), 0)
    return values * _along(np.sign(c), 0) * np.sqrt((size**2 * v + block.norm.eps) / (size**2 * (v + block.norm.eps)))


def _ordered(block, array, orders):
    values = block.read(array)
    for axis, space in enumerate(block.spaces):
        if orders is not None and orders[space] is not None:
            values = values.take(orders[space], axis=axis)
    return values


def _along(vector, axis):
    return vector[:, None, None] if axis == 0 else vector[None, :, None]


def moved_arrays(symmetry, arrays, orders, factors):
    """All tensors of a module whose units are permuted and multiplied.

    Parameters
    ----------
    symmetry : Symmetry
    arrays, orders, factors
        As in `moved_block`.

    Returns
    -------
    dict of str to ndarray
        New arrays.
    """
    result = {name: array.copy() for name, array in arrays.items()}
    for block in symmetry.blocks:
        block.write(result[block.tensor], moved_block(block, arrays, orders, factors))
    return result


# -- standard form -----------------------------------------------------------------------------------------------------


def standard_factors(symmetry, arrays):
    """Positive factors that give all modules which differ by a symmetry the same weights up to order and signs.

    A unit's first incoming weights get the norm 1, in the order of the graph; a few sweeps then balance the norms of
    its incoming and outgoing weights.

    Parameters
    ----------
    symmetry : Symmetry
    arrays : dict of str to ndarray

    Returns
    -------
    list of ndarray (m,)
        One a factor.
    """
    factors = [np.ones(symmetry.sizes[f.space]) for f in symmetry.factors]
    blocks = [block for block in symmetry.blocks if block.trained]
    for number, factor in enumerate(symmetry.factors):
        if factor.scale:
            factors[number] = 1.0 / _lengths(_first_incoming(blocks, number), arrays, factors, number)
    for _ in range(_BALANCING_SWEEPS):
        for number, factor in enumerate(symmetry.factors):
            outgoing = [b for b in blocks if any(powers.get(number) == -1 for powers in b.powers)]
            if factor.scale and outgoing:
                incoming = [b for b in blocks if any(powers.get(number) == 1 for powers in b.powers)]
                lengths = [_lengths(side, arrays, factors, number) for side in (outgoing, incoming)]
                factors[number] = factors[number] * np.sqrt(lengths[0] / lengths[1])
    return factors


def _first_incoming(blocks, number):
    """The blocks of the first operation that writes units with this factor."""
    writers = [block for block in blocks if block.powers[0].get(number) == 1 or _second(block).get(number) == 1]
    return [block for block in writers if block.step == writers[0].step]


def _second(block):
    return block.powers[1] if len(block.powers) == 2 else {}


def _lengths(blocks, arrays, factors, number):
    """Norms (m,) of all that a factor multiplies in some blocks; 1 where that is 0."""
    squares = 0.0
    for block in blocks:
        axis = next(k for k, powers in enumerate(block.powers) if number in powers)
        values = moved_block(block, arrays, None, factors)
        squares = squares + (values**2).sum(axis=tuple(k for k in range(3) if k != axis))
    lengths = np.sqrt(squares)
    return np.where(lengths > 0.0, lengths, 1.0) if blocks else np.ones_like(factors[number])
