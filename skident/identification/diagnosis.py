"""Messages: what happened, the likely cause, and a call that runs; from what the model's outputs show."""

from contextlib import contextmanager

import numpy as np

from skident.budget import MemoryLimitError
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError
from skident.oracle.clipping import detect_clipped_inputs

from .valid_range import LISTED_INPUTS, find_sentinel, find_valid_range

_PROBABILITY_SUM = 1e-6  # deviation from 1 of the sum of outputs that look like probabilities (float32 rounding)
_CLIPPED_SHARE = 0.5  # share of clipped inputs from which a model clips its inputs: single ones may just be unused


@contextmanager
def explained(problem):
    """Add what the model seems to do to errors of a block."""
    try:
        yield
    except NotIdentified as error:
        hint = clipping_hint(problem.oracle)
        hint += "" if problem.detected is None else f" Detected activation: {problem.detected.summary}."
        if not hint:
            raise
        raise NotIdentified(error.stage, error.reason, f"{error}{hint}", final=error.final) from error


@contextmanager
def range_named(oracle, X):
    """Add the input range in which the model returns outputs to the error of one that does not far from X (n, D)."""
    try:
        yield
    except BlackBoxError as error:
        setting = None if oracle.input_range is not None else _valid_setting(oracle, X)
        if setting is None:
            raise
        raise BlackBoxError(f"{error} The model returns outputs near X: set {setting}.") from error


def refuse_sentinel(oracle, X):
    """Raise `NotIdentified` for a model that returns one value at all inputs beyond a limit, and state the limit."""
    try:
        value = find_sentinel(oracle, X)
        setting = None if value is None else _valid_setting(oracle, X, value)
    except (BlackBoxError, OutOfBudgetError):
        return
    if value is None:
        return
    constant = ", ".join(f"{v:.4g}" for v in oracle.output_center + oracle.output_scale * value)
    raise NotIdentified(
        "model",
        "input range",
        f"the outputs jump to {constant} at a limit and are constant beyond it, as those of a service that refuses "
        f"inputs outside its range: set {setting or 'input_range=(low, high)'}.",
        final=True,
    )


def _valid_setting(oracle, X, sentinel=None):
    """The argument ``input_range=...`` of the box around X in which the model is valid; None if there is none."""
    try:
        found = find_valid_range(oracle, X, sentinel)
    except (BlackBoxError, OutOfBudgetError):
        return None
    if found is None:
        return None
    low, high = found
    if low.max() <= X.min() and high.min() >= X.max():
        return f"input_range=({low.max()}, {high.min()})"
    if len(low) > LISTED_INPUTS:
        return "input_range=(X.min(0), X.max(0))"
    return f"input_range=({low.tolist()}, {high.tolist()})"


@contextmanager
def budget_named():
    """Turn a budget that ends before anything is recovered into an error for the user."""
    try:
        yield
    except MemoryLimitError as error:
        raise ValueError(f"{error}; no unit was recovered before.") from error
    except OutOfBudgetError as error:
        raise ValueError(f"{error} {error.progress}: raise max_seconds or max_queries.") from error


def probability_hint(oracle, outputs):
    """A hint if outputs (n, m_L) look like probabilities that were taken as values."""
    sums = outputs.sum(axis=1)
    if oracle.response == "predict" and outputs.min() >= 0.0 and np.abs(sums - 1.0).max() < _PROBABILITY_SUM:
        return " The outputs sum to 1: if they are probabilities, use response_method='predict_proba'."
    return ""


def clipping_hint(oracle):
    """A hint if the model seems to clip its inputs; queries 1e4 deviations out."""
    if oracle.input_range is not None:
        return ""
    try:
        low, high = detect_clipped_inputs(oracle)
    except (BlackBoxError, OutOfBudgetError):
        return ""
    clipped = np.isfinite(low) | np.isfinite(high)
    if clipped.mean() < _CLIPPED_SHARE:
        return ""
    i = int(np.argmax(clipped))
    return (
        f" The model seems to clip its inputs: {int(clipped.sum())} of {len(low)} inputs have no effect beyond a "
        f"border, input {i} outside ({low[i]:.4g}, {high[i]:.4g}). Set input_range=(low, high)."
    )


def warning_of(validation):
    """The warning for a network that is not exact, or not as requested; None otherwise."""
    problem, widths = validation.problem, validation.best.network.layer_widths
    caveat, redundant = validation.best.caveat, any(validation.redundant)
    tol, error = problem.options.tol, validation.error
    inexact = error >= tol or validation.noisy
    if validation.contradicted:
        first = max(validation.best.error, validation.own_error)
        return f"the network is not exact: it agrees with held-out outputs to {first:.1e}, but {caveat}."
    rounded = validation.within_rounding and validation.input_rounding > problem.held_out.relative_noise
    if max(error, validation.input_rounding) >= tol and not redundant and rounded:
        return _inputs_rounded(validation)
    if inexact and error < problem.accepted_error and not redundant:
        return _noisy(validation)
    if inexact:
        return _not_exact(validation)
    if redundant and not caveat:
        return _too_wide(validation)
    if caveat:
        return f"the network agrees with the black box to {error:.1e}, but {caveat}."
    if not validation.finished:
        return (
            f"the network agrees with the black box to {error:.1e}, but the budget ended before the check of redundant "
            f"units and probabilities.{_exhausted(problem)}"
        )
    if problem.widths is not None and widths != problem.widths and validation.best.undetermined:
        return (
            f"layer_widths={problem.widths} was given, but {widths} explain all outputs, which do not determine "
            f"{validation.best.undetermined}."
        )
    if problem.widths is not None and widths != problem.widths:
        given = f"layer_widths={problem.widths} was given, but {widths}"
        if all(n <= m for n, m in zip(problem.widths, widths, strict=False)):
            return f"{given} explain all outputs: the model has more units."
        return f"{given} explain all outputs: the other units are dead, or parallel to these."
    return None


def _noisy(validation):
    """Noise or rounding of the outputs limits the network."""
    problem = validation.problem
    smallest = " These are the smallest widths consistent with the noise; the true ones may be larger."
    return (
        f"the outputs carry noise or rounding of {problem.held_out.relative_noise:.1e} of their standard deviation: "
        f"the network agrees with them to {validation.error:.1e}, and stderr_ holds the standard errors of its weights."
    ) + (smallest if problem.discover or problem.widths is None else "")


def _too_wide(validation):
    """Fewer units would suffice."""
    widths, redundant = validation.best.network.layer_widths, validation.redundant
    fewer = tuple(m - r for m, r in zip(widths, (*redundant, 0), strict=True))
    return (
        f"the outputs do not determine all weights: with layer_widths={widths} the network agrees with the black box "
        f"(error {validation.error:.1e}), but {redundant} units of its hidden layers are redundant. Stage 'widths' "
        f"failed; try layer_widths={fewer}."
    )


def _exhausted(problem):
    """Which budget ended the search, if any."""
    ended = problem.oracle.exhausted or ("the time for random starts is over" if problem.out_of_search_time else None)
    return f" The search was ended: {ended}." if ended else ""


def _inputs_rounded(validation):
    """The rounding of inputs far from 0 limits the network."""
    oracle = validation.problem.oracle
    i = int(np.argmax(np.abs(oracle.center / oracle.scale)))
    return (
        f"the inputs are rounded too coarsely to call the network exact: input {i} is around {oracle.center[i]:.4g} "
        f"with a standard deviation of {oracle.scale[i]:.2g}, and its last digit alone causes errors of about "
        f"{validation.input_rounding:.1e}. The network agrees with the outputs to {validation.error:.1e} "
        f"(tol={validation.problem.options.tol:.0e}). Query the model with inputs minus their mean, or loosen tol."
    )


_ADVICE = {
    "extraction": "weights are missing: check layer_widths, or set "
    "options=IdentifierOptions(extractor=EntangledWeightExtractor(n_hessians=1000))",
    "completion": "scales and biases were not recovered: check layer_widths and the activations, or set "
    "options=IdentifierOptions(completion=NetworkCompletion(n_starts=20))",
    "vertices": "no random start fits the layers after the first one: check layer_widths and the activations, or set "
    "options=IdentifierOptions(n_starts=100)",
    "boundaries": "units or layers are missing, or the model is not a network of ReLU units: raise max_seconds or "
    "max_queries, or give samples X on which rarely active units are active",
    "linear": "the outputs are linear near the center only: give activation and layer_widths, or raise max_seconds",
    "range": "outputs within input_range determine the function there, but not the weights: raise max_seconds, or "
    "widen input_range",
    "polish": "the fit ended in a local minimum or is limited by rounding: check layer_widths and the activations (two "
    "parallel first-layer units look like one), set options=IdentifierOptions(n_attempts=8), or loosen tol",
}


def _not_exact(validation):
    """The failed stage, and what to try."""
    best, problem, failures = validation.best, validation.problem, validation.result.failures
    last = f" The last step ended in: {failures[-1]}" if failures else ""
    return (
        f"the network is not exact: relative maximum error {validation.error:.1e} on held-out samples "
        f"(tol={problem.options.tol:.0e}) after {validation.result.n_attempts} attempt(s). Stage {best.stage!r} failed "
        f"with residual {best.residual:.1e}; {_advice(problem, best.stage)}."
        f"{validation.hint}{last}{_exhausted(problem)}"
    )


def _advice(problem, stage):
    """What to try, as a call that runs."""
    if stage != "boundaries" and problem.widths is None and not problem.discover:
        return "layer_widths=None assumes one hidden layer: for up to three, set layer_widths='auto'"
    return _ADVICE[stage]
