"""Hostile files: crafted ones, and files of networks with bytes or fields changed, within 1 GiB and a second."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import seed_ranges
from common import FOLDER, format_table, run_module
from registry import part

FUZZED, QUICK = 2000, 40
MEMORY, SECONDS = 2**30, 1.0  # bytes beyond those of the imports, and processor time, of one file
HUNG = 600.0  # seconds of wall time after which a process is ended
FIRST_SEED = seed_ranges.EVERYDAY.start + 9_000


def _readers():
    from skident.cli.tables import read_table
    from skident.network import FeedforwardNetwork
    from skident.oracle import Oracle

    query = lambda path: Oracle(str(path), 4).query_inputs(np.zeros((3, 4)))  # noqa: E731
    return {".onnx": [FeedforwardNetwork.from_onnx, query], ".safetensors": [FeedforwardNetwork.load], ".csv": [read_table]}


def _outcome(reader, path):
    """How reading a file ended, and processor time."""
    began = time.process_time()
    try:
        reader(path)
        ended = "read"
    except ValueError:
        ended = "refused"
    except Exception as error:  # what this part counts
        ended = f"{type(error).__name__}: {error}"[:200]
    return {"ended": ended, "seconds": time.process_time() - began}


def run_here(kind, first, last):
    """Print a line per file, after a line with its name: a process that dies names its file."""
    sys.path.insert(0, str(FOLDER.parent))
    from parts.everyday.fuzzed_files import fuzzed
    from tests.network.hostile_files import CRAFTED, external, onnx_file, PLAIN

    files = list(CRAFTED.items()) if kind == "crafted" else fuzzed(range(first, last))
    readers = _readers()
    readers[".onnx"][1](_written("warm.onnx", onnx_file(PLAIN)))  # imports onnxruntime
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for name, content in files:
        path = _written(f"file{Path(name).suffix}", content)
        for reader in readers[path.suffix][: 1 if kind == "crafted" else None]:
            print(json.dumps({"file": name, **_outcome(reader, path)}), flush=True)


def _written(name, content):
    folder = Path(tempfile.gettempdir()) / f"hostile-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name
