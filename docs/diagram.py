"""Draws `diagram.svg`, the first picture of README and site: queries, outputs, and the weights recovered from them.

python docs/diagram.py
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

SIZE = (880, 300)  # pixels of the picture
TOP, BOTTOM = 72, 232  # rows between which the three columns lie
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; font: 14px system-ui, sans-serif; }
  .title { font-weight: 600; font-size: 16px; } .number { font: 13px ui-monospace, monospace; }
  .small { font-size: 13px; fill: #57606a; } .box { fill: #30363d; } .inside { fill: #ffffff; }
  .arrow { stroke: #57606a; stroke-width: 2; fill: none; } .tip { fill: #57606a; }
  .unit { fill: #ffffff; stroke: #1f2328; stroke-width: 1.5; } .up { stroke: #0969da; } .down { stroke: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; } .small { fill: #9da7b3; }
    .box { fill: #e6edf3; } .inside { fill: #0d1117; } .arrow { stroke: #9da7b3; } .tip { fill: #9da7b3; }
    .unit { fill: #0d1117; stroke: #e6edf3; } .up { stroke: #58a6ff; } .down { stroke: #f0883e; }
  }
"""


def text(x, y, words, kind="", anchor="middle"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def arrow(start, end, y):
    """A line to the right that ends in a tip at `end`."""
    line, tip = f"M{start} {y}H{end - 8}", f"M{end} {y}l-10 -6v12z"
    return f'<path class="arrow" d="{line}"/><path class="tip" d="{tip}"/>'


def columns(n, x):
    """Places of the n units of a layer."""
    return [(x, TOP + (BOTTOM - TOP) * (i + 0.5) / n) for i in range(n)]


def edges(starts, ends, weights):
    """Lines from layer to layer, as thick as the weights are large, in the color of their sign."""
    largest = abs(weights).max()
    for (i, j), weight in np.ndenumerate(weights):
        (x, y), (u, v) = starts[i], ends[j]
        kind, width = ("up" if weight > 0 else "down"), 0.3 + 3.2 * abs(weight) / largest
        yield f'<path class="{kind}" stroke-width="{width:.1f}" opacity="0.8" d="M{x} {y:.0f}L{u} {v:.0f}"/>'


def network(found):
    layers = [columns(n, x) for n, x in zip((10, 8, 1), (640, 735, 830))]
    for start, end, weights in zip(layers, layers[1:], found.weights):
        yield from edges(start, end, weights)
    yield from (f'<circle class="unit" cx="{x}" cy="{y:.0f}" r="5"/>' for layer in layers for x, y in layer)


def values(x, y, entries):
    return [text(x, y + 26 * i, entry, "number") for i, entry in enumerate(entries)]


def drawing(found, queries, outputs, n_queries):
    rows = ["  ".join(f"{value:+.1f}" for value in row[:3].round(1) + 0.0) + " …" for row in queries]
    parts = [
        '<rect class="card" x="0.5" y="0.5" width="879" height="299" rx="10"/>',
        *(text(x, 40, words, "title") for x, words in zip((115, 323, 475, 735), TITLES)),
        *values(115, 104, [*rows, "⋮"]),
        *values(475, 104, [*(f"{value:+.4f}" for value in outputs), "⋮"]),
        arrow(212, 250, 152), '<rect class="box" x="256" y="82" width="134" height="140" rx="8"/>',
        text(323, 148, "predict", "inside title"), text(323, 174, "weights hidden", "inside"),
        arrow(396, 434, 152), arrow(524, 614, 152), text(569, 140, "skident", "title"),
        *network(found),
        text(222, 270, f"{n_queries:,} inputs, chosen by skident", "small"),
        text(735, 270, "every weight and bias, to rounding error", "small"),
    ]  # fmt: skip
    return "\n".join(parts)


TITLES = ("Queries", "Model", "Outputs", "Recovered network")


def main():
    X, y = map(scale, load_diabetes(return_X_y=True))
    settings = {"hidden_layer_sizes": (8,), "activation": "tanh", "solver": "lbfgs", "alpha": 1.0, "max_iter": 999}
    mlp = MLPRegressor(**settings, random_state=0).fit(X, y)
    identifier = NetworkIdentifier(mlp.predict, random_state=0).fit(X)
    found = identifier.network_.align_to(FeedforwardNetwork.from_sklearn(mlp))
    body = drawing(found, X[:4], mlp.predict(X[:4]), identifier.n_queries_)
    size = f'width="{SIZE[0]}" height="{SIZE[1]}" viewBox="0 0 {SIZE[0]} {SIZE[1]}"'
    label = "Queries go into a model, outputs come back, and skident computes every weight of the network from them"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    picture = f"{head}\n<title>{label}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    (Path(__file__).parent / "diagram.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
