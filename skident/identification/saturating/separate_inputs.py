"""First layers whose units read separate groups of inputs, as the gates of a recurrent network read its steps."""

import numpy as np

_SHARE_OUTSIDE = 1e-4  # share of a unit's squared weights outside its step, that errors of the weights explain
_FEWEST = 2  # inputs of a step, and units per step on average: early steps may show few units


def steps_of_sequence(weights):
    """Number of steps of equal length into which the inputs of first-layer weights (D, m) divide; None if none.

    Every unit reads one step alone, and every step has a unit. Far out, the gates of a recurrent network do so: its
    state is bounded there, and the inputs of each step decide.
    """
    D = len(weights)
    V = weights / np.maximum(np.linalg.norm(weights, axis=0), np.finfo(float).tiny)
    for n_steps in (n for n in range(D // _FEWEST, 1, -1) if D % n == 0):
        shares = np.sum(V.reshape(n_steps, D // n_steps, -1) ** 2, axis=1)
        units = np.bincount(shares.argmax(axis=0), minlength=n_steps)
        if shares.max(axis=0).min() > 1.0 - _SHARE_OUTSIDE and units.min() >= 1 and units.mean() >= _FEWEST:
            return n_steps
    return None
