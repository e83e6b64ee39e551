"""A network with one hidden layer of maxout units from its outputs, as a ReLU network with more layers."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import FINE_RANK_TOL, OUTPUTS_PER_PARAMETER
from skident.linalg import lapack, svd
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .facets import Facets
from .terms import Maxout, units_of_facets

_MAX_LINES = 480  # budget; a facet of one in a hundred lines is missed by one search in a hundred
_FIRST_CHECK = 2  # lines after which units are assembled; then whenever their number has grown by half
_WITHOUT_TRIPLES = 3  # lines after which a unit of three terms must show: a line crosses two of its three facets
_NEW_AT_LAST = 16  # lines on which facets of one hidden layer become rare,
_NEW_PER_LINE = 1.0  # and new facets per line beyond which there are more layers,
_NEW_AFTER = 64  # from this line on
_FARTHEST = 3.0  # standard deviations of its points
_NEAR_FACETS = 0.3  # standard deviations of half of them from points on facets
_FIT_STEPS = 3  # of the fit: the largest term changes at few points
_MODEL_RESIDUAL = 1e-9  # residual of the fit relative to the outputs' deviation, of the model itself
_SKIP_TOL = 1e-12  # singular value of the linear part over that of the outputs, that is rounding
_CHECKED = 6000  # further points that the network must explain
_RADII = (1.0, 3.0, 10.0)  # standard deviations of them: a term may be the largest far out only


@dataclass(frozen=True)
class MaxoutNetwork:
    """A ReLU network, of standardized inputs, and the numbers of terms of its maxout units in decreasing order."""

    network: FeedforwardNetwork
    sizes: tuple[int, ...]


def find_maxout_network(probe, max_units, rng, callback=None):
    """The `MaxoutNetwork` of a probe of maxout units ``v_j max_k (w_jk . x + b_jk)`` beside a linear function.

    Max pooling over ReLU units is ``max(0, z_1, ..., z_k)``. Raises `NotIdentified` if
    such units do not explain the outputs.

    Notes
    -----
    The gradient jumps where two terms of a unit tie, on a part of a hyperplane that ends where a third one is larger.
    The jump gives the difference of the two terms. The terms follow from all differences up to a linear function,
    which may be moved between units. About 20 + 2 D queries per facet on a line.
    """
    facets, check = Facets(probe.oracle.n_inputs, len(probe.output_error)), _FIRST_CHECK
    n_triples, new = 0, []
    for n_lines in range(1, _MAX_LINES + 1):
        new.append(facets.scan(probe, n_lines, max_units, rng))
        if callback is not None:
            callback(len(facets))
        if n_lines < check:
            continue
        check = max(n_lines + 1, int(1.5 * check))
        units, n_triples = units_of_facets(facets)
        if n_triples == 0 and n_lines >= _WITHOUT_TRIPLES:
            break
        fitted = _fitted(probe, facets, units, rng) if n_triples else None
        if fitted is not None:
            network = _relu_network(*fitted, probe)
            return MaxoutNetwork(network, tuple(sorted((len(unit.terms) for unit in fitted[0]), reverse=True)))
        if n_lines >= _NEW_AFTER and np.mean(new[-_NEW_AT_LAST:]) > _NEW_PER_LINE:
            break
    raise NotIdentified(
        "activation boundaries",
        "maxout",
        f"after {n_lines} lines, {len(facets)} facets of {n_triples} units with three and more linear functions do "
        "not explain the outputs.",
    )


def _fitted(probe, facets, units, rng):
    """The units and linear part (D + 1, m_L) fitted to outputs by least squares; None if these are not explained."""
    D = facets.n_inputs
    X = _points(facets, int(OUTPUTS_PER_PARAMETER * (D + 1) * (1 + sum(len(unit.terms) - 1 for unit in units))), rng)
    Y, X1 = probe(X), _with_ones(X)
    linear = np.zeros((D + 1, Y.shape[1]))
    for step in range(_FIT_STEPS):
        residual = _residual(X1, Y, units, linear)
        if step == 0:  # a linear function alone is left
            linear = lapack.scipy_lstsq(X1, residual)[0]
            residual = residual - X1 @ linear
            if np.median(np.abs(residual) / Y.std(axis=0)) > _MODEL_RESIDUAL:
                return None
        units, linear = _stepped(units, linear, X1, residual)
    radius = rng.choice(_RADII, (_CHECKED, 1))
    X = radius * rng.standard_normal((_CHECKED, D))
    residual = np.abs(_residual(_with_ones(X), probe(X), units, linear)) / radius
    return (units, linear) if np.all(residual < _MODEL_RESIDUAL * Y.std(axis=0)) else None


def _with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def _residual(X1, Y, units, linear):
    return Y - X1 @ linear - sum(unit(X1) for unit in units)


def _points(facets, n, rng):
    """Points (n, D), half of them beside facets."""
    X = rng.standard_normal((n, facets.n_inputs))
    X *= rng.uniform(0.0, _FARTHEST, (n, 1))
    near = facets.points[np.linalg.norm(facets.points, axis=1) < _FARTHEST * np.sqrt(facets.n_inputs)]
    if len(near):
        beside = near[rng.randint(len(near), size=n // 2)]
        X[1::2][: len(beside)] = beside + _NEAR_FACETS * rng.standard_normal(beside.shape)
    return X


def _stepped(units, linear, X1, residual):
    """Units and linear part after a least squares step: the outputs are linear in terms that are the largest."""
    columns = [X1]
    for unit in units:
        which = unit.which(X1)
        columns += [np.where((which == k)[:, None], X1, 0.0) for k in range(1, len(unit.terms))]
    design, p = np.hstack(columns), X1.shape[1]
    change = lapack.scipy_lstsq(design, residual, cond=FINE_RANK_TOL, lapack_driver="gelsy")[0]
    moved, at = [], p
    for unit in units:
        n = len(unit.terms) - 1
        both = unit.terms[1:, :, None] * unit.outgoing + change[at : at + n * p].reshape(n, p, -1)
        left, sizes, right = svd(both.reshape(n * p, -1), full_matrices=False)
        side = np.sign(right[0] @ unit.outgoing)
        terms = (side * sizes[0] * left[:, 0]).reshape(n, p)
        moved.append(Maxout(np.vstack([np.zeros(p), terms]), side * right[0]))
        at += n * p
    return moved, linear + change[:p]


def _relu_network(units, linear, probe):
    """``sum_j v_j max_k (t_jk . (x, 1)) + (x, 1) L`` as a ReLU network: ``max(p, q) = q + relu(p - q)``, by halves.

    Values that a layer passes on are pairs ``relu(q) - relu(-q)``.
    """
    left, sizes, right = svd(linear[:-1], full_matrices=False)
    kept = sizes > _SKIP_TOL * max(sizes.max(initial=0.0), *(np.abs(unit.terms).max() for unit in units))
    outgoing = np.vstack([right[kept], *(unit.outgoing for unit in units)])
    # Functions whose largest counts: affine in the layer before, as columns with their constants.
    groups = [(left[:, [k]] * sizes[k], np.zeros(1)) for k in np.flatnonzero(kept)]
    groups += [(unit.terms[:, :-1].T, unit.terms[:, -1]) for unit in units]
    weights, biases = [], []
    while any(C.shape[1] > 1 for C, _ in groups):
        layers, groups = _halved(groups)
        weights.append(layers[0])
        biases.append(layers[1])
    last = np.hstack([C for C, _ in groups]) @ outgoing
    constant = np.concatenate([d for _, d in groups]) @ outgoing + linear[-1]
    return FeedforwardNetwork([*weights, last * probe.output_error], [*biases, constant * probe.output_error], "relu")


def _halved(groups):
    """A layer ``(W, b)`` of ReLU units, and groups with half as many functions of its outputs."""
    W, b, moves, n = [], [], [], 0
    for C, d in groups:
        terms = []
        for k in range(0, C.shape[1], 2):
            q = C[:, k], d[k]
            parts = [q, (-q[0], -q[1])]
            if k + 1 < C.shape[1]:
                parts.append((C[:, k + 1] - q[0], d[k + 1] - q[1]))
            W += [part[0] for part in parts]
            b += [part[1] for part in parts]
            terms.append((n, len(parts)))
            n += len(parts)
        moves.append(terms)
    halves = []
    for terms in moves:
        C = np.zeros((n, len(terms)))
        for column, (start, count) in enumerate(terms):
            C[start : start + count, column] = [1.0, -1.0, 1.0][:count]
        halves.append((C, np.zeros(len(terms))))
    return (np.array(W).T, np.array(b)), halves
