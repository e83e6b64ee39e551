"""How much of the public API pyright knows the types of, in percent; ends with 1 below 95.

    pyright --verifytypes skident --ignoreexternal --outputjson | python tests/public_types.py

Public is what `skident` and its packages export, and the members of it. pyright also counts what modules inside the
packages export to each other: that is no promise to users.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1] / "skident"
NEEDED = 95  # percent; scikit-learn has no types, and so the bases of estimators are unknown


def is_public(name, modules):
    """Whether the module that a symbol belongs to is `skident` or one of its packages."""
    parts = name.split(".")
    module = next(".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1) if ".".join(parts[:n]) in modules)
    return module in {"skident", *(f"skident.{path.parent.name}" for path in ROOT.glob("*/__init__.pyi"))}


def completeness(report):
    """Known symbols, all symbols, and the names of those that are not known, from what pyright prints."""
    found = report["typeCompleteness"]
    modules = {module["name"] for module in found["modules"]}
    symbols = [one for one in found["symbols"] if one["isExported"] and is_public(one["name"], modules)]
    unknown = [one["name"] for one in symbols if not one["isTypeKnown"] or one["isTypeAmbiguous"]]
    return len(symbols) - len(unknown), len(symbols), unknown


if __name__ == "__main__":
    known, total, unknown = completeness(json.load(sys.stdin))
    share = 100 * known / max(total, 1)
    print(*unknown, f"{known} of {total} public symbols have a known type: {share:.1f} %", sep="\n")
    sys.exit(total == 0 or 100 * known < NEEDED * total)
