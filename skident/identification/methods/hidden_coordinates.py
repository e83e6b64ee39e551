"""Two hidden layers: the second one in the coordinates of the first layer's outputs."""

from __future__ import annotations

from skident.oracle import BlackBoxError, NotIdentified

from ..attempt import polished_attempt
from ..second_layer.hidden_coordinates.recover import hidden_coordinate_queries, recover_in_hidden_coordinates

__all__ = ["METHOD", "applies", "second_layer_in_hidden_coordinates"]

ROUTE = "saturation, hidden coordinates"
_ACTIVATIONS = ("tanh", "sigmoid")  # 1 / g'(z + b) is a combination of three functions of z
_MIN_UNITS = 2  # of a first layer whose gradients have null vectors


def applies(problem):
    """Whether widths, outputs and queries allow hidden coordinates: two hidden layers, ``m_2 <= m_1 <= D``.

    With one output ``m_2 < m_1``: gradients determine the first layer's biases only then.
    """
    widths = problem.widths
    if widths is None or len(widths) != 3 or not _outputs_suffice(problem):
        return False
    m_1, m_2, _ = widths
    narrow = m_2 < m_1 if problem.oracle.n_outputs == 1 else m_2 <= m_1
    return narrow and _free(problem, m_1) and _affordable(problem, m_1, m_2)


def _outputs_suffice(problem):
    """Whether the outputs are exact and linear, and the units' biases have a closed form."""
    hidden, output = problem.activations
    exact = problem.oracle.response == "predict" and problem.held_out.noise_std is None
    return hidden in _ACTIVATIONS and output == "identity" and exact


def _free(problem, m_1):
    """Whether the outputs of m_1 units can be chosen."""
    return _MIN_UNITS <= m_1 <= problem.oracle.n_inputs


def _affordable(problem, m_1, m_2):
    return hidden_coordinate_queries((m_1, m_2, problem.oracle.n_outputs)) < problem.oracle.budget.queries_left


class HiddenCoordinates:
    """The first layer at large inputs, the second from derivatives by its outputs, then the polish."""

    name = "hidden coordinates"

    def refuses(self, problem):
        """See `Method`."""
        return None if applies(problem) else "hidden coordinates need two hidden layers and exact outputs."

    def run(self, problem, step, state):
        """See `Method`; None if a stage fails: its entry in the log has the message as ``failed``."""
        first = state.first_layer.find(problem, problem.widths[0])
        if first is None or len(first.biases) != problem.widths[0]:
            return None
        found = second_layer_in_hidden_coordinates(problem, first, problem.widths[1])
        return None if found is None else polished_attempt(problem, found.network, found.residual, "polish", ROUTE)


METHOD = HiddenCoordinates()


def second_layer_in_hidden_coordinates(problem, first, n_units=None):
    """A `RecoveredNetwork` with two hidden layers; None if it does not apply or fails. `n_units` is m_2 if known."""
    m_1 = len(first.biases)
    possible = _outputs_suffice(problem) and _free(problem, m_1)
    if not possible or not _affordable(problem, m_1, m_1 if n_units is None else n_units):
        return None
    with problem.log.stage("second layer (hidden coordinates)", problem.oracle, m_1, "units") as entry:
        try:
            found = recover_in_hidden_coordinates(problem.oracle, first, problem.activations[0], n_units, problem.rng)
            entry["residual"] = found.residual
        except (NotIdentified, BlackBoxError) as error:
            entry["failed"], found = str(error), None
    return found
