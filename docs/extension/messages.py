"""Every text of an error or a warning in the source, with its cause and what helps."""

import ast
import re
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
ROOT = TOP / "skident"
KINDS = r"(\w*(?:Error|NotIdentified|Failure|Warning|unreadable|undecided|warn))$"
# What messages of a kind have in common: the first that matches "kind: text" counts. Texts name values themselves.
REMEDIES = [
    (r"^(?!.*must be).*(?:max_seconds|max_queries|budget)|OutOfBudget", "The budget ended.", "Raise `max_seconds` or `max_queries`."),
    (r"needs? \w+, which is not installed|pip install", "An optional package is missing.", "Install the extra named."),
    (r"NotIdentified \(activation boundaries", "The outputs are not those of a ReLU network with locatable activation boundaries.",
     "Another activation, more layers than could be followed, or noise: see `report_.activation`, try "
     "`activation=` and `layer_widths=`, or query the model where its outputs are exact."),
    (r"NotIdentified \(second layer", "No second layer was recovered from faces; `fit` goes on with the next route.",
     "Give `layer_widths`, more `max_seconds`, or exact outputs."),
    (r"NotIdentified \(profiles", "At large inputs the outputs are not linear, as they would be for such units.",
     "Another activation, or an output that is not linear: give `activation`, or `input_range`."),
    (r"NotIdentified \((?:saturation|first layer)", "At large inputs the outputs are not constant: no tanh, sigmoid or erf layer saturates there.",
     "Give `activation` if it is another one; `input_range` where the box clips its inputs; a tree is no network."),
    (r"UndecidedSigns|undecided", "The equations do not settle the signs of some units.",
     "More samples X, or a larger `max_queries`."),
    (r"BlackBoxError", "The black box returned outputs that cannot be used.",
     "Query it at the row named in the text; check its dtype, shape and range."),
    (r"unreadable", "A model file or module has a part that no feedforward network of this package has.",
     "Convert the part named, put the model into `eval()` mode, or hand the model over as a callable."),
    (r"[Gg]aussian", "The inputs are not Gaussian, as the method's tensors assume.",
     "Transform the columns, or give importance weights for a known density."),
    (r"not finite|finite|overflow|squares float64|magnitude", "Numbers are not finite, or too large or small for float64.",
     "Remove NaN and infinities, rescale the columns."),
    (r"n_samples|rows? (?:are|is|determine)|more rows|too few", "There are too few rows for the unknowns.",
     "More rows, or fewer units, as the text says."),
    (r"shape|must have \d|one (?:row|column|entry)|columns|features|dimension|widths|layer", "Arrays, widths or layers do not fit each other.",
     "Compare the shapes that the text names with the docstring: weights are (inputs, units)."),
    (r"parallel|dependent|rank|singular|degenerate|vanish|is zero|constant", "The data do not determine the requested result.",
     "Data in which the parts differ: more rows, other columns, another loss."),
    (r"must be|must lie|one of|expected|needs|takes|allowed|supported|got ", "A parameter has a value it cannot take.",
     "Give one that the text or the docstring names."),
    (r"path|file|folder|save|load|\.csv|\.onnx", "A file cannot be read or written as asked.",
     "Check the path and the format named."),
    (r"(?s)Warning|warn", "The fit ended before it was as good as it can be.", "More iterations, starts or rows."),
    (r"(?s).*", "The request cannot be fulfilled with the given arguments.", "The text says what is missing."),
]  # fmt: skip


def words_of(node):
    """The text of a message, with ... for what is filled in; None if it is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
    if isinstance(node, ast.BinOp):
        parts = [words_of(node.left), words_of(node.right)]
        return "".join(p or "..." for p in parts) if any(parts) else None
    if isinstance(node, ast.IfExp):
        parts = [words_of(node.body), words_of(node.orelse)]
        return " / ".join(p for p in parts if p) or None
    return None


@cache
def messages():
    """Path, line, kind and text of every error that is raised and every warning that is given with a text."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            kind = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if not re.search(KINDS, kind) or not node.args:
                continue
            if kind == "warn":
                kind = getattr(node.args[1], "id", "UserWarning") if len(node.args) > 1 else "UserWarning"
            arguments = node.args
            if kind == "NotIdentified":  # stage, reason, message
                kind, arguments = f"NotIdentified ({words_of(node.args[0]) or '...'})", node.args[2:]
            texts = [words for words in map(words_of, arguments) if words and " " in words]
            if texts:
                text = re.sub(r"\s+", " ", " ".join(texts)).strip()
                found.append((path.relative_to(ROOT).as_posix(), node.lineno, kind.lstrip("_"), text))
    return found


def remedy_of(kind, text):
    """What brings a message about, and what helps."""
    return next((cause, help_) for pattern, cause, help_ in REMEDIES if re.search(pattern, f"{kind}: {text}"))


def literal(text):
    """Text as code in Markdown, whatever it holds."""
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def page():
    """The list as a page, by package, then by what helps."""
    lines = [
        "---", "nosearch: true", "---", "# All messages", "",
        "Every text of an error or a warning in the package, from its source; `...` stands for what is filled in. Search",
        "this site for the words of a message. Frequent messages are explained in",
        "[Troubleshooting](../troubleshooting.md).", "",
    ]  # fmt: skip
    packages = {}
    for path, _, kind, text in messages():
        package = packages.setdefault(path.split("/")[0], {})
        package.setdefault(remedy_of(kind, text), []).append((kind, text))
    for package, remedies in packages.items():
        lines += [f"## {package}", ""]
        for (cause, help_), found in remedies.items():
            lines += [f"**{cause}** {help_}", ""]
            lines += [f"- {kind}: {literal(text)}" for kind, text in dict.fromkeys(found)] + [""]
    return "\n".join(lines)


def pages():
    """The page, by its path below docs/."""
    yield "generated/messages.md", page()
