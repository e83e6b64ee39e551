"""DeepProbe where units that were missed would show: none of them may be wrong before a network is called exact."""

from __future__ import annotations

import numpy as np

from .readout import spread_points
from .repair import Asked

__all__ = ["answers_where_units_show"]

_FAR = (1.0, 3.0, 6.0)  # distances along directions in which the units move most, in units of sqrt(D)
_BEYOND = (-1.0, 2.0)  # parts of the lines between two rows, on which there are points


def answers_where_units_show(probe, network, rows, n, rng):
    """DeepProbe along directions in which the units move, on the rarer sides of them, and along lines between rows.

    Trained networks move little in most directions, so that random points hardly reach the places where a rare unit
    changes its side.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
    rows : ndarray of shape (k, D)
        Inputs as they come; the points go on beyond them as far as they are apart.
    n : int
        About how many, a third of each kind.
    rng : numpy.random.RandomState

    Returns
    -------
    Asked

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    D, some = probe.n_inputs, n // 3
    along = rng.standard_normal((some, network.weights[0].shape[1])) @ network.weights[0].T
    along *= np.sqrt(D) * rng.choice(_FAR, (some, 1)) / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
    layers = list(zip(network.weights[:-1], network.biases[:-1], strict=True))
    rare = rng.permutation(spread_points(probe, layers, 0, rng))[:some]
    parts = [along, rare]
    if len(rows):
        one, other = (rows[rng.randint(len(rows), size=n - some - len(rare))] for _ in range(2))
        parts.append(one + rng.uniform(*_BEYOND, (len(one), 1)) * (other - one))
    X = probe.oracle.clip_to_range(np.concatenate(parts))
    return Asked(X, *probe.query(X))
