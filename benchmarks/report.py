"""Puts the results into README.md: everything between ``<!-- results: part -->`` and ``<!-- end -->`` is replaced.

A part's name begins with its file's where several files have a part of that name. The figure of costs is drawn too.

    python benchmarks/report.py            write
    python benchmarks/report.py --check    only tell whether README.md shows the results as they are
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import _figure9
import _identification_baselines
import _identification_budgets
import _identification_cost
import _identification_grid
import _identification_ordinary
import _identification_processes
import _identification_targets
import _landscape_comparison
import _landscape_figures
import _landscape_proofs
import _landscape_rate
import _landscape_targets
import _table2
import _targets
import _transition
import bench_activations
import bench_alignment
import bench_audit
import bench_compression
import bench_hierarchical
import bench_honesty
import bench_onnx
import bench_paper_figures
import bench_passive
import bench_patches
import bench_policies
import bench_power_method
import bench_relu
import bench_relu_networks
import bench_saddle
import bench_tables
from _common import read_results

README = Path(__file__).resolve().parent / "README.md"
SOURCES = {
    "targets": ("entangled_weights", _targets),
    "table2": ("entangled_weights", _table2),
    "transition": ("entangled_weights", _transition),
    "figure9": ("entangled_weights", _figure9),
    "power_method": ("power_method", bench_power_method),
    "compression": ("compression", bench_compression),
    "alignment": ("alignment", bench_alignment),
    "identification_targets": ("identification", _identification_targets),
    "identification_grid": ("identification", _identification_grid),
    "identification_baselines": ("identification", _identification_baselines),
    "identification_cost": ("identification", _identification_cost),
    "identification_ordinary": ("identification", _identification_ordinary),
    "identification_processes": ("identification", _identification_processes),
    "identification_budgets": ("identification", _identification_budgets),
    **{f"relu_networks_{part}": ("relu_networks", module) for part, module in bench_relu_networks.PARTS.items()},
    **{f"activations_{part}": ("activations", module) for part, module in bench_activations.PARTS.items()},
    **{f"audit_{part}": ("audit", module) for part, module in bench_audit.PARTS.items()},
    **{f"honesty_{part}": ("honesty", module) for part, module in bench_honesty.PARTS.items()},
    "onnx_files": ("onnx", bench_onnx),
    **{f"policies_{part}": ("policies", module) for part, module in bench_policies.PARTS.items()},
    **{f"passive_{part}": ("passive", module) for part, module in bench_passive.PARTS.items()},
    **{f"patches_{part}": ("patches", module) for part, module in bench_patches.PARTS.items()},
    **{f"paper_figures_{part}": ("paper_figures", module) for part, module in bench_paper_figures.PARTS.items()},
    "landscape_targets": ("landscape", _landscape_targets),
    "landscape_figures": ("landscape", _landscape_figures),
    "landscape_rate": ("landscape", _landscape_rate),
    "landscape_comparison": ("landscape", _landscape_comparison),
    "landscape_proofs": ("landscape", _landscape_proofs),
    **{f"hierarchical_{part}": ("hierarchical", module) for part, module in bench_hierarchical.PARTS.items()},
    **{f"relu_{part}": ("relu", module) for part, module in bench_relu.PARTS.items()},
    **{f"tables_{part}": ("tables", module) for part, module in bench_tables.PARTS.items()},
    **{f"saddle_{part}": ("saddle", module) for part, module in bench_saddle.PARTS.items()},
}


def section(part):
    """The table of one part and the line that says where it was measured."""
    name, module = SOURCES[part]
    result = read_results(name).get(part.removeprefix(f"{name}_"))
    if result is None:
        return "Not run yet."
    e = result["environment"]
    versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items() if v)
    blas = "; ".join(e["blas"])
    where = f"{e['date']}, {e['processor']}, {e['cores']} cores, load {e['load_at_start']} at the start, {e['system']}"
    where += f", Python {e['python']}, {versions} ({blas}); {result['seconds']:.0f} s in all"
    return f"{module.tables(result)}\n\n*{where}.*"


def render(text):
    """The README with fresh results."""

    def fill(match):
        return f"{match[1]}\n{section(match[2])}\n{match[3]}"

    return re.sub(r"(<!-- results: (\w+) -->)\n.*?(<!-- end -->)", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    old = README.read_text()
    new = render(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == old else "README.md does not show the results as they are; run benchmarks/report.py.")
    README.write_text(new)
    if "cost" in read_results("identification"):
        _identification_cost.draw(read_results("identification")["cost"])
