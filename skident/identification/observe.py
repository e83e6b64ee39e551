"""What outputs show before any method: usable samples, activations, clips; each reading of them poses a problem."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from skident.base.parameters import check_layer_widths
from skident.base.progress import StageLog
from skident.network import Clip, get_activation
from skident.oracle import BlackBoxError, NotIdentified, Oracle, OutOfBudgetError
from skident.oracle.black_box import (
    has_known_activations,
    query_where_outputs_vary,
    refuse_batch_dependence,
    resolve_activations,
)
from skident.oracle.clipping import detect_clipped_inputs

from .activation import ActivationEvidence, between_plateaus, detect_activation, detect_within_range
from .activation.calibration import recognize_calibration
from .activation.linear_skip import far_linear_part
from .activation.other_models import CLEAR, discrete_columns, recognize_labels, recognize_other_model
from .activation.outputs import INVERSES
from .activation.plateaus import clipped_range
from .activation.sharp_bends import recognize_sharp_bends
from .constants import PROBED
from .diagnosis import refuse_sentinel
from .methods.near_data import predict_determined
from .methods.relu import ACTIVATIONS as PIECEWISE
from .problem import HeldOut, Pipeline, Problem
from .query_points import evenly_spaced_rows, held_out_points, must_stay_near_center, samples_in_range
from .reductions.one_output import standardized, through_one
from .reductions.outputs import KINDS, ActivatedOutputs, BoundedOutputs, ClippedOutputs, LinearSkip, SigmoidOutputs

_NEAR = 100.0  # distance, in sqrt(D) standard deviations, within which plateaus are searched first
_DETECTION_QUERIES = 500  # of the detection of activations at least, of linear outputs; most units take 1,200
_LARGE_BATCH = 1024  # rows of a batch that is suspected if no network explains the outputs (budget)


@dataclass(frozen=True)
class Reading:
    """One reading of the outputs: an oracle with its scaling, samples in range, and activations.

    Attributes
    ----------
    oracle : Oracle
    X : ndarray of shape (n, D)
    spread : float
        Standard deviations of further validation samples, see `query_where_outputs_vary`.
    activations : tuple of str
        The output's is ``identity`` if in doubt, and for logits.
    detected : ActivationEvidence or None
    one : tuple of (OneOutput, Reading) or None
        The reading of one of several outputs, from which these are recovered.
    rejected : str
        The reduction that was accepted first, and that this reading does without.
    """

    oracle: Oracle
    X: np.ndarray
    spread: float
    activations: tuple[str, str]
    detected: ActivationEvidence | None = None
    one: tuple | None = None
    rejected: str = ""


def observe(model, oracle, X, options):
    """Yield readings of the outputs: of what comes before them first, if they are a known function of it."""
    probed, reduction = _probe(oracle, X), None
    if oracle.response == "predict" and oracle.input_range is None and options.activations[1] == "auto":
        found = (kind.accepts(oracle, probed[1]) for kind in KINDS)
        reduction = None if has_known_activations(model) else next(filter(None, found), None)
        if reduction is not None:
            yield from _before_outputs(reduction, oracle, X, options, probed[0])
        if (sigmoids := SigmoidOutputs.accepts(oracle, probed[1])) is not None and not has_known_activations(model):
            hidden = None if options.activations[0] == "auto" else options.activations[0]
            yield from through_one(Reading(oracle, probed[0], probed[2], (hidden, "sigmoid")), sigmoids, hidden)
    for reading in _plain_readings(model, oracle, X, options, probed):
        yield reading if reduction is None else replace(reading, rejected=str(reduction))


def _before_outputs(reduction, oracle, X, options, X_in):
    """Yield readings of the values before outputs that a reduction accepts."""
    inner = reduction.apply(oracle)
    if inner.output_bounds is None:
        try:
            for reading in _plain_readings(reduction, inner, X, options):
                new = [box.reduction.activation for box in reading.oracle.outputs[len(inner.outputs) :]]
                activated = any(name != "identity" for name in (reading.activations[1], *new))
                if activated == isinstance(reduction, BoundedOutputs):
                    yield reading
        except NotIdentified:  # what comes before these outputs is no network: perhaps they are others
            pass
        return
    standardized(inner, X_in)
    hidden = between_plateaus(inner) if options.activations[0] == "auto" else options.activations[0]
    if hidden is not None:
        yield Reading(inner, X_in, 1.0, (hidden, "identity"))


def _plain_readings(model, oracle, X, options, probed=None):
    """Yield readings of the outputs, the likeliest first: clipped, as detected, and the rival of a linear output."""
    X_in, outputs, spread = _probe(oracle, X) if probed is None else probed
    if not has_known_activations(model):
        refuse(recognize_labels(oracle, oracle.from_inputs(X_in), outputs), options)
    activations, detected = _detect_activations(oracle, model, outputs, options)
    if detected is not None and detected.output.constant_far:
        refuse_sentinel(oracle, X)
    if detected is not None and detected.name is None:
        beside = _beside_linear_part(oracle, X, model, options)
        if beside is not None:
            yield beside
            return
    behind_probabilities = detected is None and _hides_activations(oracle, model, options)
    if behind_probabilities:
        activations, detected = _detect_behind_probabilities(oracle, X_in, model, options, activations)
    elif detected is not None and (oracle.input_range is not None or _may_be_another_model(detected, X_in, options)):
        refuse(_recognized(recognize_other_model, oracle, X_in, detected), options)
    if _is_probability(options, detected, oracle):
        refuse(_recognized(recognize_calibration, oracle, X_in), options)
        oracle = oracle.with_response("predict_proba")
        X_in, _, spread = _probe(oracle, X)
    reading, clipped = Reading(oracle, X_in, spread, activations, detected), False
    # Without activation detection no far output is known yet: a clip is searched once the first methods have run.
    for early in _clipped_readings(reading, model, options, _NEAR) if detected is not None else ():
        yield early
        clipped = True
    yield from _before_activation(reading)
    if behind_probabilities and activations[0] != "tanh":  # saturated probabilities look piecewise linear
        yield Reading(oracle, X_in, spread, ("tanh", activations[1]))
    if not clipped:
        yield from _clipped_readings(reading, model, options)
    yield from _rival_readings(reading, options)
    if _saturates(options.activations[0]) and (beside := _beside_linear_part(oracle, X, model, options)) is not None:
        yield beside


def pose(reading, model, options, rng):
    """The problem of a reading: widths, held-out samples, pipeline, and what the input range leaves undetermined."""
    oracle, activations, pipeline = reading.oracle, reading.activations, Pipeline.of(options)
    linear = "identity" if isinstance(activations[1], Clip) else activations[1]
    widths, discover = _widths_to_recover(options.layer_widths, oracle.n_outputs, linear, reading.detected)
    if must_stay_near_center(oracle, pipeline.extractor, activations[0], widths, options.strategy):
        pipeline = pipeline.near_data()
    problem = Problem(
        model=model,
        oracle=oracle,
        X=reading.X,
        activations=activations,
        widths=widths,
        discover=discover,
        held_out=_query_held_out(oracle, reading.X, reading.spread, rng, options.n_check),
        pipeline=pipeline,
        options=options,
        rng=rng,
        log=StageLog(options.verbose),
        detected=reading.detected,
        one=None if reading.one is None else (reading.one[0], partial(_pose_one, reading.one[1], model, options, rng)),
    )
    return problem if oracle.output_bounds is not None else replace(problem, prediction=predict_determined(problem))


def _pose_one(reading, model, options, rng):
    """The problem of a reading of one output."""
    widths = options.layer_widths
    widths = (*widths[:-1], 1) if isinstance(widths, tuple | list) else widths
    return pose(reading, model, replace(options, layer_widths=widths), rng)


def _query_held_out(oracle, X, spread, rng, n_check):
    """Held-out samples, half of them of X if it has so many; the oracle knows their accuracy then."""
    samples, factors = evenly_spaced_rows(oracle.from_inputs(X), n_check // 2), []

    def draw(n, factor):
        factors.append(factor)
        return oracle.representable(held_out_points(samples, spread, rng, n, factor))

    U, Y, bounds = oracle.query_precise_with_errors(draw, len(samples) + n_check - n_check // 2)
    refuse_batch_dependence(oracle, U, Y)
    unchosen = len(factors) == 1  # all outputs of the first draw are precise
    n_normal = len(U) - len(samples) if unchosen and spread == 1.0 else 0
    n_rows = len(samples) if unchosen else 0
    return HeldOut(U, Y, oracle.measure_accuracy(U[:200], Y, rng), n_rows, n_normal, bounds)


def _widths_to_recover(layer_widths, n_outputs, output_activation, detected):
    """Widths, None if unknown, and whether depth and widths are to be recovered."""
    nonlinear = detected is not None and output_activation != "identity"
    if isinstance(layer_widths, str) or (layer_widths is None and nonlinear):
        return None, True
    if layer_widths is not None:
        if detected is not None and detected.output.name == "softmax" and n_outputs == 1 and layer_widths[-1] == 2:
            layer_widths = (*layer_widths[:-1], 1)  # the log-odds of the second of two classes
        return check_layer_widths(layer_widths, n_outputs), False
    if output_activation != "identity":
        raise ValueError(
            "layer_widths=None recovers one hidden layer with linear output, got "
            f"output_activation={output_activation!r}; give layer_widths."
        )
    return None, False


def _probe(oracle, X):
    """Samples in range, their first outputs, and the spread of validation samples; constant outputs are refused."""
    inside = samples_in_range(oracle, X)
    return inside, *query_where_outputs_vary(oracle, evenly_spaced_rows(oracle.from_inputs(inside), PROBED))


def _may_be_another_model(detected, X, options):
    """Whether units were not clearly detected, or an input takes few values, as integer and categorical columns do."""
    if detected.name == "quadratic" and not isinstance(options.layer_widths, str):
        return False
    return bool(detected.doubt) or detected.name not in CLEAR or discrete_columns(X).any()


def _recognized(recognize, oracle, X, *evidence):
    """What a function recognizes in the outputs; None too if the model cannot be queried where it needs them."""
    try:
        return recognize(oracle, oracle.from_inputs(X), *evidence, np.random.RandomState(0))
    except BlackBoxError:
        return None


def refuse_large_batches(problem):
    """Raise if a large batch has other outputs than its last rows alone: why no network explains the outputs."""
    if problem is None:
        return
    oracle = problem.oracle
    U = oracle.clip_to_range(np.random.RandomState(0).standard_normal((_LARGE_BATCH, oracle.n_inputs)))
    try:
        refuse_batch_dependence(oracle, U, oracle(U))
    except (BlackBoxError, OutOfBudgetError):
        return


def sharp_bends_of(problem):
    """`OtherModel` if the outputs of a problem of smooth units have sharp bends; None otherwise."""
    if problem is None or not problem.oracle.accuracy.exact or problem.oracle.restricted:
        return None
    if problem.activations[0] == "auto" or not get_activation(problem.activations[0]).smooth:
        return None
    try:
        if np.isfinite(detect_clipped_inputs(problem.oracle)).any(axis=0).all():  # whose borders the error states
            return None
        return recognize_sharp_bends(problem.oracle, np.random.RandomState(0))
    except (BlackBoxError, OutOfBudgetError):
        return None


def refuse(other, options):
    """Raise `NotIdentified` for a model that is recognized as another one than a network."""
    if other is None:
        return
    StageLog(options.verbose).say(f"model: {other.kind} ({other.evidence})")
    raise NotIdentified("model", other.kind, other.message, final=True)


def _few_queries(oracle):
    """Whether the detection of activations does not fit the budget."""
    return oracle.budget.queries_left < _DETECTION_QUERIES


def _is_probability(options, detected, oracle):
    """Whether the detected output activation gives probabilities, so that logits are queried."""
    auto = detected is not None and options.activations[1] == "auto" and oracle.response == "predict"
    return auto and detected.output.gives_probabilities(oracle.n_outputs)


def _detect_activations(oracle, model, outputs, options):
    """Activations given, declared by the model, or detected, with the evidence; the oracle scales its outputs then."""
    named = options.activations
    activations = resolve_activations(model, *named)
    if oracle.response == "predict_proba" and activations[1] == "sigmoid":
        raise ValueError(
            f"output_activation={named[1]!r} would come before the softmax: for probabilities, the network of the "
            "logits is recovered. Set output_activation='auto'."
        )
    standardized = oracle.standardize_outputs(outputs, activations[1])
    given = named[0] != "auto" or named[1] not in ("auto", "identity") or options.strategy != "auto"
    if given or _few_queries(oracle) or has_known_activations(model):
        return activations, None
    if _are_relu_logits(oracle):
        return ("relu", activations[1]), None
    ranged = oracle.input_range is not None and oracle.response == "predict"
    if oracle.restricted and not ranged:
        return activations, None
    rng = np.random.RandomState(0)
    try:
        accuracy = oracle.measure_accuracy(rng.standard_normal((PROBED, oracle.n_inputs)), standardized, rng)
        if ranged:
            detected = detect_within_range(oracle, rng)
            return (detected.name, activations[1]), detected
        detected = detect_activation(oracle, rng, 0.0 if accuracy.exact else accuracy.std)
    except BlackBoxError:  # the model cannot be queried far out
        return activations, None
    linear = detected.name == "identity" and not detected.doubt
    unnamed = "gelu" if detected.grows_linearly and accuracy.exact else activations[0]  # the profile of a unit decides
    hidden = detected.name if detected.usable or linear else unnamed
    if named[1] != "auto" or detected.output.gives_probabilities(oracle.n_outputs):
        return (hidden, activations[1]), detected
    oracle.standardize_outputs(outputs, detected.output.name)
    return (hidden, detected.output.name), detected


def _beside_linear_part(oracle, X, model, options):
    """The reading of units that settle beside a linear function; None if there is none."""
    if oracle.restricted or options.activations[1] not in ("auto", "identity"):
        return None
    skip = far_linear_part(oracle, np.random.RandomState(0)) if oracle.accuracy.exact else None
    if skip is None:
        return None
    inner = LinearSkip(skip * oracle.output_scale / oracle.scale[:, None]).apply(oracle)
    inside, outputs, spread = _probe(inner, X)
    activations, detected = _detect_activations(inner, model, outputs, options)
    if detected is not None and not (detected.usable and _saturates(detected.name)):
        if detected.growth != "settles" or detected.name == "hard_tanh":
            return None
        # The rounding of the linear part may hide how units settle: the fit decides.
        activations = "tanh", "identity"
    return Reading(inner, inside, spread, activations, detected)


def _before_activation(reading):
    """Yield readings of the values before an activation of the outputs with limits, behind piecewise linear units."""
    hidden, output = reading.activations
    if hidden not in PIECEWISE or output not in INVERSES or reading.oracle.response != "predict":
        yield reading
    elif reading.oracle.n_outputs > 1:
        yield from through_one(reading, ActivatedOutputs(output), hidden)
    else:
        inner = standardized(ActivatedOutputs(output).apply(reading.oracle), reading.X)
        yield replace(reading, oracle=inner, activations=(hidden, "identity"))


def _saturates(name):
    """Whether it is the name of an activation that settles."""
    return name not in ("auto", "leaky_relu") and get_activation(name).saturating


def _hides_activations(oracle, model, options):
    """Whether probabilities are queried, and nothing else determines the activations of the logits."""
    named = options.activations[0] != "auto" or options.strategy != "auto"
    if oracle.response != "predict_proba" or named or oracle.input_range is not None or _few_queries(oracle):
        return False
    return not has_known_activations(model) and not oracle.precision.is_rounded


def _detect_behind_probabilities(oracle, X, model, options, activations):
    """Activations and evidence from the probabilities themselves; as given, and None, if they are not recognized."""
    raw = Oracle(oracle.raw_outputs, oracle.n_inputs, center=oracle.center, scale=oracle.scale, budget=oracle.budget)
    try:
        outputs = raw(evenly_spaced_rows(raw.from_inputs(X), PROBED))
        raw.standardize_outputs(outputs)
        detected = detect_activation(raw, np.random.RandomState(0))
        if _may_be_another_model(detected, X, options):
            refuse(_recognized(recognize_other_model, raw, X, detected), options)
        if detected.output.gives_probabilities(outputs.shape[1]):
            refuse(_recognized(recognize_calibration, raw, X), options)
    except BlackBoxError:
        return activations, None
    if not detected.output.gives_probabilities(outputs.shape[1]) or not (
        detected.usable or detected.name == "identity"
    ):
        return activations, None
    return (detected.name, activations[1]), detected


def _are_relu_logits(oracle):
    """Whether outputs are logits of rounded probabilities, piecewise linear near the center."""
    if oracle.response != "predict_proba" or not oracle.precision.is_coarse_binary or oracle.input_range is not None:
        return False
    return between_plateaus(oracle) == "relu"


def _clipped_readings(reading, model, options, within=np.inf):
    """Yield readings as a network whose outputs are clipped; none if they are not."""
    oracle, (hidden, output) = reading.oracle, reading.activations
    linear = output == "identity" and options.activations[0] != "hard_tanh"
    if not linear or oracle.restricted or has_known_activations(model):
        return
    try:
        bounds = clipped_range(oracle, evenly_spaced_rows(oracle.from_inputs(reading.X), PROBED), within)
        if bounds is None:
            return
        before, oracle = ClippedOutputs(*bounds), oracle.with_response("predict")
        hidden = None if options.activations[0] == "auto" else hidden
        yield from through_one(Reading(oracle, reading.X, reading.spread, reading.activations), before, hidden)
    except (BlackBoxError, OutOfBudgetError):
        return


def _rival_readings(reading, options):
    """Yield the reading with the rival of an uncertain output activation; only if widths are given."""
    detected, widths, hidden = reading.detected, options.layer_widths, reading.activations[0]
    given = detected is None or options.activations[1] != "auto" or widths is None or isinstance(widths, str)
    rival = None if given else detected.output.rival
    if rival is None or not detected.usable or not get_activation(detected.name).saturating:
        return
    detected = replace(detected, output=replace(detected.output, name=rival, rival="identity"))
    logits = detected.output.gives_probabilities(reading.oracle.n_outputs)
    oracle = reading.oracle.with_response("predict_proba" if logits else "predict")
    try:
        X, outputs, spread = _probe(oracle, reading.X)
        oracle.standardize_outputs(outputs, "identity" if logits else rival)
        yield Reading(oracle, X, spread, (hidden, "identity" if logits else rival), detected)
    except (BlackBoxError, OutOfBudgetError):
        return
