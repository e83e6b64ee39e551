"""Least squares over quadratic forms in exact integer and ball arithmetic: floats are dyadic, so ranks are provable."""

import math
from fractions import Fraction

import flint
import numpy as np
from flint import arb, arb_mat, fmpz_mat, nmod_mat

_MAX_ORDER = 250  # of a system solved in balls (budget): two seconds at 128 bits
_MAX_WORK = 3e8  # multiplications of its Gram matrix (budget): seconds
_PRECISIONS = (128, 256, 512, 1024, 2048, 4096)  # bits, tried in turn
_PRIMES = (2**61 - 1, 2**62 - 57, 2**63 - 25)  # near 64 bits: a wrong rank modulo one of them has probability 1e-18
_RELATIVE_RADIUS = 2.0**-60  # of the bound, below the rounding of a float64


def rounded_down(ball):
    """The largest float computed to be below all numbers of a ball (flint.arb)."""
    lowest = ball.lower()
    value = float(lowest)
    while not arb(value) <= lowest and np.isfinite(value):
        value = float(np.nextafter(value, -np.inf))
    return value


def exact_order(problem, forms=True):
    """Order of the system that `exact_least_loss` solves, and whether it is feasible.

    The order is ``min(n, unknowns)``, with a ridge the unknowns; without `forms` M = 0. Feasible are orders up to 250
    and 3e8 products of integers: a few seconds.
    """
    unknowns = _n_columns(problem, forms)
    order = unknowns if problem.alpha > 0 else min(problem.n, unknowns)
    return order, order <= _MAX_ORDER and problem.n * order**2 <= _MAX_WORK


def _n_columns(problem, forms):
    """Number of unknowns."""
    d = problem.d
    return (d * (d + 1) // 2 if forms else 0) + d * problem.fit_linear + problem.fit_intercept


def exact_least_loss(problem, forms=True):
    """A proven lower bound of the loss over all symmetric M, tight to 2^-60 of the mean square of y.

    The columns ``x_i x_j``, ``x_i`` and 1 are integers up to powers of two. Their rank is proven (`fmpz_mat.rank`), a
    maximal independent set of them is determined modulo a prime, and the normal equations of that set are solved in
    balls of increasing precision, with the ridge if there is one: every rounding is bounded, however collinear the
    inputs are. Without `forms`, M = 0: linear and constant terms alone. None if it is infeasible (`exact_order`) or
    4096 bits do not suffice. On one core orders 10, 55, 120, 210 take about .01, .1, .3 and 1.2 seconds at 128 bits,
    collinear inputs three times as long.
    """
    if not exact_order(problem, forms)[1]:
        return None
    y, y_exponent = _integers(problem.y)
    y = y - y[0] if problem.fit_intercept else y
    target = fmpz_mat([[value] for value in y.tolist()])
    if problem.alpha > 0:
        Z, exponent = _integers(problem.X)
        columns = _columns(Z, problem, forms)
        penalties = _penalties(problem, forms, exponent)
        pivots = list(range(columns.ncols()))
    else:
        columns = _spanning_columns(_integer_inputs(problem), problem, forms)
        penalties, pivots = None, _independent(columns.transpose() * columns)
        if pivots is None:
            return None
        if len(pivots) == problem.n:
            return 0.0
    transposed, weight_exponent = _weighted_transpose(columns, problem)
    weighted, _ = _weighted_transpose(target, problem)
    return _least((columns, transposed), (target, weighted), pivots, penalties, 2 * y_exponent + weight_exponent)


def _weighted_transpose(columns, problem):
    """``C^T diag(w) 2^-e`` of columns C (n, p) for the weights w of the samples, and e; integers."""
    if problem.weights is None:
        return columns.transpose(), 0
    weights, exponent = _integers(problem.weights)
    rows = [[w * int(a) for a in row] for w, row in zip(weights.tolist(), columns.tolist())]
    return fmpz_mat(columns.nrows(), columns.ncols(), sum(rows, [])).transpose(), exponent


def _least(columns, target, pivots, penalties, exponent):
    """Lower bound of ``min ||C t - y||^2 / 2n`` plus penalties over pivot columns; None if no precision suffices.

    Columns and target are pairs of themselves and their transposes times weights; squares are in units of 2^exponent.
    """
    (columns, transposed), (target, weighted), n = columns, target, columns[0].nrows()
    gram, right, square = transposed * columns, transposed * target, (weighted * target)[0, 0]
    size = len(pivots)
    for precision in _PRECISIONS:
        with flint.ctx.workprec(precision):
            least = arb(square)
            if size:
                A = _system(gram, pivots, penalties)
                h = arb_mat([[arb(right[i, 0])] for i in pivots])
                try:
                    least -= (h.transpose() * A.solve(h))[0, 0]
                except ZeroDivisionError:  # not yet known to be regular
                    continue
            if least.rad() <= arb(square) * _RELATIVE_RADIUS:
                return max(0.0, rounded_down(least * arb(2) ** exponent / (2 * n)))
    return None


def _system(gram, pivots, penalties):
    """The normal equations' matrix of the pivot columns in balls."""
    A = arb_mat([[arb(gram[i, j]) for j in pivots] for i in pivots])
    for k, penalty in enumerate(penalties or ()):
        A[k, k] += arb(flint.fmpz(penalty.numerator)) / arb(flint.fmpz(penalty.denominator))
    return A


def remaining_square(problem, residual):
    """``min_{b, c} sum_i w_i (b . x_i + c + r_i)^2 + n alpha ||b||^2 / linear_weight`` in balls.

    `residual` is a list of n balls; y is not used. None if the current precision does not suffice.
    """
    if problem.alpha > 0:
        Z, exponent = _integers(problem.X)
        columns, penalties = _columns(Z, problem, forms=False), _penalties(problem, False, exponent)
        pivots = list(range(columns.ncols()))
    else:
        columns, penalties = _columns(_integer_inputs(problem), problem, forms=False), None
        pivots = _independent(columns.transpose() * columns)
    weights, exponent = ([1] * problem.n, 0) if problem.weights is None else _integers(problem.weights)
    unit, square = arb(2) ** exponent, sum((arb(flint.fmpz(int(w))) * r * r for w, r in zip(weights, residual)), arb(0))
    if not pivots:
        return None if pivots is None else unit * square
    transposed, _ = _weighted_transpose(columns, problem)
    h = arb_mat(transposed) * arb_mat([[r] for r in residual])
    h = arb_mat([[h[i, 0]] for i in pivots])
    try:
        return unit * (square - (h.transpose() * _system(transposed * columns, pivots, penalties).solve(h))[0, 0])
    except ZeroDivisionError:
        return None


def _integers(a):
    """Python integers and the exponent e with ``a = integers 2^e`` exactly."""
    mantissas, exponents = np.frexp(a)
    whole, exponents = (mantissas * 2.0**53).astype(np.int64), exponents.astype(np.int64) - 53
    if not whole.any():
        return whole.astype(object), 0
    lowest = int(exponents[whole != 0].min())
    shifts = np.where(whole != 0, exponents - lowest, 0)
    return whole.astype(object) << shifts.astype(object), lowest


def _integer_inputs(problem):
    """Inputs as small integers that span the same forms and terms: shifted (if there are both terms) and scaled."""
    columns = []
    for column in problem.X.T:
        z, _ = _integers(column)
        if problem.fit_linear and problem.fit_intercept:
            z = z - z[0]
        columns.append(z // max(1, math.gcd(*z.tolist())))
    return np.stack(columns, axis=1)


def _columns(Z, problem, forms):
    """``x_i x_j`` for i <= j, then the linear and the constant terms."""
    i, j = np.triu_indices(problem.d)
    blocks = [Z[:, i] * Z[:, j]] if forms else []
    blocks += [Z] if problem.fit_linear else []
    blocks += [np.ones((problem.n, 1), dtype=object)] if problem.fit_intercept else []
    rows = np.hstack(blocks).tolist() if blocks else []
    return fmpz_mat(problem.n, len(rows[0]), sum(rows, [])) if rows else fmpz_mat(problem.n, 0)


def _spanning_columns(Z, problem, forms):
    """Columns with the span of forms and terms: these themselves, or those of their kernel for fewer samples."""
    if problem.n >= _n_columns(problem, forms):
        return _columns(Z, problem, forms)
    inputs = fmpz_mat(Z.tolist())
    products = (inputs * inputs.transpose()).tolist()
    linear, constant = int(problem.fit_linear), int(problem.fit_intercept)
    return fmpz_mat([[(p * p if forms else 0) + linear * p + constant for p in row] for row in products])


def _independent(gram):
    """Indices of a maximal set of independent columns, with proof; None if three primes do not determine one."""
    if not gram.ncols():
        return []
    rank = None
    for prime in _PRIMES:
        reduced, found = nmod_mat(gram, prime).rref()
        pivots = _pivots(reduced, found)
        # The rank modulo a prime is never above the rank, so a full one needs no further proof.
        if found == gram.ncols():
            return pivots
        rank = gram.rank() if rank is None else rank
        if found == rank:
            return pivots
    return None


def _pivots(reduced, rank):
    """Pivot columns of a reduced row echelon form."""
    pivots, j = [], 0
    for i in range(rank):
        while int(reduced[i, j]) == 0:
            j += 1
        pivots.append(j)
    return pivots


def _penalties(problem, forms, exponent):
    """Penalties of the squared coefficients of `_columns`, for inputs in units of ``2^exponent``, as fractions."""
    whole = problem.n * Fraction(problem.alpha)
    if problem.weights is not None:  # sums of squares are in units of a power of two
        whole /= Fraction(2) ** _integers(problem.weights)[1]
    unit = Fraction(2) ** (2 * exponent)
    i, j = np.triu_indices(problem.d)
    # An entry beside the diagonal counts twice in the norm and is half of its column's coefficient.
    costs = [whole / unit**2 / (1 if a == b else 2) for a, b in zip(i, j)] if forms else []
    costs += [whole / Fraction(problem.linear_weight) / unit] * (problem.d if problem.fit_linear else 0)
    return costs + [Fraction(0)] * problem.fit_intercept


def independent_inputs(problem):
    """Inputs of which all others are proven linear combinations (affine ones with linear and constant terms), or None.

    Without ridge the others change nothing: their squares and products are forms of these.
    """
    Z = fmpz_mat(_integer_inputs(problem).tolist())
    return _independent(Z.transpose() * Z)


def repeated_inputs_bound(problem):
    """Lower bound for all functions of the inputs: the spread of y among equal inputs; number of distinct inputs."""
    distinct, groups = np.unique(problem.X + 0.0, axis=0, return_inverse=True)
    if len(distinct) == problem.n:
        return 0.0, problem.n
    order = np.argsort(groups.ravel(), kind="stable")
    bounds = np.flatnonzero(np.diff(groups.ravel()[order])) + 1
    with flint.ctx.workprec(256):
        within = arb(0)
        for rows in np.split(order, bounds):
            balls = [arb(value) for value in problem.y[rows].tolist()]
            weights = [arb(value) for value in problem.weighted(np.ones(problem.n))[rows].tolist()]
            mean = sum((w * ball for w, ball in zip(weights, balls)), arb(0)) / sum(weights, arb(0))
            within += sum((w * (ball - mean) ** 2 for w, ball in zip(weights, balls)), arb(0))
        return max(0.0, rounded_down(within / (2 * problem.n))), len(distinct)
