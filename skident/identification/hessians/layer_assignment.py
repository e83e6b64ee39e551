"""Which layer a recovered weight belongs to (Algorithms 4 and 5), and the last layer from the Jacobian."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from skident.linalg import leading_subspace, svec_outer
from skident.oracle import NotIdentified

from ..query_points import unit_rows
from .subspace import last_layer_visible, n_visible, sample_hessians

__all__ = [
    "assign_layers",
    "detect_first_layer",
    "detect_last_layer",
    "last_layer_from_jacobian",
    "match_directions",
    "refuse_one_output",
    "weight_names",
]


_STILL = 4.0  # errors of a gradient below which an output does not move
_MOST_POINTS, _HALVINGS = 100, 50  # looked at for one where all outputs move, and of the way between two of them
_JUMP = 0.1  # of the answers on that way after all halvings, beyond which they are no unit's


def assign_layers(oracle, architecture, shown, first, last, *, method, rng, log):
    """All weights layer by layer.

    Parameters
    ----------
    oracle : Oracle
    architecture : Architecture
    shown : EntangledWeights
        What Hessians show beside `first` and, where `method` is "jacobian" and it shows in them, `last`.
    first : FirstLayer or None
        From saturation; None where Algorithm 4 is to pick the first layer.
    last : ndarray of shape (m_L, D)
        Last layer's weights with signs, from `last_layer_from_jacobian`.
    method : {"jacobian", "hessian"}
        Whether the last layer's weights are `last`, or those that Algorithm 5 picks, with the signs of `last`. These
        must show in the Hessians.
    rng : numpy.random.RandomState
    log : StageLog

    Returns
    -------
    weights : ndarray of shape (m, D)
        Unit vectors, the first layer first, the last layer last.
    layers : ndarray of shape (m,)
        Layer of every weight, 0 the first; -1 for inner layers that cannot be told apart (four layers and more).

    Raises
    ------
    ValueError
        If Algorithm 5 is to be used with one output.
    """
    L, candidates = len(architecture.widths), shown.vectors
    if L == 1:
        return unit_rows(last), np.zeros(len(last), dtype=int)
    if last_layer_visible(architecture) and (first is None or method == "hessian"):
        last, candidates = _take_last(architecture, shown, last, method, log)
    if first is None:
        chosen, candidates = _take_first(oracle, architecture, candidates, rng, log)
    else:
        chosen = first.directions.T
    parts = [(chosen, 0), *([(candidates, 1 if L == 3 else -1)] if L > 2 else []), (last, L - 1)]
    layers = np.concatenate([np.full(len(rows), layer) for rows, layer in parts])
    return unit_rows(np.concatenate([rows for rows, _ in parts])), layers


def weight_names(layers):
    """Names of weights by layer: ``layer1_0, layer1_1, ..., layer2_0, ...``; ``inner_0, ...`` where none is known.

    Parameters
    ----------
    layers : ndarray of shape (m,)
        As `assign_layers` gives them.

    Returns
    -------
    ndarray of str, shape (m,)
    """
    names, seen = [], {}
    for layer in layers:
        stem = f"layer{layer + 1}" if layer >= 0 else "inner"
        names.append(f"{stem}_{seen.setdefault(stem, 0)}")
        seen[stem] += 1
    return np.asarray(names, dtype=object)


def _take_last(architecture, shown, last, method, log):
    """The last layer's weights, signed and in the outputs' order, and the candidates without them."""
    candidates = shown.vectors
    if len(candidates) < architecture.n_outputs:
        return last, candidates
    if method == "jacobian":
        index, _ = match_directions(last, candidates)
        return last, np.delete(candidates, index, axis=0)
    with log.stage("last layer (Algorithm 5)"):
        index, _ = detect_last_layer(shown.hessians, candidates, n_visible(architecture) - 1)
    signs = np.where(np.sum(candidates[index] * last, axis=1) < 0, -1.0, 1.0)
    return candidates[index] * signs[:, None], np.delete(candidates, index, axis=0)


def _take_first(oracle, architecture, candidates, rng, log):
    """First layer by Algorithm 4, and the candidates without it; all of them where there are two layers."""
    if len(architecture.widths) == 2:
        return candidates, candidates[:0]
    with log.stage("first layer (Algorithm 4)", oracle):
        index, _ = detect_first_layer(oracle, candidates, architecture.widths[0], rng=rng)
    return candidates[index], np.delete(candidates, index, axis=0)


def match_directions(targets, candidates):
    """Best one-to-one match of directions up to sign.

    Parameters
    ----------
    targets : ndarray of shape (k, D)
    candidates : ndarray of shape (n, D)
        At least k; lengths do not matter.

    Returns
    -------
    index : ndarray of shape (k,)
        ``candidates[index[i]]`` belongs to ``targets[i]``.
    cosine : ndarray of shape (k,)
        Absolute cosines of the pairs.
    """
    cosines = np.abs(unit_rows(targets) @ unit_rows(candidates).T)
    rows, cols = linear_sum_assignment(cosines, maximize=True)
    index = np.empty(len(targets), dtype=int)
    index[rows] = cols
    return index, cosines[np.arange(len(targets)), index]


def detect_first_layer(oracle, candidates, n_first, *, n_hessians=400, radius=None, rng=None):
    """Indices of the candidates most like rank-one parts of far Hessians.

    Parameters
    ----------
    oracle : Oracle
    candidates : ndarray of shape (m, D)
        Unit vectors.
    n_first : int
        m_1.
    n_hessians : int, default=400
    radius : float, default=None
        ``20 sqrt(D)`` as in Table 1.
    rng : numpy.random.RandomState, default=None

    Returns
    -------
    index : ndarray of shape (n_first,)
    similarity : ndarray of shape (m,)
        ``Sim_1`` of eq. (17): ``max |<v v^T, H / ||H||>|`` over the Hessians.

    Notes
    -----
    Source: Algorithm 4 of Fiedler et al. (2021).
    """
    rng = np.random.RandomState(0) if rng is None else rng
    radius = 20.0 * np.sqrt(oracle.n_inputs) if radius is None else radius
    outer = svec_outer(candidates)
    similarity = np.zeros(len(candidates))
    for first in range(0, n_hessians, 50):
        H = sample_hessians(oracle, min(50, n_hessians - first), radius, rng=rng).reshape(-1, outer.shape[1])
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > 1e-6 * max(norms.max(), np.finfo(float).tiny)]
        H /= np.linalg.norm(H, axis=1, keepdims=True)
        if len(H):
            similarity = np.maximum(similarity, np.abs(H @ outer.T).max(axis=0))
    return np.argsort(-similarity, kind="stable")[:n_first], similarity


def detect_last_layer(hessians, candidates, dimension):
    """Which candidates belong to the last layer, and to which output, from subspaces with one output left out.

    Parameters
    ----------
    hessians : ndarray of shape (n, m_L, q)
        From `sample_hessians`, reused.
    candidates : ndarray of shape (m, D)
        Unit vectors; those of the first layer may have been taken out before.
    dimension : int
        Of every ``f_{-p}``'s subspace: all weights that show in Hessians less one.

    Returns
    -------
    index : ndarray of shape (m_L,)
        Candidate of every output, in the outputs' order.
    similarity : ndarray of shape (m,)
        ``Sim_L``; smallest for the last layer.

    Raises
    ------
    ValueError
        If there is one output only: leaving it out leaves nothing.

    Notes
    -----
    Source: Algorithm 5 of Fiedler et al. (2021); the outputs are matched to the scores' minima one to one. One
    `leading_subspace` an output.
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
    _, cols = linear_sum_assignment(scores[:, last])
    return last[cols], similarity


def refuse_one_output(n_outputs):
    """Raise where Algorithm 5, which leaves one output out, would leave nothing.

    Parameters
    ----------
    n_outputs : int

    Raises
    ------
    ValueError
        If there is one output.
    """
    if n_outputs < 2:
        raise ValueError(
            "last_layer='hessian' (Algorithm 5) needs at least 2 outputs, got 1; use last_layer='jacobian'."
        )


def last_layer_from_jacobian(oracle, others=()):
    """The last layer's entangled weights at the centre: ``grad f_p(x*) = g'(.) v_p(x*)``.

    Parameters
    ----------
    oracle : Oracle
    others : sequence of ndarray of shape (D,), default=()
        Points to try instead, up to 100 in turn, where some output does not move at the centre: all its units may be
        saturated.

    Returns
    -------
    ndarray of shape (m_L, D)
        Signed (for an increasing output activation) and in the outputs' order; lengths include ``g'``. Zero for an
        output that the oracle knows to be constant.

    Raises
    ------
    ValueError
        If there is no point at which all other outputs move.

    Notes
    -----
    Source: eq. (7) of Fiedler et al. (2021). ``2 D + 1`` queries a point with central differences. The last point to be
    tried lies on a step of a steep unit, between the centre and one of the others.
    """
    # What looks like more noise than there is around a network are steps of steep units.
    accuracy = oracle.accuracy if oracle.accuracy.is_plausible else oracle.accuracy.as_exact()
    points = np.array([np.zeros(oracle.n_inputs), *others[:_MOST_POINTS]])
    for u in itertools.chain(points, _on_largest_step(oracle, points)):
        J, values = oracle.jacobian(u[None])[0], oracle(u[None])[0]
        norms = np.linalg.norm(J, axis=1)
        # Differences of a constant are the error of its answers, over the step.
        error = accuracy.std_at(values[None]) / oracle.jacobian_step
        still = norms <= _STILL * np.sqrt(oracle.n_inputs) * error
        still &= ~oracle.constant_outputs
        if not still.any():
            return np.where(oracle.constant_outputs[:, None], 0.0, J)
    p = int(np.argmax(still))
    raise NotIdentified(
        "last layer",
        "still",
        f"output {p} does not move at the centre (gradient norm {norms[p]:.1e}, value {values[p]:.3g}); its "
        "weights cannot be seen there. Move center, or check that the black box depends on X.",
    )


def _on_largest_step(oracle, points):
    """Where answers change from the first point to the one that answers least like it; none where they jump or rest."""
    Y = oracle(points)
    farthest = int(np.argmax(np.sum((Y - Y[0]) ** 2, axis=1)))
    low, high, along = points[0], points[farthest], Y[farthest] - Y[0]
    if along.any():
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            beyond = (oracle(middle[None])[0] - Y[0]) @ along > 0.5 * along @ along
            low, high = (low, middle) if beyond else (middle, high)
        jump = np.diff(oracle(np.stack([low, high])), axis=0)[0]
        if abs(jump @ along) < _JUMP * along @ along:
            yield high
