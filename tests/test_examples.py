"""The examples run to their end and show what they claim."""

import re
from pathlib import Path

import matplotlib
import matplotlib.image
import matplotlib.pyplot as plt
import pytest
from sklearn.exceptions import ConvergenceWarning

FOLDER = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("plot_*.py"))
NUMBER = r"(\d\.\d+e[+-]\d+|nan|inf)"


def run(name, tmp_path, monkeypatch, capsys, **assigned):
    """What an example prints with other values of some of its variables; its pictures must not be empty."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    path = FOLDER / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    for variable, value in assigned.items():
        source, n = re.subn(rf"^{variable} = .*$", f"{variable} = {value}", source, flags=re.MULTILINE)
        assert n == 1
    try:
        exec(compile(source, str(path), "exec"), {"__name__": name, "__file__": str(path)})
    finally:
        plt.close("all")
    pictures = [matplotlib.image.imread(picture) for picture in tmp_path.glob("*.png")]
    assert pictures and all(min(picture.shape[:2]) > 300 and picture.std() > 0.01 for picture in pictures)
    return capsys.readouterr().out


def test_recover_sklearn_mlp(tmp_path, monkeypatch, capsys):
    printed = run("plot_01_recover_sklearn_mlp", tmp_path, monkeypatch, capsys)
    assert "layers of (8, 1) units, 97 parameters" in printed
    assert int(re.search(r"^([\d,]+) queries", printed, flags=re.MULTILINE)[1].replace(",", "")) < 100_000
    errors = re.findall(rf"(?:coefs_|intercepts_)\[\d\]: maximum absolute error {NUMBER}", printed)
    assert len(errors) == 4 and max(map(float, errors)) < 1e-8
    assert (tmp_path / "recovered_mlp.png").is_file()


@pytest.mark.slow
def test_entangled_weights_pipeline(tmp_path, monkeypatch, capsys):
    printed = run("plot_02_entangled_weights_pipeline", tmp_path, monkeypatch, capsys)
    scores = re.findall(rf"radius \S+ *: 1 - R\^2 = {NUMBER}", printed)
    assert len(scores) == 5 and max(map(float, scores)) < 1e-2
    assert "recovery rate 1.000, false positives 0.000" in printed
    first, last = re.search(rf"E_1 = {NUMBER}, last layer E_L = {NUMBER}", printed).groups()
    assert float(first) < 0.05 and float(last) < 1e-6
    plain, polished = re.findall(rf"relative maximum error {NUMBER}", printed)
    assert float(plain) < 0.1 and float(polished) < 1e-10


@pytest.mark.slow
def test_compression(tmp_path, monkeypatch, capsys):
    printed = run("plot_05_compression", tmp_path, monkeypatch, capsys)
    assert "trained: 769 parameters" in printed
    sizes = list(map(int, re.findall(r"tol \S+: (\d+) units", printed)))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] <= 50 and sizes[-1] <= 6
    compressed, distilled, largest = (
        [float(e) for e in re.findall(rf"{name}: relative error {NUMBER}", printed)]
        for name in ("compressed", "trained on its outputs", "largest units kept")
    )
    # The held-out samples of the fit kept the tolerance; new ones may exceed it by their sampling error.
    assert all(error < 1.5 * tol for error, tol in zip(compressed, (0.01, 0.03, 0.1, 0.2, 0.3)))
    assert compressed[0] < distilled[0] and all(a < 0.5 * b for a, b in zip(compressed, largest))


@pytest.mark.slow
def test_deep_mlp(tmp_path, monkeypatch, capsys):
    printed = run("plot_03_deep_mlp", tmp_path, monkeypatch, capsys)
    assert "layers of (8, 5, 1) units" in printed and "layers of (16, 8, 10) units" in printed
    errors = re.findall(rf"error of a weight or bias: {NUMBER}", printed)
    assert len(errors) == 2 and max(map(float, errors)) < 1e-8


@pytest.mark.slow
def test_classifier(tmp_path, monkeypatch, capsys):
    printed = run("plot_04_classifier", tmp_path, monkeypatch, capsys)
    assert "layers of (10, 10) units" in printed and "same digit on 100.0% of the data" in printed
    errors = re.findall(rf"maximum (?:absolute error|error of a probability on held-out inputs:) {NUMBER}", printed)
    assert len(errors) == 5 and max(map(float, errors)) < 1e-8


@pytest.mark.slow
def test_five_layers(tmp_path, monkeypatch, capsys):
    printed = run("plot_06_five_layers", tmp_path, monkeypatch, capsys)
    stages = re.findall(r"^(\S.*?) +\d+\.\d\d s +(\d+) queries$", printed, flags=re.MULTILINE)
    assert len(stages) >= 3 and stages[0][0].startswith("first layer") and stages[-1][0] == "polish"
    assert float(re.search(rf"error of a weight or bias: {NUMBER}", printed)[1]) < 1e-8


@pytest.mark.slow
def test_certificate(tmp_path, monkeypatch, capsys):
    printed = run("plot_07_certificate", tmp_path, monkeypatch, capsys, n_steps=1000)
    at_rest, out, ended = re.findall(r"(?:saddle|global)[,:] loss (\d\.\d+)", printed)
    assert "Adam converged: saddle" in printed and "Adam from there: global" in printed
    assert float(at_rest) > float(out) > float(ended)


@pytest.mark.slow
def test_phase_transition(tmp_path, monkeypatch, capsys):
    printed = run("plot_08_phase_transition", tmp_path, monkeypatch, capsys, n_trials=3, n_starts=2)
    pairs = re.findall(r"half-point (\d+\.\d+) \[\S+ \S+\], paper (\d+\.\d+)", printed)
    # Two starts and three trials determine the half-point to about two.
    assert len(pairs) == 4 and all(abs(float(ours) - float(paper)) < 4 for ours, paper in pairs)


@pytest.mark.slow
def test_rank_two_escape(tmp_path, monkeypatch, capsys):
    printed = run("plot_09_rank_two_escape", tmp_path, monkeypatch, capsys)
    assert "fastest speed 0.500000000" in printed
    beating = list(map(int, re.findall(r"(\d+) of 100 restarts beat rank one", printed)))
    assert beating == sorted(beating) and beating[0] < 10 and beating[-1] >= 75


def test_low_rank_digits(tmp_path, monkeypatch, capsys):
    printed = run("plot_10_low_rank_digits", tmp_path, monkeypatch, capsys, max_iter=220)
    assert "escape speed 0.552" in printed and "bottleneck rank 1" in printed
    ratios = re.search(r"ranks \(\d, 1, 1, 1\), s2/s1 = \S+ (\S+), (\S+), (\S+)", printed).groups()
    assert max(map(float, ratios)) <= 0.2


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_an_example_has_a_topic_as_title_and_text_between_its_code(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n# %%\n# ") >= 2 and "savefig(" in source.split("# %%", 1)[1]
    title = source.split('"""')[1].strip().splitlines()[0]
    assert 20 < len(title) <= 70 and not title.endswith(("?", "."))


@pytest.mark.slow
def test_relu_from_samples(tmp_path, monkeypatch, capsys):
    printed = run("plot_15_relu_from_samples", tmp_path, monkeypatch, capsys, sizes="(3000,)")
    assert "recovered units: 10" in printed
    found = re.findall(rf"(literal algorithm|tensors alone|polished): {NUMBER}", printed)
    errors = {name: float(e) for name, e in found}
    assert errors["polished"] < errors["tensors alone"] < errors["literal algorithm"]


@pytest.mark.slow
def test_relu_classifier(tmp_path, monkeypatch, capsys):
    with pytest.warns(ConvergenceWarning, match="Maximum iterations"):
        printed = run("plot_16_relu_classifier", tmp_path, monkeypatch, capsys)
    assert "layers of (100, 1) units, exact: True" in printed
    assert float(re.search(rf"error of a probability .*: {NUMBER}", printed)[1]) < 1e-10


@pytest.mark.slow
def test_deep_relu(tmp_path, monkeypatch, capsys):
    with pytest.warns(ConvergenceWarning, match="Maximum iterations"):
        printed = run("plot_17_deep_relu", tmp_path, monkeypatch, capsys)
    assert "layers of (16, 8, 4, 1) units, exact: True" in printed
    assert "units that change their activity: [16, 8, 4]" in printed
    assert float(re.search(rf"N\(0, 9 I\): {NUMBER}", printed)[1]) < 1e-10


@pytest.mark.slow
def test_aligned_networks(tmp_path, monkeypatch, capsys):
    printed = run("plot_19_aligned_networks", tmp_path, monkeypatch, capsys, n_epochs=12)
    before, by_weights, by_outputs = map(
        float, re.search(r"before (\S+), by weights (\S+), by outputs (\S+)", printed).groups()
    )
    assert by_weights < by_outputs < before
    assert float(re.search(rf"change of an output: {NUMBER}", printed)[1]) < 1e-4
    before, *after = map(float, re.findall(r"highest loss (\S+),", printed))
    assert len(after) == 2 and max(after) < 0.5 * before


@pytest.mark.slow
def test_audit(tmp_path, monkeypatch, capsys):
    printed = run("plot_20_audit", tmp_path, monkeypatch, capsys)
    assert "25216 parameters" in printed and "predictions changed by the change: 0 of 1797" in printed
    same, different = printed.split("float32, ", 1)[1].split("one weight changed, ")
    assert "the same: " in same and "outputs: float32" in same
    known, found = re.search(
        r"weights\[1\]\[42, 17\]: (\S+) in the network, (\S+) in the black box", different
    ).groups()
    assert float(found) == pytest.approx(1.001 * float(known), rel=1e-8)
    assert "or else" not in different


@pytest.mark.slow
def test_onnx(tmp_path, monkeypatch, capsys):
    pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    with pytest.warns(ConvergenceWarning, match="the outputs carry noise or rounding"):
        printed = run("plot_21_onnx", tmp_path, monkeypatch, capsys)
    assert "agrees to within noise and rounding" in printed and "the same: " in printed
    rms, largest = re.search(r"rms (\S+), at most (\S+) standard errors", printed).groups()
    assert float(rms) < 1.5 and float(largest) < 5
    deployed, found = re.findall(rf"error of an output {NUMBER}", printed)
    assert float(found) < 3 * float(deployed) < 3e-6


@pytest.mark.slow
@pytest.mark.usefixtures("own_seconds")
def test_unknown_activation(tmp_path, monkeypatch, capsys):
    printed = run("plot_22_unknown_activation", tmp_path, monkeypatch, capsys, max_seconds=2.0)
    detected = re.findall(
        rf"^(\w+): detected (\w+)(?:, slope (\S+))?, (\d+) units, error {NUMBER}", printed, flags=re.MULTILINE
    )
    assert len(detected) == 8 and all(name == found and units == "12" for name, found, _, units, _ in detected)
    assert max(float(error) for *_, error in detected) < 1e-12
    assert [float(slope) for _, _, slope, _, _ in detected if slope] == [0.17]
    assert "Detected activation: unknown (unclear" in printed


@pytest.mark.slow
def test_control_policy(tmp_path, monkeypatch, capsys):
    printed = run("plot_18_control_policy", tmp_path, monkeypatch, capsys)
    assert (
        "layers of (64, 64, 6) units, 5702 parameters, exact: True" in printed and "route: saturation, faces" in printed
    )
    errors = re.findall(rf"(?:held-out observations|weight or bias): {NUMBER}", printed)
    assert len(errors) == 2 and float(errors[0]) < 1e-10 and float(errors[1]) < 1e-6


@pytest.mark.slow
def test_exact_bits(tmp_path, monkeypatch, capsys):
    printed = run("plot_23_exact_bits", tmp_path, monkeypatch, capsys)
    assert "5,702 of 5,702 parameters certain to the last bit of float32" in printed and "equal: True" in printed


@pytest.mark.slow
def test_labels(tmp_path, monkeypatch, capsys):
    printed = run("plot_25_labels", tmp_path, monkeypatch, capsys)
    assert "exact: relative maximum error" in printed and "equal labels: 1.000000" in printed
    assert float(re.search(rf"largest relative error {NUMBER}", printed)[1]) < 1e-8


@pytest.mark.slow
def test_digits(tmp_path, monkeypatch, capsys):
    printed = run("plot_26_digits", tmp_path, monkeypatch, capsys)
    assert "exact: relative maximum error" in printed and "widths (128, 64, 10)" in printed
    assert float(re.search(rf"largest error of a logit {NUMBER}", printed)[1]) < 1e-7


@pytest.mark.slow
def test_cramer_rao(tmp_path, monkeypatch, capsys):
    printed = run("plot_24_cramer_rao", tmp_path, monkeypatch, capsys)
    for activation in ("tanh", "relu"):
        worst = float(re.search(rf"{activation}: error over bound [0-9.]+ to ([0-9.]+)", printed)[1])
        assert worst < 2.0
