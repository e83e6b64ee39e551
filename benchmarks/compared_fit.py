"""Fits for `compare_versions.py`: networks named on standard input, one JSON record a line to standard output.

The version of the package is the one that comes first on the import path.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings

import numpy as np

from cases.compared_rows import N_HELD_OUT, TIMES_OUTPUT_ERROR, rows
from cases.optional_steps import leave_out, watched


class OutOfTime(BaseException):
    """The processor time of a fit is over; no handler of exceptions may take it."""


def measured(row, seed):
    """Outcome of a fit (recovered, wrong, refused, raised, out of time), its error, queries and processor seconds."""
    network, X = row.draw(seed)
    box, n_queries = row.deployed(network, X), 0

    def queried(U):
        nonlocal n_queries
        n_queries += len(U)
        return box(U)

    began, record = time.process_time(), {}
    signal.setitimer(signal.ITIMER_PROF, row.seconds)
    try:
        identifier = _fitted(queried, X, row.given)
        record["outcome"] = "fitted"
    except OutOfTime:
        record["outcome"] = "out of time"
    except ValueError as error:  # the base of what the package refuses with
        record["outcome"] = f"refused: {str(error)[:150]}"
    except Exception as error:  # counted as one, and the comparison goes on
        record["outcome"] = f"raised: {type(error).__name__}: {str(error)[:150]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    record |= {"seconds": time.process_time() - began, "queries": n_queries}
    if record["outcome"] == "fitted":
        error, bar = _error(identifier, network, box, X, seed, row)
        exact = bool(identifier.report_.exact)
        record |= {"error": error, "exact": exact, "outcome": "recovered" if error <= bar else "wrong"}
        record["false"] = exact and not error <= bar
    return record


def _fitted(queried, X, given):
    from skident import NetworkIdentifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NetworkIdentifier(queried, random_state=0, **given).fit(X)


def _error(identifier, network, box, X, seed, row):
    """Error on the data and on inputs of their mean and spread, and the bar."""
    rng = np.random.default_rng(seed + 1)
    U = np.concatenate([X, X.mean(axis=0) + X.std(axis=0) * rng.standard_normal((N_HELD_OUT, X.shape[1]))])
    returned = np.asarray(box(U), dtype=float).reshape(len(U), -1)
    if row.output_kind == "labels":
        return float(np.mean(identifier.predict(U) != returned[:, 0])), row.error
    found = identifier.predict_proba(U) if row.output_kind == "probabilities" else identifier.network_(U)
    true = returned if row.error is not None else np.asarray(network(U), dtype=float)
    unit = true.std(axis=0).max()
    error = float(np.abs(np.reshape(found, true.shape) - true).max() / unit)
    bar = TIMES_OUTPUT_ERROR * np.abs(returned - true).max() / unit if row.error is None else row.error
    return error, bar


def _out_of_time(*_):
    raise OutOfTime


def main():
    """Fit what standard input names ("seed<tab>row") until it ends; an argument names the step to leave out.

    With ``--watch`` a record names the optional steps that ran.
    """
    signal.signal(signal.SIGPROF, _out_of_time)
    option = sys.argv[1] if len(sys.argv) > 1 else ""
    ran = watched() if option == "--watch" else leave_out(option)
    for line in sys.stdin:
        seed, name = line.rstrip("\n").split("\t")
        row = rows()[name]
        if ran is not None:
            ran.clear()
        try:
            record = measured(row, int(seed))
        except OutOfTime:  # it came between the fit and the clock's end
            record = {"outcome": "out of time", "seconds": row.seconds, "queries": 0}
        print(json.dumps(record if ran is None else record | {"steps": sorted(ran)}), flush=True)


if __name__ == "__main__":
    main()
