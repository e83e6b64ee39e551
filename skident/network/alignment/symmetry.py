"""Apply a symmetry to a module's tensors, bring it to standard scales, and fit its scales to another module.

Arrays are the module's tensors by name, in float64. `factors` multiply the values of units, one array (m,) per factor;
`orders` permute them, one array per space: unit ``order[i]`` moves to place i.
"""

import numpy as np

from skident.budget.constants import CONSTANT_TOL, FEW_ROUNDS, FTOL, MANY_ROUNDS, REAL_ROOT


def moved_block(block, arrays, orders, factors):
    """One block (m, h, r) of a module with permuted and multiplied units; `factors` are those of the permuted units."""
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
    """All tensors of a module with permuted and multiplied units, as new arrays by name."""
    result = {name: array.copy() for name, array in arrays.items()}
    for block in symmetry.blocks:
        block.write(result[block.tensor], moved_block(block, arrays, orders, factors))
    return result


# -- standard form -----------------------------------------------------------------------------------------------------


def standard_factors(symmetry, arrays):
    """Positive factors after which modules that differ by a symmetry have equal weights up to order and signs.

    A unit's first incoming weights get norm 1, in the order of the graph; a few sweeps then balance the norms of its
    incoming and outgoing weights.
    """
    factors = [np.ones(symmetry.sizes[f.space]) for f in symmetry.factors]
    blocks = [block for block in symmetry.blocks if block.trained]
    for number, factor in enumerate(symmetry.factors):
        if factor.scale:
            factors[number] = 1.0 / _norms(_first_incoming(blocks, number), arrays, factors, number)
    for _ in range(FEW_ROUNDS):
        for number, factor in enumerate(symmetry.factors):
            outgoing = [b for b in blocks if any(powers.get(number) == -1 for powers in b.powers)]
            if factor.scale and outgoing:
                incoming = [b for b in blocks if any(powers.get(number) == 1 for powers in b.powers)]
                norms = [_norms(side, arrays, factors, number) for side in (outgoing, incoming)]
                factors[number] = factors[number] * np.sqrt(norms[0] / norms[1])
    return factors


# -- two modules -------------------------------------------------------------------------------------------------------


def fitted_factors(symmetry, a, b, orders, factors):
    """Scales that bring a permuted module b closest to a: minimize ``sum_t ||A_t - c B_t / c'||^2``, one c at a time.

    A unit's scale is fitted if weights write and read its values; with a norm layer alone after it, it is undetermined
    and stays. `orders` and `factors` move b, and `factors` start the fit. Signs are kept.
    """
    factors = list(factors)
    blocks = [(block, block.read(a[block.tensor])) for block in symmetry.blocks if block.trained]
    for _ in range(MANY_ROUNDS):
        largest = 0.0
        for number, factor in enumerate(symmetry.factors):
            if factor.scale:
                change = _fitted_change(blocks, b, orders, factors, number)
                factors[number] = factors[number] * change
                largest = max(largest, float(np.abs(change - 1.0).max()))
        if largest < FTOL:
            break
    return factors


def _fitted_change(blocks, b, orders, factors, number):
    """Positive u (m,) that minimizes ``u^2 p_in - 2 u q_in + p_out / u^2 - 2 q_out / u``, p = ||B||^2, q = <A, B>."""
    sums = {1: np.zeros((2, len(factors[number]))), -1: np.zeros((2, len(factors[number])))}
    for block, A in blocks:
        for axis, powers in enumerate(block.powers):
            power = powers.get(number)
            if power in sums:
                B = moved_block(block, b, orders, factors)
                rest = tuple(k for k in range(3) if k != axis)
                sums[power] += (B**2).sum(axis=rest), (A * B).sum(axis=rest)
    (p_in, q_in), (p_out, q_out) = sums[1], sums[-1]
    held = (p_in > 0.0) & (p_out > 0.0)
    trials = np.ones((5, len(held)))  # the roots of the derivative, and no change
    if held.any():
        companion = np.zeros((held.sum(), 4, 4))
        companion[:, [1, 2, 3], [0, 1, 2]] = 1.0
        rows = q_in[held] / p_in[held], np.zeros(held.sum()), -q_out[held] / p_in[held], p_out[held] / p_in[held]
        companion[:, 0] = np.stack(rows, axis=1)
        roots = np.linalg.eigvals(companion)
        real = (roots.real > 0.0) & (np.abs(roots.imag) < REAL_ROOT * np.abs(roots.real))
        trials[1:, held] = np.where(real, roots.real, 1.0).T
    costs = trials**2 * p_in - 2.0 * trials * q_in + p_out / trials**2 - 2.0 * q_out / trials
    best = costs.argmin(axis=0)
    gain = costs[0] - costs.min(axis=0)
    return np.where(gain > CONSTANT_TOL * (p_in + p_out), trials[best, np.arange(len(best))], 1.0)


# -- norms -------------------------------------------------------------------------------------------------------------


def _first_incoming(blocks, number):
    """The blocks of the first operation that writes units with this factor."""
    writers = [block for block in blocks if block.powers[0].get(number) == 1 or _second(block).get(number) == 1]
    return [block for block in writers if block.step == writers[0].step]


def _second(block):
    return block.powers[1] if len(block.powers) == 2 else {}


def _norms(blocks, arrays, factors, number):
    """Norms (m,) of all that a factor multiplies in some blocks; 1 where they are 0."""
    squares = 0.0
    for block in blocks:
        axis = next(k for k, powers in enumerate(block.powers) if number in powers)
        values = moved_block(block, arrays, None, factors)
        squares = squares + (values**2).sum(axis=tuple(k for k in range(3) if k != axis))
    norms = np.sqrt(squares)
    return np.where(norms > 0.0, norms, 1.0) if blocks else np.ones_like(factors[number])
