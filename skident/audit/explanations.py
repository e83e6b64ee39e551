"""Which weights or units of a known network are changed, if the outputs of a black box differ."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from skident.budget.constants import EXACT_RANK_TOL, FEW_STEPS, MOST_WORK

_TRIED = 12  # parameters that are tried one by one, those first that go best with the differences
_UNITS_TRIED = 6  # units that are tried as a whole, at least
_FEW_ROWS = 200  # rows, and four times as many as parameters, on which a fit is tried first
_MOST_CHANGED = 1500  # parameters that are searched for at once
_OUTPUTS_FIRST = 4000  # outputs on which several changed weights are searched first (budget)
_OUTPUTS_PER_WEIGHT = 12  # `_OUTPUTS_FIRST` per weight recovered so far
_AS_GOOD = 0.5  # of the best match, from which others join at once
_NEARLY_DEPENDENT = 1e-7  # `EXACT_RANK_TOL` of normal equations
_SURE = 4.0  # standard errors from 0 of a parameter that counts as changed


@dataclass(frozen=True)
class Explanation:
    """Changes of a network with which it agrees with the black box.

    Attributes
    ----------
    kind : {"weight", "removed", "unit", "weights", "none"}
        One weight or bias; a unit without effect; weights of one unit; any others; no difference.
    named : list of (layer, row, unit)
        Parameters that differ; of a removed unit one entry, whose row is -1.
    values : ndarray of shape (k,)
        Of these parameters in the black box.
    also : list of (layer, row, unit)
        Single parameters that would explain the differences as well.
    max_residual : float
        Largest difference left, over its tolerance.
    """

    kind: str
    named: list
    values: np.ndarray
    also: list
    max_residual: float


def explain_differences(effects, outputs, tolerance, *, several=True):
    """The simplest change that explains how outputs differ: one weight, one unit, some weights.

    outputs, tolerance (n, m_L).

    Changes are ranked to first order by products with the Jacobian that never form it; those ranked first are fitted
    to the outputs themselves by Gauss-Newton steps. Many weights: orthogonal matching pursuit (Tropp and Gilbert, 2007)
    with several at a time, then those that are not clearly changed are dropped. ``O(n P)`` a step, and
    ``n m_L k^2`` for k changed weights, ``8 n m_L k`` bytes; while k is small, on a part of the outputs.
    """
    case = _Case(effects, outputs, tolerance)
    best = Explanation("none", [], np.empty(0), [], float(np.abs(case.residual).max()))
    searches = [_removed_unit, _one_weight, _one_unit, *([_some_weights] if several else [])]
    for search in searches:
        found = search(case)
        if found is not None and found.max_residual <= 1.0:
            return found
    return best


class _Case:
    """What is to be explained."""

    def __init__(self, effects, outputs, tolerance):
        self.effects, self.outputs, self.tolerance = effects, outputs, tolerance
        self.residual = (outputs - effects.outputs) / tolerance
        self.norms = effects.norms()

    def at(self, rows):
        """The same on some rows."""
        return _Case(self.effects.at(rows), self.outputs[rows], self.tolerance[rows])

    def few(self, n_parameters):
        """Rows enough for a fit of some parameters: half of them those that differ most, the others spread over all."""
        n, outputs = self.residual.shape
        wanted = _FEW_ROWS + -(-4 * n_parameters // outputs)
        if 2 * wanted >= n:
            return None
        most = np.argsort(-np.abs(self.residual).max(axis=1), kind="stable")[: wanted // 2]
        return np.union1d(most, np.linspace(0, n - 1, wanted - wanted // 2).astype(int))

    def spread(self, n_outputs_used):
        """The same on about that many of the outputs, spread over all; the case itself where that is most of them."""
        every = self.residual.size // n_outputs_used
        return self.at(np.arange(0, len(self.residual), every)) if every > 1 else self

    def fitted_if_few(self, named, few):
        """`fitted`, from a fit to few rows (a case of their own, or None); only that one where it explains them not."""
        if few is None:
            return self.fitted(named)
        values, max_residual = few.fitted(named)
        return (values, max_residual) if max_residual > 1.0 else self.fitted(named, values)

    def network_with(self, named, values):
        """The known network with some parameters replaced."""
        layers = [np.array(layer) for layer in self.effects.layers]
        for (layer, row, unit), value in zip(named, values, strict=True):
            layers[layer][row, unit] = value
        return self.effects.network.with_parameters([a[:-1] for a in layers], [a[-1] for a in layers])

    def residual_of(self, network):
        """Differences left by another network, over their tolerance."""
        return (self.outputs - self.effects.outputs_of(network)) / self.tolerance

    def value(self, named):
        return np.array([self.effects.layers[layer][row, unit] for layer, row, unit in named])

    def fitted(self, named, values=None):
        """Values of some parameters that fit the outputs best, and the largest remaining difference."""
        effects, residual = self.effects, self.residual
        if values is None:
            values = self.value(named)
        else:
            network = self.network_with(named, values)
            effects, residual = self.effects.of(network), self.residual_of(network)
        best = values, float(np.abs(residual).max())
        for step in range(FEW_STEPS):
            values = values + _step(effects.columns(named), residual)
            network = self.network_with(named, values)
            residual = self.residual_of(network)
            max_residual = float(np.abs(residual).max())
            if not max_residual < best[1]:
                break
            done, best = max_residual > 0.5 * best[1] and max_residual <= 1.0, (values, max_residual)
            if done or step == FEW_STEPS - 1:
                break
            effects = self.effects.of(network)
        return best


def _step(J, residual):
    """The Gauss-Newton step, by normal equations of columns of length 1, or by pivoted QR where these are singular."""
    length = np.sqrt(np.einsum("ij,ij->j", J, J))
    length[length == 0] = 1.0
    J, r = J / length, residual.ravel()
    gram = J.T @ J
    try:
        factor = linalg.cho_factor(gram)
        singular = np.diag(factor[0]).min() < _NEARLY_DEPENDENT
    except linalg.LinAlgError:
        singular = True
    if singular:
        return linalg.lstsq(J, r, cond=EXACT_RANK_TOL, lapack_driver="gelsy")[0] / length
    move = linalg.cho_solve(factor, J.T @ r)
    move += linalg.cho_solve(factor, J.T @ (r - J @ move))
    return move / length


def _ranked(case, effects, residual):
    """All parameters by how well their effect goes with some differences: numbers, and the cosines."""
    matches = effects.correlations(residual)
    cosines = [np.abs(c) / np.where(n > 0, n, np.inf) for c, n in zip(matches, case.norms, strict=True)]
    flat = np.concatenate([c.ravel() for c in cosines])
    return np.argsort(-flat, kind="stable"), flat / max(np.linalg.norm(residual), np.finfo(float).tiny)


def _names(case, flat):
    """Names of parameters numbered layer by layer."""
    sizes = np.cumsum([0, *(a.size for a in case.effects.layers)])
    found = []
    for k in np.atleast_1d(flat):
        layer = int(np.searchsorted(sizes, k, side="right")) - 1
        row, unit = np.unravel_index(k - sizes[layer], case.effects.layers[layer].shape)
        found.append((layer, int(row), int(unit)))
    return found


def _one_weight(case):
    order, _ = _ranked(case, case.effects, case.residual)
    rows, fits = case.few(1), []
    few = None if rows is None else case.at(rows)
    for name in _names(case, order[:_TRIED]):
        values, max_residual = case.fitted_if_few([name], few)
        fits.append((max_residual, name, values))
    fits.sort(key=lambda f: f[0])
    max_residual, name, values = fits[0]
    return Explanation("weight", [name], values, [f[1] for f in fits[1:] if f[0] <= 1.0], max_residual)


def _removed_unit(case):
    """One hidden unit without effect."""
    ranked, r = [], case.residual.ravel()
    for layer in range(len(case.effects.layers) - 1):
        gone = case.effects.removals(layer)
        left = np.linalg.norm(gone - r, axis=1)
        ranked += [(value, layer, unit) for unit, value in enumerate(left)]
    best = None
    tried = max(_UNITS_TRIED, int(MOST_WORK / (len(r) * case.effects.network.n_parameters)))
    for _, layer, unit in sorted(ranked)[:tried]:
        outgoing = [(layer + 1, unit, k) for k in range(case.effects.layers[layer + 1].shape[1])]
        max_residual = float(np.abs(case.residual_of(case.network_with(outgoing, np.zeros(len(outgoing))))).max())
        if best is None or max_residual < best.max_residual:
            best = Explanation("removed", [(layer, -1, unit)], np.zeros(1), [], max_residual)
        if max_residual <= 1.0:
            break
    return best


def _one_unit(case):
    """Several of the incoming weights of one unit, or of its outgoing ones."""
    groups = []
    for layer, matrix in enumerate(case.effects.layers):
        rows, units = matrix.shape
        groups += [[(layer, i, j) for i in range(rows)] for j in range(units)]
        if layer:
            groups += [[(layer, i, j) for j in range(units)] for i in range(rows - 1) if units > 1]
    _, cosines = _ranked(case, case.effects, case.residual)
    cosine = dict(zip(_names(case, np.arange(len(cosines))), cosines, strict=True))
    left = _left_by(case, groups, cosine)
    best = None
    for k in np.argsort(left, kind="stable")[:_UNITS_TRIED]:
        group = [n for n in groups[k] if case.norms[n[0]][n[1], n[2]] > 0]
        if case.effects.link.centered and len({(n[0], n[1]) for n in group}) == 1 < len(group):
            group.remove(min(group, key=cosine.get))  # an equal change of all does not show
        if not group or len(group) > case.residual.size // 2:
            continue
        rows = case.few(len(group))
        values, max_residual = case.fitted_if_few(group, None if rows is None else case.at(rows))
        if best is None or max_residual < best.max_residual:
            best = _pruned(case, group, values, max_residual, "unit")
    return best


def _left_by(case, groups, cosine):
    """How much of the differences each group of parameters leaves, to first order."""
    work = sum(len(group) ** 2 for group in groups)
    every = max(1, -(-case.residual.size * work // int(MOST_WORK)))
    some = case.at(np.arange(0, len(case.residual), every))
    r = some.residual.ravel()
    if len(r) < 2 * max(map(len, groups)):
        return [-max(cosine[name] for name in group) for group in groups]
    left = []
    for group in groups:
        J = some.effects.columns(group)
        Q = linalg.qr(J, mode="economic", pivoting=True)[0] if J.any() else J
        left.append(np.sum((r - Q @ (Q.T @ r)) ** 2) / (len(r) - len(group)))
    return left


def _some_weights(case):
    """Weights anywhere, added several at a time until nothing is left; on a part of the outputs while they are few."""
    named, values, most = [], np.empty(0), min(_MOST_CHANGED, case.residual.size // 3)
    some, network = case.spread(_OUTPUTS_FIRST), case.effects.network
    effects, residual = some.effects, some.residual
    while len(named) < most:
        order, cosines = _ranked(some, effects, residual)
        fresh = order[cosines[order] > _AS_GOOD * cosines[order[0]]][: max(1, len(named) // 2) + len(named)]
        fresh = [n for n in _names(case, fresh) if n not in set(named)][: max(1, len(named) // 2)]
        if fresh:
            named, values = named + fresh, np.concatenate([values, case.value(fresh)])
            values = values + _step(effects.columns(named), residual)
            network = case.network_with(named, values)
            residual = some.residual_of(network)
        left = np.abs(residual).max()
        if not np.isfinite(left) or (some is case and (left <= 1.0 or not fresh)):
            break
        if left <= 1.0 or not fresh:
            some = case
        elif residual.size < _OUTPUTS_PER_WEIGHT * len(named):
            some = case.spread(2 * _OUTPUTS_PER_WEIGHT * len(named))
        effects, residual = some.effects.of(network), some.residual_of(network)
    values, max_residual = case.fitted(named, values)
    return _pruned(case, named, values, max_residual, "weights")


def _pruned(case, named, values, max_residual, kind):
    """The same without the parameters that are hardly changed, if it explains as much."""
    if max_residual > 1.0:
        return Explanation(kind, named, values, [], max_residual)
    for _ in range(4):
        effects = case.effects.of(case.network_with(named, values))
        J = effects.columns(named)
        errors = np.sqrt(np.diag(np.linalg.pinv(J.T @ J, rcond=1e-14, hermitian=True))) / 8.0
        kept = np.abs(values - case.value(named)) > _SURE * errors
        if kept.all() or not kept.any():
            break
        fewer = [n for n, k in zip(named, kept, strict=True) if k]
        again, left = case.fitted(fewer)
        if left > 1.0:
            break
        named, values, max_residual = fewer, again, left
    return Explanation("weight" if len(named) == 1 else kind, named, values, [], max_residual)
