"""
Recovering an ONNX model in float32
===================================

A pipeline of a scaler and a tanh `MLPRegressor` is trained on the diabetes data and
converted by skl2onnx to float32, as models are deployed. `NetworkIdentifier` queries
onnxruntime and recovers the weights as accurately as float32 outputs allow, with
standard errors. `to_onnx` writes the recovered network to a file, and an audit compares
that file with the pipeline's own weights. The example needs the extra `onnx`. The
picture shows recovered against true weights, and the errors of both files relative to
float32 rounding.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from skident import NetworkIdentifier, verify_same
from skident.network import FeedforwardNetwork

try:
    import onnxruntime
    from skl2onnx import to_onnx
except ImportError as error:
    raise SystemExit(
        f"{error}; this example needs pip install 'skident[onnx]'"
    ) from error

ROUNDING = 2.0**-24  # of float32, relative


def flat(arrays):
    """All parameters as one vector."""
    return np.concatenate([np.ravel(a) for part in arrays for a in part])


# %%
# Train a pipeline and convert it for deployment.
X, y = load_diabetes(return_X_y=True)
mlp = MLPRegressor(
    hidden_layer_sizes=(8,),
    activation="tanh",
    solver="lbfgs",
    alpha=0.1,
    max_iter=5000,
    random_state=0,
)
model = make_pipeline(StandardScaler(), mlp).fit(X, scale(y))
exported = to_onnx(model, X[:1].astype(np.float32)).SerializeToString()
print(
    f"trained: R^2 = {model.score(X, scale(y)):.3f}; converted to {len(exported)} "
    "bytes of ONNX in float32"
)

# %%
# Recover the network from the outputs of onnxruntime.
session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
start = time.perf_counter()
identifier = NetworkIdentifier(session, layer_widths=(8, 1), random_state=0).fit(X)
print(
    f"{identifier.n_queries_:,} queries in {time.perf_counter() - start:.1f} "
    f"s\n{identifier.report_}"
)

# %%
# Write the recovered network to a file, and audit it against the trained pipeline.
found, truth = identifier.network_, FeedforwardNetwork.from_sklearn(model)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "found.onnx"
    found.to_onnx(path, dtype="float32")
    written = FeedforwardNetwork.from_onnx(path)
    report = verify_same(str(path), truth, X, random_state=0)
print(f"written: {written}\n{report}")

# %%
# Compare both.
truth = truth.align_to(found)
true, values = (flat((network.weights, network.biases)) for network in (truth, found))
stderr = flat(identifier.stderr_)
# the file holds rounded weights
errors = np.abs(values - true) / np.hypot(stderr, ROUNDING * np.abs(true))
rms = np.sqrt(np.mean(errors**2))
print(
    f"errors of the weights with rounding of the file: rms {rms:.2f}, at most "
    f"{errors.max():.1f} standard errors"
)
fresh = np.random.default_rng(1).permuted(X, axis=0)
outputs = model.predict(fresh)
gaps = {
    "deployed file": np.abs(
        session.run(None, {"X": fresh.astype(np.float32)})[0][:, 0] - outputs
    ),
    "recovered network": np.abs(found(fresh)[:, 0] - outputs),
}
for name, gap in gaps.items():
    print(f"{name}: error of an output {np.sqrt(np.mean(gap**2)):.1e} (rms)")

# %%
# Draw true against recovered weights, their errors beside standard errors, and errors
# of the outputs.
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.2), layout="constrained"
)
ends = np.array([true.min(), true.max()])
left.plot(ends, ends, color="0.7", zorder=0)
left.plot(true, values, "o", markersize=4)
left.set(
    xlabel="weight or bias of the pipeline",
    ylabel="recovered from the outputs",
    title="Recovered weights",
)
sizes = np.sort(np.abs(true))
middle.plot(np.abs(true), np.abs(values - true), "o", markersize=4, label="error")
middle.plot(np.abs(true), stderr, "_", color="#D55E00", label="standard error")
middle.plot(sizes, ROUNDING * sizes, color="0.5", linewidth=1, label="float32 rounding")
middle.set(
    xscale="log",
    yscale="log",
    xlabel="size of the weight",
    title="Errors of the weights",
)
middle.legend(fontsize=9)
for name, error in gaps.items():
    right.plot(np.linspace(0, 100, len(error)), np.sort(error), linewidth=2, label=name)
right.axhline(
    ROUNDING, color="0.5", linewidth=1, label="float32 rounding of the number 1"
)
right.set(
    yscale="log", xlabel="inputs in ascending order, %", title="Errors of the outputs"
)
right.legend(fontsize=9)
figure.savefig("onnx.png", dpi=200)
