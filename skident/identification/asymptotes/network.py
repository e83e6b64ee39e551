"""One hidden layer of units that grow linearly, from corners on a far line, gradients between them, and signs."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack, svd
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .corners import FarLine, far_gradients, find_corners, rounding_far_out

__all__ = ["FARTHEST", "find_asymptotic_network"]

# Distances of lines, tried in turn, in units of sqrt(D) standard deviations. A line may hardly cross a unit's
# hyperplane; farther out wide corners are apart, nearer low ones are above rounding.
_RADII = (1e6, 1e6, 1e8, 1e5)
_ENDS = 3000.0  # of the line, in units of its distance: misses one unit in 5000
FARTHEST = 1.001 * max(_RADII) * _ENDS  # query, in units of _RADII, gradients included
_SHORTEST = 1e-4  # interval of the line, in units of its distance, that is not split any more
_NEAR = 100  # samples near the center that the network must explain
_UNEXPLAINED = 1e-3  # share of the outputs' standard deviation that may remain there: 1e-6 comes from the slopes
_RANK_ONE_TOL = 1e-4  # second singular value of a unit's jump of gradients, relative to the first
_SIGN_TOL = 1e-8  # accuracy of the linear part, relative to its terms
_KNOWN_SIGN_TOL = 100.0  # times that accuracy, if the signs are known


def find_asymptotic_network(oracle, activation, *, max_units, rng, callback=None):
    """A one-hidden-layer `FeedforwardNetwork` of standardized inputs, accurate to 1e-6 or so, from far outputs.

    Far from the center an activation that is constant on the left and of slope 1 on the right makes a unit two straight
    lines with a corner near its hyperplane. A line crosses every hyperplane: at the corner, the profile gives the
    unit's norm and bias (`fit_profile`), and the gradients before and after differ by ``v_k w_k^T``. Units with ``g(z)
    - g(-z) = z`` can be reflected; their signs follow from the linear part of the outputs.
    Queries up to 3e11 sqrt(D) from the center; outputs must be exact. ``callback(n_units)``. Raises NotIdentified if
    the outputs are not those of such units, some are parallel, or their signs are undetermined.
    """
    near = rng.standard_normal((_NEAR, oracle.n_inputs))
    outputs, failure = oracle(near), None
    for radius in np.sqrt(oracle.n_inputs) * np.array(_RADII):
        try:
            network = _along_line(oracle, activation, radius, max_units, rng)
        except NotIdentified as error:
            failure = error
            continue
        left = outputs - network(near)
        if callback is not None:
            callback(network.layer_widths[0])
        if np.all(left.std(axis=0) <= _UNEXPLAINED * outputs.std(axis=0)):
            return network.with_parameters(network.weights, [network.biases[0], left.mean(axis=0)])
        failure = NotIdentified(
            "profiles",
            "unexplained",
            f"{network.layer_widths[0]} units were detected far out, but they do not explain the outputs near the "
            "center: more than one hidden layer, or outputs that are clipped.",
        )
    raise failure


def _along_line(oracle, activation, radius, max_units, rng):
    """The network of the units on a random line, without output biases."""
    origin, direction = lapack.qr(rng.standard_normal((oracle.n_inputs, 2)))[0].T
    line = FarLine(oracle, radius * origin, direction, rounding_far_out(oracle, radius, rng))
    ends = (-_ENDS * radius, _ENDS * radius)
    corners = find_corners(line, ends, max_units, activation, _SHORTEST * radius)
    if not corners:
        raise NotIdentified("profiles", "linear", "no unit bends along a line far out.")
    weights, biases, outgoing, gradients = _units(line, corners, ends, rng)
    signs = _signs(weights, outgoing, gradients, corners)
    biases = [biases * signs, np.zeros(outgoing.shape[1])]
    return FeedforwardNetwork([weights * signs, outgoing], biases, activation, "identity")


def _units(line, corners, ends, rng):
    """Weights (D, m) oriented along the line, biases (m,), outgoing weights (m, m_L), gradients (m + 1, m_L, D)."""
    borders = np.array([ends[0], *(corner.position for corner, _ in corners), ends[1]])
    gradients = far_gradients(line, 0.5 * (borders[:-1] + borders[1:]), 0.25 * np.diff(borders), rng)
    weights, biases, outgoing = [], [], []
    for jump, (_, profile) in zip(np.diff(gradients, axis=0), corners, strict=True):
        U, sizes, Vt = svd(jump, full_matrices=False)
        if len(sizes) > 1 and sizes[1] > _RANK_ONE_TOL * sizes[0]:
            raise NotIdentified(
                "profiles", "crowded", "gradients before and after a corner differ by more than one unit."
            )
        across = Vt[0] @ line.direction
        norm = profile.slope / abs(across)
        w = np.sign(across) * norm * Vt[0]
        weights.append(w)
        outgoing.append(np.sign(across) * sizes[0] * U[:, 0] / norm)
        biases.append(-float(w @ line.at(np.array([profile.position]))[0]))
    return np.array(weights).T, np.array(biases), np.array(outgoing), gradients


def _signs(weights, outgoing, gradients, corners):
    """Signs (m,) of the units: those of their profiles, or those that leave no linear part."""
    known = np.array([profile.orientation for _, profile in corners])
    m = len(known)
    M = (outgoing.T[:, None] * weights).reshape(-1, m)
    target = (gradients[0] + gradients[-1]).ravel()
    tol = _SIGN_TOL * np.abs(M).max() * np.sqrt(m)
    if known.all():
        signs = known[None] if np.abs(M @ known - target).max() <= _KNOWN_SIGN_TOL * tol else np.empty((0, m))
    else:
        try:
            signs = solve_signs(M, target, tol)
        except UndecidedSignsError as error:
            raise NotIdentified(
                "profiles", "signs", f"{m} units were detected, but their signs are undetermined: {error}"
            ) from error
    if len(signs) != 1:
        raise NotIdentified(
            "profiles",
            "signs",
            f"{m} units were detected, but {len(signs)} choices of their signs explain the linear part "
            "of the outputs: with none, there is a linear part beside these units, or more than one hidden layer.",
        )
    return signs[0].astype(float)
