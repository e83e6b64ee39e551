"""Registry of benchmark parts: each part registers its benchmark, name and seed range; `run_parts` runs them."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import environment, limit_threads, rounded, stopwatch, write_part

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Part:
    """One part of a benchmark: `run(trials, quick) -> dict` measures, `tables(result) -> str` formats as Markdown."""

    benchmark: str  # name of the results file and of bench_<benchmark>.py
    name: str  # key in the results file and value of --part
    run: Callable[[int | None, bool], dict]
    tables: Callable[[dict], str]
    seeds: tuple[range, ...]  # ranges of `seed_ranges` from which the part draws
    module: str  # that registered it


_PARTS: dict[str, dict[str, Part]] = {}


def part(benchmark, name, *, seeds):
    """Register a part: an object with `run` and `tables`, or the function `run` of a module that defines `tables`."""

    def register(measured):
        if name in _PARTS.setdefault(benchmark, {}):
            raise ValueError(f"benchmark {benchmark!r} has two parts {name!r}")
        module = getattr(measured, "__module__", "")
        if hasattr(measured, "run"):
            run, tables = measured.run, measured.tables
        else:  # `tables` is defined below `run`, after this call
            run, tables = measured, lambda result: sys.modules[module].tables(result)
        ranges = (seeds,) if isinstance(seeds, range) else tuple(seeds)
        _PARTS[benchmark][name] = Part(benchmark, name, run, tables, ranges, module)
        return measured

    return register


def parts_of(benchmark):
    """Registered parts of a benchmark by name, in the order of registration."""
    return _PARTS.get(benchmark, {})


def import_all_parts():
    """Import every module in `parts/`; all parts by "benchmark.part"."""
    for path in sorted((FOLDER / "parts").rglob("*.py")):
        importlib.import_module(".".join(path.relative_to(FOLDER).with_suffix("").parts))
    return {f"{benchmark}.{name}": one for benchmark, parts in sorted(_PARTS.items()) for name, one in parts.items()}


def run_parts(benchmark, description, threads=None):
    """Command line of a benchmark: run its registered parts in order, print their tables and write the results.

    `description` is the script's docstring, of which --help shows the first line; `threads` limits the linear algebra
    by default (None: as many threads as cores).
    """
    parts = parts_of(benchmark)
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--part", choices=("all", *parts), default="all")
    parser.add_argument("--trials", type=int, default=None, help="number of trials; by default each part has its own")
    parser.add_argument("--quick", action="store_true", help="run a small version; print it and write no results")
    parser.add_argument("--threads", type=int, default=threads, help="threads of the linear algebra")
    options = parser.parse_args()
    if options.threads is not None:
        limit_threads(options.threads)
    for name, one in parts.items():
        if options.part not in ("all", name):
            continue
        recorded = environment()
        with stopwatch() as clock:
            result = one.run(options.trials, options.quick)
        print(f"\n## {name} ({clock.seconds:.0f} s)\n\n{one.tables(rounded(result))}\n", flush=True)
        if not options.quick:
            write_part(benchmark, name, {"environment": recorded, "seconds": clock.seconds, **result})
