"""Ways to identify a black box: each is one attempt that takes what all attempts share and gives a trial."""

from __future__ import annotations

import functools
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skident.fitting.design import design_points
from skident.linalg import n_free_entries
from skident.network import FeedforwardNetwork, change_inputs, get_activation

from .inquiry import Trial, finish, worst_error
from .kinks.network import find_relu_network
from .saturation_route import by_discovery, by_saturation

__all__ = ["attempts_in_order"]

_RELU_REACH = 1e3  # of lines, in units of sqrt(D) standard deviations

_RESTARTS = 5  # with a single output about one start in five ends in a local minimum


def attempts_in_order(job, strategy, pipeline_only, n_attempts):
    """The attempts to make: callables of (job, X, earlier trials), each giving a `Trial` or None.

    Parameters
    ----------
    job : Job
    strategy : {"auto", "saturation", "hessian"}
    pipeline_only : bool
        Whether ``auto`` starts with the pipeline: its stages were given explicitly.
    n_attempts : int

    Raises
    ------
    ValueError
        If the strategy cannot work for these widths and activations.
    """
    job.reason = _reason(job, strategy, pipeline_only)
    if job.names[0] == "relu":
        return [_relu_route(job, strategy)]
    saturating = get_activation(job.names[0]).saturating
    if strategy == "saturation" and not saturating:
        raise ValueError(
            "strategy='saturation' needs an activation that saturates (tanh, sigmoid, erf), got "
            f"{job.names[0]!r}; use strategy='hessian'."
        )
    if job.discover:
        if not saturating or strategy == "hessian":
            raise ValueError(
                "layer_widths='auto' finds units where a saturating activation (tanh, sigmoid, erf) saturates; got "
                f"activation={job.names[0]!r}, strategy={strategy!r}. Give layer_widths."
            )
        return [functools.partial(by_discovery, attempt=k) for k in range(min(n_attempts, 2))]
    pipeline = [functools.partial(by_pipeline, attempt=k) for k in range(n_attempts)]
    far = [functools.partial(by_saturation, attempt=k) for k in range(n_attempts)]
    can_saturate = saturating and not job.shallow
    if strategy == "saturation" and can_saturate:
        return far
    starts_far = can_saturate and strategy == "auto" and not pipeline_only
    fits = job.shallow or job.n_visible <= n_free_entries(job.oracle.n_inputs)
    if job.shallow or (len(job.widths) <= 3 and (fits or not starts_far)):
        return ([far[0], *far[1:2], *pipeline] if starts_far else pipeline)[:n_attempts]
    if starts_far:
        return far
    raise ValueError(
        f"layer_widths={job.widths}: the Hessian route tells inner layers apart up to three layers; deeper networks "
        "need a saturating activation and strategy='saturation'."
    )


def _reason(job, strategy, pipeline_only):
    """Why the routes are those that they are, for the report."""
    name = job.names[0]
    if strategy != "auto":
        return f"strategy={strategy!r} was asked for"
    if name == "relu":
        return "relu networks bend at kinks only"
    if not get_activation(name).saturating:
        return f"{name} does not saturate, so Hessians have to tell its units"
    if pipeline_only:
        return "stages were given, or the input range does not reach to where units saturate"
    if job.shallow and not job.discover:
        return f"{name} saturates, and with one hidden layer a fit of scales and shifts is all that is left"
    return f"{name} saturates far out"


def _relu_route(job, strategy):
    """The one way for relu, or an error where it cannot work."""
    if strategy == "saturation":
        raise ValueError("strategy='saturation' needs an activation that saturates, got 'relu'; use strategy='auto'.")
    deep = job.widths is not None and len(job.widths) != 2
    if strategy == "hessian" or deep or job.names[1] != "identity":
        raise ValueError(
            "activation='relu' has no second derivative; its networks are identified by the kinks of their answers, "
            "with one hidden layer, a linear output and strategy='auto'. Got "
            f"layer_widths={job.widths}, output_activation={job.names[1]!r}, strategy={strategy!r}."
        )
    return by_kinks


def by_kinks(job, X, earlier):
    """A ReLU network with one hidden layer from the kinks of its answers along lines."""
    n_units = None if job.widths is None else job.widths[0]
    with job.log.stage("units (kinks along lines)", job.oracle, n_units) as entry:
        reach = min(_RELU_REACH, job.oracle.reach / np.sqrt(job.oracle.n_inputs))
        network = find_relu_network(
            job.oracle,
            n_units=n_units,
            max_units=max(1000, n_units or 0),
            reach=reach,
            rng=job.rng,
            callback=entry["progress"],
        )
    error = worst_error(job.held_out_answers, network(job.held_out))
    return Trial(network, error, "polish", error, "kinks")


def by_pipeline(job, X, earlier, *, attempt):
    """Extraction, completion and polish at one centre; from other random starts where directions are exact."""
    extractor = _extract(job, X, _center(job, attempt, earlier))
    if not job.oracle.restricted:  # else it asked through the oracle, which counted
        job.extraction_queries += extractor.n_queries_
    missing = sum(extractor.layer_widths_) > len(extractor.components_)
    exact = len(extractor.layer_widths_) == 2 and extractor.scales_ is None and not missing
    best = None
    for restart in range(1 + _RESTARTS if exact and job.polish else 1):
        network, completion = _complete(job, extractor, restart)
        stage = "extraction" if missing else "completion" if completion.misfit_ > 0.1 else "polish"
        trial = finish(job, network, completion.misfit_, stage, "hessian", extractor, completion)
        best = trial if best is None or trial.error < best.error else best
        if best.error < max(job.tol, 20.0 * job.noise) or job.late:
            break
    return best


def _center(job, attempt, earlier):
    """Where attempt k looks: the centre; the first layer's inflection point; random points near the centre."""
    center, scale = job.oracle.center, job.oracle.scale
    if attempt == 0 or job.extractor.center is not None:
        return center
    extractor = next((t.extractor for t in earlier if t.extractor is not None), None)
    if attempt == 1 and extractor is not None and extractor.scales_ is not None:
        W, b = _first_layer(extractor, job.oracle)
        return center - scale * np.linalg.lstsq(W.T, b, rcond=1e-2)[0]
    u = 0.3 * job.rng.standard_normal((1, len(center))) / np.sqrt(len(center))
    # Room for derivatives: the same as at the centre, if that has little.
    margin = min(job.oracle.reach, 10.0 * (job.extractor.radius + 2.0 * job.extractor.step_size))
    return job.oracle.to_inputs(job.oracle.confined(u, margin))[0]


def _extract(job, X, center):
    """The fitted extractor of this attempt; its warnings are judged by the last look instead."""
    frozen = FrozenEstimator(job.box) if hasattr(job.box, "predict") and hasattr(job.box, "fit") else job.box
    extractor = clone(job.extractor).set_params(
        estimator=job.oracle.shared() if job.oracle.restricted else frozen,
        layer_widths=job.widths,
        activation=job.names[0],
        output_activation=job.names[1],
        center=center,
        random_state=job.rng.randint(2**31 - 1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(X)
    extractor.estimator_ = job.box
    extractor.set_params(estimator=frozen)
    job.log.stages.extend(extractor.report_)
    return extractor


def _complete(job, extractor, restart):
    """Scales and shifts on fresh inputs: a network of standardised inputs, and the fitted completion."""
    widths = _found_widths(extractor)
    V = _components(extractor, widths, job.rng)
    ridge = len(widths) == 2 and job.names[1] == "identity"
    V = V[: widths[0]] if ridge else V
    with job.log.stage("completion", job.oracle) as entry:
        n = 10 * 3 * sum(widths) // widths[-1] + 4 * job.oracle.n_inputs + 4 * widths[0]
        U, Y = job.oracle.ask_near(functools.partial(_completion_inputs, job, extractor, widths), n)
        Z = job.oracle.to_inputs(U) @ V.T
        completion = clone(job.completion).set_params(
            layer_widths=widths,
            activation=job.names[0],
            output_activation=job.names[1],
            random_state=job.rng.randint(2**31 - 1),
        )
        if completion.start is None and extractor.scales_ is not None and len(extractor.scales_) == widths[0]:
            completion.set_params(start=(extractor.scales_, extractor.shifts_))
        elif restart:
            completion.set_params(start=_random_start(Z[:, : widths[0]], job.rng), n_init=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            completion.fit(Z, Y)
        entry["residual"] = completion.misfit_
    inner = completion.network_
    network = FeedforwardNetwork([V.T @ inner.weights[0], *inner.weights[1:]], inner.biases, *job.names)
    return change_inputs(network, job.oracle.center, job.oracle.scale), completion


def _random_start(Z, rng):
    """Scales and shifts of first-layer units that bend around where their features Z (n, m_1) lie."""
    spread = rng.standard_normal((2, Z.shape[1]))
    scales = 0.5 * np.exp(0.7 * spread[0]) / np.maximum(Z.std(axis=0), np.finfo(float).tiny)
    return scales, 0.3 * spread[1] - scales * Z.mean(axis=0)


def _found_widths(extractor):
    """The widths asked for, or fewer first-layer units where saturation found fewer; Hessians may miss some."""
    widths = extractor.layer_widths_
    first = int(np.sum(extractor.layer_assignment_ == 0))
    complete = extractor.first_layer_method_ == "saturation"
    return (first, *widths[1:]) if len(widths) == 2 and 0 < first and complete else widths


def _completion_inputs(job, extractor, widths, n, factor):
    """Inputs near enough for eq. (18) to be solvable."""
    D, rng = job.oracle.n_inputs, job.rng
    if extractor.scales_ is None or len(extractor.scales_) != widths[0]:
        return factor * rng.standard_normal((n, D)) / np.sqrt(D)
    W, b = _first_layer(extractor, job.oracle)
    if len(widths) > 2 or job.names[1] != "identity":
        return design_points(W, b, n, 0.25 * factor, rng, near=0.0)
    return design_points(W, b, n, factor, rng)


def _first_layer(extractor, oracle):
    """First-layer weights (D, m_1) and shifts from saturation, in the oracle's coordinates."""
    W = extractor.components_[: len(extractor.scales_)].T * extractor.scales_
    return W * oracle.scale[:, None], extractor.shifts_ + W.T @ oracle.center


def _components(extractor, widths, rng):
    """Components layer by layer, (m, D); missing ones replaced by random directions for the polish to turn."""
    rows = []
    for layer, m in enumerate(widths):
        V = extractor.components_[extractor.layer_assignment_ == layer][:m]
        fill = rng.standard_normal((m - len(V), extractor.components_.shape[1])) / extractor.scale_
        rows += [V, fill / np.linalg.norm(fill, axis=1, keepdims=True)]
    return np.concatenate(rows)
