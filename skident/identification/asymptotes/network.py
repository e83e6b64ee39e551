"""One hidden layer of units that grow linearly: their bends on a line far out, gradients between them, their signs."""

from __future__ import annotations

import numpy as np

from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .bends import find_corners
from .far_outputs import FarLine, far_gradients, rounding_far_out

__all__ = ["FARTHEST", "find_asymptotic_network"]

# Of lines, in units of sqrt(D) standard deviations. A line may hardly cross a unit's hyperplane; wide bends are single
# farther out, faint ones above rounding nearer.
_RADII = (1e6, 1e6, 1e8, 1e5)
_ENDS = 3000.0  # of the line, in units of its distance from the centre
FARTHEST = 1.001 * max(_RADII) * _ENDS  # that is asked, in the same units, gradients included
_SHORTEST = 1e-4  # interval of the line, in units of its distance, that is not halved any more
_NEAR, _EXPLAINED = 100, 1e-3  # points near the centre, and the share of the answers' deviation that may be left there
_RANK_ONE = 1e-4  # second singular value of a unit's jump of gradients, relative to the first
_SIGNS = 1e-8  # accuracy of the linear part, relative to its terms


def find_asymptotic_network(oracle, activation, *, max_units, rng, callback=None):
    """A network with one hidden layer from the profiles of its units far out.

    Far from the centre an activation that is constant on the left and of slope 1 on the right makes a unit two straight
    lines with a bend near its hyperplane. A line crosses every hyperplane: where it bends, the profile gives the unit's
    length and shift (`fit_profile`), and the gradients before and after differ by ``v_k w_k^T``. Units for which ``g(z)
    - g(-z) = z`` can be turned round; which way they are follows from the linear part of the answers.

    Parameters
    ----------
    oracle : Oracle
        Asked up to 3e11 sqrt(D) from its centre; its answers must be exact.
    activation : Activation
    max_units : int
    rng : numpy.random.RandomState
    callback : callable, default=None
        ``callback(n_units)``.

    Returns
    -------
    FeedforwardNetwork
        Of standardised inputs; accurate to 1e-6 or so.

    Raises
    ------
    NotIdentified
        If the answers are not those of such units, some are parallel, or their signs are not found.
    """
    near = rng.standard_normal((_NEAR, oracle.n_inputs))
    answers, failure = oracle(near), None
    for radius in np.sqrt(oracle.n_inputs) * np.array(_RADII):
        try:
            network = _along_line(oracle, activation, radius, max_units, rng)
        except NotIdentified as error:
            failure = error
            continue
        left = answers - network(near)
        if callback is not None:
            callback(network.layer_widths[0])
        if np.all(left.std(axis=0) <= _EXPLAINED * answers.std(axis=0)):
            return network.with_parameters(network.weights, [network.biases[0], left.mean(axis=0)])
        failure = NotIdentified(
            "profiles",
            "unexplained",
            f"{network.layer_widths[0]} units were found far out, but they do not explain the answers near the centre: "
            "more than one hidden layer, or answers that are cut off.",
        )
    raise failure


def _along_line(oracle, activation, radius, max_units, rng):
    """The network whose units bend along a random line, without the shifts of its outputs."""
    origin, direction = np.linalg.qr(rng.standard_normal((oracle.n_inputs, 2)))[0].T
    line = FarLine(oracle, radius * origin, direction, rounding_far_out(oracle, radius, rng))
    ends = (-_ENDS * radius, _ENDS * radius)
    found = find_corners(line, ends, max_units, activation, _SHORTEST * radius)
    if not found:
        raise NotIdentified("profiles", "linear", "no unit bends along a line far out.")
    weights, shifts, outgoing, gradients = _units(line, found, ends, rng)
    signs = _orientations(weights, outgoing, gradients, found)
    biases = [shifts * signs, np.zeros(outgoing.shape[1])]
    return FeedforwardNetwork([weights * signs, outgoing], biases, activation, "identity")


def _units(line, found, ends, rng):
    """Weights (D, m) oriented along the line, shifts (m,), outgoing weights (m, m_L), gradients (m + 1, m_L, D)."""
    corners = np.array([bend.corner for bend, _ in found])
    borders = np.concatenate([[ends[0]], corners, [ends[1]]])
    gradients = far_gradients(line, 0.5 * (borders[:-1] + borders[1:]), 0.25 * np.diff(borders), rng)
    weights, shifts, outgoing = [], [], []
    for jump, (_, profile) in zip(np.diff(gradients, axis=0), found, strict=True):
        U, sizes, Vt = np.linalg.svd(jump, full_matrices=False)
        if len(sizes) > 1 and sizes[1] > _RANK_ONE * sizes[0]:
            raise NotIdentified(
                "profiles", "crowded", "gradients before and after a bend differ by more than one unit."
            )
        across = Vt[0] @ line.direction
        length = profile.sigma / abs(across)
        w = np.sign(across) * length * Vt[0]
        weights.append(w)
        outgoing.append(np.sign(across) * sizes[0] * U[:, 0] / length)
        shifts.append(-float(w @ line.at(np.array([profile.position]))[0]))
    return np.array(weights).T, np.array(shifts), np.array(outgoing), gradients


def _orientations(weights, outgoing, gradients, found):
    """Signs (m,) of the units: told by their profiles, or those for which nothing linear is left over."""
    told = np.array([profile.orientation for _, profile in found])
    M = (outgoing.T[:, None] * weights).reshape(-1, len(told))
    target = (gradients[0] + gradients[-1]).ravel()
    tol = _SIGNS * np.abs(M).max() * np.sqrt(len(told))
    if told.all():
        signs = told[None] if np.abs(M @ told - target).max() <= 100.0 * tol else np.empty((0, len(told)))
    else:
        try:
            signs = solve_signs(M, target, tol)
        except UndecidedSignsError as error:
            raise NotIdentified(
                "profiles", "signs", f"{len(told)} units were found, but not which way round they are: {error}"
            ) from error
    if len(signs) != 1:
        raise NotIdentified(
            "profiles",
            "signs",
            f"{len(told)} units were found, but {len(signs)} choices of their signs explain the linear part "
            "of the answers: with none, there is a linear part beside these units, or more than one hidden layer.",
        )
    return signs[0].astype(float)
