"""Fits of the paper's sum form, eq. (1.1), by least squares from several starts."""

import copy
import dataclasses
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import torch

from skident.budget.constants import CHUNK_ENTRIES, DENSE_PARAMETERS, FULL_STEPS, MAX_LEVERAGE, RANGE_MARGIN
from skident.optim import best_of

from .degree_two import start_from_degree_two
from .layer_regression import RIDGES, regress_layers, regressable_layers
from .modules import QuadraticDenseNet
from .problem import Attempt, Fit, SolverOptions
from .scaling import robust_scaling
from .solvers import jacobian, set_trainable

# Relative losses, of weighted samples.
EXPLAINED = 1e-10  # below: the sum explains the data; far above rounding (1e-30), far below what noise leaves
_ALL_RECOVERED = 1e-20  # below: the layers added to a given start are recovered too, however small their alpha
_PROMISING = 1e-2  # below: hidden biases are trained as well; before, they slow the search down
_TARGET = 1e-26  # an attempt stops here: rounding of squares, 1e-32, times a few thousand for sums of degree 2^L
_REFIT_TARGET = 1e-28  # squared error per sample, in robust units, at which the last fit stops: rounding
# Samples per weight in the two phases of an attempt, and their least number: enough equations to determine the weights.
_SAMPLES_PER_WEIGHT = (6, 8)
_FEWEST_SAMPLES = 400  # per phase: steps on fewer samples cost no less time
# Budgets in steps of Levenberg-Marquardt.
_STEPS = (100, 150)  # of the two phases
_RESIDUAL_TOL = 1e-7  # largest residual relative to the robust scale: a tenth of the error that `exact_` promises
_SAME_SAMPLE = 1e-3  # standard deviations of the inputs within which samples count as repeated
_NULL_EIGENVALUE = 1e-12  # of the Gram matrix, relative to the largest: rounding of P = 3000 products, about 4000 eps


def fit_sum(problem, options, l2="auto", hopeless=None):
    """Fit the sum form, eq. (1.1), by least squares until one start explains the data.

    Targets of degree 2^L have heavy tails: a few samples carry most of the squared error, and a fit that follows them
    stalls. If the target is in the class, weights change the path and not the solution. Samples therefore have the
    weight ``(1 + |y - median| / (2 scale))^-1.5`` until the data are explained, and one if they cannot be. Each start
    trains the weights on a part of the samples, then hidden biases too; the best start is fitted to all samples.
    l2="auto" is zero; with a penalty all weights are one. Three starts above the relative loss `hopeless` end the
    search.
    """
    l2 = 0.0 if l2 == "auto" else float(l2)
    scaling = robust_scaling(problem.y)
    samples = _samples(problem, scaling, l2)
    done = EXPLAINED if problem.start is None else _ALL_RECOVERED

    def enough(losses):
        given_up = hopeless is not None and len(losses) > 2 and min(losses) > hopeless
        return losses[-1] < done or given_up

    starts = _starts(problem, options, samples, scaling, l2)
    attempts = (_attempt(problem, options, start, samples, l2) for start in starts)
    best, losses = best_of(attempts, attrgetter("loss"), enough)
    if not np.isfinite(best.loss):
        return Fit(best.module, best.initial, losses, best.history, l2=l2)
    return _refit(problem, options, best, losses, samples, scaling, l2)


def _samples(problem, scaling, l2):
    """Standardized samples with their weights."""
    y = scaling.standardized(problem.y)
    return problem.samples(y, torch.ones_like(y) if l2 else (1.0 + y.abs() / 2.0) ** -1.5)


def regressed_signs(problem):
    """Signs of all units in the sum by regression, for fits that begin elsewhere: no step changes them."""
    problem, scaling = dataclasses.replace(problem, rng=copy.deepcopy(problem.rng)), robust_scaling(problem.y)
    starts = _starts(problem, SolverOptions(n_starts=1), _samples(problem, scaling, 0.0), scaling, 0.0)
    return next(starts).module.all_signs


@dataclass(frozen=True)
class _Start:
    """An initial module, and whether all its weights are random."""

    number: int
    module: QuadraticDenseNet
    random: bool


def _starts(problem, options, samples, scaling, l2):
    """Starts from layer-by-layer regression if possible, else one from terms of degree two; then random ones.

    Every other random start has random signs: no step of a fit changes them. Regression is repeated with positive
    signs, the paper's form, if it gave others: small eigenvalues can be its error.
    """
    regressable = not l2 and bool(regressable_layers(problem, options))
    quadratic = not regressable and problem.start is None and 0 in problem.architecture.connections[0]
    regressions = [(ridge, signed) for ridge in RIDGES for signed in (True, False)] if regressable else []
    for k in range(options.n_starts):
        module = problem.build("sum", scaling)
        regressed = bool(regressions)
        if regressed:
            ridge, signed = regressions.pop(0)
            regress_layers(problem, options, module, samples, ridge, signed)
            if signed and bool((module.all_signs > 0).all()):
                regressions.pop(0)
        elif quadratic and k == 0:
            start_from_degree_two(module, samples)
        elif problem.start is None and k % 2 == 1:
            module.all_signs.copy_(torch.as_tensor(problem.rng.choice([-1.0, 1.0], len(module.all_signs))))
        yield _Start(k + 1, module, problem.start is None and not regressed)


def _attempt(problem, options, start, samples, l2):
    """Train the weights on a part of the samples and, if the loss is promising, the hidden biases too."""
    initial, history, loss, converged = copy.deepcopy(start.module), [], float("inf"), True
    phases = list(zip(({"weights", "offset"}, {"weights", "biases", "offset"}), _SAMPLES_PER_WEIGHT, _STEPS))
    # A given start includes its biases: without training them, a new layer would compensate for them.
    for kinds, n_per_weight, usual in phases if start.random else phases[1:]:
        subset = samples.first(max(n_per_weight * problem.architecture.n_weights, _FEWEST_SAMPLES))
        set_trainable(start.module, kinds=kinds, fixed=problem.fixed)
        scale = float((subset.w * (subset.y - subset.y.mean())).square().sum())
        result = options.minimize(
            start.module,
            subset,
            l2=l2,
            max_iter=options.n_steps(usual),
            target=_TARGET * scale,
            patience=options.patience,
        )
        loss, converged = result.cost / scale, result.status != "max_iter"
        history += [cost / scale for cost in result.history]
        if not loss < _PROMISING or l2:
            break
    options.log.say(f"start {start.number}: relative loss {loss:.2e}")
    return Attempt(start.module, initial, loss, history, converged)


def _refit(problem, options, best, losses, samples, scaling, l2):
    """The best start fitted to all samples; loss, exactness and convergence are those of this last fit.

    The error on new samples is that of generalized cross-validation.
    """
    explained, module = best.loss < EXPLAINED, best.module
    set_trainable(module, fixed=problem.fixed)
    result = options.minimize(
        module,
        samples if explained else problem.samples(samples.y),
        l2=l2,
        max_iter=options.n_steps(FULL_STEPS),
        target=_REFIT_TARGET * len(samples.y),
        patience=options.patience,
    )
    variance = float(problem.mean((samples.y - problem.mean(samples.y)) ** 2))
    with torch.no_grad():
        relative = float(problem.mean((module(samples.x) - samples.y) ** 2)) / variance
    losses[int(np.argmin(losses))] = relative
    n, P = len(samples.y), problem.architecture.n_weights
    exact = n > P and relative < EXPLAINED and is_exact(module, samples)
    return Fit(
        scaling.to_original_(module),
        scaling.to_original_(best.initial),
        losses,
        [*best.history, *[cost / (n * variance) for cost in result.history]],
        result.status != "max_iter",
        loss=relative,
        exact=exact,
        margin=None if exact else RANGE_MARGIN,
        error=relative / (1.0 - P / n) ** 2 if n > P else float("inf"),
        l2=l2,
    )


@torch.no_grad()
def is_exact(module, samples):
    """Whether every sample is predicted to rounding, also with the parameters that the other samples determine.

    A polynomial with enough weights fits any few samples. A sample with residual r and leverage h therefore counts with
    its leave-one-out residual ``r / (1 - h)`` (to first order); a sample with leverage near one is no evidence, and
    repeated samples count as one. `samples` are in robust units, one output. False above 3000 parameters, which are not
    tested.
    """
    size = 1.0 + samples.y.abs()[:, 0]
    residuals = (module(samples.x) - samples.y).abs()[:, 0] / size
    if not float(residuals.max()) <= _RESIDUAL_TOL or sum(p.numel() for _, p in module.blocks()) > DENSE_PARAMETERS:
        return False
    groups = np.unique(np.round(samples.x.cpu().numpy() / _SAME_SAMPLE), axis=0, return_inverse=True)[1].reshape(-1)
    leverage = np.bincount(groups, leverages(module, samples.x).cpu().numpy())[groups]
    slack = np.maximum(1.0 - leverage, 0.0)
    return bool((leverage <= MAX_LEVERAGE).all() and (residuals.cpu().numpy() <= _RESIDUAL_TOL * slack).all())


def leverages(module, x):
    """Leverages (n,) in the linearized least squares problem of all parameters; O(n P^2 + P^3) for P parameters.

    Every sample's gradient is scaled to norm one, or a few large targets of high degree would take all leverage.
    Directions in which the outputs are constant, such as rotations of the last layer, do not contribute.
    """
    blocks = module.blocks()
    chunk = max(1, CHUNK_ENTRIES // sum(p.numel() for _, p in blocks))

    def gradients():
        for part in x.split(chunk):
            J = jacobian(module, blocks, part)[1][0]
            yield J / torch.linalg.vector_norm(J, dim=1, keepdim=True)  # the offset's derivative is one

    gram = sum(J.T @ J for J in gradients())
    scale = gram.diagonal().clamp(min=torch.finfo(x.dtype).tiny).sqrt()
    values, vectors = torch.linalg.eigh(gram / torch.outer(scale, scale))
    kept = values > _NULL_EIGENVALUE * values[-1]
    root = vectors[:, kept] / (scale[:, None] * values[kept].sqrt())
    return torch.cat([((J @ root) ** 2).sum(dim=1) for J in gradients()])
