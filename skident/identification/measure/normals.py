"""Jacobians by differences, and normals of boundaries from the Jacobians that they lie between.

Between two neighboring Jacobians on a line lie one or more bends: the Jacobian changes by the outer product of jump and
normal, summed over the bends. As many bends may share two Jacobians as their jumps are independent directions of the
outputs; those with known normals are subtracted.
"""

import numpy as np

from skident.budget import chunks
from skident.budget.constants import CHUNK_COPIES, TINY
from skident.linalg import lapack, svd

from ..constants import SHORTER
from .outputs import SIGNIFICANCE

_STEP = 0.25  # of a difference over half the free length of the line
_MOST_STEPS = 5  # tried (budget)
_LEAST_SINE = 0.1  # smallest singular value of the directions of jumps that share two Jacobians
_NEARLY = 0.6  # of the bends up to the farthest possible Jacobian that are passed at least
_NORMAL_ERRORS = 10.0  # relative error of a usable normal, in `loose_tol`


def jacobians(outputs, Y, free):
    """Jacobians (n, m_L, k) at points (n, k) by forward differences, the errors (n,) of an entry, and which hold (n,).

    `free` (n,) is the free length around the points. ``k + 2`` queries each: the last one checks the others.
    """
    n, k = Y.shape
    J, errors, good = np.zeros((n, outputs.n_outputs, k)), np.full(n, np.inf), np.zeros(n, dtype=bool)
    h, todo = _STEP * free, np.arange(n)
    for _ in range(_MOST_STEPS):
        for part in chunks(len(todo), CHUNK_COPIES * 8 * (k + 2) * outputs.probe.n_inputs):
            i = todo[part]
            J[i], errors[i], good[i] = _differences(outputs, Y[i], h[i])
        todo = todo[~good[todo]]
        if len(todo) == 0:
            break
        h[todo] *= SHORTER
    return J, errors, good


def _differences(outputs, Y, h):
    """Jacobians, errors and a mask for steps h (n,)."""
    n, k = Y.shape
    check = outputs.rng.standard_normal((n, 1, k))
    check /= np.linalg.norm(check, axis=2, keepdims=True)
    steps = np.concatenate([np.zeros((n, 1, k)), np.broadcast_to(np.eye(k), (n, k, k)), check], axis=1)
    F, error = outputs.block(Y[:, None] + h[:, None, None] * steps)
    error = error.max(axis=1)
    J = np.swapaxes(F[:, 1:-1] - F[:, :1], 1, 2) / h[:, None, None]
    expected = h[:, None] * np.einsum("nmk,nk->nm", J, check[:, 0])
    deviation = np.abs(F[:, -1] - F[:, 0] - expected).max(axis=1)
    spread = np.sqrt(2.0 + (1.0 - check[:, 0].sum(axis=1)) ** 2)  # of the deviation, in errors of an output
    good = np.isfinite(error) & (deviation < SIGNIFICANCE * spread * error)
    return J, np.maximum(np.sqrt(2.0) * error, deviation) / h, good  # one entry may be off by all of the deviation


def share_jacobians(record, lines, known, known_errors):
    """Lists of indices of bends, their scaled normals and the relative errors of these; see `Record`.

    `known` (n, k) are scaled normals of bends that need none, NaN elsewhere, with relative errors (n,).
    """
    places, groups = [], []
    for line in lines:
        _place(record, line, known, places, groups)
    if not places:
        return []
    line, t, room = (np.array(column) for column in zip(*places, strict=True))
    J, errors, good = jacobians(record.outputs, record.lines.at(line, t), room)
    normals, found = np.where(np.isnan(known), record.normals, known), []
    relative = np.where(np.isnan(known[:, 0]), record.normal_errors, known_errors)
    for first, new, old in groups:
        if good[first] and good[first + 1] and not np.isnan(normals[old]).any():
            change = J[first + 1] - J[first] - record.bends.jump[old].T @ normals[old]
            error = np.hypot(errors[first], errors[first + 1])
            found.append(_solved(record, new, old, normals[old], relative[old], change, error))
    return found


def _place(record, line, known, places, groups):
    """Add the places of Jacobians on a line, and between which of them which bends lie, new and known ones."""
    index, bends = record.on_line(line), record.bends
    need = np.isnan(known[index, 0]) & ~np.isfinite(record.normal_errors[index])
    if not need.any():
        return
    edges = np.r_[record.lines.low[line], bends.t[index], record.lines.high[line]]
    width, here = np.diff(edges), int(np.flatnonzero(need)[0])
    cuts = [here]
    while need[here:].any():
        farthest = _farthest(record, index, need, here)
        next_one = here + int(np.flatnonzero(need[here:])[0]) + 1
        choice = np.arange(max(here + int(np.ceil(_NEARLY * (farthest - here))), next_one), max(farthest, next_one) + 1)
        here = int(choice[np.argmax(width[choice])])
        cuts.append(here)
    for g, (c, d) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        groups.append((len(places) + g, index[c:d][need[c:d]], index[c:d][~need[c:d]]))
    places.extend((line, 0.5 * (edges[c] + edges[c + 1]), 0.5 * width[c]) for c in cuts)


def _farthest(record, index, need, here):
    """The last gap up to which the bends from `here` on that need normals have independent jumps."""
    jumps = record.bends.jump[index]
    last = here + 1
    for k in range(here + 1, len(index) + 1):
        new = np.arange(here, k)[need[here:k]]
        if len(new) > 1:
            if len(new) > max(1, record.outputs.n_outputs - 1):
                break
            directions = jumps[new] / np.linalg.norm(jumps[new], axis=1, keepdims=True)
            if svd(directions, compute_uv=False)[-1] < _LEAST_SINE:
                break
        last = k
    return last


def _solved(record, new, old, old_normals, old_errors, change, error):
    """Indices, normals and relative errors of new bends between two Jacobians that differ by `change` (m_L, k)."""
    outputs, bends = record.outputs, record.bends
    jumps = bends.jump[new]
    inverse = lapack.pinv(jumps.T)
    normals = inverse @ change
    size = np.maximum(np.linalg.norm(normals, axis=1), TINY)
    of_old = bends.jump_error[old] + np.linalg.norm(bends.jump[old], axis=1) * old_errors
    spread = (of_old * np.linalg.norm(old_normals, axis=1)).sum()
    spread += (bends.jump_error[new] * size).sum() * (len(new) > 1)
    errors = np.linalg.norm(inverse, axis=1) * (error * outputs.length + spread) / size
    rest = np.linalg.norm(jumps.T @ normals - change) / max(np.linalg.norm(change), TINY)
    off = np.abs((normals * record.directions[new]).sum(axis=1) - 1.0) / size  # every normal has n . d = 1
    errors, usable = np.maximum(errors, rest), _NORMAL_ERRORS * outputs.loose_tol
    good = (off < SIGNIFICANCE * errors + outputs.exact_tol) & (errors < usable)
    return new[good], normals[good], np.maximum(errors, off)[good]
