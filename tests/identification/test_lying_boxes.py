"""Whatever a black box does, an identification ends as it must: never falsely exact, never undocumented."""

import re
import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.identification.lying_boxes import LIES, ROWS
from tests.identifiers import make_identifier

FAILING = {}  # name: reason
FRESH = np.random.RandomState(9).standard_normal((500, 4))


def told(lie):
    """How the identification ended, the message, and the model if there is one."""
    model = make_identifier(lie.make(), random_state=0, **lie.options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(ROWS.copy())
        except ValueError as error:
            assert not hasattr(model, "network_") and len(str(error)) > 20
            return "refuse", str(error), None
    assert {w.category for w in caught} <= {ConvergenceWarning}, [str(w.message) for w in caught]
    assert model.report_.exact or caught
    return "exact" if model.report_.exact else "noisy", " ".join(str(w.message) for w in caught), model


def answers(model):
    found = model.predict_proba(FRESH) if hasattr(model, "classes_") else model.predict(FRESH)
    return found.reshape(len(FRESH), -1)


def failing(lie):
    reason = FAILING.get(lie.name)
    return pytest.param(lie, id=lie.name, marks=[pytest.mark.xfail(reason=reason, strict=True)] if reason else [])


@pytest.mark.usefixtures("own_seconds")
@pytest.mark.parametrize("lie", [failing(lie) for lie in LIES])
def test_a_lying_box(lie):
    began = time.process_time()
    end, said, model = told(lie)
    assert time.process_time() - began < lie.seconds
    assert end in lie.ends.split("|"), said
    assert re.search(lie.says, said)
    if end == "exact":
        truth = np.asarray(lie.make()(FRESH.copy())).astype(float).reshape(len(FRESH), -1)
        unit = np.maximum(np.abs(truth - truth.mean(axis=0)).max(axis=0), 1e-6 * np.abs(truth).max())
        assert np.max(np.abs(answers(model) - truth) / unit) < 1e-7
    if end == "noisy":
        assert np.isfinite(answers(model)).all()


def test_the_table():
    names = [lie.name for lie in LIES]
    assert len(names) == len(set(names)) and len(names) >= 150 and FAILING.keys() <= set(names)
    assert all(set(lie.ends.split("|")) <= {"exact", "noisy", "refuse"} for lie in LIES)
    # What may be exact is never what must not be: only where both are true is there a choice.
    assert sum(lie.ends in ("exact", "noisy", "refuse") for lie in LIES) > 0.6 * len(LIES)
