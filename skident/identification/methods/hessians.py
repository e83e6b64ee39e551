"""Identification near the data: entangled weights from Hessians, completion, polish (Fiedler et al., Section 3)."""

import functools
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from skident.fitting.design import design_points
from skident.linalg import column_units, lapack
from skident.network import FeedforwardNetwork, change_inputs
from skident.optim import best_of

from ..attempt import polished_attempt

_RESTARTS = 5  # starts of the completion beside the first (about one in five ends in a local minimum, one output)
_COMPLETION_FAILED = 0.1  # relative residual from which the completion, not the polish, limits the error
_GOOD_NOISE = 20.0  # error over the noise below which no other start is tried
_INFLECTION_RCOND = 1e-2  # cutoff of singular values when solving for the first layer's inflection point
_CENTER_SPREAD = 0.3  # distance of other centers, in standard deviations
_CENTER_MARGIN = 10.0  # distance of centers from the border of the input range, in radii of the derivatives

CENTER = "at the center"
INFLECTION = "at the inflection point"
NEARBY = "near the center"


def variants(n_attempts):
    """Names of the variants of so many steps: where Hessians are sampled."""
    return [CENTER, INFLECTION, *[NEARBY] * n_attempts][:n_attempts]


class Hessians:
    """Entangled weights from Hessians, completion, polish; the first layer at large inputs if it saturates."""

    name = "Hessians"

    def refuses(self, problem):
        """See `Method`."""
        if problem.shallow or len(problem.widths) <= 3:
            return None
        return (
            f"layer_widths={problem.widths}: Hessians separate the inner layers of networks with up to three layers; "
            "deeper networks need a saturating activation and strategy='saturation'."
        )

    def run(self, problem, step, state):
        """See `Method`; other random starts of the completion if directions are exact."""
        extractor = _extract(problem, _center(problem, step.variant, state.attempts))
        missing = sum(extractor.layer_widths_) > len(extractor.components_)
        exact = len(extractor.layer_widths_) == 2 and extractor.scales_ is None and not missing
        good = max(problem.options.tol, _GOOD_NOISE * problem.held_out.relative_noise)
        far = len(extractor.layer_widths_) == 2 and extractor.first_layer_method_ == "saturation"
        name = "saturation, completion" if far else "Hessians, completion"

        def completed(restart):
            network, completion = _complete(problem, extractor, restart)
            failed = completion.residual_ > _COMPLETION_FAILED
            stage = "extraction" if missing else "completion" if failed else "polish"
            return polished_attempt(problem, network, completion.residual_, stage, name, extractor, completion)

        best, _ = best_of(
            map(completed, range(1 + _RESTARTS if exact and problem.options.polish else 1)),
            cost=lambda attempt: attempt.error,
            enough=lambda errors: min(errors) < good or problem.out_of_time,
        )
        return best


METHOD = Hessians()


def _center(problem, variant, attempts):
    """Where a variant samples Hessians (D,); random points near the center if no inflection point is known."""
    center, scale = problem.oracle.center, problem.oracle.scale
    if variant == CENTER or problem.pipeline.extractor.center is not None:
        return center
    extractor = next((a.extractor for a in attempts if a.extractor is not None), None)
    if variant == INFLECTION and extractor is not None and extractor.scales_ is not None:
        W, b = _first_layer(extractor, problem.oracle)
        return center - scale * lapack.lstsq(W.T, b, rcond=_INFLECTION_RCOND)[0]
    u = _CENTER_SPREAD * problem.rng.standard_normal((1, len(center))) / np.sqrt(len(center))
    # A margin for derivatives: that of the center, if it is small.
    template = problem.pipeline.extractor
    margin = min(problem.oracle.reach, _CENTER_MARGIN * (template.radius + 2.0 * problem.oracle.step_size))
    return problem.oracle.to_inputs(problem.oracle.clip_to_range(u, margin))[0]


def _extract(problem, center):
    """The fitted extractor of a step; validation replaces its warnings."""
    model, oracle = problem.model, problem.oracle
    frozen = FrozenEstimator(model) if hasattr(model, "predict") and hasattr(model, "fit") else model
    extractor = clone(problem.pipeline.extractor).set_params(
        estimator=oracle.as_black_box(),  # same range, count and budget
        layer_widths=problem.widths,
        activation=problem.activations[0],
        output_activation=problem.activations[1],
        center=center,
        random_state=problem.rng.randint(2**31 - 1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(problem.X)
    extractor.estimator_ = model
    extractor.set_params(estimator=frozen)
    problem.log.stages.extend(extractor.report_.stages)
    return extractor


def _complete(problem, extractor, restart):
    """The network of standardized inputs with fitted scales and biases, and the fitted completion."""
    widths = _recovered_widths(extractor)
    V = _components(extractor, widths, problem.rng)
    ridge = len(widths) == 2 and problem.activations[1] == "identity"
    V = V[: widths[0]] if ridge else V
    with problem.log.stage("completion", problem.oracle) as entry:
        n = 10 * 3 * sum(widths) // widths[-1] + 4 * problem.oracle.n_inputs + 4 * widths[0]
        U, Y = problem.oracle.query_precise(functools.partial(_completion_inputs, problem, extractor, widths), n)
        Z = problem.oracle.to_inputs(U) @ V.T
        completion = clone(problem.pipeline.completion).set_params(
            layer_widths=widths,
            activation=problem.activations[0],
            output_activation=problem.activations[1],
            random_state=problem.rng.randint(2**31 - 1),
        )
        if completion.start is None and extractor.scales_ is not None and len(extractor.scales_) == widths[0]:
            completion.set_params(start=(extractor.scales_, extractor.biases_))
        elif restart:
            completion.set_params(start=_random_start(Z[:, : widths[0]], problem.rng), n_starts=1)
        # A fit to noisy outputs has their noise as residual.
        completion.set_params(tol=max(completion.tol, problem.held_out.relative_noise))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            completion.fit(Z, Y)
        entry["residual"] = completion.residual_
    inner = completion.network_
    network = FeedforwardNetwork([V.T @ inner.weights[0], *inner.weights[1:]], inner.biases, *problem.activations)
    return change_inputs(network, problem.oracle.center, problem.oracle.scale), completion


def _random_start(Z, rng):
    """Random scales and biases of first-layer units that vary where their features Z (n, m_1) lie."""
    spread = rng.standard_normal((2, Z.shape[1]))
    scales = 0.5 * np.exp(0.7 * spread[0]) / column_units(Z)[1]
    return scales, 0.3 * spread[1] - scales * Z.mean(axis=0)


def _recovered_widths(extractor):
    """The given widths, or fewer first-layer units if saturation detected fewer; Hessians may miss some."""
    widths = extractor.layer_widths_
    first = int(np.sum(extractor.layer_assignment_ == 0))
    complete = extractor.first_layer_method_ == "saturation"
    return (first, *widths[1:]) if len(widths) == 2 and 0 < first and complete else widths


def _completion_inputs(problem, extractor, widths, n, factor):
    """Inputs (n, D) near enough to the center for eq. (18) to be solvable."""
    D, rng = problem.oracle.n_inputs, problem.rng
    if extractor.scales_ is None or len(extractor.scales_) != widths[0]:
        return factor * rng.standard_normal((n, D)) / np.sqrt(D)
    W, b = _first_layer(extractor, problem.oracle)
    if len(widths) > 2 or problem.activations[1] != "identity":
        return design_points(W, b, n, 0.25 * factor, rng, near=0.0)
    return design_points(W, b, n, factor, rng)


def _first_layer(extractor, oracle):
    """First-layer weights (D, m_1) and biases from saturation, in the oracle's coordinates."""
    W = extractor.components_[: len(extractor.scales_)].T * extractor.scales_
    return W * oracle.scale[:, None], extractor.biases_ + W.T @ oracle.center


def _components(extractor, widths, rng):
    """Components layer by layer, (m, D); missing ones replaced by random directions for the polish to turn."""
    rows = []
    for layer, m in enumerate(widths):
        V = extractor.components_[extractor.layer_assignment_ == layer][:m]
        fill = rng.standard_normal((m - len(V), extractor.components_.shape[1])) / extractor.scale_
        rows += [V, fill / np.linalg.norm(fill, axis=1, keepdims=True)]
    return np.concatenate(rows)
