"""ReLU, leaky ReLU and hard tanh networks from activation boundaries, with one hidden layer or more."""

import functools
from dataclasses import replace

import numpy as np

from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ..attempt import Attempt
from ..constants import AT_ONCE, NEARLY_RIGHT
from ..piecewise.engine import find_piecewise_network, validate_relu_layers
from ..piecewise.kernel.output_error import DeepProbe, probe_of
from ..piecewise.many_layers.network import find_layers
from ..piecewise.maxout.network import find_maxout_network
from ..piecewise.noisy.network import find_noisy_deep_network
from ..piecewise.several_outputs.network import MIN_OUTPUTS, find_network
from ..piecewise.shallow.hard_tanh import find_hard_tanh_network
from ..piecewise.shallow.network import find_relu_network
from ..reductions.span import FirstLayerSpan

ACTIVATIONS = ("relu", "leaky_relu", "hard_tanh")
_HALF_LENGTH = 1e3  # half length of lines, in units of sqrt(D) standard deviations
_MAX_UNITS = 1000  # hidden units at most of one layer of unknown width (budget)
# Reasons of `NotIdentified` for which a network may have more than one hidden layer.
_MORE_LAYERS = {"layers", "crowded", "bent", "signs", "ambiguous", "undecided", "unexplained", "unresolved"}
_MOST_INPUTS = 40  # up to which critical points of all layers are measured first (budget: D + 12 queries each)
_CRITICAL_SETS = 2  # of these, if the network from the first one is wrong at several inputs (budget)
_HARDLY_WRONG = 1e-4  # share of wrong outputs below which other ones are not worth their queries
_COMPLETION_QUERIES = 30_000  # of the search that completes their layers, or three times as many if most are explained
_NOT_TRIED = object()  # instead of a network from critical points, before they are measured
_THREE_HIDDEN_LAYERS = 4  # and the output layer: facets alone need fewer queries
_FURTHER_CHECKS = 4  # outputs that decide whether units are missing, per held-out sample (budget)
_MAX_POLISHED = 30_000  # parameters up to which bits, or a small tol, are worth a fit to outputs (budget: 20 s)
_SMALL_TOL = 1e-10  # below which fits to Jacobians are not accurate enough: they leave errors of 1e-9 to 1e-11
_MAX_COSINE = 1.0 - 1e-6  # cosine of two units from which they may be one
_POINTS = 20_000  # points at which the activity of units is counted: a share of 5e-5 is detected
_MAX_RESIDUAL = 4.0  # of a fit, in standard deviations of the outputs' errors, that the errors explain
_NEARLY_EXACT = 1e-8  # relative error of outputs up to which facets are followed as on exact ones: 8 decimals and more
_RADII = (1.0, 2.0, 3.0)  # standard deviations of these points
_DIRECTIONS = 60  # random ones in which probabilities must not underflow
_SAFE = 0.4  # of that distance: in other directions probabilities underflow earlier, and lose digits before
_NEARER = 0.7  # ratio of successive distances at which that is tried
_LINEAR_PART = (
    "the signs of the units: {} units only make a linear part of the outputs (a skip connection, or units that are "
    "always active)"
)
_PAIRS = (
    "the width of the last hidden layer: {} pairs of its units only make a linear part of the outputs (a skip "
    "connection, or units that are always active)"
)
_SKIPS = (
    "the widths and the signs of the units: {} layers have units that only pass on the outputs of the layer before "
    "(concatenated or residual skip connections)"
)
_POOLING = (
    "the widths and a linear function of the units: {} units are the largest of up to {} linear functions (max pooling "
    "or maxout), written in ReLU units"
)
_LINEAR_UNITS = (
    "the width of the last hidden layer: {} of its units are always active and make a linear part of the outputs of "
    "the layer before"
)
_FAINT = (
    "the logits are explained only up to {:.0f} standard deviations of their rounding: units too small to be detected "
    "are missing"
)
_TOO_MANY = "it has too many layers, max pooling between layers, or other units"
_HIDDEN = "errors of the outputs hide some of its units, or it has too many layers or other units"
_ONE_LAYER = "critical points with their normals show units of one layer only."
_HIDDEN_CLIP = (
    "units are clipped (ReLU6, hard tanh) in a network with more than one hidden layer, which is not identified; one "
    "hidden layer is."
)
_MISSING = (
    "{:.2%} of {} further outputs are not explained: rarely active units are missing. Give samples X at which they are "
    "active, or raise max_seconds"
)


class ActivationBoundaries:
    """ReLU, leaky ReLU and hard tanh networks from their activation boundaries: one hidden layer, or more."""

    name = "activation boundaries"

    def refuses(self, problem):
        """See `Method`."""
        (name, output), widths, strategy = problem.activations, problem.widths, problem.options.strategy
        if strategy == "saturation":
            return (
                f"strategy='saturation' needs an activation that saturates smoothly, got {name!r}; use "
                "options=IdentifierOptions(strategy='auto')."
            )
        if strategy == "hessian" or (widths is not None and len(widths) < 2):
            return (
                f"activation={name!r} has no second derivative; its networks are recovered from activation boundaries, "
                f"with hidden layers, a linear output and strategy='auto'. Got layer_widths={widths}, "
                f"output_activation={output!r}, strategy={strategy!r}."
            )
        if output != "identity":
            return (
                f"activation={name!r}: activation boundaries are located behind a linear output, or one of tanh, "
                f"sigmoid and erf, got output_activation={output!r}. Pass the model without its output activation."
            )
        if name == "hard_tanh" and widths is not None and len(widths) > 2:
            return f"activation='hard_tanh': only one hidden layer can be recovered, got layer_widths={widths}."
        return None

    def run(self, problem, step, state):
        """See `Method`. With unknown depth, one hidden layer is tried first: lines soon show if there are more."""
        hidden = problem.activations[0]
        uncertain = hidden == "relu" and problem.detected is not None
        leaky, start = uncertain or hidden == "leaky_relu", _NOT_TRIED
        if problem.widths is not None and len(problem.widths) > 2:
            return _deep(problem, leaky)
        if problem.widths is None and hidden == "relu" and _shares_jacobians(problem):
            try:
                return _with_shared_jacobians(problem)
            except NotIdentified as error:  # one hidden layer, three or more, or a first layer wider than the input
                if error.reason == "deep" and _has_shared_critical_points(problem):
                    start = _from_critical_points(problem, _deep_probe(problem))
                    if start is not None and start.wrong_share < NEARLY_RIGHT:
                        return _deep_attempt(problem, start)
        try:
            return _relu_or_leaky(problem) if uncertain else _shallow(problem, hidden)
        except NotIdentified as error:
            if hidden == "hard_tanh" and error.reason in _MORE_LAYERS:
                raise NotIdentified(error.stage, error.reason, f"{_HIDDEN_CLIP} {error}") from error
            if problem.widths is not None or error.reason not in _MORE_LAYERS:
                raise
            return _deep_after(error, problem, leaky, start)


METHOD = ActivationBoundaries()


def _deep_after(error, problem, leaky, start):
    """Several hidden layers, after one hidden layer ended in an error; maxout units if these leave some."""
    try:
        found = _deep(problem, leaky, start)
        if found.error <= problem.accepted_error and not found.caveat:
            return found
    except (NotIdentified, OutOfBudgetError) as deeper:
        cause, found = _TOO_MANY if problem.oracle.accuracy.exact else _HIDDEN, None
        text = f"no ReLU network was recovered: {cause}. With one hidden layer: {error} With more: {deeper}"
        failure = NotIdentified("activation boundaries", error.reason, text)
    if problem.widths is None and problem.oracle.accuracy.exact and not problem.oracle.restricted:
        try:
            return _maxout(problem)
        except (NotIdentified, OutOfBudgetError):
            pass
    if found is None:
        raise failure
    return found


def _maxout(problem):
    """One hidden layer of units that are the largest of several linear functions, as with max pooling."""
    oracle = problem.oracle
    with problem.log.stage("maxout units (facets on lines)", oracle, None, "facets") as entry:
        found = find_maxout_network(probe_of(oracle, problem.rng), _MAX_UNITS, problem.rng, entry["progress"])
    n, most = sum(size > 2 for size in found.sizes), found.sizes[0]
    return replace(_attempt(problem, found.network, True, "", {}), undetermined=_POOLING.format(n, most))


def _relu_or_leaky(problem):
    """One hidden layer of ReLU units, or leaky ones if ReLU units leave a linear part and leaky ones do not."""
    try:
        plain, refusal = _shallow(problem, "relu", linear=False), None
    except NotIdentified as error:
        if error.reason in ("layers", "bent"):
            raise
        plain, refusal = None, error
    if plain is not None and not plain.undetermined:
        return plain
    try:
        leaky = _shallow(problem, "leaky_relu")
    except (NotIdentified, OutOfBudgetError) as error:
        if plain is None:
            raise (refusal if refusal.reason in _MORE_LAYERS else error) from error
        return plain
    return leaky if plain is None or not leaky.undetermined else plain


def _shallow(problem, hidden, linear=True):
    """One hidden layer of ReLU, leaky ReLU or hard tanh units; `linear`: with a linear part, if no signs explain it."""
    oracle, n_units = problem.oracle, None if problem.widths is None else problem.widths[0]
    plain = functools.partial(find_relu_network, linear=linear)
    leaky = functools.partial(plain, leaky=True)
    find = {"relu": plain, "leaky_relu": leaky, "hard_tanh": find_hard_tanh_network}[hidden]
    with problem.log.stage("units (activation boundaries on lines)", oracle, n_units, "units") as entry:
        found = find(
            oracle,
            n_units=n_units,
            max_units=max(_MAX_UNITS, 2 * (n_units or 0)),
            reach=min(_HALF_LENGTH, oracle.reach / np.sqrt(oracle.n_inputs)),
            rng=problem.rng,
            callback=entry["progress"],
        )
    undetermined = "" if found.n_skips == 0 else _LINEAR_PART.format(found.n_skips)
    caveat = _FAINT.format(found.residual) if found.residual > _MAX_RESIDUAL else ""
    # Every unit was detected by itself, or is significant beside the others; otherwise noise makes two of one.
    certain = problem.held_out.noise_std is None or oracle.restricted or found.sample is not None
    attempt = _attempt(problem, found.network, certain, caveat, {})
    return replace(attempt, sample=found.sample, undetermined=undetermined)


def _deep(problem, leaky, found=_NOT_TRIED):
    """Any number of hidden layers; two if the outputs are not exact. `found` is what critical points gave before."""
    oracle = problem.oracle
    if _is_noisy(oracle):
        return _noisy_deep(problem)
    span = None if oracle.is_span or found is not _NOT_TRIED else FirstLayerSpan.accepts(problem, deep=True)
    if span is not None:
        return span.invert(problem, _deep(span.apply(problem), leaky))
    if problem.widths is not None and _shares_jacobians(problem):
        try:
            return _with_shared_jacobians(problem)
        except NotIdentified:  # another depth or width: layer by layer below
            pass
    probe = _deep_probe(problem)
    if found is _NOT_TRIED:
        found = _from_critical_points(problem, probe) if _has_shared_critical_points(problem) else None
    if found is None or found.wrong_share:
        found = _better(found, lambda: _by_facets(problem, probe, leaky))
    return _deep_attempt(problem, found)


def _deep_probe(problem):
    """The `DeepProbe` of the model."""
    error = probe_of(problem.oracle, problem.rng).output_error
    return DeepProbe(problem.oracle, error, problem.held_out.outputs.std(axis=0))


def _deep_attempt(problem, found):
    """The attempt of a `DeepNetwork`."""
    caveat, evidence = _evidence_of(found)
    pairs = bool(found.n_linear or found.n_skips)
    minimal = pairs or not _has_alike_units(found.network)  # pairs are alike, and declared
    undetermined = _SKIPS.format(found.n_skips) if found.n_skips else _PAIRS.format(found.n_linear) if pairs else ""
    return replace(_attempt(problem, found.network, minimal, caveat, evidence), undetermined=undetermined)


def _by_facets(problem, probe, leaky=False, start=None):
    """The `DeepNetwork` whose units are followed from facet to facet, from the first layer or a `start`."""
    with problem.log.stage("layers (hyperplanes and facets)", problem.oracle, None, "units") as entry:
        options = {"callback": entry["progress"], "start": start, **_checks(problem)}
        options |= {} if start is None else {"max_queries": _COMPLETION_QUERIES}
        return find_piecewise_network(probe, leaky=leaky, **options)


def _checks(problem):
    """How networks of several hidden layers are validated."""
    X = problem.held_out.inputs
    return {"rng": problem.rng, "n_validation": _FURTHER_CHECKS * len(X), "inputs": X}


def _from_critical_points(problem, probe):
    """The `DeepNetwork` that starts from the layers of one set of critical points; None if they explain too little.

    If it is wrong at several inputs, other critical points follow, and the better network is returned.
    """
    found = None
    for _ in range(_CRITICAL_SETS):
        try:
            found = _better(found, lambda: _completed_layers(problem, probe))
        except NotIdentified:
            continue
        if found.wrong_share < _HARDLY_WRONG:
            break
    return found


def _completed_layers(problem, probe):
    """The `DeepNetwork` that starts from the layers of a new set of critical points."""
    with problem.log.stage("layers (critical points of all layers)", problem.oracle, None, "units") as entry:
        validate = functools.partial(validate_relu_layers, probe, **_checks(problem))
        start = find_layers(probe, problem.rng, entry["progress"], validate)
        if start is None:
            raise NotIdentified("activation boundaries", "unexplained", _ONE_LAYER)
    return _by_facets(problem, probe, start=start)


def _better(found, search):
    """The `DeepNetwork` of a search, or the one recovered before if that is better, or the search fails."""
    try:
        other = search()
    except (NotIdentified, OutOfBudgetError):
        if found is None:
            raise
        return found
    return other if found is None or other.wrong_share < found.wrong_share else found


def _has_shared_critical_points(problem):
    """Whether critical points of several outputs, whose normals cost a Jacobian for a few, may be measured at first."""
    few = problem.oracle.n_inputs <= _MOST_INPUTS and problem.oracle.response != "predict_proba"
    deep = problem.widths is None or len(problem.widths) > _THREE_HIDDEN_LAYERS
    return few and deep and problem.activations[0] == "relu" and _shares_jacobians(problem, deep=True)


def _shares_jacobians(problem, deep=False):
    """Whether two hidden layers, or more, may be recovered from Jacobians that critical points share."""
    oracle, widths = problem.oracle, problem.widths
    exact = oracle.accuracy.exact and oracle.input_range is None and oracle.output_bounds is None
    fits = deep or widths is None or len(widths) == 3
    return exact and not oracle.precision.is_coarse_binary and oracle.n_outputs >= MIN_OUTPUTS and fits


def _with_shared_jacobians(problem):
    """Two hidden layers with several outputs."""
    oracle = problem.oracle
    with problem.log.stage("layers (shared Jacobians)", oracle, None, "units") as entry:
        output_error = probe_of(oracle, problem.rng).output_error
        reach = _reach_of_logits(oracle, problem.rng) if oracle.response == "predict_proba" else np.inf
        accurate = problem.options.weight_dtype is not None or problem.options.tol < _SMALL_TOL
        further = {"max_polished": _MAX_POLISHED} if accurate else {}
        further["least_units"] = oracle.n_inputs if oracle.is_span else 0
        network = find_network(oracle, oracle.n_inputs, output_error, problem.rng, entry["progress"], reach, **further)
    return _attempt(problem, network, not _has_alike_units(network), "", {})


def _reach_of_logits(oracle, rng):
    """Distance from the center up to which probabilities stay far from underflow along random directions."""
    V = rng.standard_normal((_DIRECTIONS, oracle.n_inputs))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    reach = _HALF_LENGTH * np.sqrt(oracle.n_inputs)
    while reach > 1.0 and not np.isfinite(oracle.query(reach * V)[1]).all():
        reach *= _NEARER
    return _SAFE * reach


def _is_noisy(oracle):
    """Whether outputs have errors far above double precision, and may be queried anywhere."""
    coarse = not oracle.accuracy.exact and oracle.accuracy.relative_error > _NEARLY_EXACT
    return coarse and oracle.response != "predict_proba" and not oracle.restricted


def _noisy_deep(problem):
    """Two hidden layers from outputs that are rounded or noisy."""
    oracle = problem.oracle
    with problem.log.stage("layers (positions on hyperplanes and facets)", oracle, None, "units") as entry:
        probe = DeepProbe(oracle, probe_of(oracle, problem.rng).output_error, problem.held_out.outputs.std(axis=0))
        found = find_noisy_deep_network(probe, rng=problem.rng, callback=entry["progress"])
    caveat, evidence = _evidence_of(found)
    undetermined = "" if found.n_linear == 0 else _LINEAR_UNITS.format(found.n_linear)
    attempt = _attempt(problem, found.network, not found.n_linear, caveat, evidence)
    return replace(attempt, undetermined=undetermined, sample=found.sample)


def _evidence_of(found):
    """What is missing, and the entries of the report, of a search for several hidden layers."""
    caveat = _MISSING.format(found.wrong_share, found.n_validation) if found.wrong_share else ""
    return caveat, {
        "explained": 1.0 - found.wrong_share,
        "explained_of": found.n_validation,
        "sign_doubt": found.sign_deviation,
    }


def _has_alike_units(network):
    """Whether two units of the last hidden layer may be one unit."""
    V = np.vstack([network.weights[-2], network.biases[-2]])
    V = V / np.maximum(np.linalg.norm(V, axis=0), np.finfo(float).tiny)
    return bool(np.any(np.abs(np.triu(V.T @ V, 1)) > _MAX_COSINE))


def _attempt(problem, network, minimal, caveat, evidence):
    """The attempt, with counts of units that never change; leaky units with slope 0 become ReLU units."""
    if problem.detected is not None and getattr(network.activations[0], "negative_slope", None) == 0.0:
        network = FeedforwardNetwork(network.weights, network.biases, "relu")
    error = problem.held_out.error_of(network)
    evidence = {**evidence, **_count_constant_units(problem, network)}
    return Attempt(network, error, "boundaries", error, METHOD.name, minimal=minimal, caveat=caveat, evidence=evidence)


def _count_constant_units(problem, network):
    """Count the units per hidden layer that are never, and always, active near the center.

    Hard tanh units are active between their two boundaries.
    """
    rng, D, ranges = np.random.RandomState(0), problem.oracle.n_inputs, []
    for _ in range(_POINTS // AT_ONCE):
        H = rng.choice(_RADII, (AT_ONCE, 1)) * rng.standard_normal((AT_ONCE, D))
        H = problem.oracle.clip_to_range(H)
        ranges.append([])
        for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
            Z = H @ W + b
            H = network.activations[0](Z)
            ranges[-1].append((Z.min(axis=0), Z.max(axis=0)))
    never, always = [], []
    for layer in zip(*ranges, strict=True):
        low, high = np.min([low for low, _ in layer], axis=0), np.max([high for _, high in layer], axis=0)
        hard = network.activation == "hard_tanh"
        never.append(int(np.sum((high <= -1.0) | (low >= 1.0) if hard else high <= 0.0)))
        always.append(int(np.sum((low >= -1.0) & (high <= 1.0) if hard else low >= 0.0)))
    return {"never_active": never, "always_active": always}
