"""One comparison for all estimators of tables: linear and kernel models and boosting on the same held-out samples."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning

from skident.budget.constants import FEWEST_COMPARED, LARGEST_ORDER, N_FOLDS, SCORE_ERRORS, TINY

from .kernel_reference import is_significantly_better, kernel_residuals
from .linear_reference import logistic_errors

_FEWEST_OF_TREES = 100  # below, none with boosting: leaves of 20 samples are a fifth of them
_BOOSTING = {"learning_rate": 0.2, "max_iter": 60, "random_state": 0}  # 60 trees at twice the usual rate (budget)
_OUTPUTS_OF_TREES = 10  # of boosting, which grows trees for each (budget)
_GAIN = 0.015  # of R^2 or accuracy by which a model must be better: differences of 0.02 are to be named (tables.better)
_POSSIBLE_ERRORS = 0.5  # standard errors of the paired difference for a warning: a false alarm costs one more fit

_CALLS = {  # for numbers and for labels
    "a linear model": ("sklearn.linear_model.RidgeCV()", "sklearn.linear_model.LogisticRegression()"),
    "ridge regression on terms of degree two": ("QuadraticNetRegressor()", "QuadraticNetClassifier()"),
    "a kernel": ("sklearn.svm.SVR()", "sklearn.svm.SVC()"),
    "boosting of trees": (
        "sklearn.ensemble.HistGradientBoostingRegressor()",
        "sklearn.ensemble.HistGradientBoostingClassifier()",
    ),
}


@dataclass(frozen=True)
class BetterModel:
    """A model that is clearly better than a fit on held-out samples, with both scores: R^2 or accuracy."""

    model: str
    score: float
    own: float
    labels: bool
    clear: bool  # by more than two standard errors of the difference

    def warn(self, name, stacklevel):
        """Give the warning for the estimator of this name."""
        measure, call = "accuracy" if self.labels else "R^2", _CALLS[self.model][int(self.labels)]
        scaled = " (with scaled columns)" if self.model == "a kernel" else ""
        verb = "is" if self.clear else "may be"
        warnings.warn(
            f"{self.model} {verb} better for these data: {measure} on held-out samples is about {self.score:.3f}, and "
            f"{self.own:.3f} for {name}. There may be too few samples, or the target is not of the network's class. "
            f"Compare {call}.fit(X, y){scaled}.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def better_model(X, y, losses, folds=None, *, quadratic=False, weights=None):
    """The model that is clearly better than a fit for y on X (n, D), or None.

    `y` holds numbers (n,) or (n, k), or class numbers (n,) of an integer type. `losses` (n,) are those of the fit on
    samples left out: squared errors, summed over targets, or 1 for a wrong class. `folds` are the indices that were
    left out together, and NaN marks samples outside; None if each was left out alone. Differences are paired: on the
    same samples, with the others to fit. A fit that is `quadratic` itself is not compared with ridge regression on
    terms of degree two. `weights` (n,) are those of the samples; `losses` are without them.
    """
    labels, n = np.issubdtype(y.dtype, np.integer), len(y)
    X, y, losses, w, folds = _part((X, y, losses, np.ones(n) if weights is None else weights), folds)
    Y, held = y.reshape(len(y), -1), np.isfinite(losses)
    spread = 1.0 if labels else float(np.ptp(Y))
    if n < FEWEST_COMPARED or not TINY**0.25 < spread < TINY**-0.25 or not held.any():
        return None
    unit = 1.0 if labels else float(np.average((Y - np.average(Y, axis=0, weights=w)) ** 2, axis=0, weights=w).sum())
    w = w / w.mean()
    factors = w[held] / (unit * w[held].mean())  # the mean of losses times these is one minus the score
    losses = losses[held] * factors
    own = 1.0 - float(losses.mean())
    if not own < 1.0 - _GAIN:
        return None
    found = []
    for model, errors in _references((X, y, w), folds, (labels, quadratic)):
        errors = errors[held] * factors
        score = 1.0 - float(errors.mean())
        possible, clear = (is_significantly_better(losses, errors, m) for m in (_POSSIBLE_ERRORS, SCORE_ERRORS))
        if score > own + _GAIN and possible:
            found.append(BetterModel(model, score, own, bool(labels), clear))
    return max(found, key=lambda one: round(one.score, 2), default=None)  # the simplest of about the same score


def _part(arrays, folds):
    """At most 1,000 samples of each array, evenly spaced, and their folds."""
    n = len(arrays[0])
    if n <= LARGEST_ORDER:
        return *arrays, folds
    some = np.linspace(0, n - 1, LARGEST_ORDER).astype(int)
    if folds is not None:
        folds = [np.flatnonzero(np.isin(some, fold)) for fold in folds]
    return *(array[some] for array in arrays), folds


def _references(samples, folds, kind):
    """Names and losses (n,) of the models, the simplest first, for a pair (labels, quadratic)."""
    (X, y, w), (labels, quadratic) = samples, kind
    targets = np.eye(int(y.max()) + 1)[y] if labels else y.reshape(len(y), -1)
    blocks = [np.arange(k, len(y), N_FOLDS) for k in range(N_FOLDS)] if folds is None else folds

    def losses(residuals):
        if labels:
            return (np.argmax(targets - residuals, axis=1) != y).astype(float)
        return np.sum(residuals**2, axis=1)

    if labels:
        yield "a linear model", logistic_errors(X, y, blocks, w)
    degree_two = ("degree two", "ridge regression on terms of degree two")
    for kernel, name in (("linear", "a linear model"), degree_two, ("Gaussian", "a kernel")):
        if not (labels and kernel == "linear" or quadratic and kernel == "degree two"):
            yield name, losses(kernel_residuals(X, targets, kernel, folds, w))
    if len(y) >= _FEWEST_OF_TREES and targets.shape[1] <= _OUTPUTS_OF_TREES:
        yield "boosting of trees", _boosting_losses(samples, blocks, labels)


def _boosting_losses(samples, folds, labels):
    """Losses (n,) of boosting on samples X, y, weights held out in turn; NaN for others.

    Steps, thresholds and interactions of discrete columns are approximated better by trees than by smooth functions,
    which neither a linear model nor a kernel reveals.
    """
    X, y, w = samples
    losses = np.full(len(y), np.nan)
    equal = bool(np.all(w == w[0]))  # the bins of weighted samples take ten times as long
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        factors = None if equal else w[rest]
        if labels:
            model = HistGradientBoostingClassifier(**_BOOSTING)
            losses[fold] = model.fit(X[rest], y[rest], factors).predict(X[fold]) != y[fold]
            continue
        errors = np.zeros(len(fold))
        for column in y.reshape(len(y), -1).T:
            model = HistGradientBoostingRegressor(**_BOOSTING).fit(X[rest], column[rest], factors)
            errors += (model.predict(X[fold]) - column[fold]) ** 2
        losses[fold] = errors
    return losses
