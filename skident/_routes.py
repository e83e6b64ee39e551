"""Ways to identify a black box: each is one attempt that takes what all attempts share and gives a trial."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skident.completion import NetworkCompletion
from skident.extraction import EntangledWeightExtractor
from skident.linalg import n_free_entries
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import Oracle
from skident.recovery import (
    NotSaturatingError,
    StageLog,
    change_inputs,
    design_points,
    find_first_layer,
    network_from_vertices,
    polish_from_oracle,
)

__all__ = ["Job", "Trial", "attempts_in_order"]


@dataclass
class Job:
    """What all attempts at one black box share."""

    box: object
    oracle: Oracle
    rng: np.random.RandomState
    log: StageLog
    names: tuple[str, str]
    widths: tuple[int, ...] | None
    held_out: np.ndarray
    held_out_answers: np.ndarray
    noise: float
    extractor: EntangledWeightExtractor
    completion: NetworkCompletion
    polish: bool
    extraction_queries: int = 0

    @property
    def shallow(self):
        """Whether there is no hidden layer, or one below a linear output."""
        return self.widths is None or len(self.widths) == 1 or (len(self.widths) == 2 and self.names[1] == "identity")

    @property
    def n_visible(self):
        """Weights that show in Hessians: a linear output layer's do not."""
        return sum(self.widths) if get_activation(self.names[1]).curved else sum(self.widths[:-1])


@dataclass
class Trial:
    """What one attempt gave: a network of standardised inputs, its error on fresh inputs, and where it went wrong."""

    network: FeedforwardNetwork
    error: float
    stage: str
    misfit: float
    extractor: EntangledWeightExtractor | None = None
    completion: NetworkCompletion | None = None


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
    pipeline = [functools.partial(by_pipeline, attempt=k) for k in range(n_attempts)]
    can_saturate = get_activation(job.names[0]).saturating and not job.shallow
    if strategy == "saturation" and not get_activation(job.names[0]).saturating:
        raise ValueError(
            "strategy='saturation' needs an activation that saturates (tanh, sigmoid, erf), got "
            f"{job.names[0]!r}; use strategy='hessian'."
        )
    if strategy == "saturation" and can_saturate:
        return [by_saturation] * n_attempts
    start = [by_saturation] if can_saturate and strategy == "auto" and not pipeline_only else []
    fits = job.shallow or job.n_visible <= n_free_entries(job.oracle.n_inputs)
    if job.shallow or (len(job.widths) <= 3 and (fits or not start)):
        return (start + pipeline)[:n_attempts]
    if start:
        return start * n_attempts
    raise ValueError(
        f"layer_widths={job.widths}: the Hessian route tells inner layers apart up to three layers; deeper networks "
        "need a saturating activation and strategy='saturation'."
    )


def by_saturation(job, X, earlier):
    """First layer from far away, the rest on its vertices, then the polish; None where that cannot work."""
    try:
        with job.log.stage("first layer (saturation)", job.oracle, job.widths[0]) as entry:
            first = find_first_layer(
                job.oracle,
                activation=job.names[0],
                n_units=job.widths[0],
                rng=job.rng,
                callback=entry["progress"],
            )
    except NotSaturatingError:
        return None
    found = len(first.biases)
    if found > job.widths[0]:
        raise ValueError(
            f"layer_widths says {job.widths[0]} first-layer units, but {found} different ones were found where the "
            f"black box saturates; try layer_widths={(found, *job.widths[1:])}. If it clips its inputs, the "
            "clipping shows as units: stay near the data with "
            "extractor=EntangledWeightExtractor(first_layer='hessian')."
        )
    if found < job.widths[0]:
        return None
    with job.log.stage("rest of the network (vertices)", job.oracle) as entry:
        network, misfit = network_from_vertices(
            job.oracle, first, job.widths, *job.names, job.rng, callback=entry["progress"]
        )
        entry["residual"] = misfit
    stage = "vertices" if misfit > 1e-3 else "polish"
    return _trial(job, network, misfit, stage)


def by_pipeline(job, X, earlier, *, attempt):
    """Extraction, completion and polish at one centre."""
    extractor = _extract(job, X, _center(job, attempt, earlier))
    if not job.oracle.restricted:  # else it asked through the oracle, which counted
        job.extraction_queries += extractor.n_queries_
    network, completion = _complete(job, extractor)
    missing = sum(extractor.layer_widths_) > len(extractor.components_)
    stage = "extraction" if missing else "completion" if completion.misfit_ > 0.1 else "polish"
    return _trial(job, network, completion.misfit_, stage, extractor, completion)


def _trial(job, network, misfit, stage, extractor=None, completion=None):
    if job.polish:
        network, misfit = polish_from_oracle(job.oracle, network, job.rng, job.log)
    error = _worst_error(job.held_out_answers, network(job.held_out))
    return Trial(network, error, stage, misfit, extractor, completion)


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


def _complete(job, extractor):
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            completion.fit(Z, Y)
        entry["residual"] = completion.misfit_
    inner = completion.network_
    network = FeedforwardNetwork([V.T @ inner.weights[0], *inner.weights[1:]], inner.biases, *job.names)
    return change_inputs(network, job.oracle.center, job.oracle.scale), completion


def _found_widths(extractor):
    """The widths asked for, or fewer first-layer units where saturation found fewer."""
    widths = extractor.layer_widths_
    first = int(np.sum(extractor.layer_assignment_ == 0))
    return (first, *widths[1:]) if len(widths) == 2 and 0 < first else widths


def _completion_inputs(job, extractor, widths, n, factor):
    """Inputs near enough for eq. (18) to be solvable."""
    D, rng = job.oracle.n_inputs, job.rng
    if extractor.scales_ is None or len(extractor.scales_) != widths[0]:
        return factor * rng.standard_normal((n, D)) / np.sqrt(D)
    W, b = _first_layer(extractor, job.oracle)
    if len(widths) > 2 or job.names[1] != "identity":
        return design_points(W, b, n, 0.25 * factor, rng, near=0.0)
    return design_points(W, b, n, factor, rng)


def _worst_error(answers, found):
    """Largest error of any output over its largest deviation from its mean: offsets and other outputs hide nothing.

    Below a millionth of the largest answer, a deviation is taken as rounding and that millionth is the unit.
    """
    largest = np.abs(answers).max(axis=0)
    unit = np.maximum(np.abs(answers - answers.mean(axis=0)).max(axis=0), 1e-6 * largest)
    if not np.isfinite(found).all():
        return np.inf
    return float(np.max(np.abs(found - answers) / np.maximum(unit, np.finfo(float).tiny)))


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
