"""Which activation a black box has, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from skident.network import ACTIVATIONS

from .growth import growth, polynomial_degree
from .intervals import find_interval
from .near_kinks import classify_near_center
from .outputs import OutputEvidence, PreActivationOracle, detect_output_activation
from .profiles import growing_profile, settling_profile

__all__ = ["ActivationEvidence", "detect_activation"]

_STRETCHES, _LINES = 2, 15  # intervals that are looked at, and lines that are searched for them
_FITS, _BETTER = 1e-5, 30.0  # misfit of a profile that is right, and how much worse the next one is


@dataclass(frozen=True)
class ActivationEvidence:
    """What was seen of a black box's activation.

    Attributes
    ----------
    name : str or None
        ``tanh`` (sigmoid is of the same class), ``erf``, ``hard_tanh``, ``step``, ``sin``, ``identity``, ``quadratic``,
        ``relu`` (or leaky: the slope is not looked at here), ``softplus``, ``gelu``, ``silu``, ``elu``; None if it is
        none of these.
    doubt : str
        Why it may be another; empty where nothing speaks for another.
    growth : str
        What answers do far out.
    seen : list of str
        Interval by interval.
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
        """Whether networks of this activation are known, and have units to identify."""
        return self.name in ACTIVATIONS and self.name != "identity"

    def __str__(self):
        sure = f"; in doubt: {self.doubt}" if self.doubt else ""
        seen = ", ".join(self.seen) or "no unit seen by itself"
        return f"{self.name or 'unknown'} ({self.growth}; {seen}{sure}), {self.output}"


def detect_activation(oracle, rng, noise=0.0):
    """Tell the activations of outputs and of hidden units from answers far out.

    Bounded answers that settle come from units that settle (tanh, erf, hard tanh, steps), answers that swing from sin,
    those that grow linearly from units that do (relu, softplus, gelu, silu, elu), polynomials from linear and quadratic
    units. Within its class an activation is told by the profile of one unit on a far line, where all others are
    constant or linear: kinks, jumps, the way tails fall, or a fit. Where outputs have an activation of their own, all
    this is looked at before it; where it reaches its limits far out, only kinks near the centre tell.

    Parameters
    ----------
    oracle : Oracle
        One that may be asked anywhere.
    rng : numpy.random.RandomState
    noise : float or ndarray of shape (m_L,), default=0.0
        Standard deviation of the answers' errors beyond rounding.

    Returns
    -------
    ActivationEvidence

    Notes
    -----
    Some 1200 queries, and as many again where answers stay between -1 and 1; more where many units lie near each other.
    All hidden layers are taken to have the same activation.
    """
    began = oracle.n_queries
    output = detect_output_activation(oracle, np.random.RandomState(rng.randint(2**31 - 1)), noise)
    if output.name == "identity":
        seen = _hidden(oracle, rng, noise)
        if output.saturates and not seen.doubt:
            seen = replace(seen, doubt="answers reach limits where hidden units should show")
    else:
        behind = PreActivationOracle(oracle, output.name, noise)
        seen = _growing(behind, rng) if output.saturates else _hidden(behind, rng, behind.noise(rng))
    return replace(seen, n_queries=oracle.n_queries - began, output=output)


def _growing(behind, rng):
    """Hidden units that grow, where that brings outputs to their limits."""
    near = classify_near_center(behind, rng)
    if near == "kinks":
        return ActivationEvidence("relu", "", "grows", ["kinks near the centre, and lines between them"])
    if near == "lines":
        return ActivationEvidence("identity", "", "grows", ["lines near the centre"])
    return ActivationEvidence(None, "units bend where their shape cannot be seen by itself", "grows")


def _hidden(oracle, rng, noise):
    """Hidden units, behind linear outputs."""
    kind, exponent = growth(oracle, rng, noise)
    told = f"grows like r^{exponent:g}" if kind == "power" else kind
    degree = polynomial_degree(oracle, rng, (1, 2, 4, 8), noise) if kind == "power" else None
    if degree is not None:
        name = "identity" if degree == 1 else "quadratic"
        return ActivationEvidence(name, "", told, [f"polynomial of degree {degree}"])
    if kind == "swings":
        return ActivationEvidence("sin", "", told)
    if kind == "unclear" or (kind == "power" and exponent != 1):
        return ActivationEvidence(None, "far out answers neither settle, swing nor grow like a line", told)
    votes, seen = [], []
    for _ in range(_LINES):
        interval = find_interval(oracle, rng, np.broadcast_to(noise, (oracle.n_outputs,)))
        if interval is None:
            continue
        name, text = _told(interval, oracle, kind)
        seen.append(text)
        if name is not None:
            votes.append(name)
        if len(votes) == _STRETCHES:
            break
    return _judged(votes, seen, told, kind)


def _told(interval, oracle, kind):
    """What one interval tells: a name or None, and what was seen."""
    if interval.sharp == "jump":
        return ("step" if kind == "settles" else None), "a jump"
    if interval.sharp == "kink":
        return ("hard_tanh" if kind == "settles" else "relu"), "a kink"
    if kind == "settles":
        name, bends = settling_profile(interval, oracle)
        return name, f"tails bent by {', '.join(f'{b:.2f}' for b in bends) or 'what cannot be seen'}"
    name, misfits = growing_profile(interval, oracle)
    others = min(v for k, v in misfits.items() if k != name)
    sure = misfits[name] < _FITS and others > _BETTER * misfits[name]
    return (name if sure else None), f"{name} to {misfits[name]:.0e}, the next to {others:.0e}"


def _judged(votes, seen, told, kind):
    """The name that intervals agree on."""
    names = sorted(set(votes), key=votes.count, reverse=True)
    if not names:
        guess = "tanh" if kind == "settles" else None
        doubt = "no unit could be seen by itself" if not seen else "no profile fits"
        return ActivationEvidence(guess, doubt, told, seen)
    doubt = ""
    if len(names) > 1:
        doubt = f"intervals disagree: {', '.join(votes)}"
    elif len(votes) < 2:
        doubt = "only one unit could be seen by itself"
    return ActivationEvidence(names[0], doubt, told, seen)
