"""Identification of five layers on two cores: one job, two threads, two workers of a `dask.distributed` cluster."""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np
from joblib import parallel_config

import seed_ranges
from common import format_table, make_identifier
from registry import part
from skident.datasets import make_network

_INPUTS, _WIDTHS = 20, (18, 14, 11, 8, 5)
_REPEATS = 2  # the machine may be shared
# By default dask's workers give memory back at once, and take new pages for every product.
_KEPT_PAGES = {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1}


def _fit(seed, n_jobs):
    truth = make_network((_INPUTS, *_WIDTHS), bias_scale=0.5, random_state=seed)
    X = np.random.RandomState(seed).standard_normal((500, _INPUTS))
    options = {"activation": "tanh", "output_activation": "tanh", "random_state": seed, "n_jobs": n_jobs}
    began = time.perf_counter()
    model = make_identifier(lambda U: truth(U), layer_widths=_WIDTHS, **options).fit(X)
    return model, time.perf_counter() - began


def _cluster(environment=None):
    """A started cluster of two workers whose imports are done, its client, and joblib's settings for it."""
    import dask
    from distributed import Client, LocalCluster

    name = "distributed.nanny.pre-spawn-environ"
    settings = nullcontext() if environment is None else dask.config.set({name: environment})
    with settings:
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)
    client.run(__import__, "skident.fitting.random_starts")
    return cluster, client


def _measured(name, environment, seeds):
    """Rows of one way to work: seconds of every fit, and whether networks are those of one job, to the last bit."""
    cluster, client = _cluster(environment) if name.startswith("dask") else (None, None)
    backend = {"backend": "dask", "client": client} if client else {"backend": "threading"}
    n_jobs = 1 if name == "one job" else 2
    try:
        rows = []
        for seed in seeds:
            with parallel_config(**backend):
                fits = [_fit(seed, n_jobs) for _ in range(_REPEATS)]
            seconds = [s for _, s in fits]
            rows.append((fits[0][0], {"way": name, "seed": seed, "fastest": min(seconds), "slowest": max(seconds)}))
        return rows
    finally:
        if client:
            client.close()
            cluster.close()


@part("identification", "processes", seeds=seed_ranges.IDENTIFICATION)
def run(trials, quick):
    """All ways, for every seed."""
    seeds = list(seed_ranges.IDENTIFICATION)[: 1 if quick else 2]
    ways = {"one job": None, "two threads": None, "dask": None, "dask, pages kept": _KEPT_PAGES}
    rows, single = [], None
    for name, environment in ways.items():
        found = _measured(name, environment, seeds)
        single = single or [model.network_ for model, _ in found]
        rows += [row | {"same bits": m.network_ == one} for (m, row), one in zip(found, single, strict=True)]
        for row in rows[-len(found) :]:
            print("   ", row, flush=True)
    return {"rows": rows}


def tables(result):
    """The rows as Markdown."""
    columns = ("way", "seed", "fastest", "slowest", "same bits")
    return format_table(columns, [[row[name] for name in columns] for row in result["rows"]])
