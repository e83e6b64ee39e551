"""Time to recover the rank-one matrices of a subspace: `find_rank_one`, Algorithm 2 as printed, TensorLy."""

from __future__ import annotations

import sys
import warnings

import numpy as np

import seed_ranges
from common import Countdown, format_table, stopwatch
from registry import part
from skident.linalg import find_rank_one, leading_subspace, svec_outer
from skident.metrics import recovery_rate

CASES = ((20, 60), (20, 120), (30, 300))  # d, r
FIRST_SEED = seed_ranges.POWER_METHOD.start
PAPER_STARTS, PAPER_STEPS, PAPER_STEP_SIZE = 10_000, 15_000, 1.5


def _vectors(d, r, seed):
    a = np.random.default_rng(seed).standard_normal((r, d))
    return a / np.linalg.norm(a, axis=1, keepdims=True)


def _found(a, vectors):
    """How many of the rows of a are among the vectors: to 1e-7, and to 0.05."""
    finite = vectors[np.isfinite(vectors).all(axis=1) & (np.abs(vectors).max(axis=1) > 0)]
    return {f"found_{r:g}": round(len(a) * recovery_rate(a, finite, radius=r)) for r in (1e-7, 0.05)}


def _ours(a, seed, repeats):
    """From the span, and from the fourth-order tensor, whose symmetric unfolding must be decomposed first."""
    d = a.shape[1]
    outer = svec_outer(a)
    basis, _ = np.linalg.qr(outer.T)
    unfolding = outer.T @ outer
    times, whole = [], []
    for k in range(repeats):
        with stopwatch() as clock:
            search = find_rank_one(basis, d, rng=np.random.RandomState(seed + k))
        times.append(clock.seconds)
        with stopwatch() as clock:
            span, _ = leading_subspace([unfolding], len(a))
            from_tensor = find_rank_one(span, d, rng=np.random.RandomState(seed + k))
        whole.append(clock.seconds)
    yield "ours, from the span", {"seconds": float(np.median(times)), **_found(a, search.vectors)}
    yield "ours, from the tensor", {"seconds": float(np.median(whole)), **_found(a, from_tensor.vectors)}


def _literal(a, seed, n_steps):
    """A few steps of Algorithm 2 with all its starts, then multiplied up.

    The projection goes through an orthonormal basis (d^2, r) where that is cheaper than the d^2 x d^2 projector.
    Clustering the 10 000 results (Algorithm 3) is not counted.
    """
    d = a.shape[1]
    basis, _ = np.linalg.qr(np.einsum("ki,kj->ijk", a, a).reshape(d * d, -1))
    projector = basis @ basis.T
    u = _vectors(d, PAPER_STARTS, seed)

    def step(u):
        flat = np.einsum("ni,nj->nij", u, u).reshape(len(u), d * d)
        flat = (flat @ basis) @ basis.T if 2 * basis.shape[1] < d * d else flat @ projector
        u = u + 2.0 * PAPER_STEP_SIZE * np.matmul(flat.reshape(-1, d, d), u[:, :, None])[:, :, 0]
        return u / np.linalg.norm(u, axis=1, keepdims=True)

    u, times = step(u), []
    for _ in range(n_steps):
        with stopwatch() as clock:
            u = step(u)
        times.append(clock.seconds)
    seconds = float(np.median(times)) * PAPER_STEPS
    return {"seconds": seconds, "measured_steps": n_steps, "seconds_a_step": float(np.median(times))}


def _tensor(a):
    return np.einsum("ki,kj,kl,km->ijlm", a, a, a, a, optimize=True)


class _TimeOver(Exception):
    pass


def _tensorly_power(a, seed, seconds):
    """`symmetric_power_iteration`, one component after the other as `symmetric_parafac_power_iteration` does."""
    from tensorly.decomposition import symmetric_power_iteration

    np.random.seed(seed)  # TensorLy draws its starts from the global stream
    tensor, found, left = _tensor(a), [], Countdown(seconds)
    with stopwatch() as clock:
        while len(found) < len(a) and not left.over:
            _, vector, tensor = symmetric_power_iteration(tensor)
            found.append(vector)
    n = len(found)
    return {"seconds": clock.seconds, "stopped": n < len(a), "components": n, **_found(a, np.array(found))}


def _tensorly_als(a, seed, seconds):
    """`parafac` from random factors until its own convergence test, 1000 sweeps, or the time is over."""
    from tensorly.decomposition import parafac

    left, last = Countdown(seconds), {}

    def watch(cp, *_):
        last["factor"], last["sweeps"] = cp[1][0], last.get("sweeps", -1) + 1
        if left.over:
            raise _TimeOver

    stopped = False
    with stopwatch() as clock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            options = {"init": "random", "n_iter_max": 1000, "tol": 1e-10, "random_state": seed, "callback": watch}
            parafac(_tensor(a), rank=len(a), **options)
        except _TimeOver:
            stopped = True
        except np.linalg.LinAlgError as error:
            last["error"] = str(error)
    factor = np.asarray(last["factor"]).T
    result = {"seconds": clock.seconds, "stopped": stopped, "sweeps": last["sweeps"], **_found(a, factor)}
    return {**result, "error": last["error"]} if "error" in last else result


def _methods(a, seed, quick):
    bound = 5.0 if quick else 60.0
    yield from _ours(a, seed, repeats=3 if quick else 7)
    yield "Algorithm 2, literal", _literal(a, seed, n_steps=2 if quick else 5)
    try:
        import tensorly  # noqa: F401
    except ImportError:
        print("TensorLy is not installed (pip install tensorly): its rows are left out.", file=sys.stderr)
        return
    yield "TensorLy symmetric power", _tensorly_power(a, seed, bound)
    yield "TensorLy ALS", _tensorly_als(a, seed, bound)


@part("power_method", "power_method", seeds=seed_ranges.POWER_METHOD)
def run(trials=None, quick=False):
    """One draw of vectors a case (`trials` draws on demand); ratios to ours from the tensor, of the same run."""
    rows = []
    for d, r in CASES[:1] if quick else CASES:
        for t in range(trials or 1):
            a = _vectors(d, r, FIRST_SEED + t)
            results = dict(_methods(a, FIRST_SEED + t, quick))
            reference = results["ours, from the tensor"]["seconds"]
            for name, result in results.items():
                rows.append({"d": d, "r": r, "method": name, **result, "ratio": result["seconds"] / reference})
                print(f"power method: d={d} r={r} {name}: {result['seconds']:.3g} s", flush=True)
    return {"rows": rows}


def tables(result):
    header = ["d", "r", "method", "recovered to 1e-7", "recovered to 0.05", "seconds", "seconds / ours", "remark"]
    rows = []
    for r in result["rows"]:
        remark = ""
        if "measured_steps" in r:
            remark = f"extrapolated from {r['measured_steps']} of {PAPER_STEPS} steps with {PAPER_STARTS} starts"
        elif r.get("stopped"):
            done = f"{r['components']} of {r['r']} components" if "components" in r else f"{r['sweeps']} sweeps"
            remark = f"stopped by the time bound after {done}"
        elif "sweeps" in r:
            remark = f"{r['sweeps']} sweeps" + (f", then {r['error']}" if "error" in r else "")
        found = [r.get("found_1e-07"), r.get("found_0.05")]
        rows.append([r["d"], r["r"], r["method"], *found, r["seconds"], r["ratio"], remark])
    return format_table(header, rows)
