"""Certificates of logistic, Huber and Poisson losses against a general convex solver, and accuracies of classifiers."""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import seed_ranges
from common import format_table
from registry import part
from skident import QuadraticNetClassifier
from skident.landscape import HuberLoss, LossTerms, landscape_certificate
from skident.landscape.losses import checked_loss
from skident.linalg import smat, svec_outer

FIRST_SEED = seed_ranges.LANDSCAPE_LOSSES.start
NAMES = {"logistic": "logistic", "huber": HuberLoss(0.5), "poisson": "poisson"}
PAIRS = ((3, 8), (4, 9), (1, 7), (5, 9), (8, 9), (2, 3), (5, 6), (1, 8))
STEPS = np.logspace(-9, 0, 19)  # along an escape, relative to the size of the point


class Reference:
    """The loss of explicit features: its value for given weights, and its minimum by a trust-region method."""

    def __init__(self, X, y, loss, terms):
        self.y, self.loss, self.d, self.alpha = y, checked_loss(loss, y), X.shape[1], terms.alpha
        linear = [np.sqrt(terms.linear_weight) * X] if terms.fit_linear else []
        self.q = self.d * (self.d + 1) // 2
        self.Phi = np.hstack([svec_outer(X), *linear, np.ones((len(X), int(terms.fit_intercept)))])
        self.ridge = np.full(self.Phi.shape[1], terms.alpha)
        self.ridge[len(self.ridge) - int(terms.fit_intercept) :] = 0.0

    def parts(self, params):
        """Value, gradient and Hessian."""
        f, n = self.Phi @ params, len(self.y)
        slope, bend = self.loss.slope(f, self.y), self.loss.curvature(f, self.y)
        hessian = (self.Phi * (bend / n)[:, None]).T @ self.Phi + np.diag(self.ridge)
        value = self.loss.value(f, self.y).mean() + 0.5 * self.ridge @ params**2
        return value, self.Phi.T @ slope / n + self.ridge * params, hessian

    def minimum(self, fixed=None):
        """Least value and parameters; with `fixed`, the first parameters are these."""
        fixed = np.zeros(0) if fixed is None else fixed
        m = len(fixed)
        if m == self.Phi.shape[1]:
            return self.parts(fixed)[0], fixed
        start = np.zeros(self.Phi.shape[1] - m)
        whole = {
            "fun": lambda t: self.parts(np.r_[fixed, t])[0],
            "jac": lambda t: self.parts(np.r_[fixed, t])[1][m:],
            "hess": lambda t: self.parts(np.r_[fixed, t])[2][m:, m:],
        }
        found = minimize(x0=start, method="trust-exact", options={"gtol": 1e-10, "maxiter": 500}, **whole)
        return float(found.fun), np.r_[fixed, found.x]

    def value_of(self, W, v):
        """Loss of a network, other terms optimal."""
        M = W.T @ (v[:, None] * W)
        upper = np.triu_indices(self.d)
        return self.minimum(np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) * M[upper])[0]


def case(seed):
    """Data, loss and terms: planted forms, 30 to 300 samples, 2 to 5 inputs."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 300)), int(rng.integers(2, 6))
    n = max(n, 4 * d * d)
    name = list(NAMES)[seed % 3]
    X, A = rng.standard_normal((n, d)), rng.standard_normal((d, d))
    f = np.einsum("ni,ij,nj->n", X, A, X) / d + 0.3
    y = {
        "logistic": np.where(f + 2.0 * rng.logistic(size=n) > 0, 1.0, -1.0),
        "huber": f + rng.standard_t(2, size=n),
        "poisson": rng.poisson(np.exp(np.clip(f, -5.0, 2.0))).astype(float),
    }[name]
    terms = LossTerms(float(rng.choice([0.0, 1e-5, 1e-3, 0.1])), bool(rng.integers(2)), bool(rng.integers(2)))
    return X, y, NAMES[name], terms, rng


def points(reference, d, rng):
    """Two points: factors of the reference's minimizer, and a random, moved, truncated or empty one."""
    least, params = reference.minimum()
    values, vectors = np.linalg.eigh(smat(params[: reference.q], d))
    v = np.repeat([1.0, -1.0], d)
    W = np.zeros((2 * d, d))
    for i, value in enumerate(values):
        W[i if value > 0 else d + i] = np.sqrt(abs(value)) * vectors[:, i]
    mixed = np.linalg.qr(rng.standard_normal((2 * d, d)))[0]
    dropped = W.copy()
    dropped[np.argmax(np.linalg.norm(W, axis=1))] = 0.0
    ordinary = [0.5 * mixed, W + 10.0 ** rng.uniform(-4, 0) * mixed, dropped, np.zeros_like(W)][rng.integers(4)]
    return least, v, {"planted": W, "ordinary": ordinary}


def _leads_down(reference, W, v, certificate):
    """Whether some step along the escape lowers the loss."""
    if certificate.escape_direction is None:
        return False
    size = max(1.0, float(np.linalg.norm(W)))
    start = reference.value_of(W, v)
    return any(reference.value_of(W + t * size * certificate.escape_direction, v) < start for t in STEPS)


def check(seed):
    """Counts per kind of point of one case."""
    X, y, loss, terms, rng = case(seed)
    reference = Reference(X, y, loss, terms)
    least, v, both = points(reference, X.shape[1], rng)
    counts = {}
    for kind, W in both.items():
        start = time.process_time()
        found = landscape_certificate(W, v, X, y, terms=terms, loss=loss)
        seconds = time.process_time() - start
        value = reference.value_of(W, v)
        near = 1e-12 * (1.0 + value)  # rounding of the reference
        false = found.is_global and value - least > found.gap + near or found.lower_bound > least + near
        escapes = found.status in ("saddle", "not stationary")
        counts[kind] = {
            "points": 1,
            "global": int(found.is_global),
            "escape": int(escapes),
            "undecided": int(found.status == "undecided"),
            "false": int(bool(false) or (escapes and not _leads_down(reference, W, v, found))),
            "seconds": seconds,
        }
    return counts


def accuracies(quick):
    """Five-fold accuracies of the classifier and of support vector machines, seconds per fold, certificates."""
    X, y = load_digits(return_X_y=True)
    tables = {"breast cancer": load_breast_cancer(return_X_y=True)}
    for a, b in PAIRS[: 1 if quick else None]:
        kept = (y == a) | (y == b)
        tables[f"digits {a} and {b}"] = X[kept], y[kept]
    rows = []
    for name, (inputs, labels) in tables.items():
        scores, seconds, proven = [], [], True
        for train, test in StratifiedKFold(5, shuffle=True, random_state=FIRST_SEED).split(inputs, labels):
            start = time.process_time()
            clf = QuadraticNetClassifier().fit(inputs[train], labels[train])
            seconds.append(time.process_time() - start)
            proven = proven and clf.certificate_.is_global
            peer = make_pipeline(StandardScaler(), SVC()).fit(inputs[train], labels[train])
            scores.append([one.score(inputs[test], labels[test]) for one in (clf, peer)])
        own, other = np.mean(scores, axis=0)
        rows.append([name, float(own), float(other), float(own - other), float(np.mean(seconds)), bool(proven)])
    return rows


@part("landscape", "losses", seeds=seed_ranges.LANDSCAPE_LOSSES)
def run(trials=None, quick=False):
    trials = trials or (15 if quick else 200)
    totals = {}
    for seed in range(FIRST_SEED, FIRST_SEED + trials):
        for kind, counts in check(seed).items():
            total = totals.setdefault(kind, {})
            for key, value in counts.items():
                total[key] = total.get(key, 0) + value
    rows = [{"kind": kind, **total} for kind, total in totals.items()]
    print(f"losses: {rows}", flush=True)
    return {"rows": rows, "accuracies": accuracies(quick)}


def tables(result):
    keys = ("kind", "points", "global", "escape", "undecided", "false", "seconds")
    header = ["points", "number", "called global", "escape direction", "undecided", "false", "seconds in total"]
    proofs = format_table(header, [[row[key] for key in keys] for row in result["rows"]])
    header = ["table", "QuadraticNetClassifier", "SVC", "difference", "seconds per fold", "all certified"]
    return f"{proofs}\n\n{format_table(header, result['accuracies'])}"
