"""From units without signs to a network: signs of the first layer, one set of weights per unit, the readout."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget import check_deadline
from skident.linalg import lapack, svd
from skident.network import FeedforwardNetwork

from ...constants import REWEIGHTINGS
from ..kernel.robust_fit import fit_outputs
from .robust import robust_fit

_FEWEST_KNOWN = 0.5  # share of the hyperplanes that a unit must have crossed for its equations to count
_SIGN_ERROR = 1e-4  # error of an equation between gradients, relative to the unit's gradient
_SAME_COSINE = 0.9999  # of the weights of two parts of one unit
_WRONG_COEF = 0.3  # deviation of a unit's coefficient in the readout from the measured jump, over that
_NO_LOSS = 2e-3  # share of unexplained outputs that a unit left out may add
_NO_LINEAR_PART = 5e-3  # linear part, over that of the units, which is error
_ABOVE_RANK = 5e-4  # singular values of a linear part beyond its rank, over its norm, which are error
_FEWEST_EFFECTS = 3  # points on a unit's rarer side at which an input is active: fewer leave its weight undetermined
_SPARE_ROWS = 5  # equations for the signs of units beyond their number
_RANK = 1e-3  # singular value over the largest one from which a linear part needs a unit
_LIFT = 2.5  # bias of a unit that stands for a linear part, over its largest sum


@dataclass(frozen=True)
class TwoLayers:
    """``f(x) = relu(relu(x W1 + b1) W2 + b2) W3 + relu(x W1 + b1) V + c``, outputs in the units of the probe."""

    W1: np.ndarray  # (D, K1)
    b1: np.ndarray  # (K1,)
    W2: np.ndarray  # (K1, K2)
    b2: np.ndarray  # (K2,)
    W3: np.ndarray  # (K2, m_L)
    V: np.ndarray  # (K1, m_L), linear part: units that are always active
    c: np.ndarray  # (m_L,)

    @property
    def rank(self):
        """Rank of the linear part."""
        return int(lapack.matrix_rank(self.V))

    def hidden(self, X):
        """Outputs (n, K1) of the first layer."""
        return np.maximum(X @ self.W1 + self.b1, 0.0)

    def __call__(self, X):
        """Outputs (n, m_L) at points (n, D)."""
        H = self.hidden(X)
        return np.maximum(H @ self.W2 + self.b2, 0.0) @ self.W3 + H @ self.V + self.c

    def on_rarer_sides(self, X):
        """The same function with every unit turned such that it is active at fewer points of X (n, D).

        Then a weight that no output depends on changes nothing, and the linear part is determined by most outputs.
        """
        mostly = np.mean(self.hidden(X) @ self.W2 + self.b2 > 0, axis=0) > 0.5
        return self.turned(np.where(mostly, 1.0, 0.0))

    def turned(self, turned):
        """The same function with units turned where `turned` (K2,) is 1: ``o relu(z) = o z + o relu(-z)``."""
        sign, moved = 1.0 - 2.0 * turned, turned[:, None] * self.W3
        return replace(
            self, W2=self.W2 * sign, b2=self.b2 * sign, V=self.V + self.W2 @ moved, c=self.c + self.b2 @ moved
        )

    def with_unit(self, w, b, o):
        """The same with one more unit of the second layer."""
        return replace(self, W2=np.column_stack([self.W2, w]), b2=np.append(self.b2, b), W3=np.vstack([self.W3, o]))

    def unit_outputs(self, X):
        """Sizes (n, K2) of what the units of the second layer add to the outputs at points X (n, D)."""
        return np.maximum(self.hidden(X) @ self.W2 + self.b2, 0.0) * np.linalg.norm(self.W3, axis=1)

    def take(self, kept):
        """The layers with some units of the second one only."""
        return replace(self, W2=self.W2[:, kept], b2=self.b2[kept], W3=self.W3[kept])

    def network(self, X, output_error):
        """A `FeedforwardNetwork`, outputs in the units of the oracle; the linear part becomes units active at X (n, D).

        Also returns the number of these units, which are the last ones.
        """
        W2, b2, W3 = self.W2, self.b2, self.W3
        c, n_linear = self.c, 0
        if np.any(self.V):
            Q, s, R = svd(self.V, full_matrices=False)
            n_linear = int(np.sum(s > _RANK * s[0]))
            Q, R = Q[:, :n_linear], s[:n_linear, None] * R[:n_linear]
            lift = _LIFT * np.abs(self.hidden(X) @ Q).max(axis=0)
            W2, b2, W3, c = np.column_stack([W2, Q]), np.append(b2, lift), np.vstack([W3, R]), c - lift @ R
        weights, biases = [self.W1, W2, W3 * output_error], [self.b1, b2, c * output_error]
        return FeedforwardNetwork(weights, biases, "relu", "identity"), n_linear

    @classmethod
    def of(cls, network, n_linear, output_error):
        """The opposite of `network`."""
        (W1, W2, W3), (b1, b2, c) = network.weights, network.biases
        W3, k = W3 / output_error, W2.shape[1] - n_linear
        return cls(W1, b1, W2[:, :k], b2[:k], W3[:k], W2[:, k:] @ W3[k:], c / output_error + b2[k:] @ W3[k:])


def first_layer_signs(units, planes):
    """Signs (K,) by which the units are active, and the largest deviation from +-1; None if too little is known.

    The gradient of a unit is a sum over the active ones: ``g + sum_{s_i = -1} coef_i n_i = sum_i q_i coef_i n_i`` with
    the same ``q_i`` in {0, 1} for all units. Hyperplanes that a unit never crossed are projected out.
    """
    normals, (K, D) = planes[:, :-1].T, (len(planes), planes.shape[1] - 1)
    rows, targets = [], []
    for unit in units:
        unknown = np.flatnonzero(~unit.known)
        if len(unknown) >= min(D, _FEWEST_KNOWN * K):
            continue
        coef = np.where(unit.known, unit.coef, 0.0)
        M, y = normals * coef, unit.gradient + normals @ (coef * (unit.side < 0))
        if len(unknown):
            free = svd(normals[:, unknown], full_matrices=True)[0][:, len(unknown) :]
            M, y = free.T @ M, free.T @ y
        rows.append(M / np.linalg.norm(unit.gradient))
        targets.append(y / np.linalg.norm(unit.gradient))
    if not targets or sum(map(len, targets)) < K:
        return None
    A, y = np.vstack(rows), np.concatenate(targets)
    fit = robust_fit(A, y, np.full(len(y), _SIGN_ERROR))
    signs = 2.0 * fit.solution - 1.0
    return np.where(signs > 0, 1.0, -1.0), float(np.abs(np.abs(signs) - 1.0).max())


def _weights_of(unit, signs):
    """Weights (K,) and bias of a unit behind the first layer with these signs, and which weights are known."""
    coef, normals = np.where(unit.known, unit.coef, 0.0), unit.normals * unit.side
    active = signs == unit.side
    free = ~unit.known & active
    known = unit.known.copy()
    if free.any():
        rest = unit.gradient - normals[:, active & unit.known] @ coef[active & unit.known]
        coef[free] = lapack.lstsq(normals[:, free], rest, rcond=1e-8)[0]
        known |= free & (free.sum() <= len(unit.point))
    hidden = np.maximum((unit.points @ unit.normals + unit.offsets) * signs, 0.0)
    return coef, -np.median(hidden @ coef), known


def assemble(units, planes, signs, X, F, tol, floor):
    """`TwoLayers` whose readout fits outputs F (n, m_L) at X (n, D) best, and its residuals (n,) over `tol`.

    Residuals below ``floor tol`` are errors.
    False units, whose coefficient is not the measured jump, are left out one after the other.
    """
    W1, b1 = planes[:, :-1].T * signs, planes[:, -1] * signs
    chosen = _distinct(sorted(units, key=lambda unit: -len(unit.signs) * unit.known.mean()), signs)
    best = None
    while best is None or len(chosen):
        check_deadline()
        W2 = np.array([w for w, _, _ in chosen]).T.reshape(len(b1), -1)
        b2, outputs = np.array([b for _, b, _ in chosen]), np.array([o for _, _, o in chosen])
        found, residual, coef = _read_out(TwoLayers(W1, b1, W2, b2, outputs, None, None), X, F, tol, floor)
        share = np.mean(residual > 1.0)
        if best is None or share <= best[2] + _NO_LOSS:
            best = found, residual, share
        off = np.linalg.norm(coef - outputs, axis=1)
        if off.max(initial=0.0) < _WRONG_COEF:
            break
        chosen.pop(int(np.argmax(off)))
    return best[0], best[1]


def _distinct(units, signs):
    """Weights, bias and output of every unit, each once."""
    found = []
    for unit in units:
        w, b, known = _weights_of(unit, signs)
        for other, _, _, other_known in found:
            common = known & other_known
            if abs(w[common] @ other[common]) > _SAME_COSINE * np.linalg.norm(w[common]) * np.linalg.norm(
                other[common]
            ):
                break
        else:
            found.append((w, b, unit.output, known))
    return [(w, b, o) for w, b, o, _ in found]


def _read_out(layers, X, F, tol, floor):
    """The layers with linear part and offset, residuals over `tol`, and coefficients (K2, m_L) of the units."""
    H, K2 = layers.hidden(X), len(layers.b2)
    Z = H @ layers.W2 + layers.b2
    A = np.column_stack([np.abs(Z) / 2.0, H, np.ones(len(X))])
    coef, residual = fit_outputs(A, F, np.full(len(X), tol), explained=floor, n_rounds=REWEIGHTINGS, floor=floor)
    A, L, c = np.split(coef, [K2, K2 + H.shape[1]])
    found = replace(layers, W3=A, V=L - layers.W2 @ A / 2.0, c=c[0] - layers.b2 @ A / 2.0)
    return found, residual, A


def fold_linear_part(layers, X, tol=_NO_LINEAR_PART):
    """The same function with the units turned such that the linear part is smallest, and how large it still is.

    Turning a unit changes the linear part by ``o w``. Weights without effect on a unit's rarer side at X (n, D) are
    undetermined: they take what is left. Relative to the linear parts of the units.
    """
    if len(layers.b2) == 0:
        return layers, float(np.any(layers.V))
    H = layers.hidden(X)
    size, m = H.std(axis=0), layers.W3.shape[1]
    active = H @ layers.W2 + layers.b2 > 0
    mostly = active.mean(axis=0) > 0.5
    free = (H > 0).T.astype(float) @ (active != mostly) < _FEWEST_EFFECTS  # (K1, K2)
    row = size * ~free.any(axis=1)
    row = row if np.count_nonzero(row) * m >= len(layers.b2) + _SPARE_ROWS else size
    parts = np.concatenate([layers.W2 * layers.W3[:, k] * row[:, None] for k in range(m)])
    x = lapack.lstsq(parts, -(layers.V * row[:, None]).T.ravel(), rcond=1e-9)[0]
    turned = np.where(x > 0.5, 1.0, 0.0)
    found = layers.turned(turned)
    size = max(np.linalg.norm(parts), np.finfo(float).tiny)
    rest = np.linalg.norm(found.V * row[:, None]) / size
    for rank in range(1, m) if rest > tol else ():
        other, above = _turned_beside(layers.V * row[:, None], layers.W2 * row[:, None], layers.W3, turned, rank)
        if above < _ABOVE_RANK * np.linalg.norm(layers.V * row[:, None]):
            found = layers.turned(other)
            return replace(found, V=_of_rank(found.V, rank)), float(rest)
    if rest < tol:
        always = mostly != (turned > 0)  # after turning
        change = _absorbed(found.V, found.W3, free & always)
        found = replace(found, V=np.zeros_like(found.V), W2=found.W2 + change)
    return found, float(rest)


def folds(layers, X):
    """The same function without a linear part, however far that is off, and with one of low rank if there is one.

    If no rank fits, the second are the layers themselves.
    """
    whole, rest = fold_linear_part(layers, X, np.inf)
    folded = whole if rest < _NO_LINEAR_PART else fold_linear_part(layers, X)[0]
    return whole, folded if folded.rank < folded.V.shape[1] else layers


def _turned_beside(V, W2, W3, turned, rank):
    """Units to turn (K2,) such that the linear part V (K1, m_L) is nearly of that rank, and its singular values.

    As many units are always active, and their signs are free. One unit after the other is turned as long as that helps.
    """
    each = W2.T[:, :, None] * W3[:, None, :]  # (K2, K1, m_L)
    turned, least = turned.copy(), None
    V = V + np.tensordot(turned, each, axes=1)
    while True:
        after = V + (1.0 - 2.0 * turned)[:, None, None] * each
        rest = np.sum(svd(after, compute_uv=False)[:, rank:] ** 2, axis=1)
        k = int(np.argmin(rest))
        if least is not None and rest[k] >= least:
            return turned, np.sqrt(least)
        if least is None and rest[k] >= (least := np.sum(svd(V, compute_uv=False)[rank:] ** 2)):
            return turned, np.sqrt(least)
        least, V, turned[k] = rest[k], after[k], 1.0 - turned[k]


def _of_rank(V, rank):
    """The closest matrix of a rank."""
    Q, s, R = svd(V, full_matrices=False)
    return (Q[:, :rank] * s[:rank]) @ R[:rank]


def _absorbed(V, W3, free):
    """Changes of undetermined weights (K1, K2) by which units that are active take a linear part V (K1, m_L)."""
    change = np.zeros(free.shape)
    for i in np.flatnonzero(free.any(axis=1)):
        k = np.flatnonzero(free[i])
        change[i, k] = lapack.lstsq(W3[k].T, V[i], rcond=None)[0]
    return change
