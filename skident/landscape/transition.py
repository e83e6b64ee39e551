"""Where training starts to succeed from every start: sweeps of the sizes of shallow networks."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skident.datasets import make_planted_shallow
from skident.network import get_activation
from skident.optim import in_order

from .batch_training import TRAINING, train_shallow_batch
from .half_point import fit_transition

__all__ = ["PhaseTransition", "TrainingTrials", "phase_transition"]


@dataclass(frozen=True)
class TrainingTrials:
    """What is tried at every size: how many data sets and starts, on which labels, how long.

    Attributes
    ----------
    n_trials, n_starts : int, default=10
        Data sets a size, random starts a data set.
    labels : {"planted", "random"}, default="planted"
        Of a random network of the same size, or standard normal.
    train_output : bool, default=True
        Whether output weights are trained; they start at random signs, and stay there if not.
    threshold : float, default=1e-8
        Of the loss ``1/(2n) sum r_i^2``: a start that reaches it has succeeded.
    max_iter : int, default=120
        Levenberg-Marquardt steps a start.

    Raises
    ------
    ValueError
        If a number is not a positive integer, or the threshold not positive and finite.
    """

    n_trials: int = 10
    n_starts: int = 10
    labels: str = "planted"
    train_output: bool = True
    threshold: float = 1e-8
    max_iter: int = 120

    def __post_init__(self):
        for name in ("n_trials", "n_starts", "max_iter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
        if not isinstance(self.threshold, Real) or not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be a finite number > 0, got {self.threshold!r}.")


_USUAL = TrainingTrials()


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
        What it was made with: the sizes that were not swept, activation, sharpness, optimizer, and all of
        `TrainingTrials`.
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
    trials=_USUAL,
    n_jobs=None,
    random_state=None,
):
    """How large a shallow network must be for training to succeed from every random start, Figures 2 and 3 of [1]_.

    At every value of the swept size data sets are drawn by `make_planted_shallow` (planted network with output weights
    1), and from several random starts each a network of the same size is trained. A trial, that is a data set, succeeds
    if all its starts end with a loss of at most `trials.threshold`.

    Parameters
    ----------
    n_samples, n_features, n_hidden : int, one of them a sequence of ints
        n, d, k; the sequence is swept.
    activation : str or Activation, default="softplus"
        A smooth one, see :func:`skident.network.get_activation`.
    sharpness : float, default=1
        b of ``g(b z) / b``; [1]_ takes softplus with 10.
    trials : TrainingTrials, default=TrainingTrials()
        Ten data sets a size with ten starts each, planted labels, 120 steps.
    n_jobs : int, default=None
        joblib's, over the values, which does not change the result; the trials and starts of a value are one batch.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    PhaseTransition

    Raises
    ------
    ValueError
        If not exactly one size is a sequence, of two or more positive integers, if another argument is out of range, or
        if the activation has kinks.

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
    >>> from skident.landscape import TrainingTrials, phase_transition
    >>> trials = TrainingTrials(n_trials=4, n_starts=3)
    >>> found = phase_transition(20, 8, [1, 2, 4, 6], activation="quadratic", trials=trials, random_state=0)
    >>> print(found.swept, 1 < found.half_point < 6)
    n_hidden True
    """
    swept, values, fixed = _sweep({"n_samples": n_samples, "n_features": n_features, "n_hidden": n_hidden})
    g = get_activation(activation)
    if not g.smooth:
        raise ValueError(f"{g.name} has kinks, where Levenberg-Marquardt gets stuck; try softplus with sharpness=10.")
    seeds = check_random_state(random_state).randint(2**31 - 1, size=len(values))
    at_value = functools.partial(_losses, activation=activation, sharpness=sharpness, trials=trials)
    sizes = [{**fixed, swept: value} for value in values]
    losses = list(in_order(at_value, zip(sizes, seeds), n_jobs))
    succeeded = np.array(losses) <= trials.threshold
    counts = succeeded.all(axis=2).sum(axis=1)
    half, slope, interval = fit_transition(values, counts, np.full(len(values), trials.n_trials))
    settings = {"activation": g.name, "sharpness": sharpness, "optimizer": "Levenberg-Marquardt", **asdict(trials)}
    return PhaseTransition(
        swept=swept,
        values=np.array(values),
        probabilities=counts / trials.n_trials,
        start_rates=succeeded.mean(axis=(1, 2)),
        n_trials=trials.n_trials,
        half_point=half,
        interval=interval,
        slope=slope,
        settings={**fixed, **settings},
        losses=np.array(losses),
    )


def _sweep(sizes):
    """Name of the one size that is a sequence, its values, and the other sizes by name."""
    swept = [name for name, size in sizes.items() if isinstance(size, Iterable) and not isinstance(size, str)]
    if len(swept) != 1:
        raise ValueError(
            f"exactly one of n_samples, n_features, n_hidden must be a sequence, to be swept; got {swept or 'none'}."
        )
    values = list(sizes[swept[0]])
    if len(values) < 2:
        raise ValueError(f"a sweep needs at least two values, got {values}.")
    if not all(isinstance(value, Integral) and value >= 1 for value in values):
        raise ValueError(f"the values of a sweep must be integers >= 1, got {values}.")
    return swept[0], values, {name: size for name, size in sizes.items() if name != swept[0]}


def _losses(sizes, seed, *, activation, sharpness, trials):
    """Losses (n_trials, n_starts) at one value of the swept size."""
    rng, options = np.random.RandomState(seed), {"activation": activation, "sharpness": sharpness}
    sets = [
        make_planted_shallow(**sizes, **options, labels=trials.labels, random_state=rng) for _ in range(trials.n_trials)
    ]
    X, y = (np.stack(arrays) for arrays in zip(*sets))
    n_trials, n_starts, k, d = trials.n_trials, trials.n_starts, sizes["n_hidden"], sizes["n_features"]
    W = rng.standard_normal((n_trials * n_starts, k, d)) / np.sqrt(d)
    v = rng.choice([-1.0, 1.0], size=(n_trials * n_starts, k))
    g = get_activation(activation)

    def jet(z, order):
        value, slope = g.jet(sharpness * z, 1)
        return value / sharpness, slope

    batch = train_shallow_batch(
        X,
        y,
        W,
        v,
        jet,
        data=np.repeat(np.arange(n_trials), n_starts),
        train_output=trials.train_output,
        ending=replace(TRAINING, max_iter=trials.max_iter, target=trials.threshold),
    )
    return batch.losses.reshape(n_trials, n_starts)
