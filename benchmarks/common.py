"""Shared by all benchmarks: environment record, timing, query counting, Markdown tables, result files, subprocesses."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import threadpoolctl

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "skorch", "tensorly")


def environment():
    """Versions, processor, cores and threads, to compare measurements."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    pools = threadpoolctl.threadpool_info()
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "blas": sorted({f"{p['internal_api']} {p['version']}, {p['num_threads']} threads" for p in pools}),
        "versions": versions,
    }


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@contextmanager
def stopwatch():
    """``with stopwatch() as clock: ...`` stores wall time in ``clock.seconds``."""

    class Clock:
        seconds = float("nan")

    clock, start = Clock(), time.perf_counter()
    try:
        yield clock
    finally:
        clock.seconds = time.perf_counter() - start


class Countdown:
    """Time limit of a part."""

    def __init__(self, seconds):
        self.end = time.perf_counter() + seconds

    @property
    def over(self):
        return time.perf_counter() > self.end


class BlackBox:
    """A function that counts its queries (rows of X)."""

    def __init__(self, function):
        self._function, self.rows = function, 0

    def __call__(self, X):
        self.rows += len(X)
        return self._function(X)


def make_identifier(model=None, **settings):
    """`NetworkIdentifier` from keyword settings, some of which belong to its options."""
    from skident import IdentifierOptions, NetworkIdentifier

    names = IdentifierOptions().get_params(deep=False).keys() & settings.keys()
    options = {name: settings.pop(name) for name in names}
    return NetworkIdentifier(model, **settings, options=IdentifierOptions(**options) if options else None)


def unit_inputs(n_inputs):
    """Inputs (2 D, D) with mean 0 and standard deviation 1 exactly, so that radii have the paper's units."""
    return np.sqrt(n_inputs) * np.concatenate([np.eye(n_inputs), -np.eye(n_inputs)])


def summary(values):
    """Median, maximum and all values."""
    values = [float(v) for v in values]
    return {"median": float(np.median(values)), "max": max(values), "all": values}


def format_value(value):
    """Format a cell: 3 significant digits, yes or no for booleans, a dash for None and NaN."""
    if value is None:
        return "-"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return "-"
        small = value != 0 and not 1e-3 <= abs(value) < 1e5
        return f"{value:.1e}" if small else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}".replace(",", " ")
    return str(value)


def format_table(header, rows):
    """Markdown table with aligned columns, legible in a terminal too."""
    cells = [list(map(str, header)), *[[format_value(v) for v in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def rounded(value):
    """Floats to 6 significant digits, arrays and NumPy scalars to Python values, for small JSON files."""
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [rounded(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value


def read_results(name):
    """Results of earlier runs by part; empty if there are none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write_part(name, part, result):
    """Replace one part's result in results/<name>.json; keep the other parts."""
    RESULTS.mkdir(exist_ok=True)
    content = {**read_results(name), part: rounded(result)}
    text = json.dumps(dict(sorted(content.items())), indent=1, allow_nan=False)
    (RESULTS / f"{name}.json").write_text(text + "\n")


def limit_threads(n):
    """Limit the linear algebra to n threads, in this process and in those that it starts."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(n)
    threadpoolctl.threadpool_limits(n)


def run_module(name, *arguments, variables=None, check=True, **options):
    """`python -m name arguments` in a separate process, for its own peak memory, threads or time limit.

    `variables` replaces the environment variables; further `options` go to `subprocess.run`, and output is captured.
    """
    path = os.pathsep.join([str(FOLDER), *sys.path[1:]])
    variables = {**(os.environ if variables is None else variables), "PYTHONPATH": path}
    command = [sys.executable, "-m", name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check, cwd=FOLDER, env=variables, **options)


@contextmanager
def busy(n):
    """Keep n other processes busy during a ``with`` block."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10**6))"]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
