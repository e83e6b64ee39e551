"""Phase transition of training: the size at which a shallow network trains successfully from every start."""

import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral, Real

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit
from sklearn.utils import check_random_state

from skident.datasets import make_planted_shallow
from skident.network import get_activation
from skident.optim import Ending, batched_levenberg_marquardt, in_order

# Half the 95 % quantile of chi-squared with one degree of freedom: the drop of the log-likelihood at an interval's end.
_DROP = 1.920729
TRAINING = Ending(max_iter=300, target=1e-8, damping=1e-2, max_damping=1e12)


def fit_transition(x, successes, trials):
    """Fit ``p(x) = 1 / (1 + exp(-slope (x - half)))`` to counts: half, slope, and 95 % interval of half.

    The likelihood is penalized by Jeffreys' prior (Firth), so that a jump from none to all has a finite slope. The
    interval is by profile likelihood; an end is infinite if the data do not determine it. nan if all trials succeeded
    or all failed.
    """
    x, successes, trials = (np.asarray(a, dtype=np.float64) for a in (x, successes, trials))
    if successes.sum() in (0.0, trials.sum()):
        # Only one side of the transition is in the data, and not which.
        return np.nan, np.nan, (-np.inf, np.inf)
    span = max(float(np.ptp(x)), 1e-12)
    center = np.average(x, weights=trials)
    sign = 1.0 if np.sum((x - center) * successes) >= 0 else -1.0

    def likelihood(half):
        """The penalized log-likelihood at its best slope, and that slope."""
        found = minimize_scalar(
            lambda b: -_penalized_likelihood(x, successes, trials, half, sign * np.exp(b)),
            bounds=(np.log(1e-3 / span), np.log(1e4 / span)),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return -found.fun, sign * float(np.exp(found.x))

    grid = np.linspace(x.min() - 0.5 * span, x.max() + 0.5 * span, 41)
    start = int(np.argmax([likelihood(half)[0] for half in grid]))
    low, high = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
    half = float(
        minimize_scalar(lambda h: -likelihood(h)[0], bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x
    )
    best, slope = likelihood(half)
    ends = [_crossing(lambda h: likelihood(h)[0] - best + _DROP, half, side, span) for side in (-1.0, 1.0)]
    return half, slope, (ends[0], ends[1])


def _penalized_likelihood(x, successes, trials, half, slope):
    """Binomial log-likelihood plus half the logarithm of the determinant of its information."""
    z = slope * (x - half)
    likelihood = np.sum(successes * z - trials * np.logaddexp(0.0, z))
    weights = trials * expit(z) * expit(-z)
    information = np.sum(weights) * np.sum(weights * x * x) - np.sum(weights * x) ** 2
    return float(likelihood + 0.5 * np.log(max(information, 1e-300)))


def _crossing(f, start, side, span):
    """Where f falls through zero on one side of a point; infinite if not within three spans."""
    inner = start
    for step in span * np.geomspace(0.01, 3.0, 20):
        outer = start + side * step
        if f(outer) < 0:
            return float(brentq(f, inner, outer, xtol=1e-6))
        inner = outer
    return float(side * np.inf)


@dataclass(frozen=True)
class TrainingTrials:
    """The trials per size: numbers of data sets and starts, labels, budget.

    Attributes
    ----------
    n_trials, n_starts : int, default=10
        Data sets per size, random starts per data set.
    labels : {"planted", "random"}, default="planted"
        Of a random network of the same size, or standard normal.
    train_output : bool, default=True
        Whether output weights are trained; they are initialized by random signs.
    threshold : float, default=1e-8
        Of the loss ``1/(2n) sum r_i^2``: a start that reaches it has succeeded.
    max_iter : int, default=120
        Levenberg-Marquardt steps per start.

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
    """Success probabilities over a sweep of sizes, and the size at which they cross one half.

    Attributes
    ----------
    swept : {"n_samples", "n_features", "n_hidden"}
    values : ndarray of shape (m,)
    probabilities : ndarray of shape (m,)
        Fraction of trials in which every start succeeded.
    start_rates : ndarray of shape (m,)
        Fraction of single starts that succeeded.
    n_trials : int
    half_point : float
        Where a logistic curve through `probabilities` is one half; nan if they are all 0 or all 1.
    interval : tuple of float
        95 % profile-likelihood interval of `half_point`.
    slope : float
        Of the curve's log-odds.
    settings : dict
        The sizes that were not swept, activation, sharpness, optimizer, and all of `TrainingTrials`.
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
    """Estimate the size at which a shallow network trains successfully from every start, Figures 2 and 3 of [1]_.

    At each value of the swept size data sets are drawn by `make_planted_shallow` (planted network with output weights
    1), and from several random starts each a network of the same size is trained. A trial, that is a data set, succeeds
    if all its starts end with a loss of at most `trials.threshold`.

    Parameters
    ----------
    n_samples, n_features, n_hidden : int, one of them a sequence of ints
        n, d, k; the sequence is swept.
    activation : str or Activation, default="softplus"
        A smooth one, see :func:`skident.network.get_activation`.
    sharpness : float, default=1
        b of ``g(b z) / b``; [1]_ uses softplus with 10.
    trials : TrainingTrials, default=TrainingTrials()
        Ten data sets per size with ten starts each, planted labels, 120 steps.
    n_jobs : int, default=None
        joblib's, over the values; it does not change the result. The trials and starts of a value are one batch.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    PhaseTransition

    Raises
    ------
    ValueError
        If not exactly one size is a sequence, of two or more positive integers, if another argument is out of range, or
        if the activation is not smooth.

    Notes
    -----
    The transition depends on the optimizer: Levenberg-Marquardt with 120 steps gives half-points near 11.4, 11.5, 5.8
    and 23.7, and [1]_ has 11.40, 10.70, 5.5 and 25.40 by gradient descent with unstated steps and threshold. About a
    second per value for n = 100 and 100 starts.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022), Section 3.

    Examples
    --------
    >>> from skident.landscape import TrainingTrials, phase_transition
    >>> trials = TrainingTrials(n_trials=4, n_starts=3)
    >>> result = phase_transition(
    ...     20, 8, [1, 2, 4, 6], activation="quadratic", trials=trials, random_state=0
    ... )
    >>> print(result.swept, 1 < result.half_point < 6)
    n_hidden True
    """
    swept, values, fixed = _sweep({"n_samples": n_samples, "n_features": n_features, "n_hidden": n_hidden})
    g = get_activation(activation)
    if not g.smooth:
        raise ValueError(f"{g.name} is not smooth: Levenberg-Marquardt stalls; try softplus with sharpness=10.")
    seeds = check_random_state(random_state).randint(2**31 - 1, size=len(values))
    at_value = functools.partial(_losses, activation=activation, sharpness=sharpness, trials=trials)
    sizes = [{**fixed, swept: value} for value in values]
    losses = np.array(list(in_order(at_value, zip(sizes, seeds), n_jobs)))
    settings = {"activation": g.name, "sharpness": sharpness, "optimizer": "Levenberg-Marquardt", **asdict(trials)}
    return _transition(swept, values, losses, trials, {**fixed, **settings})


def _transition(swept, values, losses, trials, settings):
    """The `PhaseTransition` of losses (m, n_trials, n_starts)."""
    succeeded = losses <= trials.threshold
    counts = succeeded.all(axis=2).sum(axis=1)
    half, slope, interval = fit_transition(values, counts, np.full(len(values), trials.n_trials))
    return PhaseTransition(
        swept=swept,
        values=np.array(values),
        probabilities=counts / trials.n_trials,
        start_rates=succeeded.mean(axis=(1, 2)),
        n_trials=trials.n_trials,
        half_point=half,
        interval=interval,
        slope=slope,
        settings=settings,
        losses=losses,
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
    return batch.cost.reshape(n_trials, n_starts)


def train_shallow_batch(X, y, W, v, jet, *, data=None, train_output=True, ending=None):
    """Minimize ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` from many starts, on many data sets.

    Starts W (B, k, d), v (B, k); data sets X (E, n, d), y (E, n). ``jet(z, 1)`` returns g and g'; `data` (B,) is the
    data set of each start, None is one start per data set. v is fixed unless `train_output`. The damping of `ending` is
    relative to the mean eigenvalue of ``J J^T`` at the start. The `BatchedResult` has x (B, k, d + 1), W beside v, and
    as costs the losses.

    With n samples and Jacobian J, the damped step is ``-J^T (J J^T + mu)^-1 r``, and ``J J^T`` is ``(A A^T) * (X X^T) +
    g g^T`` with ``A = v g'``: J itself is never formed. O(n^2 (k + d) + n^3) per step and network, in batched products;
    networks that have ended are removed. Suited to networks with about as many parameters as samples, which is where
    phase transitions occur.
    """
    data = np.arange(len(W)) if data is None else np.asarray(data)
    ending = TRAINING if ending is None else ending
    x = np.concatenate([W, np.asarray(v)[..., None]], axis=2, dtype=np.float64)
    gram = X @ X.transpose(0, 2, 1)
    problems = _Networks((X[data], y[data], gram[data], np.ones(len(x))), jet, train_output)
    problems.unit[:] = problems.linearize(x).size
    return batched_levenberg_marquardt(problems, x, ending)


class _Networks:
    """Networks ``x = (W, v)`` (B, k, d + 1) as a batch of least squares problems.

    `arrays` are the inputs, targets and Gram matrix of the data set of each, and the unit of its damping.
    """

    def __init__(self, arrays, jet, train_output):
        self.arrays, self.jet, self.train_output = arrays, jet, train_output
        self.X, self.y, self.gram, self.unit = arrays

    def take(self, index):
        return _Networks(tuple(array[index] for array in self.arrays), self.jet, self.train_output)

    def units(self, x):
        """Residuals (B, n), values and slopes of the units (B, n, k)."""
        g, slope = self.jet(self.X @ x[..., :-1].transpose(0, 2, 1), 1)
        return np.einsum("bnk,bk->bn", g, x[..., -1]) - self.y, g, slope

    def cost(self, x):
        with np.errstate(over="ignore", invalid="ignore"):
            return 0.5 * np.mean(self.units(x)[0] ** 2, axis=1)

    def linearize(self, x):
        residual, g, slope = self.units(x)
        return _RowModel(self, residual, g, slope * x[..., None, :, -1])


class _RowModel:
    """Linear models solved with ``J J^T`` (order n) instead of ``J^T J``."""

    def __init__(self, problems, residual, g, A):
        self.problems, self.residual, self.g, self.A = problems, residual, g, A
        self.K = (A @ A.transpose(0, 2, 1)) * problems.gram
        if problems.train_output:
            self.K += g @ g.transpose(0, 2, 1)
        self.size = np.maximum(np.einsum("bii->b", self.K) / self.K.shape[1], 1e-300)

    def solve(self, damping):
        # Never so small that rounding decides, which for a singular K would be a random step.
        damping = np.maximum(damping * self.problems.unit, 1e-13 * self.size)
        K = self.K.copy()
        np.einsum("bii->bi", K)[...] += damping[:, None]
        s = -np.linalg.solve(K, self.residual[..., None])[..., 0]
        step_W = (self.A * s[..., None]).transpose(0, 2, 1) @ self.problems.X
        trained = self.problems.train_output
        step_v = np.einsum("bnk,bn->bk", self.g, s) if trained else np.zeros(step_W.shape[:2])
        # The linear model leaves r + J step = -damping s.
        predicted = 0.5 * np.mean(self.residual**2 - (damping[:, None] * s) ** 2, axis=1)
        return np.concatenate([step_W, step_v[..., None]], axis=2), predicted
