"""Three hidden layers: those after the first one in the coordinates of its outputs."""

from skident.oracle import BlackBoxError, NotIdentified

from ..attempt import polished_attempt
from ..constants import TIME_SHARE
from ..smooth.hidden_coordinates.coordinates import HiddenModel, measured_nearby
from ..smooth.hidden_coordinates.two_layer_start import FEW_UNITS, two_layers_queries
from ..smooth.hidden_coordinates.two_layers import MIN_OUTPUTS, recover_two_layers, second_layer_span
from .saturating import View, exact_view

ROUTE = "saturation, hidden coordinates"
_ACTIVATIONS = ("tanh", "sigmoid")  # 1 / g'(z + b) is a combination of three functions of z
_TWO_LAYERS_ACTIVATION = "tanh"  # sigmoid units bend too little within the range of first-layer outputs
_N_TRIALS = 8  # of directions for two layers (budget): one or two suffice for 20 units and more
_N_TRIALS_SQUARE = 2  # `_N_TRIALS` if first-layer biases are fitted too: often there are no such layers
_PASSES_NEARBY = 2  # of profiles (budget): each starts from better norms and biases, and leaves errors of 0.01
_MIN_UNITS = 2  # of a first layer whose gradients have null vectors


def applies(problem):
    """Whether widths, outputs and queries allow hidden coordinates: three hidden layers, ``m_2 <= m_1 <= D``.

    Gradients give the first layer's biases if ``m_2 < m_1``; layers of equal width need more than a few units.
    """
    widths = problem.widths
    if widths is None or len(widths) != 4 or not _outputs_suffice(problem):
        return False
    m_1, m_2 = widths[:2]
    square = m_2 == m_1 and m_1 > FEW_UNITS
    return _free(problem, m_1) and widths[2] <= m_2 and (m_2 < m_1 or square) and _affordable(problem, m_2)


def _outputs_suffice(problem):
    """Whether the outputs are exact and linear, and the units' biases have a closed form."""
    hidden, output = problem.activations
    exact = problem.oracle.response == "predict" and problem.held_out.noise_std is None
    return hidden in _ACTIVATIONS and output == "identity" and exact


def _free(problem, m_1):
    """Whether the outputs of m_1 units can be chosen."""
    return _MIN_UNITS <= m_1 <= problem.oracle.n_inputs


def _affordable(problem, n_units):
    m_L = problem.oracle.n_outputs
    enough = n_units >= _MIN_UNITS and m_L >= MIN_OUTPUTS and problem.activations[0] == _TWO_LAYERS_ACTIVATION
    return enough and two_layers_queries(n_units, m_L) < problem.oracle.budget.queries_left


class HiddenCoordinates:
    """The first layer at large inputs, those after it from derivatives by its outputs, then the polish."""

    name = "hidden coordinates"

    def refuses(self, problem):
        """See `Method`."""
        return None if applies(problem) else "hidden coordinates need three hidden layers and exact outputs."

    def run(self, problem, step, state):
        """See `Method`; None if a stage fails: its entry in the log has the message as ``failed``."""
        first = state.first_layer.find(problem, problem.widths[0])
        if first is None or len(first.biases) != problem.widths[0]:
            return None
        square = problem.widths[1] == problem.widths[0]
        view = square_view(problem, first) if square else exact_view(problem, first, problem.widths[1])
        found = None if view is None else two_layers_in_hidden_coordinates(problem, view)
        if found is None or tuple(found.network.layer_widths) != tuple(problem.widths):
            return None
        return polished_attempt(problem, found.network, found.residual, "polish", ROUTE)


METHOD = HiddenCoordinates()


def square_view(problem, first):
    """The view behind a first layer as wide as the second, with biases from profiles; None if it does not apply."""
    m_1 = len(first.biases)
    possible = _outputs_suffice(problem) and _free(problem, m_1) and m_1 > FEW_UNITS
    if not possible or not _affordable(problem, m_1):
        return None
    with problem.log.stage("first-layer biases (profiles)", problem.oracle, m_1, "units"):
        for _ in range(_PASSES_NEARBY):
            first = measured_nearby(problem.oracle, first, problem.activations[0], problem.rng)
    return View("interior", first, m_1)


def two_layers_in_hidden_coordinates(problem, view):
    """A `RecoveredNetwork` with three hidden layers, given the view behind the first one; None if it fails.

    The first layer is exact, or as wide as the second (`square_view`).
    """
    possible = _outputs_suffice(problem) and _free(problem, len(view.first.biases))
    if not possible or not _affordable(problem, view.second_width):
        return None
    budget = problem.oracle.budget
    n_trials = _N_TRIALS_SQUARE if view.second_width == len(view.first.biases) else _N_TRIALS
    with problem.log.stage("three hidden layers (hidden coordinates)", problem.oracle, n_trials, "trials") as entry:
        try:
            model = HiddenModel(problem.oracle, view.first, problem.activations[0])
            basis = second_layer_span(model, view.second_width, problem.rng)
            tol = max(problem.fit_tol, view.tol)
            options = {"tol": tol, "deadline": budget.share(TIME_SHARE), "progress": entry["progress"]}
            found = recover_two_layers(model, basis, n_trials, problem.rng, **options)
            entry["residual"] = found.residual
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"], found = str(error), None
    return found
