"""The reproduction page: every numbered figure and table of the five papers, ours beside the print.

Numbers come from `benchmarks/results/*.json`; where a part is missing there, the page says so.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from extension import statements

TOP = Path(__file__).parents[2]
RESULTS = TOP / "benchmarks" / "results"
NOT_RUN = "not run yet"
ILLUSTRATION = "an illustration, nothing is measured"
SETTINGS = "settings, nothing is measured"
NO_DATA = "cannot be run here"
OUTCOMES = ("agrees", "differs", NO_DATA, NOT_RUN, "nothing is measured")


@dataclass(frozen=True)
class Entry:
    """A figure or a table of a paper.

    `ours` makes our figures from a part of the results (`part`, "file.part"); without, `verdict` says why there are
    none.
    """

    label: str
    shows: str
    printed: str
    verdict: str
    part: str = ""
    ours: object = None
    script: str = ""


def load(part, folder=RESULTS):
    """A part of the results, None where it has not been run."""
    file, _, name = part.partition(".")
    path = folder / f"{file}.json"
    return json.loads(path.read_text(encoding="utf-8")).get(name) if path.is_file() else None


def ranges(values, form="{:.2f}"):
    """Least to largest."""
    return f"{form.format(min(values))} to {form.format(max(values))}"


def table2(part):
    """Means over all architectures that were run, by layer."""
    by_layer = []
    for layers in sorted({row["layers"] for row in part["rows"]}):
        rows = [row["hessian"] for row in part["rows"] if row["layers"] == layers]
        first, last = ([row[name] for row in rows] for name in ("E_1", "E_L"))
        by_layer.append(f"{layers} layers: E_1 {ranges(first, '{:.3f}')}, E_L {ranges(last, '{:.3f}')}")
    return "; ".join(by_layer)


def figure9(part):
    """Relative maximum errors of the methods, medians over architectures."""
    names = {}
    for row in part["rows"]:
        names.setdefault(row["method"], []).append(row["max_error"])
    return "relative maximum error, median: " + "; ".join(f"{name} {median(e):.1e}" for name, e in names.items())


def panel(name):
    """The half-point of a panel with as many steps as the fine runs take."""

    def ours(part):
        rows = [row for row in part["panels"] if row["panel"].startswith(name)]
        return "half-points " + ", ".join(
            f"{r['panel'].split(':')[0]} ({r['steps']}): {r['half_point']:.2f}" for r in rows
        )

    return ours


def random_labels(part):
    """How many networks reach zero loss on random labels, by kd / n."""
    rows = [row for row in part["random_labels"] if row["network"].startswith(("softplus, v = +1", "softplus, v = 1"))]
    return "zero loss: " + ", ".join(
        f"{row['network'].split(', ', 1)[1]}, kd/n = {row['ratio']:g}: {row['zero']} of {row['trials']}" for row in rows
    )


def widths(part):
    """Share of restarts that beat rank one, by width."""
    by_width = {}
    for row in part["rows"]:
        by_width.setdefault(row["width"], []).append(row["success"])
    return "above sqrt(2) - 1: " + ", ".join(
        f"width {width}: {median(shares):.2f}" for width, shares in by_width.items()
    )


def plateaus(depth):
    """Ranks on the plateau behind the first escape."""

    def ours(part):
        rows = [row for row in part["rows"] if row["case"].startswith(f"L = {depth}")]
        first = [row["saddles"][1]["ranks"] for row in rows if len(row["saddles"]) > 1]
        deep = sum(all(rank == 1 for rank in ranks[1:]) for ranks in first)
        return f"on the digits: every layer but the first has rank one behind the first escape in {deep} of {len(rows)} runs"

    return ours


def layerwise(part):
    """Errors of both ways of training."""
    return (
        f"error layer by layer {ranges([row['layerwise'] for row in part['rows']], '{:.3f}')}, "
        f"then together {ranges([row['joint'] for row in part['rows']], '{:.0e}')}"
    )


def protocol(part):
    """Errors of the protocol of a hierarchical target, and weight correlations."""
    by_name = [f"{row['protocol']} at l = {row['layer']}: {row['error']:.1e}" for row in part["protocol"]]
    return "a hierarchical target, relative errors: " + "; ".join(by_name)


def tables(part):
    """Accuracies on the digits."""
    row = next(row for row in part["rows"] if row["table"] == "digits")
    return (
        f"digits: quadratic network {row['ours']:.3f}, ReLU perceptron {row['ReLU perceptron']:.3f}, "
        f"kernel machine {row['kernel']:.3f}"
    )


def by_radius(name):
    """A measure by radius of the inputs, least to largest over depths and sizes."""

    def ours(part):
        radii = sorted({row["radius"] for row in part["rows"]})
        values = {radius: [row[name] for row in part["rows"] if row["radius"] == radius] for radius in radii}
        return "D = 50, m = 100, 200, L = 2, 3, 4: " + ", ".join(f"R = {r:g}: {ranges(v)}" for r, v in values.items())

    return ours


def by_size(name):
    """A measure by inputs, outputs and neurons."""

    def ours(part):
        pairs = sorted({(row["D"], row["m_L"]) for row in part["rows"]})
        rows = {pair: [row for row in part["rows"] if (row["D"], row["m_L"]) == pair] for pair in pairs}
        return "; ".join(
            f"D = {d}, m_L = {k}: " + ", ".join(f"m = {row['m']}: {row[name]:.2f}" for row in rows[d, k])
            for d, k in pairs
        )

    return ours


def epochs(part):
    """Errors of gradient descent by epochs."""
    return "relative maximum error, D = 20, (20, 5): " + ", ".join(
        f"{row['epochs']} epochs: {row['error']:.1e}" for row in part["rows"]
    )


def activations(part):
    """Which activations rise, and whether their second derivative is positive or odd."""
    return "; ".join(f"{row['name']}: {row['second']}, {row['limit']:.3g} at 50" for row in part["rows"])


def equation6(part):
    """Where the curve is highest."""
    curve = part["curve"]
    return f"maximum {curve['maximum']:.6f} at " + " and ".join(f"{x:.4f}" for x in curve["at"])


def runs(part):
    """Medians and best runs by steps, of the widest network."""
    widest = max(row["width"] for row in part["rows"])
    rows = [row for row in part["rows"] if row["width"] == widest]
    said = ", ".join(f"{r['steps']} steps: {r['best']:.3f}, {r['above']:.0%} above" for r in rows)
    return f"100 runs of width {widest}, best speed and share above sqrt(2) - 1: {said}"


def digits(part):
    """Error rates of the protocol, means over seeds."""
    rows = {}
    for run in part["rows"]:
        for row in run["rows"]:
            rows.setdefault((row["protocol"], row["layer"]), []).append(row["error"])
    said = {"only": "only", "fixed": "fixed", "layerwise": "layer by layer", "all": "all"}
    return f"digits, {len(part['rows'])} seed(s), error rate: " + ", ".join(
        f"{said[name]} at l = {layer}: {min(errors):.3f}" for (name, layer), errors in rows.items()
    )


def by_depth(part):
    """Accuracies of the networks that have only the layers up to l."""
    rows = [row for run in part["rows"] for row in run["rows"] if row["protocol"] == "only"]
    return "digits, accuracy: " + ", ".join(f"{row['layer'] - 1} hidden layer(s) {row['score']:.3f}" for row in rows)


def layerwise_digits(part):
    """Error rates layer by layer and together."""
    rows = [row for run in part["rows"] for row in run["rows"] if row["protocol"] in ("layerwise", "all")]
    said = {"layerwise": "layer by layer", "all": "together, from layer"}
    return "digits, error rate: " + ", ".join(
        f"{said[row['protocol']]}{'' if row['protocol'] == 'layerwise' else ' ' + str(row['layer'])} {row['error']:.3f}"
        for row in rows
    )


def digit_correlations(part):
    """Correlations on digits."""
    rows = [row for run in part["rows"] for row in run["rows"] if row["protocol"] == "only"]
    return "digits, correlation with start, with all: " + ", ".join(
        f"l = {row['layer']}: {row['correlation_start']:.2f}, {row['correlation_after']:.3f}" for row in rows
    )


_FIGURES = "bench_paper_figures.py"
_ENTANGLED, _LANDSCAPE = "bench_entangled_weights.py", "bench_landscape.py"
_SADDLE, _HIERARCHICAL = "bench_saddle.py", "bench_hierarchical.py"
_CIFAR = f"{NO_DATA}: CIFAR is not shipped and convolutional networks are no part of the package"
PAPERS = {
    "Fiedler, Fornasier, Klock, Rauchensteiner (2021), Stable Recovery of Entangled Weights": [
        Entry("Figure 1", "where Hessians lie", "a drawing", ILLUSTRATION),
        Entry("Figure 2", "two pyramidal architectures", "a drawing", f"{ILLUSTRATION}; `make_pyramidal_network` draws them"),
        Entry("Table 1", "hyperparameters", "their values", f"{SETTINGS}; they are named beside every run"),
        Entry("Figure 3", "subspace error by architecture and input distribution", "small for R from 0.01 to 1",
              "agrees for R up to 1, the more layers the worse; at half the size", "paper_figures.distributions", by_radius("distance"), _FIGURES),
        Entry("Figure 4", "recovered weights by architecture and distribution", "all up to m = D m_L, for R from 0.01 to 1",
              "agrees for R up to 1 but with four layers (0.85 to 0.98 there); at half the size", "paper_figures.distributions", by_radius("recovery"), _FIGURES),
        Entry("Figure 5", "false positives by architecture and distribution", "none there, few at R = 10",
              "agrees for R up to 1; at R = 10 differs: 0.30 to 0.82 are false; at half the size", "paper_figures.distributions", by_radius("false_positives"), _FIGURES),
        Entry("Figure 6", "recovered weights by D and m_L", "transition near m = D m_L",
              "agrees: the transition is at m = D m_L", "paper_figures.dimensions", by_size("recovery"), _FIGURES),
        Entry("Figure 7", "subspace error by D and m_L", "small up to m = D m_L",
              "agrees: below 0.2 up to m = D m_L, above 0.45 beyond", "paper_figures.dimensions", by_size("distance"), _FIGURES),
        Entry("Table 2", "errors of the first and last layer", "E_1 0.01 to 0.04, E_L 0.00 to 0.07",
              "agrees with two and three layers; with four, single weights are missed more often",
              "entangled_weights.table2", table2, _ENTANGLED),
        Entry("Figure 8", "gradient descent on (18) from exact weights", "converges, uniformly low error",
              "agrees that it falls steadily; at D = 20 it is still falling after 3000 epochs", "paper_figures.descent", epochs, _FIGURES),
        Entry("Figure 9", "four ways to the network", "M3 and M4 far below M1 and M2",
              "agrees in the order of methods; gradient descent is stopped after seconds, not when it has converged",
              "entangled_weights.figure9", figure9, _ENTANGLED),
    ],
    "Awasthi, Tang, Vijayaraghavan (2021), Efficient Algorithms for Learning Depth-2 Neural Networks": [],
    "Soltanolkotabi, Javanmard, Lee (2017), Theoretical insights into the optimization landscape": [
        Entry("Figure 1", "the activations of Example 2.4 with ReLU", "softplus convex, others with odd second derivative",
              "agrees; erf as printed has the limit sqrt(2), see the errata",
              "paper_figures.activations", activations, _FIGURES),
        Entry("Figure 2", "success of training, softplus", "half-points 11.40 (a), 10.70 (b)",
              "agrees within the interval of our ten trials; with another optimizer",
              "landscape.figures", panel("2"), _LANDSCAPE),
        Entry("Figure 3", "success of training, quadratic", "half-points 5.5 (a), 25.40 (b)",
              "(a) agrees; (b) differs by 1.4: with another optimizer and threshold",
              "landscape.figures", panel("3"), _LANDSCAPE),
        Entry("Figure 4", "random labels", "zero loss from kd = 1.5 n on, v = 1",
              "differs: impossible with v = 1 (see the errata); with random signs most runs from 1.5 n on",
              "landscape.figures", random_labels, _LANDSCAPE),
    ],
    "Bantzis, Simon, Jacot (2025), Saddle-to-Saddle Dynamics in Deep ReLU Networks": [
        Entry("Figure 1", "six layers on MNIST, two saddles", "one large singular value behind the first escape",
              "agrees on the digits; the second escape needs long steps; MNIST is not shipped",
              "saddle.training", plateaus(6), _SADDLE),
        Entry("Figure 2", "depth three on Example 1, by width", "wide networks beat rank one, up to 1/2",
              "agrees", "saddle.width", widths, _SADDLE),
        Entry("Figure 3", "singular values, six layers on MNIST", "deeper layers more strongly of rank one",
              "agrees on the digits; MNIST is not shipped", "saddle.training", plateaus(6), _SADDLE),
        Entry("Figure 4", "singular values, four layers on MNIST", "the same",
              "agrees on the digits; MNIST is not shipped", "saddle.training", plateaus(4), _SADDLE),
        Entry("Figure 5", "the graph of eq. (6)", "its maximum sqrt(2) - 1 at multiples of pi/4",
              "agrees", "paper_figures.circle", equation6, _FIGURES),
        Entry("Figure 6", "all runs of Figure 2 over time", "most at sqrt(2) - 1, wide ones above, up to 1/2",
              "agrees", "paper_figures.circle", runs, _FIGURES),
    ],
    "Allen-Zhu, Li (2020), Backward Feature Correction": [
        Entry("Figure 1", "features of ResNet-34, CIFAR-10", "pictures", _CIFAR),
        Entry("Figure 2", "first layer of AlexNet", "pictures", _CIFAR),
        Entry("Figure 3", "accuracy by depth, WRN-34-10", "over 75 % with two hidden layers, then less and less",
              "agrees in direction on digits, within chance (450 test rows); CIFAR is not shipped",
              "paper_figures.digits", by_depth, _FIGURES),
        Entry("Figure 4", "features before and after correction, WRN-34-5", "pictures", _CIFAR),
        Entry("Figure 5", "the process in four layers", "a drawing", ILLUSTRATION),
        Entry("Figure 6", "layer by layer against all layers, VGG-19 and ResNet-34", "together is better",
              "agrees on hierarchical targets; CIFAR is not shipped", "hierarchical.layerwise", layerwise, _HIERARCHICAL),
        Entry("Figure 7", "learner with distillation", "a drawing", ILLUSTRATION),
        Entry("Figure 8", "truncated quadratic activation", "its graph", ILLUSTRATION),
        Entry("Figure 9", "accuracy with and without correction, WRN-34-5", "correction helps, locally",
              "agrees on hierarchical targets; CIFAR is not shipped", "hierarchical.correction", protocol, _HIERARCHICAL),
        Entry("Figure 10", "weight correlations by block", "above 0.9 for most blocks",
              "differs on digits: below 0.9 (on hierarchical targets 0.94 and 0.82); CIFAR is not shipped", "paper_figures.digits", digit_correlations, _FIGURES),
        Entry("Figure 11", "features of neurons, WRN-34-5", "pictures", _CIFAR),
        Entry("Figure 12", "ReLU, quadratic and kernels", "quadratic comparable to ReLU, kernels behind",
              "on digits: quadratic is above the ReLU perceptron, the kernel machine above both: differs; CIFAR is not "
              "shipped", "hierarchical.tables", tables, _HIERARCHICAL),
        Entry("Figure 13", "as Figure 6, VGG-13 and ResNet-22", "together is better",
              "agrees in direction on digits, within chance (450 test rows); CIFAR is not shipped",
              "paper_figures.digits", layerwise_digits, _FIGURES),
        Entry("Figure 14", "as Figure 9, more networks, adversarial training", "correction helps",
              "agrees in direction on digits, within chance (450 test rows); CIFAR is not shipped", "paper_figures.digits", digits, _FIGURES),
    ],
}  # fmt: skip


def has_run(entry):
    """Whether numbers of ours stand beside the print."""
    return entry.ours is not None and load(entry.part) is not None


def counts():
    """How many entries there are of each kind."""
    entries = [entry for paper in PAPERS.values() for entry in paper]
    nothing = sum("nothing is measured" in entry.verdict for entry in entries)
    barred = sum(entry.verdict.startswith(NO_DATA) for entry in entries)
    ran = sum(has_run(entry) for entry in entries)
    return len(entries), ran, nothing, barred, len(entries) - ran - nothing - barred


def row_of(entry):
    """A row of the page's tables."""
    ours, verdict = "", entry.verdict
    if entry.ours is not None:
        part = load(entry.part)
        ours, verdict = (entry.ours(part), verdict) if part is not None else ("", NOT_RUN)
    script = f"`benchmarks/{entry.script}`" if entry.script else ""
    return "| " + " | ".join([entry.label, entry.shows, entry.printed, ours, verdict, script]) + " |"


def page():
    """The page's text."""
    total, ran, nothing, barred, left = counts()
    lines = [
        "# Reproduction", "",
        "Every numbered figure and table of the five papers, with our figures beside the print. Ours come from",
        "`benchmarks/results/*.json`, which the scripts named write; seeds are the benchmarks' own.", "",
        f"{total} in all: {ran} run, some on other data than the paper's, as their status says, {nothing} drawings or lists of settings with nothing to measure, {barred} that cannot "
        f"be run here for want of data, {left} not run yet. What is wrong in print is on the page of",
        "[errata](../errata.md).", "",
    ]  # fmt: skip
    for paper, entries in PAPERS.items():
        lines += [f"## {paper}", ""]
        if not entries:
            lines += [
                "The supplement has no numbered figure or table. Its algorithms are measured, printed and corrected, in",
                "`benchmarks/bench_relu.py`; see the [guide](../guide/samples.md).", "",
            ]  # fmt: skip
            continue
        lines += ["| | shows | in print | ours | status | script |", "|---|---|---|---|---|---|"]
        lines += [row_of(entry) for entry in entries] + [""]
    lines += [
        "## Statements",
        "",
        "Algorithms, statements, figures and tables, each with what computes it and a test.",
        "",
    ]
    return "\n".join([*lines, *statements.table(), ""])


def pages():
    """The page, by its path below docs/."""
    yield "generated/reproduction.md", page()
