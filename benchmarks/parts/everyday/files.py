"""Hostile files, crafted or with bytes or fields changed at random, read within 1 GiB and a second."""

from __future__ import annotations

import json
import subprocess

import seed_ranges
from cases.fuzzed_files import MEMORY
from common import format_table, run_module
from registry import part

FUZZED, QUICK = 2000, 60
SECONDS = 1.0  # processor time of one reading
HUNG = 1800.0  # seconds of wall time after which a process is ended
FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 9_000  # of this part's seeds
WITHIN = 1000  # seeds; the files behind them differ from those of the first thousand by a second draw


@part("everyday", "files", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Every reading of the crafted and of the fuzzed files, in processes that may end."""
    n = QUICK if quick else trials or FUZZED
    crafted = _readings("crafted", 0)
    fuzzed = [one for rounds in range(-(-n // WITHIN)) for one in _fuzzed(rounds, min(WITHIN, n - rounds * WITHIN))]
    return {"limits": {"bytes": MEMORY, "seconds": SECONDS}, "crafted": crafted, "fuzzed": fuzzed}


def _fuzzed(rounds, n):
    first = FIRST_SEED + OFFSET
    return _readings(first, first + n, rounds)


def _readings(first, last, rounds=0):
    """One record per reading; a process that dies or hangs is a record of its own, and the rest is read after it."""
    readings, begin = [], first
    while begin == "crafted" or begin < last:
        died = None
        try:
            done = run_module("cases.fuzzed_files", begin, last, rounds, check=False, timeout=HUNG)
            printed, died = done.stdout, f"the process ended with {done.returncode}" if done.returncode else None
        except subprocess.TimeoutExpired as late:
            printed, died = (late.stdout or b"").decode(), "hung"
        readings += [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        if died is None:
            break
        index = readings[-1]["index"] if readings else -1
        readings.append({"index": index + 1, "file": "after the last", "reader": "?", "ended": died, "seconds": 0.0})
        if begin == "crafted":
            break
        begin = index + 2
    return readings


def tables(result):
    """Markdown."""
    seconds, rows = result["limits"]["seconds"], []
    for name in ("crafted", "fuzzed"):
        kinds = sorted({(one["file"] if name == "fuzzed" else name, one["reader"]) for one in result[name]})
        for kind, reader in kinds:
            group = [one for one in result[name] if one["reader"] == reader and kind in (name, one["file"])]
            counts = [sum(one["ended"] == ended for one in group) for ended in ("refused", "read")]
            late = sum(one["seconds"] > seconds for one in group)
            longest = f"{max(one['seconds'] for one in group):.2f}"
            rows.append([name, kind, reader, len(group), *counts, len(group) - sum(counts), late, longest])
    head = ["part", "files", "reader", "readings", "ValueError", "read", "other", f"above {seconds:g} s", "longest s"]
    return format_table(head, rows)
