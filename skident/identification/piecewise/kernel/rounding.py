"""How exactly a piecewise linear black box answers; others are told by what they do instead."""

from __future__ import annotations

import numpy as np

from skident.oracle import NotIdentified

from ...query_points import query_block
from .output_error import Probe

__all__ = ["probe_of", "rounding_between_kinks"]

_TOLERANCE = 16.0  # roundings allowed for in a comparison
_DEVIATIONS = 3.0  # standard deviations of noise, likewise
_BOUND = 1.75  # and of the error of rounding, which has a largest value


def probe_of(oracle, rng, *, far=30.0):
    """The oracle as it is asked for kinks, with the error of its answers.

    Parameters
    ----------
    oracle : Oracle
        Its `accuracy` tells single precision, rounding and noise; where answers are exact, or logits, their rounding is
        measured.
    rng : numpy.random.RandomState
    far : float, default=30.0
        See `rounding_between_kinks`.

    Returns
    -------
    Probe

    Raises
    ------
    NotIdentified
        (a ValueError) If the answers are not piecewise linear up to their error.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.kernel.rounding import probe_of
    >>> probe = probe_of(Oracle(lambda X: np.maximum(X[:, 0], X[:, 1]), 2), np.random.RandomState(0))
    >>> print(probe.noise.max() < 1e-13)
    True
    """
    accuracy = oracle.accuracy
    if accuracy.exact or oracle.response == "predict_proba":
        return Probe(oracle, rounding_between_kinks(oracle, rng, far=far))
    if accuracy.kind == "noise":
        try:  # where kinks are dense, they look like noise
            return Probe(oracle, rounding_between_kinks(oracle, rng, far=far))
        except NotIdentified:
            pass
    margin = _BOUND if accuracy.kind == "decimals" else _DEVIATIONS
    noise = np.maximum(margin * accuracy.std, np.finfo(float).tiny)
    _refuse_bent_everywhere(oracle, noise, rng)
    return Probe(oracle, noise, exact=False)


def _refuse_bent_everywhere(oracle, noise, rng, n_windows=48):
    """An error if the answers bend by more than their noise in most windows that are as short as it allows."""
    D = oracle.n_inputs
    step = min(np.sqrt(100.0 * np.max(noise / oracle.accuracy.output_std)), 0.2)
    X, E = rng.standard_normal((2, n_windows, D))
    E *= step / np.linalg.norm(E, axis=1, keepdims=True)
    U = oracle.clip_to_range(X, min(step, 0.5 * max(oracle.reach, 0.0)))
    F = query_block(oracle, U[:, None] + np.array([-1.0, 0.0, 1.0])[:, None] * E[:, None])
    sag = np.max(np.abs(F[:, 0] - 2.0 * F[:, 1] + F[:, 2]) / noise, axis=1)
    if np.mean(sag > 4.0) > 0.75:
        raise NotIdentified(
            "activation boundaries",
            "smooth",
            f"the answers bend everywhere: in {np.mean(sag > 4.0):.0%} of all places by more than their noise over a "
            f"step of {step:.1e}. The black box is smooth, or has very many units; try activation='tanh', 'softplus' "
            "or 'gelu'.",
        )


def rounding_between_kinks(oracle, rng, *, n_windows=24, far=30.0):
    """Rounding error of piecewise linear answers, from second differences in small windows near the centre.

    Unlike `skident.oracle.measure_noise`, which wants smooth answers, it does not mind kinks, and it refuses answers
    that are anything but straight between them.

    Parameters
    ----------
    oracle : Oracle
    rng : numpy.random.RandomState
    n_windows : int, default=24
    far : float, default=30.0
        Where to look for rounding that shows away from the centre only, in standard deviations.

    Returns
    -------
    ndarray of shape (m_L,)
        Sixteen times the upper quartile of second differences, or the machine's rounding of the largest answer if that
        is larger.

    Raises
    ------
    NotIdentified
        (a ValueError) If the answers are not piecewise linear up to a relative 1e-11: `reason` is "smooth", "noisy" or
        "steps".

    Notes
    -----
    ``6 n_windows`` queries. Second differences of a smooth function fall with the square of the step, those of noise do
    not; a piecewise linear function has none in more than three quarters of the windows.
    """
    wide, narrow = 3e-4, 3e-6
    X, E = _windows(oracle, rng, n_windows)
    offsets = np.array([0.0, -wide, wide, -narrow, narrow])
    F = query_block(oracle, X[:, None] + offsets[:, None] * E[:, None])
    flat = np.all(F[:, 3:] == F[:, :1], axis=(1, 2))
    if flat.mean() > 0.5 and len(np.unique(F[flat, 0], axis=0)) > 2:
        raise NotIdentified(
            "activation boundaries",
            "steps",
            f"{flat.sum()} of {n_windows} answers do not change at all over a distance of {narrow:g} (in units of the "
            "inputs' scale), yet they differ from each other: they are rounded or saturated, or piecewise constant "
            "(a tree, nearest neighbours).",
        )
    # Kinks are in few windows; half of the second differences of rounded answers may be 0.
    coarse = np.quantile(np.abs(F[:, 1] - 2.0 * F[:, 0] + F[:, 2]), 0.75, axis=0)
    fine = np.quantile(np.abs(F[:, 3] - 2.0 * F[:, 0] + F[:, 4]), 0.75, axis=0)
    largest, spread = np.abs(F).max(axis=(0, 1)), np.ptp(F, axis=(0, 1))
    worst = int(np.argmax(coarse / np.maximum(spread, np.finfo(float).tiny)))
    if coarse[worst] > 1e-11 * spread[worst] + 4.0 * np.finfo(float).eps * largest[worst]:
        _refuse_curved(coarse[worst] / spread[worst], fine[worst] / spread[worst], wide, narrow)
    # Where the answers are flat near the centre, rounding shows farther out, and grows with the distance.
    if not oracle.restricted:
        largest = np.maximum(largest, np.abs(oracle(far * X)).max(axis=0) / far)
    noise = _TOLERANCE * np.maximum(coarse, np.finfo(float).eps * largest)
    return np.where(noise > 0, noise, 1.0)


def _windows(oracle, rng, n_windows):
    """Middles and directions of windows, (n, D) each: where answers are most precise, if they are not everywhere."""
    if not oracle.restricted:
        return rng.standard_normal((2, n_windows, oracle.n_inputs))
    X = oracle.clip_to_range(rng.standard_normal((8 * n_windows, oracle.n_inputs)), 1e-2)
    return X[np.argsort(oracle.query(X)[1], kind="stable")[:n_windows]], rng.standard_normal(
        (n_windows, oracle.n_inputs)
    )


def _refuse_curved(coarse, fine, wide, narrow):
    """An error that tells curvature, which falls with the square of the step, from noise and rounding."""
    expected = coarse * (narrow / wide) ** 2
    if fine < max(30.0 * expected, 1e-14) and (fine > 0.03 * expected or expected < 1e-15):
        raise NotIdentified(
            "activation boundaries",
            "smooth",
            f"the answers bend everywhere: second differences are mostly {coarse:.1e} of their spread over a "
            f"step of {wide:g}, {fine:.1e} over {narrow:g}. The black box is smooth, no ReLU network; try "
            "activation='tanh', 'softplus' or 'gelu'.",
        )
    raise NotIdentified(
        "activation boundaries",
        "noisy",
        f"second differences of the answers are {coarse:.1e} of their spread over a step of {wide:g} and {fine:.1e} "
        f"over {narrow:g}: noise or rounding of that size hides the kinks, which take answers exact to 1e-11. Ask the "
        "black box in float64, without rounding.",
    )
