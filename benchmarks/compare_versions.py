"""Compare two versions of identification on the same networks at equal processor time.

python benchmarks/compare_versions.py main .    a commit and the working tree, all rows, 20 networks each
python benchmarks/compare_versions.py main . --rows relu --networks 5
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import select
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

import seed_ranges
from cases.compared_rows import rows
from common import FOLDER, format_table, write_part

ROOT = FOLDER.parent
SCRATCH = Path(tempfile.gettempdir()) / "skident-compare-versions"
WALL_PER_SECOND = 8.0  # wall time after which a fit's process is killed, in units of its processor time
SIGNIFICANCE = 0.05  # of more networks lost than won
MOST_QUERIES = 1.1  # median ratio on networks that both recover


class Version:
    """A folder with the package of one version, and the process that fits in it with an `option` of `compared_fit`."""

    def __init__(self, revision, option=""):
        self.folder, self.key = _folder(revision)
        self.option, self.process = option, None
        self.key += f" {option}" * bool(option)

    def fit(self, row, seed):
        """The record of one fit; a process that takes too long is killed, and one that died says so."""
        if self.process is None:
            path = os.pathsep.join([str(self.folder), str(FOLDER)])
            variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "compared_fit", self.option]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self.process = subprocess.Popen(command, env=variables, cwd=self.folder, text=True, **pipes)
        print(seed, row.name, sep="\t", file=self.process.stdin, flush=True)
        ready = select.select([self.process.stdout], [], [], 60.0 + WALL_PER_SECOND * row.seconds)[0]
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        died = self.close()
        if ready and "cases/compared_rows.py" in died:
            raise RuntimeError(f"the row {row.name!r} cannot be drawn:\n{died}")
        outcome = f"died: {died[-300:]}" if ready else "out of time"
        return {"outcome": outcome, "seconds": row.seconds, "queries": 0}

    def close(self):
        """End the process; what it wrote to standard error."""
        if self.process is None:
            return ""
        self.process.kill()
        error, self.process = self.process.communicate()[1], None
        return error


def _folder(revision):
    """Where the version lies (a folder as it is, a commit unpacked once), and a key of its contents."""
    if (Path(revision) / "skident").is_dir():
        digest = hashlib.sha256()
        for path in sorted((Path(revision) / "skident").rglob("*.py")):
            digest.update(path.read_bytes())
        return Path(revision).resolve(), digest.hexdigest()[:12]
    key = _git("rev-parse", f"{revision}^{{commit}}").decode().strip()[:12]
    folder = SCRATCH / key
    if not folder.exists():
        with tarfile.open(fileobj=io.BytesIO(_git("archive", key, "skident"))) as archive:
            archive.extractall(folder, filter="data")
    return folder, key


def _git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


class Record:
    """Fits that were measured before, in a file to which each new one is added: a run that ended early goes on."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.known = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry["version"], entry["row"], entry["seed"]] = entry

    def fit(self, version, row, seed):
        """The record of a fit, measured unless it is known."""
        key = (version.key, row.name, seed)
        if key not in self.known:
            entry = {"version": version.key, "row": row.name, "seed": seed, **version.fit(row, seed)}
            self.known[key] = entry
            with self.path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        return self.known[key]


def compared(row, record, versions, networks):
    """The row's pairs of fits; both versions fit a network in turn, so that the machine's load is the same for both."""
    first = seed_ranges.COMPARED.start + 100 * list(rows()).index(row.name)
    seeds = range(first, first + min(networks, row.networks or networks))
    try:
        pairs = [[record.fit(version, row, seed) for version in versions] for seed in seeds]
    finally:
        for version in versions:
            version.close()
    result = summary(row.name, pairs)
    print(f"{row.name}: {result['recovered']} of {len(pairs)}", flush=True)
    return result


def summary(name, pairs):
    """Counts and ratios of a row's pairs of records."""
    good = np.array([[fit["outcome"] == "recovered" for fit in pair] for pair in pairs])
    lost, won = (good[:, 0] & ~good[:, 1]).sum(), (~good[:, 0] & good[:, 1]).sum()
    chance = float(binomtest(int(lost), int(lost + won), alternative="greater").pvalue) if lost + won else 1.0
    both = [pair for pair, is_good in zip(pairs, good, strict=True) if is_good.all()]
    ratio = {k: float(np.median([b[k] / a[k] for a, b in both])) if both else None for k in ("queries", "seconds")}
    false = [sum(bool(pair[k].get("false")) for pair in pairs) for k in (0, 1)]
    reasons = {pair[1]["outcome"].split(":")[0] for pair, is_good in zip(pairs, good, strict=True) if not is_good[1]}
    worse = {
        "false exact": false[1] > 0,
        "fewer": chance <= SIGNIFICANCE,
        "queries": (ratio["queries"] or 0) > MOST_QUERIES,
    }
    return {
        "row": name, "networks": len(pairs), "recovered": good.sum(axis=0).tolist(), "lost": int(lost), "won": int(won),
        "chance": chance,
        "queries": [float(np.median([pair[k]["queries"] for pair in pairs])) for k in (0, 1)],
        "differing": sum(a["queries"] != b["queries"] for a, b in both),
        "query_ratio": ratio["queries"], "second_ratio": ratio["seconds"], "false": false, "reasons": sorted(reasons),
        "worse": [text for text, is_so in worse.items() if is_so],
    }  # fmt: skip


def table(results):
    """One line a row, the sum, and which rows are worse."""
    head = ["row", "networks", "recovered before", "after", "lost", "won", "p", "median queries", "after / before"]
    head += ["seconds after / before", "false exact", "failures after", "worse"]
    lines = [
        [
            r["row"],
            r["networks"],
            *r["recovered"],
            r["lost"],
            r["won"],
            r["chance"],
            round(r["queries"][1]),
            r["query_ratio"],
        ]
        + [r["second_ratio"], " / ".join(map(str, r["false"])), ", ".join(r["reasons"]), ", ".join(r["worse"])]
        for r in results
    ]
    sums = [sum(r["networks"] for r in results)]
    sums += [sum(r["recovered"][k] for r in results) for k in (0, 1)]
    lines.append(["sum", *sums, *(sum(r[k] for r in results) for k in ("lost", "won")), *[None] * 4, "", "", ""])
    return format_table(head, lines)


def main(arguments=None):
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs=2, help="before and after: a commit, or a folder that holds skident/")
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument("--networks", type=int, default=20, help="of each row")
    parser.add_argument("--workers", type=int, default=1, help="rows at a time")
    parser.add_argument("--record", type=Path, default=SCRATCH / "record.jsonl", help="fits measured so far")
    parser.add_argument("--write", action="store_true", help="write results/compare_versions.json")
    args = parser.parse_args(arguments)
    record, some = Record(args.record), [row for name, row in rows().items() if args.rows in name]

    def one(row):
        return compared(row, record, [Version(revision) for revision in args.revisions], args.networks)

    with ThreadPoolExecutor(args.workers) as pool:
        results = list(pool.map(one, some))
    print("\n" + table(results))
    if args.write:
        write_part("compare_versions", "rows", {"revisions": args.revisions, "rows": results})
    return int(any({"fewer", "false exact"} & set(row["worse"]) for row in results))


if __name__ == "__main__":
    sys.exit(main())
