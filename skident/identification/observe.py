"""The first look at a black box: which rows may be asked, and which activations it has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.network import get_activation
from skident.oracle import BlackBoxError, Oracle, OutOfBudgetError, measure_noise
from skident.oracle.black_box import has_known_activations, query_where_outputs_vary, resolve_activations

from .activation import ActivationEvidence, classify_near_center, detect_activation
from .activation.plateaus import clipped_range
from .input_range import rows_inside, spaced

__all__ = ["FirstLook", "first_look"]

_NEAR = 100.0  # distance, in sqrt(D) standard deviations, up to which plateaus are looked into before anything else
_QUERIES_FOR_LOOKS = 10_000  # max_queries from which the activation is looked for


@dataclass(frozen=True)
class FirstLook:
    """What a first look at a black box told.

    Attributes
    ----------
    oracle : Oracle
        With its units; of logits, where answers are probabilities.
    X : ndarray of shape (n, D)
        Rows that may be asked.
    spread : float
        See `query_where_outputs_vary`.
    activations : tuple of str
        To look for. The output's is ``identity`` where that is in doubt, and before a softmax or the sigmoid of one
        output.
    clipped : tuple of two ndarrays of shape (m_L,) or None
        Bounds of the outputs, see `clipped_range`.
    seen : ActivationEvidence or None
        None where they were named or told, or far questions cannot be asked: beyond an `input_range`, of
        probabilities, with fewer than 10 000 queries, or where the black box refuses.
    """

    oracle: Oracle
    X: np.ndarray
    spread: float
    activations: tuple[str, str]
    seen: ActivationEvidence | None
    clipped: tuple | None = None

    def readings(self, box, named, layer_widths):
        """This look, and what the answers may be besides: clipped, or, where widths are given, of another activation.

        Parameters
        ----------
        box : object
        named : tuple of str
            Hidden and output activation as they were given.
        layer_widths : object
            As it was given.

        Yields
        ------
        FirstLook
            The one of clipped outputs comes first, or second where plateaus show only then; the last one takes the
            rival of a linear output. Both have an oracle of their own, whose queries count on.
        """
        clipped = self._behind_clip(box, named, self.clipped)
        yield from clipped
        self.oracle.n_queries = max(one.oracle.n_queries for one in (self, *clipped))
        yield self
        if not clipped and _may_clip(self.oracle, box, self.activations, named):
            for late in self._behind_clip(box, named, _clipped(self.oracle, self.X)):
                yield late
                self.oracle.n_queries = late.oracle.n_queries
        output_activation = named[1]
        open_widths = layer_widths is None or isinstance(layer_widths, str)
        settled = self.seen is None or output_activation != "auto" or open_widths
        rival = None if settled else self.seen.output.rival
        if rival is not None and self.seen.usable and get_activation(self.seen.name).saturating:
            seen = replace(self.seen, output=replace(self.seen.output, name=rival, rival="identity"))
            logits = seen.output.gives_probabilities(self.oracle.n_outputs)
            oracle = _once_more(self.oracle, box, "predict_proba" if logits else "predict")
            try:
                X, answers, spread = _ask_first(oracle, self.X)
            except (BlackBoxError, OutOfBudgetError):
                return
            activations = self.activations[0], "identity" if logits else rival
            oracle.standardize_outputs(answers, activations[1])
            yield FirstLook(oracle, X, spread, activations, seen)

    def _behind_clip(self, box, named, clipped):
        """This look at the network before its outputs are clipped, in a list; empty if they are not."""
        if clipped is None:
            return []
        oracle, hidden = _once_more(self.oracle, box, "predict"), self.activations[0]
        try:
            oracle.standardize_outputs(oracle(spaced(oracle.from_inputs(self.X), 20)))
            oracle.output_bounds = clipped
            if named[0] == "auto":
                near = classify_near_center(_Between(oracle), np.random.RandomState(0))
                hidden = {"piecewise": "relu", "curved": "tanh", "linear": None}[near]
        except (BlackBoxError, OutOfBudgetError):
            return []
        return [] if hidden is None else [FirstLook(oracle, self.X, self.spread, (hidden, "identity"), None, clipped)]


class _Between:
    """An oracle's outputs, those on plateaus as lost, for looks at the network before its outputs are clipped."""

    def __init__(self, oracle):
        self._oracle, self.n_inputs = oracle, oracle.n_inputs

    def query(self, U):
        """Outputs and bounds of their errors, (n, m_L) each."""
        Y, error = self._oracle.query(U)
        return Y, np.broadcast_to(error[:, None], Y.shape)


def first_look(oracle, box, X, named, strategy):
    """Ask rows of X, and look for activations that were neither named nor told.

    Parameters
    ----------
    oracle : Oracle
    box : object
    X : ndarray of shape (n, D)
        Rows where the black box is used.
    named : tuple of str
        Hidden and output activation as they were given; ``auto`` where they are to be told by the black box, or seen.
    strategy : str

    Returns
    -------
    FirstLook

    Raises
    ------
    ValueError
        If fewer than two rows may be asked, the answers are constant, or differ when asked twice; if an output
        activation would come before a softmax.
    """
    inside, answers, spread = _ask_first(oracle, X)
    activations, seen = _sought_activations(oracle, box, answers, named, strategy)
    if seen is not None and named[1] == "auto" and seen.output.gives_probabilities(oracle.n_outputs):
        oracle = _once_more(oracle, box, "predict_proba")
        inside, _, spread = _ask_first(oracle, X)
    # Without a look at the activation nothing far out was queried yet: `readings` looks once that has happened.
    clipped = (
        _clipped(oracle, inside, _NEAR) if seen is not None and _may_clip(oracle, box, activations, named) else None
    )
    return FirstLook(oracle, inside, spread, activations, seen, clipped)


def _may_clip(oracle, box, activations, named):
    """Whether plateaus of the outputs can mean that these are clipped, and the budget allows the search."""
    linear = activations[1] == "identity" and named[0] != "hard_tanh"
    few = oracle.clock.max_queries is not None and oracle.clock.max_queries < _QUERIES_FOR_LOOKS
    return linear and not few and not oracle.restricted and not has_known_activations(box)


def _clipped(oracle, X, within=np.inf):
    """See `clipped_range`; None where the black box cannot be queried as that takes."""
    try:
        return clipped_range(oracle, spaced(oracle.from_inputs(X), 20), within)
    except (BlackBoxError, OutOfBudgetError):
        return None


def _ask_first(oracle, X):
    """A first look: which rows may be asked, whether the answers vary and repeat, and on which scale."""
    inside = rows_inside(oracle, X)
    return inside, *query_where_outputs_vary(oracle, spaced(oracle.from_inputs(inside), 20))


def _sought_activations(oracle, box, answers, named, strategy):
    """The activations to look for, and what was seen of them; the oracle has its units then."""
    activations = resolve_activations(box, *named)
    if oracle.response == "predict_proba" and activations[1] == "sigmoid":
        raise ValueError(
            f"output_activation={named[1]!r} would come before the softmax; of probabilities the network of their "
            "logits is identified, so leave output_activation='auto'."
        )
    oracle.standardize_outputs(answers, activations[1])
    few = oracle.clock.max_queries is not None and oracle.clock.max_queries < _QUERIES_FOR_LOOKS
    given = named[0] != "auto" or named[1] not in ("auto", "identity") or strategy != "auto"
    if given or few or oracle.restricted or has_known_activations(box):
        return activations, None
    rng = np.random.RandomState(0)
    try:
        noise = measure_noise(oracle, rng.standard_normal((20, oracle.n_inputs)), rng)
        seen = detect_activation(oracle, rng, noise.std)
    except BlackBoxError:
        return activations, None
    hidden = seen.name if seen.usable else activations[0]
    if named[1] != "auto" or seen.output.gives_probabilities(oracle.n_outputs):
        return (hidden, activations[1]), seen
    oracle.standardize_outputs(answers, seen.output.name)
    return (hidden, seen.output.name), seen


def _once_more(oracle, box, response):
    """Another oracle for a black box that was asked for values; queries count on."""
    asked = box.predict if hasattr(box, "predict") else box
    options = {"center": oracle.center, "scale": oracle.scale, "clock": oracle.clock}
    other = Oracle(asked, oracle.n_inputs, response=response, **options)
    other.n_queries = oracle.n_queries
    return other
