"""Two hidden layers with few outputs: the second one by linear algebra on patches of input space."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.special import erf, erfinv, logit

from skident.network import FeedforwardNetwork, get_activation, partly_linear
from skident.oracle import BlackBoxError, NotIdentified

from ..attempt import polished_attempt
from ..constants import TIME_SHARE
from ..second_layer.by_all_free import AllFreeDesign, all_free_design, recover_with_all_units_free
from ..second_layer.by_fit import FitDesign, fit_design, recover_by_fit, wide_fit_design
from ..second_layer.by_patch_and_extension.recover import ExtensionDesign, extension_design, recover_by_extension
from ..second_layer.by_powers.recover import power_designs, recover_by_powers
from ..second_layer.downstream import Downstream
from ..second_layer.exact_directions import exact_directions
from ..second_layer.weight_norms import centered, erf_norms_and_biases, vote_on_norms

__all__ = ["METHOD", "applies", "is_cheapest", "second_layer_on_patches"]

_ACTIVATIONS = ("tanh", "sigmoid", "erf")
_COST_MARGIN = 1.5  # queries that may be needed over those of the design
_MAX_DISTANCE = 3e4  # largest distance of patches: rounding grows with it
_RAY_QUERIES = 10  # queries per first-layer unit and input for exact directions
_TAIL_QUERIES = 84  # queries per first-layer unit for norms from tails
_MAX_DESIGNS = 2  # designs by powers that are tried (budget)
_MAX_NOISE = 1e-4  # relative noise up to which the second layer is fitted: below it lie float32 and four decimals
_WIDTH_FACTORS = (1.25, 2.0)  # with noise: widths fitted, over m_1; wider than needed is easier, then units are removed
_WIDE_FACTOR = 2.0  # units of a wide fit over those of the second layer
_NEED_WIDTH = (AllFreeDesign, FitDesign, ExtensionDesign)  # designs that need the width of the second layer
_MIN_WIDTH = 8  # second-layer units that a design for an unknown width allows for at least
_WIDTH_DOUBLINGS = 3  # designs for unknown widths: m_1, 2 m_1, 4 m_1 units
_VERTEX_OUTPUTS = 3  # outputs from which vertices determine a narrow second layer
_VERTEX_RATIO = 4  # units of such a second layer per output
_MIN_SUPPORT = 2  # estimates that must agree on the norm of a unit
_ROUNDING = 2.0**-53  # distance of saturated outputs from their limits (rounding)
_INVERSE = {
    "tanh": lambda Y: np.arctanh(np.clip(Y, _ROUNDING - 1.0, 1.0 - _ROUNDING)),
    "sigmoid": lambda Y: logit(np.clip(Y, _ROUNDING, 1.0 - _ROUNDING)),
    "erf": lambda Y: erfinv(np.clip(Y, _ROUNDING - 1.0, 1.0 - _ROUNDING)),
}


def applies(problem):
    """Whether patches or a fit can determine the second layer: two hidden layers, accurate outputs, enough queries."""
    if problem.widths is None or len(problem.widths) != 3 or not _outputs_suffice(problem):
        return False
    D, m_1 = problem.oracle.n_inputs, problem.widths[0]
    return bool(_designs(problem, D, problem.widths, before=m_1 * (_RAY_QUERIES * (D + 2) + _TAIL_QUERIES)))


def is_cheapest(problem):
    """Whether no cheaper method is likely to determine the second layer of two hidden ones.

    Gradients determine one that is narrower than the first, if that has at most D units and these are not erf units,
    whose biases need tails. Vertices determine one that is not much wider than the output.
    """
    if problem.held_out.noise_std is not None:
        return True
    m_1, m_2, m_L = problem.widths
    by_vertices = m_L >= _VERTEX_OUTPUTS and m_2 <= _VERTEX_RATIO * m_L
    by_gradients = m_2 < m_1 <= problem.oracle.n_inputs and problem.activations[0] != "erf"
    return not (by_gradients or by_vertices)


def _outputs_suffice(problem):
    """Whether activations and the precision of the outputs allow Taylor coefficients or a fit at large inputs."""
    hidden, output = problem.activations
    if problem.oracle.response != "predict" or hidden not in _ACTIVATIONS:
        return False
    if problem.held_out.noise_std is None:
        return output == "identity" or output in _INVERSE
    return hidden != "erf" and output == "identity" and problem.held_out.relative_noise <= _MAX_NOISE


class Patches:
    """Two hidden layers: the first at large inputs, the second from Taylor coefficients on patches, then the polish."""

    name = "patches"

    def refuses(self, problem):
        """See `Method`."""
        return None if applies(problem) else "patches need two hidden layers, accurate outputs, and enough queries."

    def run(self, problem, step, state):
        """See `Method`; None if a stage fails: its entry in the log has the message as ``failed``."""
        m_1 = problem.widths[0]
        first = state.first_layer.find(problem, m_1)
        if first is None:
            return None
        if len(first.biases) != m_1:
            with problem.log.stage("second layer (patches)", problem.oracle) as entry:
                entry["failed"] = (
                    f"{len(first.biases)} of {m_1} first-layer units detected; parallel ones look like one"
                )
            return None
        found = second_layer_on_patches(problem, first, state.first_layer, problem.widths[1])
        return None if found is None else polished_attempt(problem, found.network, found.residual, "polish", _NAME)


METHOD = Patches()
_NAME = "saturation, patches"


def second_layer_on_patches(problem, first, first_layer, n_units=None):
    """A network with two hidden layers from patches; None if a stage fails.

    `first_layer` keeps the exact first layer. `n_units` is the width of the second layer, None if unknown; the network
    has fewer units if the others are dead.
    """
    if not _outputs_suffice(problem):
        return None
    with problem.log.stage("first layer (rays and votes)", problem.oracle) as entry:
        try:
            first, biases, entry["unsupported"] = _exact_first_layer(problem, first)
            first_layer.keep(first if biases is None else replace(first, biases=first.biases + biases))
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"] = str(error)
            return None
    with problem.log.stage("second layer (patches)", problem.oracle, len(first.biases), "units") as entry:
        try:
            found = _second_layer(problem, _downstream(problem, first, biases), n_units, entry["progress"])
            entry["residual"], entry["seen"] = found.residual, found.network.layer_widths[1]
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"] = str(error)
            found = None
    return found


class _WithinShare:
    """An oracle that refuses queries when the time share of this method has ended."""

    def __init__(self, oracle):
        self.oracle, self.ends = oracle, oracle.budget.share(TIME_SHARE)
        self.reach, self.accuracy, self.representable = oracle.reach, oracle.accuracy, oracle.representable

    def __call__(self, U):
        if time.perf_counter() > self.ends:
            raise NotIdentified("second layer", "budget", "its share of max_seconds is over", final=True)
        return self.oracle(U)


def _exact_first_layer(problem, first):
    """The first layer to rounding error, its biases if tails determine them, and units whose norms are unconfirmed.

    With noise only its directions become more accurate.
    """
    name, oracle = problem.activations[0], _WithinShare(problem.oracle)
    first = exact_directions(oracle, first, get_activation(name), problem.rng)
    if problem.held_out.noise_std is not None:
        return first, None, []
    if name == "erf":
        first, shifts, support = erf_norms_and_biases(oracle, first, problem.rng)
    else:
        vote = vote_on_norms(oracle, first, name, problem.rng)
        first, shifts, support = centered(vote, name), None, vote.support
    return first, shifts, np.flatnonzero(support < _MIN_SUPPORT).tolist()


def _second_layer(problem, downstream, n_units, progress):
    """The second layer by the first design that succeeds, with the activations of the problem."""
    failures, (D, m_1) = [], downstream.shape
    exact = downstream.accuracy is None
    for width in _widths(problem, m_1, n_units):
        for design in _designs(problem, D, (m_1, width, downstream.n_outputs)):
            if not (isinstance(design, _NEED_WIDTH) and n_units is None and exact):
                try:
                    found = _by_design(problem, downstream, design, n_units, progress)
                    return _with_activations(found, problem.activations)
                except NotIdentified as error:
                    failures.append(error)
    said = "; ".join(dict.fromkeys(map(str, failures)))
    raise NotIdentified(
        "second layer", "budget", said or "no order and number of free units is feasible within the remaining queries"
    )


def _designs(problem, n_inputs, widths, before=0):
    """Designs for which the queries left, minus those made `before`, suffice: the cheapest first, a fit last.

    Extension from one patch comes first if no other design needs fewer queries and no fit is fast.
    """
    left = problem.oracle.budget.queries_left - before
    if problem.held_out.noise_std is not None:
        m_1, m_2, m_L = widths
        fit = fit_design(n_inputs, widths) or wide_fit_design(n_inputs, (m_1, int(_WIDE_FACTOR * m_2), m_L))
        return [fit] if fit is not None and _COST_MARGIN * fit.n_queries < left else []
    all_free = all_free_design(n_inputs, widths)
    designs = [*([] if all_free is None else [all_free]), *power_designs(n_inputs, widths)[:_MAX_DESIGNS]]
    designs = [*sorted(designs, key=lambda design: design.n_queries), fit_design(n_inputs, widths)]
    extension = None if problem.activations[0] == "erf" else extension_design(n_inputs, widths)
    if extension is not None and designs[-1] is None:
        if designs[0] is None or extension.n_queries < designs[0].n_queries:
            designs.insert(0, extension)
    return [design for design in designs if design is not None and _COST_MARGIN * design.n_queries < left]


def _by_design(problem, downstream, design, n_units, callback):
    """The second layer by one design; with fewer units than given if the others are dead."""
    if isinstance(design, FitDesign):
        deadline = problem.oracle.budget.share(TIME_SHARE)
        design = design.with_starts(problem.options.n_starts)
        return recover_by_fit(downstream, design, n_units, deadline=deadline, progress=callback)
    if isinstance(design, ExtensionDesign):
        return recover_by_extension(downstream, design, n_units, callback=callback)
    if isinstance(design, AllFreeDesign):
        return recover_with_all_units_free(downstream, design, n_units)
    try:
        return recover_by_powers(downstream, design, n_units, callback=callback)
    except NotIdentified as error:
        if n_units is None or error.n_seen is None or error.n_seen > n_units:
            raise
        return recover_by_powers(downstream, design, error.n_seen, callback=callback)


def _widths(problem, n_first, n_units):
    """Widths of the second layer to design for: the given one, or increasing ones."""
    if n_units is not None:
        return [n_units]
    most = problem.max_neurons(n_first) - n_first
    if problem.held_out.noise_std is not None:
        widths = [int(np.ceil(factor * n_first)) for factor in _WIDTH_FACTORS]
        if fit_design(problem.oracle.n_inputs, (n_first, widths[0], problem.oracle.n_outputs)) is None:
            widths = [n_first]  # a wide fit has twice as many
        return [w for w in widths if 0 < w <= most]
    widths = [min(max(_MIN_WIDTH, n_first) * 2**j, most) for j in range(_WIDTH_DOUBLINGS)]
    return [w for w in dict.fromkeys(widths) if w > 0]


def _downstream(problem, first, shifts):
    """What follows the first layer, as a function of tanh or erf units with a linear output."""
    oracle, (hidden, output) = problem.oracle, problem.activations
    unit = 0.5 if hidden == "sigmoid" else 1.0  # sigmoid(z) = (1 + tanh(z / 2)) / 2
    invert, within = _INVERSE.get(output, lambda Y: Y), _WithinShare(oracle)
    return Downstream(
        query=lambda U: invert(within(U)),
        weights=unit * first.weights,
        biases=unit * first.biases,
        activation="erf" if hidden == "erf" else "tanh",
        center_outputs=None if shifts is None else erf(shifts),
        n_outputs=oracle.n_outputs,
        rng=problem.rng,
        farthest=min(_MAX_DISTANCE, 0.5 * oracle.reach),
        deadline=within.ends,
        accuracy=None if problem.held_out.noise_std is None else oracle.accuracy,
        representable=oracle.representable,
    )


def _with_activations(found, activations):
    """The network with the activations of the problem; it was recovered with tanh units in place of sigmoid ones."""
    weights, biases = (list(part) for part in (found.network.weights, found.network.biases))
    n_linear = getattr(get_activation(found.network.activations[0]), "n_linear", 0)
    if activations[0] == "sigmoid":
        for layer, W in enumerate(weights):
            reads = np.ones(len(W)) if layer == 0 else _scales(len(W), n_linear)
            gives = np.ones(W.shape[1]) if layer == len(weights) - 1 else _scales(W.shape[1], n_linear)
            biases[layer] = gives * (biases[layer] - (reads - 1.0) @ W)
            weights[layer] = reads[:, None] * gives * W
    hidden = partly_linear(activations[0], n_linear) if n_linear else activations[0]
    return replace(found, network=FeedforwardNetwork(weights, biases, hidden, activations[1]))


def _scales(n, n_linear):
    """2 for sigmoid units, of ``tanh(z) = 2 sigmoid(2 z) - 1``, and 1 for linear units at the end of a layer."""
    return np.repeat([2.0, 1.0], [n - n_linear, n_linear])
