"""Layer of every entangled weight (Algorithms 4 and 5 of Fiedler et al. 2021), and the last layer from the Jacobian."""

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from skident.linalg import leading_subspace, svec_outer
from skident.optim import bisect
from skident.oracle import NotIdentified

from ..query_points import unit_rows
from .subspace import last_layer_visible, n_visible, sample_hessians

_CONSTANT_SIGMAS = 4.0  # errors of a gradient below which an output is constant
_MAX_POINTS = 100  # tried for one where all outputs change; budget
_HALVINGS = 50  # of the way between two of them: down to rounding
_JUMP = 0.1  # of the change on that way, left after all halvings, that no unit makes
_FAR_RADIUS = 20.0  # of Algorithm 4's Hessians, in units of sqrt(D): Table 1 of the paper
_HESSIANS_PER_BATCH = 50  # of Algorithm 4; memory
_ZERO_HESSIAN = 1e-6  # of the largest norm, below which a Hessian is noise of the differences


def assign_layers(oracle, architecture, found, first, last, *, method, rng, log):
    """All weights (m, D) as unit vectors, first layer first and last layer last, and the layer of each (m,), from 0.

    `found` are the `EntangledWeights`, `first` the first layer from saturation or None for Algorithm 4, `last` (m_L, D)
    that of `last_layer_from_jacobian`. With `method` "hessian", Algorithm 5 picks the last layer's weights and `last`
    gives their signs. Inner layers of four layers and more cannot be distinguished: layer -1.
    """
    L, candidates = len(architecture.widths), found.vectors
    if L == 1:
        return unit_rows(last), np.zeros(len(last), dtype=int)
    if last_layer_visible(architecture) and (first is None or method == "hessian"):
        last, candidates = _take_last(architecture, found, last, method, log)
    if first is None:
        chosen, candidates = _take_first(oracle, architecture, candidates, rng, log)
    else:
        chosen = first.directions.T
    parts = [(chosen, 0), *([(candidates, 1 if L == 3 else -1)] if L > 2 else []), (last, L - 1)]
    layers = np.concatenate([np.full(len(V), layer) for V, layer in parts])
    return unit_rows(np.concatenate([V for V, _ in parts])), layers


def weight_names(layers):
    """Names by layer (m,): ``layer1_0, layer1_1, ..., layer2_0, ...``, and ``inner_0, ...`` for unknown ones (-1)."""
    names, counts = [], {}
    for layer in layers:
        stem = f"layer{layer + 1}" if layer >= 0 else "inner"
        names.append(f"{stem}_{counts.setdefault(stem, 0)}")
        counts[stem] += 1
    return np.asarray(names, dtype=object)


def _take_last(architecture, found, last, method, log):
    """The last layer's weights, signed and in the outputs' order, and the candidates without them."""
    candidates = found.vectors
    if len(candidates) < architecture.n_outputs:
        return last, candidates
    if method == "jacobian":
        index, _ = match_directions(last, candidates)
        return last, np.delete(candidates, index, axis=0)
    with log.stage("last layer (Algorithm 5)"):
        index, _ = detect_last_layer(found.hessians, candidates, n_visible(architecture) - 1)
    signs = np.where(np.sum(candidates[index] * last, axis=1) < 0, -1.0, 1.0)
    return candidates[index] * signs[:, None], np.delete(candidates, index, axis=0)


def _take_first(oracle, architecture, candidates, rng, log):
    """First layer by Algorithm 4, and the candidates without it; all of them if there are two layers."""
    if len(architecture.widths) == 2:
        return candidates, candidates[:0]
    with log.stage("first layer (Algorithm 4)", oracle):
        index, _ = detect_first_layer(oracle, candidates, architecture.widths[0], rng=rng)
    return candidates[index], np.delete(candidates, index, axis=0)


def match_directions(targets, candidates):
    """Best one-to-one match up to sign: the candidate (n, D) of every target (k, D), and the absolute cosines, (k,)."""
    cosines = np.abs(unit_rows(targets) @ unit_rows(candidates).T)
    target, candidate = linear_sum_assignment(cosines, maximize=True)
    index = np.empty(len(targets), dtype=int)
    index[target] = candidate
    return index, cosines[np.arange(len(targets)), index]


def detect_first_layer(oracle, candidates, n_first, *, n_hessians=400, radius=None, rng=None):
    """Indices (n_first,) of the candidates (m, D) most similar to rank-one parts of far Hessians, and Sim_1 (m,).

    ``Sim_1 = max |<v v^T, H / ||H||>|`` over the Hessians, eq. (17). Source: Algorithm 4 of Fiedler et al. (2021).
    """
    rng = np.random.RandomState(0) if rng is None else rng
    radius = _FAR_RADIUS * np.sqrt(oracle.n_inputs) if radius is None else radius
    outer = svec_outer(candidates)
    similarity = np.zeros(len(candidates))
    for first in range(0, n_hessians, _HESSIANS_PER_BATCH):
        n = min(_HESSIANS_PER_BATCH, n_hessians - first)
        H = sample_hessians(oracle, n, radius, rng=rng).reshape(-1, outer.shape[1])
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > _ZERO_HESSIAN * max(norms.max(), np.finfo(float).tiny)]
        H /= np.linalg.norm(H, axis=1, keepdims=True)
        if len(H):
            similarity = np.maximum(similarity, np.abs(H @ outer.T).max(axis=0))
    return np.argsort(-similarity, kind="stable")[:n_first], similarity


def detect_last_layer(hessians, candidates, dimension):
    """Candidate (m, D) of every output, (m_L,), and Sim_L (m,), from the subspaces with one output left out.

    `hessians` (n, m_L, q) are those of `sample_hessians`, `dimension` is that of each subspace: all visible weights
    less one. Source: Algorithm 5 of Fiedler et al. (2021); outputs are matched to the minima of the scores one to one.
    """
    n, m_out, q = hessians.shape
    refuse_one_output(m_out)
    outer = svec_outer(candidates)
    dimension = min(dimension, n * (m_out - 1), q)
    scores = np.empty((m_out, len(candidates)))
    for p in range(m_out):
        rest = np.delete(hessians, p, axis=1).reshape(-1, q)
        basis, _ = leading_subspace([rest], dimension)
        scores[p] = np.linalg.norm(outer @ basis, axis=1)
    scores /= np.linalg.norm(scores, axis=0)
    similarity = scores.sum(axis=0)
    last = np.argsort(similarity, kind="stable")[:m_out]
    _, columns = linear_sum_assignment(scores[:, last])
    return last[columns], similarity


def refuse_one_output(n_outputs):
    """Raise ValueError for one output: Algorithm 5 leaves one out, and nothing would be left."""
    if n_outputs < 2:
        raise ValueError(
            "last_layer='hessian' (Algorithm 5) needs at least 2 outputs, got 1; use last_layer='jacobian'."
        )


def last_layer_from_jacobian(oracle, others=()):
    """The last layer's entangled weights (m_L, D) at the center: ``grad f_p(x*) = g'(.) v_p(x*)``, eq. (7).

    Signed (for an increasing output activation) and in the outputs' order; 0 for an output known to be constant. If
    some output does not change at the center, because all its units are saturated, up to 100 `others` (D,) are tried,
    and then a point on a step of a steep unit between the center and one of them. Raises NotIdentified if all fail.
    ``2 D + 1`` queries per point with central differences.
    """
    # What looks like more noise than there is around a network are steps of steep units.
    accuracy = oracle.accuracy if oracle.accuracy.is_plausible else oracle.accuracy.as_exact()
    points = np.array([np.zeros(oracle.n_inputs), *others[:_MAX_POINTS]])
    for u in itertools.chain(points, _on_largest_step(oracle, points)):
        J, values = oracle.jacobian(u[None])[0], oracle(u[None])[0]
        norms = np.linalg.norm(J, axis=1)
        # Differences of a constant are the error of its outputs, over the step.
        error = accuracy.std_at(values[None]) / oracle.jacobian_step
        constant = norms <= _CONSTANT_SIGMAS * np.sqrt(oracle.n_inputs) * error
        constant &= ~oracle.constant_outputs
        if not constant.any():
            return np.where(oracle.constant_outputs[:, None], 0.0, J)
    p = int(np.argmax(constant))
    raise NotIdentified(
        "last layer",
        "still",
        f"output {p} does not change at the center (gradient norm {norms[p]:.1e}, value {values[p]:.3g}), which leaves "
        "its weights undetermined. Move center, or check that the black box depends on X.",
    )


def _on_largest_step(oracle, points):
    """A point between the first one and that of the most different output, where outputs change; none at a jump."""
    Y = oracle(points)
    farthest = int(np.argmax(np.sum((Y - Y[0]) ** 2, axis=1)))
    along = Y[farthest] - Y[0]
    if along.any():
        beyond = lambda U: (oracle(U) - Y[0]) @ along > 0.5 * along @ along  # noqa: E731
        low, high = bisect(beyond, points[:1], points[farthest][None], _HALVINGS)
        jump = np.diff(oracle(np.concatenate([low, high])), axis=0)[0]
        if abs(jump @ along) < _JUMP * along @ along:
            yield high[0]
