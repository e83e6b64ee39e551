"""Algorithm 1: runs, and its numbers."""

import pytest
import torch

from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.datasets import make_hierarchical_target
from skident.hierarchical.distillation import Algorithm1Options, check_options, initial_distill, layer_rules
from skident.metrics import feature_recovery_error
from tests.hierarchical.planted import ignored_convergence, planted, relative_mse


@pytest.mark.slow
def test_algorithm_1():
    target, X, y, X_test, y_test = planted(8, (3, 2), 1000, 106, kappa=1.0)
    options = {"n_units": 15, "polish": 20}
    net = HierarchicalQuadraticNet((3, 2), solver="algorithm1", random_state=0, algorithm1_options=options)
    net.fit(X, y)
    # Of ten targets six had these widths, nine an error below 1e-3, and eight one of the features.
    assert net.widths_ == (3, 2)
    assert relative_mse(net, X_test, y_test) < 1e-3
    assert feature_recovery_error(target.features(X_test, 2), net.transform(X_test, layer=2)) < 1e-3
    events = [entry["event"] for entry in net.stage_history_]
    order = ["layer 2 opened", "layer 2 distilled", "layer 3 opened", "layer 3 distilled", "end"]
    assert [event for event in events if event in order] == order and "target error halved" in events
    assert set(net.spectrum_) == {2, 3} and len(net.history_) == net.n_iter_
    assert hasattr(net.net_, "history")


def test_algorithm_1_on_signs():
    target = make_hierarchical_target(6, (2,), kappa=1.0, random_state=107)
    (X, y), (X_test, y_test) = target.sample_signs(1000, 0), target.sample_signs(3000, 1)
    clf = HierarchicalQuadraticNetClassifier(
        (2,),
        loss="theorem4",
        solver="algorithm1",
        offset_column=0,
        random_state=0,
        max_epochs=400,
        learning_rate=0.02,
        algorithm1_options={"n_units": 10, "polish": 5, "gap": 0.3},
    )
    with ignored_convergence():
        clf.fit(X, y)
    assert clf.score(X_test, y_test) > 0.95
    assert "sharpened" in [entry["event"] for entry in clf.stage_history_]


def test_distillation_finds_the_rank():
    rng = torch.Generator().manual_seed(0)
    truth = torch.randn(3, 9, dtype=torch.float64, generator=rng)
    W = torch.linalg.qr(torch.randn(12, 3, dtype=torch.float64, generator=rng))[0] @ truth
    for p in (torch.ones(12, dtype=W.dtype), torch.cat([-torch.ones(6, dtype=W.dtype), torch.ones(6, dtype=W.dtype)])):
        M = truth.T @ torch.diag(p[[0, -1, -1]]) @ truth if p[0] < 0 else W.T @ (p[:, None] * W)
        K, signs, spectrum = initial_distill(M, 5)
        assert K.shape == (3, 9) and spectrum[3] < 1e-12 * spectrum[0] and float(signs.min()) == float(p[0])
        # Lines 22 and 23: the cross product of the two parts is kept; here also the block of the first part.
        product = K.T @ (signs[:, None] * K)
        torch.testing.assert_close(product[:4], M[:4])
        only, signs, _ = initial_distill(M, 9)
        torch.testing.assert_close(only.T @ (signs[:, None] * only), M)
    assert initial_distill(M, 5, width=2)[0].shape == (2, 9)


def test_thresholds_are_those_of_equation_4_1():
    options = Algorithm1Options(gap=1.0, exponent=2.0, distillation=1.0)
    rule = layer_rules((0.8, 0.6), 64, options)[3]  # of norm one
    assert rule.opens == pytest.approx(0.64 / 64 ** (1 / 12)) and rule.distills == pytest.approx(0.36 / 64 ** (1 / 48))
    assert rule.penalties == pytest.approx([0.36 / 64 ** (1 / (q * 8)) for q in (6, 3, 2)])


def test_options_are_checked():
    with pytest.raises(ValueError, match="optimizer='rmsprop'"):
        check_options({"optimizer": "rmsprop"})
