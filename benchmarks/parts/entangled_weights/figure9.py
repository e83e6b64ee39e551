"""Figure 9 of Fiedler et al.: learning from scratch, the paper's pipeline and ours on the same networks."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from skorch.callbacks import Callback

import seed_ranges
from common import BlackBox, Countdown, format_table, make_identifier, stopwatch
from registry import part
from skident import EntangledWeightExtractor, NetworkCompletion
from skident.datasets import make_network
from skident.metrics import relative_max_error, relative_mse

N_INPUTS = 50
FIRST_SEED = seed_ranges.FIGURE_9.start
WIDTHS = ((40, 10), (50, 30, 10))
N_COMPLETION, N_TEST = 1000, 100_000  # N_f (the paper: 10^3 or 10^4, "negligible effect") and N_test
SECONDS, MAX_EPOCHS = 6.0, 2000  # of gradient descent, whichever ends first
SECONDS_FROM_SCRATCH = 15.0
TANH = {"activation": "tanh", "output_activation": "tanh"}


def _inputs(n, seed):
    """N(0, I / D), the paper's inputs."""
    return np.random.default_rng(seed).standard_normal((n, N_INPUTS)) / np.sqrt(N_INPUTS)


def _scores(network, predict, seconds, queries, **more):
    X = _inputs(N_TEST, 1)
    far = np.sqrt(N_INPUTS) * _inputs(10_000, 2)
    truth, outputs = network(X), predict(X)
    return {
        "mse": relative_mse(truth, outputs),
        "max_error": relative_max_error(truth, outputs),
        "max_error_far": relative_max_error(network(far), predict(far)),
        "seconds": seconds,
        "queries": queries,
        **more,
    }


def _sgd_from_scratch(network, seed, seconds, quick):
    """M1: D^2 m samples, batches of 10^4, learning rate 0.01 (as in `_descent`), float32, until the time is over."""
    n = 20_000 if quick else N_INPUTS**2 * sum(network.layer_widths)
    X = _inputs(n, seed)
    data = [torch.as_tensor(a, dtype=torch.float32) for a in (X, network(X))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = []
        for fan_in, width in zip((N_INPUTS, *network.layer_widths[:-1]), network.layer_widths, strict=True):
            layers += [torch.nn.Linear(fan_in, width), torch.nn.Tanh()]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * network.layer_widths[-1])
        left, epochs = Countdown(seconds), 0
        with stopwatch() as clock:
            while not left.over:
                for batch in torch.randperm(n).split(10_000):
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(data[0][batch]), data[1][batch]).backward()
                    optimizer.step()
                epochs += 1

    def predict(Z):
        with torch.no_grad():
            return model(torch.as_tensor(Z, dtype=torch.float32)).numpy().astype(float)

    return _scores(network, predict, clock.seconds, n, epochs=epochs)


class _TimeBound(Callback):
    """Ends training after some seconds, as an interrupt from the keyboard would."""

    def __init__(self, seconds):
        self.seconds = seconds

    def on_train_begin(self, net, **kwargs):
        self.left_ = Countdown(self.seconds)

    def on_epoch_end(self, net, **kwargs):
        if self.left_.over:
            raise KeyboardInterrupt


def _descent(network, seconds, max_epochs):
    """Options of eq. (18) by gradient descent.

    The paper's 0.025 is taken as the step on the mean over samples of the squared norm of the m_L errors; torch's mean
    squared error divides by m_L too.
    """
    rate = 0.025 * network.layer_widths[-1]
    return {"solver": "gd", "learning_rate": rate, "max_iter": max_epochs, "callbacks": [_TimeBound(seconds)]}


def _completion(network, V, n_queries, before=0.0, **options):
    """Eq. (18) on given weights V (D, m), layer by layer."""
    X = _inputs(N_COMPLETION, 3)
    with stopwatch() as clock:
        fitted = NetworkCompletion(network.layer_widths, **TANH, **options).fit(X @ V, network(X))
    seconds = before + clock.seconds
    return _scores(network, lambda Z: fitted.predict(Z @ V), seconds, n_queries + N_COMPLETION, epochs=fitted.n_iter_)


def _exact_weights(network):
    V = np.hstack(network.entangled_weights(np.zeros(N_INPUTS)))
    return V / np.linalg.norm(V, axis=0)


def _extracted_weights(network, seed):
    """Algorithms 1 to 5 on function values; (V, queries, seconds)."""
    box = BlackBox(network)
    extractor = EntangledWeightExtractor(
        box,
        layer_widths=network.layer_widths,
        **TANH,
        center=np.zeros(N_INPUTS),
        first_layer="hessian",
        last_layer="hessian",
        random_state=seed,
    )
    with stopwatch() as clock:
        extractor.fit(np.sqrt(N_INPUTS) * _inputs(500, seed))
    return extractor.components_.T, box.rows, clock.seconds


def _identifier(network, seed, **options):
    box = BlackBox(network)
    identifier = make_identifier(box, layer_widths=network.layer_widths, **TANH, random_state=seed, **options)
    with warnings.catch_warnings(), stopwatch() as clock:
        warnings.simplefilter("ignore", ConvergenceWarning)
        identifier.fit(np.sqrt(N_INPUTS) * _inputs(500, seed))
    return _scores(network, identifier.predict, clock.seconds, box.rows, exact=identifier.report_.exact)


def _methods(network, seed, quick):
    """Name and result of every method, one after the other."""
    seconds, epochs = (2.0, 50) if quick else (SECONDS, MAX_EPOCHS)
    descent = _descent(network, seconds, epochs)
    bound = seconds if quick else SECONDS_FROM_SCRATCH
    yield "M1: SGD from scratch", _sgd_from_scratch(network, seed, bound, quick)
    V, n_queries, before = _extracted_weights(network, seed)
    yield "M3: (18) by gradient descent, extracted weights", _completion(network, V, n_queries, before, **descent)
    yield "M4: (18) by gradient descent, exact weights", _completion(network, _exact_weights(network), 0, **descent)
    newton = {"solver": "lm", "max_iter": 40, "n_starts": 1}
    yield "M3 by Levenberg-Marquardt", _completion(network, V, n_queries, before, **newton)
    yield "M4 by Levenberg-Marquardt", _completion(network, _exact_weights(network), 0, **newton)
    center = np.zeros(N_INPUTS)
    extractor = EntangledWeightExtractor(center=center)
    yield "ours, pipeline route", _identifier(network, seed, strategy="hessian", extractor=extractor)
    yield "ours, default", _identifier(network, seed)


@part("entangled_weights", "figure9", seeds=seed_ranges.FIGURE_9)
def run(trials=None, quick=False):
    trials = trials or (1 if quick else 2)
    threads, rows = torch.get_num_threads(), []
    torch.set_num_threads(1)  # networks this small gain nothing from more, and lose much when cores are shared
    try:
        for widths in WIDTHS[:1] if quick else WIDTHS:
            results = {}
            for t in range(trials):
                network = make_network((N_INPUTS, *widths), random_state=FIRST_SEED + t)
                for name, result in _methods(network, FIRST_SEED + t, quick):
                    results.setdefault(name, []).append(result)
                    error, seconds = result["max_error"], result["seconds"]
                    print(f"figure 9: {widths} {name}: {error:.1e}, {seconds:.1f} s", flush=True)
            for name, found in results.items():
                row = {"widths": widths, "method": name, "trials": len(found)}
                row |= {key: float(np.median([r[key] for r in found])) for key in found[0]}
                rows.append({**row, "worst_max_error": max(r["max_error"] for r in found)})
    finally:
        torch.set_num_threads(threads)
    return {"trials": trials, "rows": rows}


def tables(result):
    header = ["widths", "method", "relative MSE", "relative max error", "worst", "max error on N(0, I)", "seconds"]
    header += ["queries", "epochs"]
    keys = ["mse", "max_error", "worst_max_error", "max_error_far", "seconds"]
    rows = []
    for r in result["rows"]:
        widths = "(" + ", ".join(map(str, r["widths"])) + ")"
        epochs = None if r.get("epochs") is None else int(r["epochs"])
        rows.append([widths, r["method"], *[r[k] for k in keys], int(r["queries"]), epochs])
    return format_table(header, rows) + f"\n\nMedians over {result['trials']} networks."
