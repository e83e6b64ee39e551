"""Requirements on quadratic networks, with measured values."""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import QuadraticNetRegressor
from skident.datasets import make_planted_shallow
from skident.landscape import landscape_certificate
from skident.landscape.convex_solver import solve_convex
from skident.landscape.curvature import form_hessian_product
from skident.landscape.descent import descend
from skident.landscape.problem import LossTerms, QuadraticProblem
from skident.landscape.quadratic_form import factorize

FIRST_SEED = seed_ranges.LANDSCAPE_TARGETS.start
PLAIN = {"fit_intercept": False, "fit_linear": False, "alpha": 0}


def _mixed(d):
    return np.repeat([1.0, -1.0], d)


def _timed(f):
    start = time.process_time()
    result = f()
    return result, time.process_time() - start


def _row(target, bar, measured, met, seconds=None, trials=1):
    row = {"target": target, "bar": bar, "measured": measured, "met": bool(met), "seconds": seconds, "trials": trials}
    print(f"targets: {target}: {measured}{'' if met else '  FAIL'}", flush=True)
    return row


def _solvers(n, d, trials):
    """Random labels: both solvers' losses and seconds, the descent from W = 0."""
    gaps, convex, descent, proven = [], [], [], 0
    for t in range(trials):
        X, y = make_planted_shallow(n, d, 1, labels="random", random_state=FIRST_SEED + t)
        problem = QuadraticProblem(X, y)
        (solution, lost_by), seconds = _timed(lambda p=problem: _factored(p))
        convex.append(seconds)
        found, seconds = _timed(lambda p=problem: descend(p, np.zeros((2 * p.d, p.d)), _mixed(p.d)))
        descent.append(seconds)
        gaps += [found.value - min(found.value, solution.value), lost_by - min(found.value, solution.value)]
        proven += landscape_certificate(found.W, _mixed(d), X, y).is_global
    measured = f"gap {max(gaps):.1e}, descent {max(descent):.2f} s, convex {max(convex):.2f} s, certified {proven}"
    met = max(gaps) <= 1e-10 and max(descent) <= 5 and max(convex) <= 3 and proven == trials
    bar = "gap <= 1e-10, descent <= 5 s, convex <= 3 s, all certified"
    return _row(f"d={d}, n={n}, random labels", bar, measured, met, max(descent), trials)


def _factored(problem):
    """The convex solution, and the loss of the network made from it."""
    solution = solve_convex(problem)
    W, _ = factorize(solution.M, _mixed(problem.d))
    return solution, problem.value(W.T @ (_mixed(problem.d)[:, None] * W))


def _saddle(problem, rank, rng):
    """All but `rank` units of each sign at zero, these at rest: a start with few units that no escape follows."""
    d, W = problem.d, np.zeros((2 * problem.d, problem.d))
    if rank:
        few = descend(problem, rng.standard_normal((2 * rank, d)) / np.sqrt(d), np.repeat([1.0, -1.0], rank)).W
        W[:rank], W[d : d + rank] = few[:rank], few[rank:]
    return W


def _starts(rank, trials, d=12, n=100):
    """From saddles: gap to the convex optimum, and explicit curvature against the smallest eigenvalue."""
    gaps, errors, saddles = [], [], 0
    for t in range(trials):
        rng = np.random.RandomState(FIRST_SEED + 100 + t)
        X, y = make_planted_shallow(n, d, 1, labels="random", random_state=rng)
        problem, v = QuadraticProblem(X, y), _mixed(d)
        W = _saddle(problem, rank and 1 + t % 4, rng)
        certificate = landscape_certificate(W, v, X, y)
        gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]
        columns = [form_hessian_product(problem, W, v, gradient, e.reshape(W.shape)).ravel() for e in np.eye(W.size)]
        smallest = np.linalg.eigvalsh(np.array(columns))[0]
        errors.append(abs(certificate.curvature / smallest - 1.0))
        saddles += certificate.status == "saddle"
        found = descend(problem, W, v)
        gaps.append(found.value - solve_convex(problem).value)
    name = "rank-deficient saddles (1 to 4 units of each sign)" if rank else "W = 0"
    measured = f"gap {max(gaps):.1e}, curvature off by {max(errors):.1e}, called saddle {saddles}"
    met = max(gaps) <= 1e-10 and max(errors) <= 1e-6 and saddles == trials
    return _row(f"descent from {name}", "all at the optimum, curvature to 1e-6", measured, met, trials=trials)


def _hessians(trials):
    errors = []
    for t in range(trials):
        rng = np.random.RandomState(FIRST_SEED + 200 + t)
        n, d, k = rng.randint(10, 200), rng.randint(2, 15), rng.randint(2, 20)
        X, y = make_planted_shallow(n, d, 1, labels="random", random_state=rng)
        problem = QuadraticProblem(
            X, y, LossTerms(alpha=rng.choice([0.0, 0.1]), fit_intercept=True, fit_linear=bool(t % 2))
        )
        W, U, v = rng.standard_normal((k, d)), rng.standard_normal((k, d)), rng.uniform(-2, 2, k)

        def slope(step, W=W, U=U, v=v, problem=problem):
            W_t = W + step * U
            return 2.0 * v[:, None] * (W_t @ problem.value_and_gradient(W_t.T @ (v[:, None] * W_t))[1])

        gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]
        product = form_hessian_product(problem, W, v, gradient, U)
        h = 1e-4 / np.linalg.norm(U)
        errors.append(np.linalg.norm((slope(h) - slope(-h)) / (2 * h) - product) / np.linalg.norm(product))
    worst, bar = max(errors), "relative error <= 1e-6"
    return _row("Hessian products against finite differences", bar, f"{worst:.1e}", worst <= 1e-6, None, trials)


def _zero_loss(trials):
    """Theorem 2.1: as many random labels as unknowns of M, and fewer."""
    losses = []
    for t in range(trials):
        d = (5, 10, 20, 40)[t % 4]
        q = d * (d + 1) // 2
        n = int(np.round(q * (0.5, 0.9, 0.98)[t % 3]))
        X, y = make_planted_shallow(n, d, 1, labels="random", random_state=FIRST_SEED + 300 + t)
        for solver in ("convex", "descent"):
            reg = QuadraticNetRegressor(solver=solver, **PLAIN).fit(X, y)
            losses.append(0.5 * np.mean((reg.predict(X) - y) ** 2))
    measured, met = f"{max(losses):.1e}", max(losses) <= 1e-20
    return _row("n <= d(d+1)/2 random labels, both solvers", "loss <= 1e-20", measured, met, None, trials)


def _planted(trials):
    errors, seconds = {"defaults": [], "plain descent": []}, {"defaults": [], "plain descent": []}
    for t in range(trials):
        X, y = make_planted_shallow(2000, 10, 5, random_state=FIRST_SEED + 400 + t)
        for name, options in (("defaults", {}), ("plain descent", {"solver": "descent", **PLAIN})):
            reg, used = _timed(lambda o=options, X=X, y=y: QuadraticNetRegressor(**o).fit(X[:1000], y[:1000]))
            residual = reg.predict(X[1000:]) - y[1000:]
            errors[name].append(np.sqrt(np.mean(residual**2)) / np.std(y[1000:]))
            seconds[name].append(used)
    bar = "test relative RMSE <= 1e-10, <= 0.5 s"
    for name in errors:
        worst, slowest = max(errors[name]), max(seconds[name])
        measured, met = f"{worst:.1e}, {slowest:.2f} s", worst <= 1e-10 and slowest <= 0.5
        yield _row(f"planted d=10 k=5 n=1000, {name}", bar, measured, met, slowest, trials)


def _diabetes():
    X, y = load_diabetes(return_X_y=True)
    best = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 30)))
    models = (QuadraticNetRegressor(), QuadraticNetRegressor(output_signs="positive"), Ridge(), best)
    ours, positive, ridge, tuned = (cross_val_score(model, X, y, cv=5).mean() for model in models)
    measured = f"{ours:.3f} (positive units {positive:.3f}), Ridge {ridge:.3f}, RidgeCV on scaled inputs {tuned:.3f}"
    met = ours >= max(ridge, tuned) - 0.02
    return _row("diabetes, 5-fold R^2, defaults", ">= Ridge - 0.02", measured, met)


@part("landscape", "targets", seeds=seed_ranges.LANDSCAPE_TARGETS)
def run(trials=None, quick=False):
    rows = []
    for d, n in ((50, 2500), (50, 5000), (100, 2500), (100, 5000))[: 1 if quick else None]:
        rows.append(_solvers(n, d, trials or (1 if quick else 3)))
    rows += [_starts(rank, 3 if quick else trials or 20) for rank in (0, 1)]
    rows += [_hessians(trials or 50), _zero_loss(4 if quick else trials or 12), *_planted(trials or 5), _diabetes()]
    return {"rows": rows}


def tables(result):
    header = ["target", "bar", "measured (worst)", "trials", "met"]
    keys = ("target", "bar", "measured", "trials")
    rows = [[*(r[key] for key in keys), "pass" if r["met"] else "**FAIL**"] for r in result["rows"]]
    return format_table(header, rows)
