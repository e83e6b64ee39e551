"""Signs of units from absolute values and a linear function."""

import numpy as np
import pytest

from skident.samples.ridges import fit_ridges, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.unit_signs import resolve_signs
from tests.samples.planted import in_z, planted


@pytest.mark.parametrize(
    ("d", "m", "noise"), [(4, 4, 0.0), (4, 4, 0.1), (3, 5, 0.0), (3, 5, 0.1), (14, 14, 0.05), (6, 16, 0.02)]
)
def test_signs(d, m, noise):
    sample, U, b, a = planted(12, d, m, 6000, noise)
    fit = fit_ridges(sample, regress_on_ridges(sample, *in_z(sample, U, b)).model)
    signed = resolve_signs(sample, fit, np.random.RandomState(0))
    model = signed.fit.model
    assert not model.skip and 0 <= signed.margins.min() and signed.margins.max() <= 1
    found = model.V / np.linalg.norm(model.V, axis=0)
    # Signed directions: noise .1 and 4000 rows leave .02 or so.
    assert (in_z(sample, U, b)[0] @ found).max(axis=1).min() > (0.995 if noise else 1 - 1e-9)


def test_a_linear_part_that_signs_do_not_explain_is_kept():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((3000, 3))
    sample = Sample(X, np.maximum(X[:, 0], 0) + 5.0 * X[:, 1])
    signed = resolve_signs(sample, fit_ridges(sample, regress_on_ridges(sample, np.eye(3)[:1], np.zeros(1)).model), rng)
    assert signed.fit.model.skip and signed.fit.rss < 1e-20 * sample.total
