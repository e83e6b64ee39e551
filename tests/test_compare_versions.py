"""Two versions of identification: what it counts, that it goes on where it stopped, models that raise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


@pytest.fixture
def compare_versions(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import compare_versions

    yield compare_versions
    for name in ("compare_versions", "common", "seed_ranges", "cases", "cases.compared_rows", "registry"):
        sys.modules.pop(name, None)


def fit(outcome, **entries):
    return {"outcome": outcome, "queries": 1000, "seconds": 1.0, **entries}


RECOVERED = fit("recovered", exact=True, false=False)


@pytest.mark.parametrize(
    ("after", "worse"),
    [
        (RECOVERED, []),
        (RECOVERED | {"queries": 1200}, ["queries"]),
        (fit("refused: no"), ["fewer"]),
        (fit("wrong", exact=True, false=True), ["false exact", "fewer"]),
    ],
)
def test_a_row_is_worse_with_fewer_networks_more_queries_or_a_false_claim(compare_versions, after, worse):
    row = compare_versions.summary("row", [(RECOVERED, after)] * 6)
    assert row["worse"] == worse
    assert compare_versions.summary("row", [(RECOVERED, RECOVERED)] * 6 + [(RECOVERED, after)])["worse"] == [
        word
        for word in worse
        if word == "false exact"  # one network of seven is chance
    ]


def test_every_row_can_be_drawn_without_the_package(compare_versions):
    code = (
        "import sys; from cases.compared_rows import rows\n"
        "for row in rows().values():\n    network, X = row.draw(1); row.deployed(network, X)\n"
        "assert 'skident' not in sys.modules; print(len(rows()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 60


def test_fits_are_kept_and_a_model_that_raises_is_a_failure_of_its_row(compare_versions, tmp_path):
    path, chosen = tmp_path / "record.jsonl", ["--rows", "a model that raises"]
    arguments = [str(ROOT), str(ROOT), *chosen, "--record", str(path)]
    assert compare_versions.main(arguments) == 0
    kept = path.read_text()
    (entry,) = map(json.loads, kept.splitlines())  # one of two equal versions
    assert entry["outcome"].startswith("refused: the black box raised RuntimeError")
    assert compare_versions.main(arguments) == 0 and path.read_text() == kept


def test_a_step_that_is_not_there_cannot_be_left_out(compare_versions):
    from cases import optional_steps

    for name in optional_steps.STEPS:
        subprocess.run(
            [sys.executable, "-c", f"from cases.optional_steps import leave_out; leave_out({name!r})"],
            cwd=FOLDER, env={"PYTHONPATH": str(ROOT)}, check=True,
        )  # fmt: skip
    with pytest.raises(KeyError, match="no such step"):
        optional_steps.leave_out("no such step")
