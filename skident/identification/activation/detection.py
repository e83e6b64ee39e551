"""Detection of the hidden and output activation of a black box from its outputs far out, with doubts."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from skident.network import ACTIVATIONS

from ..constants import FARTHEST, FARTHEST_HALF
from .growth import classify_near_center, growth, is_linear_far_out, polynomial_degree
from .intervals import find_interval, growing_profile, settling_profile
from .outputs import OutputEvidence, PreActivationOracle, detect_output_activation
from .windows import shape_in_windows

_VOTES = 2  # units whose profiles must agree
_MAX_LINES = 15  # searched for them; budget
_MAX_RESIDUAL = 1e-5  # of a profile that fits, relative to the unit: fits of exact outputs leave 1e-8 and less
_MARGIN = 30.0  # times that residual that the second best activation must leave
_DEGREES = (1, 2, 4, 8)  # of outputs behind one linear layer, and one to three quadratic ones
_BY_SHAPE = {"linear": "identity", "piecewise": "relu", "curved": "tanh"}  # of smooth units, tanh is the most common


@dataclass(frozen=True)
class ActivationEvidence:
    """The hidden activation of a black box, and what it was detected from.

    Attributes
    ----------
    name : str or None
        ``tanh`` (or sigmoid, which is equivalent), ``erf``, ``hard_tanh``, ``step``, ``sin``, ``identity``,
        ``quadratic``, ``relu`` (or leaky: the slope is not detected), one of `GROWING`; None if it is none of these.
    doubt : str
        Why it may be another one; empty if there is no reason.
    growth : str
        Behavior of the outputs far out.
    seen : list of str
        The profile of each unit.
    n_queries : int
    output : OutputEvidence
        The outputs' activation, with a doubt of its own.
    """

    name: str | None
    doubt: str
    growth: str
    seen: list = field(default_factory=list)
    n_queries: int = 0
    output: OutputEvidence = OutputEvidence()

    @property
    def usable(self):
        """Whether networks with this activation are supported, and have units to identify."""
        return self.name in ACTIVATIONS and self.name != "identity"

    @property
    def grows_linearly(self):
        """Whether the outputs grow as the distance does."""
        return self.growth == "grows like r^1"

    @property
    def summary(self):
        """Both activations and the growth, for messages."""
        return f"{self.name or 'unknown'} ({self.growth}), output {self.output.name}"

    def __str__(self):
        doubt = f"; in doubt: {self.doubt}" if self.doubt else ""
        seen = ", ".join(f"{text} ({k} units)" if k > 1 else text for text, k in Counter(self.seen).items())
        return f"{self.name or 'unknown'} ({self.growth}; {seen or 'no unit isolated'}{doubt}), {self.output}"


def detect_activation(oracle, rng, noise=0.0):
    """`ActivationEvidence` of an oracle without limits of its inputs; `noise` is the outputs' error beyond rounding.

    Bounded outputs that settle come from units that settle (tanh, erf, hard tanh, steps), outputs that oscillate from
    sin, those that grow linearly from units that do (relu, softplus, gelu, ...), polynomials from linear and
    quadratic units. Within its class an activation is determined by the profile of one unit on a far line, where all
    others are constant or linear. If the outputs have an activation of their own, all this is done before it; if that
    reaches its limits far out, only the shape near the center decides. All hidden layers are taken to have one
    activation. Some 1,200 queries, and as many again if outputs stay between -1 and 1; more if units are crowded.
    """
    began = oracle.n_queries
    output_rng = np.random.RandomState(rng.randint(2**31 - 1))
    output = detect_output_activation(oracle, output_rng, noise, farthest=_farthest(oracle))
    if output.name == "identity":
        evidence = _hidden(oracle, rng, noise)
        if output.saturates and not evidence.doubt:
            evidence = replace(evidence, doubt="outputs reach limits where hidden units should change")
    else:
        inner = PreActivationOracle(oracle, output.name, noise)
        evidence = _near_center(inner, rng) if output.saturates else _hidden(inner, rng, inner.noise(rng))
    return replace(evidence, n_queries=oracle.n_queries - began, output=output)


def detect_within_range(oracle, rng):
    """`ActivationEvidence` of an oracle with an input range, from lines that end at its border.

    Linear and piecewise linear outputs are determined; curved ones are taken to come from tanh units, which is tested
    by the fit that follows. 644 to 1,288 queries.
    """
    began, where = oracle.n_queries, "within input_range"
    if oracle.accuracy.exact:
        shape = classify_near_center(PreActivationOracle(oracle, "identity"), rng)
    else:
        shape = shape_in_windows(oracle, oracle.accuracy.std, rng) or "curved"
    return ActivationEvidence(_BY_SHAPE[shape], "", where, [f"{shape} {where}"], oracle.n_queries - began)


def between_plateaus(oracle):
    """The activation of units where no outputs are lost, as on plateaus; None if these are linear."""
    shape = classify_near_center(PreActivationOracle(oracle, "identity"), np.random.RandomState(0))
    return None if shape == "linear" else _BY_SHAPE[shape]


def _farthest(oracle):
    """Standard deviations of the farthest inputs."""
    return FARTHEST_HALF if oracle.precision.kind == "float16" else FARTHEST


def _near_center(inner, rng):
    """Hidden units that grow until the outputs reach their limits."""
    shape = classify_near_center(inner, rng)
    if shape == "piecewise":
        return ActivationEvidence("relu", "", "grows", ["piecewise linear near the center"])
    if shape == "linear":
        return ActivationEvidence("identity", "", "grows", ["linear near the center"])
    return ActivationEvidence(None, "units are curved where no unit can be isolated", "grows")


def _hidden(oracle, rng, noise):
    """Hidden units, behind linear outputs."""
    kind, exponent = growth(oracle, rng, noise, _farthest(oracle))
    behavior = f"{'grows' if exponent > 0 else 'settles'} like r^{exponent:g}" if kind == "power" else kind
    degree = polynomial_degree(oracle, rng, _DEGREES, noise) if kind == "power" else None
    if degree == 1 and not is_linear_far_out(oracle, rng, noise, _farthest(oracle)):
        degree = None
    if degree is not None and degree == exponent:  # errors hide what a polynomial leaves over near the center
        name = "identity" if degree == 1 else "quadratic"
        return ActivationEvidence(name, "", behavior, [f"polynomial of degree {degree}"])
    if kind == "oscillates":
        return ActivationEvidence("sin", "", behavior)
    if kind == "unclear" or (kind == "power" and exponent != 1):
        return ActivationEvidence(
            None, "far out the outputs neither settle fast, oscillate nor grow linearly", behavior
        )
    if kind == "power" and not oracle.accuracy.exact:
        return _growing_noisy(oracle, rng, noise, behavior)
    votes, seen = [], []
    for _ in range(_MAX_LINES):
        interval = find_interval(oracle, rng, np.broadcast_to(noise, (oracle.n_outputs,)))
        if interval is None:
            continue
        name, text = _classify(interval, oracle, kind)
        seen.append(text)
        if name is not None:
            votes.append(name)
        if len(votes) == _VOTES:
            break
    without_units = kind == "power" and not votes
    if without_units and shape_in_windows(oracle, oracle.accuracy.std, rng, _farthest(oracle)) == "piecewise":
        seen = ["piecewise linear near the center"]  # by too many units to isolate one
        return ActivationEvidence("relu", "no unit could be isolated", behavior, seen)
    return _elected(votes, seen, behavior, kind)


def _growing_noisy(oracle, rng, noise, behavior):
    """Hidden units that grow, from windows near the center: far out, rounding hides over how much a unit bends."""
    shape = shape_in_windows(oracle, np.broadcast_to(noise, (oracle.n_outputs,)), rng, _farthest(oracle))
    if shape == "linear":
        return ActivationEvidence("identity", "", behavior, ["linear near the center"])
    if shape == "piecewise":
        return ActivationEvidence("relu", "", behavior, ["piecewise linear near the center"])
    if shape == "curved":
        doubt = "softplus, silu and elu grow as gelu does: the fit of the network decides"
        return ActivationEvidence("gelu", doubt, behavior, ["curved near the center"])
    doubt = "the outputs' errors hide whether the units are smooth"
    return ActivationEvidence("relu", doubt, behavior, ["linear far out"])


def _classify(interval, oracle, kind):
    """The activation of one unit, or None, and a description of its profile."""
    if interval.shape == "jump":
        return ("step" if kind == "settles" else None), "a jump"
    if interval.shape == "corner":
        return ("hard_tanh" if kind == "settles" else "relu"), "a corner"
    if kind == "settles":
        name, curvatures = settling_profile(interval, oracle)
        return name, f"tail curvature {', '.join(f'{c:.2f}' for c in curvatures) or 'undetermined'}"
    name, residuals = growing_profile(interval, oracle)
    second = min(v for k, v in residuals.items() if k != name)
    clear = residuals[name] < _MAX_RESIDUAL and second > _MARGIN * residuals[name]
    return (name if clear else None), f"{name} to {residuals[name]:.0e}, the next to {second:.0e}"


def _elected(votes, seen, behavior, kind):
    """The activation that most profiles have."""
    names = sorted(set(votes), key=votes.count, reverse=True)
    if not names:
        guess = "tanh" if kind == "settles" else None
        doubt = "no unit could be isolated" if not seen else "no profile fits"
        return ActivationEvidence(guess, doubt, behavior, seen)
    doubt = ""
    if len(names) > 1:
        doubt = f"profiles disagree: {', '.join(votes)}"
    elif len(votes) < _VOTES:
        doubt = "only one unit could be isolated"
    return ActivationEvidence(names[0], doubt, behavior, seen)
