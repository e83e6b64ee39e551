"""Two hidden layers: the second one from faces of the cube of first-layer outputs, or from fits."""

import time
from dataclasses import replace

from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import BlackBoxError, NotIdentified

from ..attempt import polished_attempt
from ..constants import COST_MARGIN, FEW_OUTPUTS, TIME_SHARE, VERY_FAR
from ..smooth.by_fit import fit_design, recover_by_fit
from ..smooth.cube import Cube, preactivations_of
from ..smooth.design import cheapest_design
from ..smooth.engine import recover_two_layers
from ..smooth.exact_directions import exact_directions

_ACTIVATIONS = ("tanh", "sigmoid", "erf")
_VERTEX_RATIO = 4  # second-layer units per output up to which vertices determine them
_FACE_ATTEMPTS = 3  # budget
_UNIT_QUERIES = 90  # queries per first-layer unit for norms and biases
_MAX_NOISE = 1e-4  # relative noise up to which the second layer is fitted: below it lie float32 and four decimals
ROUTE = "saturation, faces"


def applies(problem):
    """Whether faces or a fit can determine the second layer: two hidden layers, accurate outputs, enough queries."""
    if problem.widths is None or len(problem.widths) != 3 or not _outputs_suffice(problem):
        return False
    m_1, m_2, _ = problem.widths
    return _faces_apply(problem, m_1, m_2) or _fit_design(problem, m_1, m_2) is not None


def is_cheapest(problem):
    """Whether vertices alone are unlikely to determine the second layer: it is much wider than the output."""
    _, m_2, m_L = problem.widths
    exact = problem.held_out.noise_std is None
    return not (exact and m_L >= FEW_OUTPUTS and m_2 <= _VERTEX_RATIO * m_L)


def _outputs_suffice(problem):
    """Whether activations and the precision of the outputs allow derivatives or a fit at large inputs."""
    hidden, output = problem.activations
    if problem.oracle.response != "predict" or hidden not in _ACTIVATIONS:
        return False
    if problem.held_out.noise_std is None:
        return output == "identity" or output in _ACTIVATIONS
    return hidden != "erf" and output == "identity" and problem.held_out.relative_noise <= _MAX_NOISE


class Faces:
    """Two hidden layers: the first at large inputs, the second from faces or a fit, then the polish."""

    name = "faces"

    def refuses(self, problem):
        """See `Method`."""
        return None if applies(problem) else "faces need two hidden layers, accurate outputs, and enough queries."

    def run(self, problem, step, state):
        """See `Method`; None if a stage fails: its entry in the log has the message as ``failed``."""
        m_1 = problem.widths[0]
        first = state.first_layer.find(problem, m_1)
        if first is None:
            return None
        if len(first.biases) != m_1:
            with problem.log.stage("second layer (faces)", problem.oracle) as entry:
                entry["failed"] = (
                    f"{len(first.biases)} of {m_1} first-layer units detected; parallel ones look like one"
                )
            return None
        n_units = problem.widths[1]
        found = second_layer_from_faces(problem, first, n_units) or second_layer_from_fit(problem, first, n_units)
        return None if found is None else polished_attempt(problem, found.network, found.residual, "polish", ROUTE)


METHOD = Faces()


def second_layer_from_faces(problem, first, n_units=None):
    """A `RecoveredNetwork` with two hidden layers behind a `FirstLayer`; None if faces show no second layer.

    `n_units` is the width of the second layer, None if unknown; there are fewer units if the others are dead. If units
    are shown but no network fits, other faces follow.
    """
    if not _outputs_suffice(problem) or not _faces_apply(problem, len(first.biases), n_units):
        return None
    for _ in range(_FACE_ATTEMPTS):
        with problem.log.stage("second layer (faces)", problem.oracle, len(first.biases), "units") as entry:
            try:
                found = recover_two_layers(_cube(problem, first), n_units)
                entry["residual"], entry["seen"] = found.residual, found.network.layer_widths[1]
                return _with_output(found, problem.activations[1])
            except (NotIdentified, BlackBoxError) as error:
                entry["failed"] = str(error)
                if getattr(error, "reason", "") != "residual":
                    break
    return None


def _faces_apply(problem, m_1, n_units):
    """Whether outputs are exact, and the queries left suffice for faces."""
    oracle = problem.oracle
    design = cheapest_design(oracle.n_inputs, m_1, m_1 if n_units is None else n_units, oracle.n_outputs)
    if problem.held_out.noise_std is not None or (design is None and n_units is not None):
        return False
    n_queries = _UNIT_QUERIES * m_1 + (0 if design is None else design.n_queries)
    return COST_MARGIN * n_queries < oracle.budget.queries_left


def _fit_design(problem, m_1, n_units):
    """The design of a fit for which the queries left suffice, or None: units beyond an unknown width are removed.

    Of exact outputs and an unknown width only if there are too few inputs for faces, and few parameters.
    """
    oracle = problem.oracle
    few = oracle.n_outputs < FEW_OUTPUTS and cheapest_design(oracle.n_inputs, m_1, m_1, oracle.n_outputs) is None
    if n_units is None and problem.held_out.noise_std is None and not few:
        return None
    design = fit_design(oracle.n_inputs, (m_1, n_units or m_1, oracle.n_outputs))
    affordable = design is not None and COST_MARGIN * design.n_queries < oracle.budget.queries_left
    return design.with_starts(problem.options.n_starts) if affordable else None


def second_layer_from_fit(problem, first, n_units=None):
    """A `RecoveredNetwork` from fits of a wide layer that is reduced; None if none explains the outputs."""
    design = _fit_design(problem, len(first.biases), n_units) if _outputs_suffice(problem) else None
    if design is None:
        return None
    with problem.log.stage("second layer (fit)", problem.oracle, None, "steps") as entry:
        try:
            deadline, g = problem.oracle.budget.share(TIME_SHARE), get_activation(problem.activations[0])
            cube = _cube(problem, exact_directions(problem.oracle, first, g, problem.rng))
            found = recover_by_fit(cube, design, n_units, deadline=deadline, progress=entry["progress"])
            entry["residual"], entry["seen"] = found.residual, found.network.layer_widths[1]
            return _with_output(found, problem.activations[1])
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"] = str(error)
    return None


def _with_output(found, output):
    """The network with the output activation of the problem."""
    network = found.network
    network = FeedforwardNetwork(network.weights, network.biases, network.activations[0], output)
    return replace(found, network=network)


def _cube(problem, first):
    """The `Cube` of a first layer, behind which outputs are linear, until the time share of this method has ended."""
    oracle, (hidden, output) = problem.oracle, problem.activations
    ends, g = oracle.budget.share(TIME_SHARE), get_activation(output)

    def query(U):
        if time.perf_counter() > ends:
            raise NotIdentified("second layer", "budget", "its share of max_seconds is over", final=True)
        Y = oracle(U)
        if output == "identity":
            return Y
        low, high = g.limits
        return preactivations_of(g, (2.0 * Y - low - high) / (high - low))

    return Cube(
        query=query,
        weights=first.weights,
        biases=first.biases,
        g=get_activation(hidden),
        n_outputs=oracle.n_outputs,
        rng=problem.rng,
        farthest=min(VERY_FAR, 0.5 * oracle.reach),
        accuracy=None if problem.held_out.noise_std is None else oracle.accuracy,
        representable=oracle.representable,
    )
