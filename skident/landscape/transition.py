"""Where training starts to succeed from every start: sweeps of shallow networks, and their plot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from skident.datasets import make_planted_shallow
from skident.network import get_activation

from .batch_training import train_shallow_batch
from .half_point import fit_transition

__all__ = ["PhaseTransition", "phase_transition"]

_SIZES = ("n_samples", "n_features", "n_hidden")


@dataclass
class PhaseTransition:
    """What `phase_transition` found.

    Attributes
    ----------
    swept : {"n_samples", "n_features", "n_hidden"}
    values : ndarray of shape (m,)
    probabilities : ndarray of shape (m,)
        Share of the trials in which every start succeeded.
    start_rates : ndarray of shape (m,)
        Share of the single starts that did.
    n_trials : int
    half_point : float
        Where a logistic curve through `probabilities` is one half; nan if they are all 0 or all 1.
    interval : tuple of float
        95 % profile-likelihood interval of `half_point`.
    slope : float
        Of the curve's log-odds.
    settings : dict
        The other arguments: optimiser, threshold on the loss, steps.
    losses : ndarray of shape (m, n_trials, n_starts)
    """

    swept: str
    values: np.ndarray
    probabilities: np.ndarray
    start_rates: np.ndarray
    n_trials: int
    half_point: float
    interval: tuple
    slope: float
    settings: dict
    losses: np.ndarray = field(repr=False)


def phase_transition(
    n_samples,
    n_features,
    n_hidden,
    *,
    activation="softplus",
    sharpness=1.0,
    labels="planted",
    train_output=True,
    n_trials=10,
    n_starts=10,
    threshold=1e-8,
    max_iter=120,
    n_jobs=None,
    random_state=None,
):
    """How large a shallow network must be for training to succeed from every random start, Figures 2 and 3 of [1]_.

    At every value of the swept size, `n_trials` data sets are drawn by `make_planted_shallow` (planted network with
    output weights 1), and from `n_starts` random starts each a network of the same size is trained. A trial succeeds if
    all its starts end with a loss of at most `threshold`.

    Parameters
    ----------
    n_samples, n_features, n_hidden : int, one of them a sequence of ints
        n, d, k; the sequence is swept.
    activation : str or Activation, default="softplus"
        A smooth one, see :func:`skident.network.get_activation`.
    sharpness : float, default=1
        b of ``g(b z) / b``; [1]_ takes softplus with 10.
    labels : {"planted", "random"}, default="planted"
    train_output : bool, default=True
        Whether output weights are trained; they start at random signs, and stay there if not.
    n_trials, n_starts : int, default=10
    threshold : float, default=1e-8
        Of the loss ``1/(2n) sum r_i^2``.
    max_iter : int, default=120
        Levenberg-Marquardt steps a start.
    n_jobs : int, default=None
        joblib's, over the values; the trials and starts of a value are one batch.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    PhaseTransition

    Raises
    ------
    ValueError
        If not exactly one size is a sequence, or an argument is out of range.

    Notes
    -----
    Where the transition lies depends on the optimiser: Levenberg-Marquardt with 120 steps gives half-points near 11.4,
    11.5, 5.8 and 23.7 where [1]_ has 11.40, 10.70, 5.5 and 25.40 by gradient descent, whose steps and threshold are not
    given there. About a second a value for n = 100 and 100 starts.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022), Section 3.

    Examples
    --------
    >>> from skident.landscape import phase_transition
    >>> found = phase_transition(20, 8, [1, 2, 4, 6], activation="quadratic", n_trials=4, n_starts=3, random_state=0)
    >>> print(found.swept, 1 < found.half_point < 6)
    n_hidden True
    """
    sizes = (n_samples, n_features, n_hidden)
    swept = [name for name, size in zip(_SIZES, sizes) if isinstance(size, Iterable) and not isinstance(size, str)]
    if len(swept) != 1:
        raise ValueError(
            f"exactly one of n_samples, n_features, n_hidden must be a sequence, to be swept; got {swept or 'none'}."
        )
    values = list(sizes[_SIZES.index(swept[0])])
    fixed = {name: size for name, size in zip(_SIZES, sizes) if name != swept[0]}
    settings = {"activation": activation, "sharpness": sharpness, "labels": labels, "train_output": train_output}
    settings |= {"n_trials": n_trials, "n_starts": n_starts, "threshold": threshold, "max_iter": max_iter}
    _check(values, settings)
    seeds = check_random_state(random_state).randint(2**31 - 1, size=len(values))
    losses = Parallel(n_jobs=n_jobs)(
        delayed(_losses)({**fixed, swept[0]: value}, settings, seed) for value, seed in zip(values, seeds)
    )
    succeeded = np.array(losses) <= threshold
    counts = succeeded.all(axis=2).sum(axis=1)
    half, slope, interval = fit_transition(values, counts, np.full(len(values), n_trials))
    settings = {**fixed, **settings, "activation": get_activation(activation).name, "optimizer": "Levenberg-Marquardt"}
    return PhaseTransition(
        swept[0],
        np.array(values),
        counts / n_trials,
        succeeded.mean(axis=(1, 2)),
        n_trials,
        half,
        interval,
        slope,
        settings,
        np.array(losses),
    )


def _check(values, settings):
    if len(values) < 2:
        raise ValueError(f"a sweep needs at least two values, got {values}.")
    if not all(isinstance(value, Integral) and value >= 1 for value in values):
        raise ValueError(f"the values of a sweep must be integers >= 1, got {values}.")
    for name in ("n_trials", "n_starts", "max_iter"):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
    threshold = settings["threshold"]
    if not isinstance(threshold, Real) or not 0 < threshold < np.inf:
        raise ValueError(f"threshold must be a finite number > 0, got {threshold!r}.")
    g = get_activation(settings["activation"])
    if not g.smooth:
        raise ValueError(f"{g.name} has kinks, where Levenberg-Marquardt gets stuck; try softplus with sharpness=10.")


def _losses(sizes, settings, seed):
    """Losses (n_trials, n_starts) at one value of the swept size."""
    rng = np.random.RandomState(seed)
    options = {name: settings[name] for name in ("activation", "sharpness", "labels")}
    sets = [make_planted_shallow(**sizes, **options, random_state=rng) for _ in range(settings["n_trials"])]
    X, y = (np.stack(arrays) for arrays in zip(*sets))
    n_trials, n_starts, k, d = settings["n_trials"], settings["n_starts"], sizes["n_hidden"], sizes["n_features"]
    W = rng.standard_normal((n_trials * n_starts, k, d)) / np.sqrt(d)
    v = rng.choice([-1.0, 1.0], size=(n_trials * n_starts, k))
    g, b = get_activation(settings["activation"]), settings["sharpness"]

    def jet(z, order):
        value, slope = g.jet(b * z, 1)
        return value / b, slope

    batch = train_shallow_batch(
        X,
        y,
        W,
        v,
        jet,
        data=np.repeat(np.arange(n_trials), n_starts),
        train_output=settings["train_output"],
        max_iter=settings["max_iter"],
        target=settings["threshold"],
    )
    return batch.losses.reshape(n_trials, n_starts)
