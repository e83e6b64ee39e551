"""Points at which a model may be queried: input range, held-out points, spheres, tangents of hyperplanes."""

from __future__ import annotations

import numpy as np

from skident.network import get_activation

__all__ = [
    "held_out_points",
    "must_stay_near_center",
    "query_block",
    "random_sphere",
    "random_tangents",
    "samples_in_range",
    "spaced",
    "unit_rows",
]


def unit_rows(V):
    """The rows of V (n, D) as unit vectors; zero for a row of zeros."""
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return V / np.where(norms > 0, norms, 1.0)


def random_sphere(n_samples, n_features, radius, rng):
    """Points (n, D), uniform on the sphere of the given radius."""
    X = rng.standard_normal((n_samples, n_features))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def random_tangents(normals, lengths, rng):
    """One random vector (..., D) in each hyperplane with unit normals (..., D), of given lengths (..., 1)."""
    V = rng.standard_normal(normals.shape)
    V -= np.sum(V * normals, axis=-1, keepdims=True) * normals
    return lengths * V / np.linalg.norm(V, axis=-1, keepdims=True)


def query_block(query, U):
    """Outputs (..., m_L) of ``query: (n, D) -> (n, m_L)`` at a block of points (..., D), in one call."""
    Y = query(U.reshape(-1, U.shape[-1]))
    return Y.reshape(*U.shape[:-1], Y.shape[-1])


_FIRST_RADIUS = 3e4  # of the search for saturation, in units of sqrt(D) standard deviations


def samples_in_range(oracle, X):
    """The rows of X that may be asked.

    Parameters
    ----------
    oracle : Oracle
    X : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (k, D)

    Raises
    ------
    ValueError
        If there are fewer than two.
    """
    if oracle.input_range is None:
        return X
    low, high = oracle.input_range
    inside = np.all((low <= X) & (high >= X), axis=1)
    if inside.sum() < 2:
        raise ValueError(
            f"only {inside.sum()} of the {len(X)} rows of X lie inside input_range; at least 2 are needed. Both are in "
            "the black box's own units."
        )
    return X[inside]


def spaced(rows, n):
    """At most n rows, evenly spaced: the classes of sorted data come one after the other.

    Parameters
    ----------
    rows : ndarray of shape (k, D)
    n : int

    Returns
    -------
    ndarray of shape (min(k, n), D)
    """
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), n)).astype(int)]


def held_out_points(rows, spread, rng, n, factor):
    """Rows of the last look: those of X, the others around the centre; further out, only the latter.

    Parameters
    ----------
    rows : ndarray of shape (k, D)
        Standardised rows of X.
    spread : float
        Of the others, in standard deviations.
    rng : numpy.random.RandomState
    n : int
        Rows wanted.
    factor : float
        How much further out, see `Oracle.query_precise`.

    Returns
    -------
    ndarray of shape (n, D)
    """
    rows = rows[:n] if factor == 1 else rows[:0]
    return np.concatenate([rows, factor * spread * rng.standard_normal((n - len(rows), rows.shape[1]))])


def must_stay_near_center(oracle, extractor, activation, widths, strategy):
    """Whether the search for saturation would leave the range, so that the first layer has to come from Hessians.

    Parameters
    ----------
    oracle : Oracle
    extractor : EntangledWeightExtractor
        Its radius, steps and first-layer method count.
    activation : str
        Of the hidden layers.
    widths : tuple of int or None
    strategy : {"auto", "saturation", "hessian"}

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        If saturation is insisted on, nothing else can find the width, or the centre has no room for derivatives.
    """
    hidden = get_activation(activation)
    far = _FIRST_RADIUS * np.sqrt(oracle.n_inputs)
    if oracle.reach >= far:
        return False
    needed = extractor.radius + 2.0 * extractor.step_size
    if not hidden.saturating:
        _check_room(oracle, needed if hidden.smooth else 0.0)
        return False
    seen = f"input_range leaves {max(oracle.reach, 0.0):.3g} standard deviations around the centre"
    seen += f", but the search for saturation asks up to {far:.2g} away"
    if strategy == "saturation" or extractor.first_layer == "saturation":
        raise ValueError(f"{seen}; use strategy='auto' and first_layer='auto', which stay near the centre then.")
    if widths is None:
        raise ValueError(f"{seen}, and only it can count units; give layer_widths.")
    _check_room(oracle, needed)
    return True


def _check_room(oracle, needed):
    """Derivatives at the centre need points this far from it, in standard deviations."""
    if oracle.reach >= needed:
        return
    low, high = oracle.input_range
    room = np.minimum(oracle.center - low, high - oracle.center) / oracle.scale
    i = int(np.argmin(room))
    where = f"{room[i]:.2g} standard deviations from" if room[i] >= 0 else "outside"
    raise ValueError(
        f"the centre is too near the border: input {i} is {oracle.center[i]:.4g}, {where} its input_range "
        f"({low[i]:.4g}, {high[i]:.4g}), and derivatives need {needed:.2g} standard deviations on every side. "
        "Give a centre further inside, extractor=EntangledWeightExtractor(center=...), or check the units of "
        "input_range."
    )
