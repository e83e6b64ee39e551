"""The Display of an audit."""

import matplotlib
import numpy as np
import pytest

from skident import NetworkVerifier
from skident.datasets import make_network
from skident.inspection import AuditDisplay


@pytest.fixture(autouse=True)
def plt():
    """pyplot that opens no window, and no figure left behind."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    yield pyplot
    pyplot.close("all")


class TestAudit:
    @pytest.fixture
    def verifier(self):
        network = make_network((6, 8, 2), random_state=0)
        weights = [np.array(W) for W in network.weights]
        weights[0][2, 3] *= 1.001
        X = np.random.default_rng(0).standard_normal((100, 6))
        box = network.with_parameters(weights, network.biases)
        return NetworkVerifier(box, network=network, random_state=0).fit(X)

    def test_answers_and_weights_are_drawn(self, verifier):
        display = AuditDisplay.from_estimator(verifier)
        share, excess = display.ax_.lines[0].get_data()
        assert share[-1] == 1.0 and excess[-1] == pytest.approx(verifier.report_.excess)
        cross = display.weights_ax_.lines[-1]
        assert cross.get_xdata()[0] == pytest.approx(1e-3, rel=1e-6)
        assert "different" in display.ax_.get_title()

    def test_what_is_no_verifier_is_refused(self):
        with pytest.raises(TypeError, match="must be a NetworkVerifier"):
            AuditDisplay.from_estimator(object())
