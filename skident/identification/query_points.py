"""Points that are queried: within the input range, held-out points, spheres, tangents of hyperplanes."""

import numpy as np

from skident.network import get_activation

_FIRST_RADIUS = 3e4  # first radius of the search for saturation, in units of sqrt(D) standard deviations


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


def samples_in_range(oracle, X):
    """Rows of X (n, D) within the oracle's input range; at least two."""
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


def evenly_spaced_rows(rows, n):
    """At most n of the rows (k, D), evenly spaced: sorted data have one class after the other."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), n)).astype(int)]


def held_out_points(rows, spread, rng, n, factor):
    """Standardized held-out points (n, D): rows of X, then Gaussian points around the center; only these if factor > 1.

    `spread` is the standard deviation of the Gaussian points; for `factor` see `Oracle.query_precise`.
    """
    rows = rows[:n] if factor == 1 else rows[:0]
    return np.concatenate([rows, factor * spread * rng.standard_normal((n - len(rows), rows.shape[1]))])


def must_stay_near_center(oracle, extractor, activation, widths, strategy):
    """Whether the search for saturation would leave the input range, so that Hessians must recover the first layer.

    ValueError if saturation is required, or derivatives at the center would leave the range.
    """
    hidden = get_activation(activation)
    far = _FIRST_RADIUS * np.sqrt(oracle.n_inputs)
    if oracle.reach >= far:
        return False
    needed = extractor.radius + 2.0 * oracle.step_size
    if not hidden.saturating:
        _check_margin(oracle, needed if hidden.smooth else 0.0)
        return False
    reach = f"input_range leaves {max(oracle.reach, 0.0):.3g} standard deviations around the center"
    reach += f", but the search for saturation queries up to {far:.2g} away"
    if strategy == "saturation" or extractor.first_layer == "saturation":
        raise ValueError(f"{reach}; use strategy='auto' and first_layer='auto', which stay near the center then.")
    _check_margin(oracle, 0.0 if widths is None else needed)
    return True


def _check_margin(oracle, needed):
    """Refuse a center whose distance from the border, in standard deviations, is too small for derivatives."""
    if oracle.reach >= needed:
        return
    low, high = oracle.input_range
    margin = np.minimum(oracle.center - low, high - oracle.center) / oracle.scale
    i = int(np.argmin(margin))
    if margin[i] < 0:
        where, need = "outside", ""
        remedy = "Pass only the rows of X inside it, X[((low <= X) & (X <= high)).all(1)]"
    else:
        where = f"{margin[i]:.2g} standard deviations from"
        need = f", and derivatives need {needed:.2g} standard deviations on every side"
        remedy = "Pass rows X around a center further inside"
    raise ValueError(
        f"the center is too near the border: input {i} is {oracle.center[i]:.4g} on average, {where} its input_range "
        f"({low[i]:.4g}, {high[i]:.4g}){need}. {remedy}, or check the units of input_range."
    )
