"""Verdicts that were wrong in silence: batch dependence, float32 on either side, agreement that proves nothing."""

import copy
import re
import shutil

import numpy as np
import pytest

from skident import NetworkIdentifier, NetworkVerifier, verify_same
from skident.audit.queries import probe_batches, spread_rows
from skident.inspection import AuditDisplay
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, Oracle
from tests.rates import fewest_successes

SEEDS = range(10)


def random_network(seed, sizes=(6, 8, 2)):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    biases = [0.3 * rng.standard_normal(m) for m in sizes[1:]]
    return FeedforwardNetwork(weights, biases, ("tanh", "relu")[seed % 2]), rng.standard_normal((200, sizes[0])), rng


def with_one_weight(network, rng, factor):
    weights = [np.array(W) for W in network.weights]
    weights[1][rng.randint(len(weights[1])), rng.randint(weights[1].shape[1])] *= factor
    return network.with_parameters(weights, network.biases)


def quantized(A):
    """Numbers rounded to 8 bits of the largest."""
    scale = max(np.abs(A).max(), 1e-300) / 127
    return np.rint(A / scale) * scale


def dynamically_quantized(network):
    """Weights in 8 bits, and activations in 8 bits of the largest in the batch."""

    def outputs(X):
        for W, b, g in zip(network.weights, network.biases, network.activations):
            X = g(quantized(X) @ quantized(W) + b)
        return X.astype(np.float32)

    return outputs


def in_single(network):
    parts = (network.weights, network.biases)
    return network.with_parameters(*([a.astype(np.float32) for a in part] for part in parts))


def moved(network, scale, offset):
    """The network before whose inputs z stand as x = scale z + offset."""
    first = network.weights[0] / scale
    return network.with_parameters(
        [first, *network.weights[1:]], [network.biases[0] - offset * first.sum(axis=0), *network.biases[1:]]
    )


def casting(network):
    """A model that rounds its inputs to float32 and computes in double precision."""
    return lambda X: network(X.astype(np.float32))


class TestDynamicQuantization:
    def test_rows_are_compared_one_at_a_time(self):
        """What differs by 1 % of the deviation is different; batches would add as much again, taken for noise."""
        for seed in SEEDS:
            network, X, _ = random_network(seed)
            report = verify_same(dynamically_quantized(network), network, X, random_state=seed)
            assert report.same is False and report.batch_dependent and report.kind == "float32"
            assert report.verdict == "the quantized reference" and "activations: dynamic, symmetric" in str(report)
            assert report.excess > 100

    def test_a_chosen_tolerance_decides(self):
        network, X, _ = random_network(0)
        report = verify_same(dynamically_quantized(network), network, X, tol=0.3, random_state=0)
        assert report.same is True and "depend on the other rows of a batch" in str(report)

    @pytest.mark.parametrize("most", [16, 21, 30, 40, 60])
    def test_few_queries_never_make_it_the_same(self, most):
        for seed in SEEDS:
            network, X, _ = random_network(seed)
            report = verify_same(dynamically_quantized(network), network, X, max_queries=most, random_state=seed)
            assert report.same is not True and report.n_queries <= most

    def test_what_is_the_same_row_by_row(self):
        """Only in batches do its outputs differ, beside noise."""
        network, X, rng = random_network(1)

        def shifted(X):
            return network(X) + 0.1 * (len(X) - 1) / len(X) * np.abs(X).max() + 1e-5 * rng.standard_normal((len(X), 2))

        report = verify_same(shifted, network, X, random_state=0)
        assert report.same is True and report.batch_dependent and report.kind == "noise"

    def test_files_of_onnxruntime(self, tmp_path):
        quantization = pytest.importorskip("onnxruntime.quantization")
        for seed in SEEDS:
            network, X, _ = random_network(seed)
            source, int8, again = (tmp_path / f"{name}.onnx" for name in ("source", "int8", "again"))
            network.to_onnx(source, dtype="float32")
            quantization.quantize_dynamic(source, int8, weight_type=quantization.QuantType.QInt8)
            report = verify_same(int8, source, X, random_state=seed)
            assert report.same is False and report.batch_dependent
            shutil.copy(int8, again)
            report = verify_same(again, int8, X, random_state=seed)
            assert report.same is True and report.n_queries == 0 and report.missed(0.0) == 0.0
            with pytest.raises(ValueError, match="cannot read node"):
                verify_same(source, int8, X, random_state=seed)
        assert str(report) == "the same: both files hold the same ONNX model, so it was not queried"
        AuditDisplay.from_report(report)

    def test_noise_is_not_taken_for_it(self):
        """The rate of false alarms is 1e-4 by design; 300 probes."""
        network, X, rng = random_network(0)
        noisy = Oracle(lambda X: network(X) + 0.1 * rng.standard_normal((len(X), 2)), 6)
        rows, rounding = spread_rows(X)[:4], np.full(2, 1e-12)
        probes = [probe_batches(noisy, rows) for _ in range(300)]
        quiet = [not probe.depends_on_batch(noisy, rows, rounding) for probe in probes]
        assert all(probe.differs(rounding) for probe in probes) and sum(quiet) >= fewest_successes(300, 1000, 1000)


class TestSinglePrecision:
    def test_a_network_identified_from_a_float32_file(self, tmp_path):
        """Its weights are in double precision, and off by what float32 outputs hide."""
        for seed in SEEDS:
            network, X, _ = random_network(2 * seed, (4 + seed % 3, 5, 2))
            network.to_onnx(tmp_path / "source.onnx", dtype="float32")
            identifier = NetworkIdentifier(str(tmp_path / "source.onnx"), layer_widths=(5, 2), random_state=seed)
            with pytest.warns(match="noise or rounding"):
                identifier.fit(X)
            identifier.network_.to_onnx(tmp_path / "got.onnx")
            report = verify_same(tmp_path / "got.onnx", tmp_path / "source.onnx", X, random_state=seed)
            assert report.same is True and report.kind == "float32"
            changed = with_one_weight(identifier.network_, np.random.RandomState(seed), 1.01)
            changed.to_onnx(tmp_path / "changed.onnx")
            assert verify_same(tmp_path / "changed.onnx", tmp_path / "source.onnx", X, random_state=seed).same is False

    def test_a_reference_with_rounded_weights(self, tmp_path):
        for seed in SEEDS:
            network, X, _ = random_network(seed)
            in_single(network).save(tmp_path / "known.safetensors")
            known = FeedforwardNetwork.load(tmp_path / "known.safetensors")
            for box in (network, lambda X, network=network: network(X)):
                report = verify_same(box, known, X, random_state=seed)
                assert report.same is True and report.kind == "float32"
            assert verify_same(known, known, X, random_state=seed).kind == "float64"  # nothing was rounded between them

    @pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.01, 5.0), (1e3, 0.0)])
    def test_a_model_that_casts_its_inputs(self, scale, offset):
        for seed in SEEDS:
            network, X, rng = random_network(seed)
            network, X = moved(network, scale, offset), scale * X + offset
            report = verify_same(casting(network), network, X, random_state=seed)
            assert report.same is True and report.casts_inputs and report.kind == "float32"
            report = verify_same(casting(with_one_weight(network, rng, 2.0)), network, X, random_state=seed)
            assert report.same is False and len(report.differences) == 1

    def test_a_model_that_does_not(self):
        for seed in SEEDS:
            network, X, rng = random_network(seed)
            report = verify_same(with_one_weight(network, rng, 1.0001), network, X, random_state=seed)
            assert report.same is False and not report.casts_inputs and report.kind == "float64"

    def test_one_weight_of_a_reference_with_rounded_weights(self):
        """A change of 2e-5 differs from rounding, also where it changes all outputs."""
        for seed in SEEDS:
            network, X, rng = random_network(seed)
            known = in_single(network)
            changed = with_one_weight(known, rng, 1 + 2e-5)
            for box in (changed, lambda X, changed=changed: changed(X)):
                report = verify_same(box, known, X, random_state=seed)
                assert report.same is False and len(report.differences) == 1 and report.kind == "float64"
            assert verify_same(lambda X, known=known: known(X), known, X, random_state=seed).kind == "float64"

    def test_one_rounded_weight_is_rounding(self):
        for seed in SEEDS:
            network, X, rng = random_network(seed)
            known = in_single(network)
            off = with_one_weight(known, rng, 1 + 2e-8)
            assert verify_same(lambda X, off=off: off(X), known, X, random_state=seed).same is True


class TestUndecided:
    def audited(self, seed, factor, **options):
        network, X, rng = random_network(seed)
        changed, noise = with_one_weight(network, rng, factor), 0.05 * network(X).std(axis=0)
        return verify_same(
            lambda X: changed(X) + noise * rng.standard_normal((len(X), 2)), network, X, random_state=seed, **options
        )

    @pytest.mark.parametrize("factor", [1.0, 1.01])
    def test_noise_that_hides_every_weight(self, factor):
        for seed in SEEDS:
            report = self.audited(seed, factor)
            assert report.same is None and report.verdict == "undecided" and not report.differences

    def test_the_recommended_tolerance_decides(self):
        for seed in SEEDS:
            tol = float(re.search(r"set tol=(\S+) if", str(self.audited(seed, 1.0)))[1])
            assert self.audited(seed, 1.0, tol=tol).same is True
        assert self.audited(0, 1.0, tol=1e-6).same is None  # which noise does not let one check

    def test_a_large_difference_is_still_one(self):
        assert self.audited(0, -60.0).same is False

    def test_what_is_told(self):
        network, X, _ = random_network(1)
        verifier = NetworkVerifier(lambda X: network(X).round(0), network=network, random_state=0).fit(X)
        assert verifier.same_ is None and not verifier.same_
        assert verifier.report_.to_dict()["verdict"] == "undecided" and verifier.report_.to_dict()["same"] is None
        assert str(verifier.report_).startswith("undecided: ") and "precision (decimals)" in str(verifier.report_)
        assert ">undecided: " in verifier.report_._repr_html_()
        assert AuditDisplay.from_estimator(verifier).ax_.get_title().endswith("undecided")


class TestModelsThatRaise:
    network, X, _ = random_network(0)

    def test_at_the_first_query(self):
        def raising(X):
            raise ValueError("no rows of 6 columns")

        with pytest.raises(BlackBoxError, match="the black box raised ValueError on a batch of 4 rows.*no rows of 6"):
            verify_same(raising, self.network, self.X, random_state=0)

    def test_on_single_rows_once_batches_matter(self):
        quantized = dynamically_quantized(self.network)

        def raising(X):
            if len(X) == 1:
                raise ValueError("more than 1 row expected")
            return quantized(X)

        with pytest.raises(BlackBoxError, match="raised ValueError on a batch of 1 rows.*more than 1 row expected"):
            verify_same(raising, self.network, self.X, random_state=0)

    def test_inputs_that_repeat(self):
        X = np.repeat(self.X[:2], 30, axis=0)
        report = verify_same(copy.deepcopy(self.network), self.network, X, random_state=0)
        assert report.same is True and not report.batch_dependent
