import re
import time

import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.oracle import Oracle


def test_a_stage_is_timed_and_counted(capsys):
    oracle, log = Oracle(lambda X: X, 2), StageLog()
    oracle(np.zeros((3, 2)))
    with log.stage("first", oracle, total=5) as entry:
        entry["progress"](2)
        oracle(np.zeros((4, 2)))
        entry["residual"] = 0.5
    with log.stage("second"):
        pass
    first, second = log.stages
    assert first.name == "first" and first.queries == 4 and first.residual == 0.5
    assert second.queries == 0 and second.residual is None
    assert all(stage.seconds >= 0 and "progress" not in stage.details for stage in log.stages)
    assert capsys.readouterr() == ("", "")


def test_verbose_goes_to_stderr(capsys):
    log = StageLog(verbose=1)
    with log.stage("power method", total=3) as entry:
        entry["progress"](3)
        entry["residual"] = 1e-9
    out, err = capsys.readouterr()
    assert out == "" and re.search(r"power method: 3 of 3 steps, \d\.\d\d s, 0 queries, residual 1\.00e-09", err)


def test_a_stage_that_raises_is_closed_and_not_logged():
    log = StageLog()
    with pytest.raises(KeyError, match="lost"), log.stage("broken"):
        raise KeyError("lost")
    assert log.stages == []


@pytest.mark.parametrize(("total", "of", "said"), [(6, None, "4 of 6"), (None, 5, "4 of 5"), (None, None, "4")])
def test_what_is_counted_is_said(total, of, said, capsys):
    """Never a bare number of iterations: units of those asked for, or of those that show."""
    oracle, log = Oracle(lambda X: X, 2), StageLog(verbose=1)
    with log.stage("first layer", oracle, total, unit="units") as entry:
        oracle(np.zeros((3, 2)))
        entry["progress"](4, of)
        assert log.unfinished == f"first layer ({said} done)"
    err = capsys.readouterr().err
    assert re.search(rf"first layer: {said} units, \d\.\d\d s, 3 queries", err)
    assert "it/s" not in err and "0it" not in err


@pytest.mark.parametrize(
    ("seconds", "done", "left"),
    [(10.0, 2, "about 40 s left"), (60.0, 2, "about 4 min left"), (10.0, 9, None), (10.0, 0, None)],
)
def test_time_left(seconds, done, left, capsys, monkeypatch):
    """Estimated from the steps done; nothing if it is short or unknown."""
    clock = iter([0.0, *[seconds] * 100])
    monkeypatch.setattr("skident.base.progress.time.perf_counter", lambda: next(clock))
    with StageLog(verbose=1).stage("layers", total=10, unit="units") as entry:
        time.sleep(0.15)  # bars are drawn again after 0.1 s
        entry["progress"](done)
    err = capsys.readouterr().err
    assert ("left" in err) == (left is not None) and (left is None or left in err)


def test_no_time_left_without_a_total(capsys, monkeypatch):
    clock = iter([0.0, *[1e3] * 100])
    monkeypatch.setattr("skident.base.progress.time.perf_counter", lambda: next(clock))
    with StageLog(verbose=1).stage("layers") as entry:
        time.sleep(0.15)
        entry["progress"](5)
    assert "left" not in capsys.readouterr().err
