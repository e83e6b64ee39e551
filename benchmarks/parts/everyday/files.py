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
    groups = [*_groups("crafted", crafted), *_groups("fuzzed", fuzzed)]
    return {"limits": {"bytes": MEMORY, "seconds": SECONDS}, "groups": groups}


def _groups(part, readings):
    """Readings by kind of file and reader: how many ended how, and those that ended otherwise."""
    kinds, groups = sorted({(one["file"] if part == "fuzzed" else "all", one["reader"]) for one in readings}), []
    for kind, reader in kinds:
        some = [one for one in readings if one["reader"] == reader and kind in ("all", one["file"])]
        counts = {ended: sum(one["ended"] == ended for one in some) for ended in ("refused", "read")}
        slow = {
            "late": sum(one["seconds"] > SECONDS for one in some),
            "longest": max(one["seconds"] for one in some),
            "others": [one for one in some if one["ended"] not in counts],
        }
        groups.append({"part": part, "files": kind, "reader": reader, "readings": len(some), **counts, **slow})
    return groups


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
    keys = ("part", "files", "reader", "readings", "refused", "read")
    rows = [
        [*(group[key] for key in keys), len(group["others"]), group["late"], f"{group['longest']:.2f}"]
        for group in result["groups"]
    ]
    above = f"above {result['limits']['seconds']:g} s"
    head = ["part", "files", "reader", "readings", "ValueError", "read", "other", above, "longest s"]
    return format_table(head, rows)
