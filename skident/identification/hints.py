"""What to say after a failure, from what the black box does."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from skident.budget import MemoryLimitError
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError
from skident.oracle.clipping import detect_clipped_inputs, detect_clipped_outputs

__all__ = ["budget_named", "clipping_hint", "explained", "far_hint", "probability_hint"]


@contextmanager
def explained(inquiry):
    """Add to errors of a block what the black box seems to do.

    Parameters
    ----------
    inquiry : Inquiry
        Units that clip, such as hard tanh ones, and outputs with limits are no clipping of inputs or answers; what was
        seen of the activation is said.

    Raises
    ------
    BlackBoxError
        Where the block raised one.
    NotIdentified
        Where the block raised one.
    """
    try:
        yield
    except BlackBoxError as error:
        raise BlackBoxError(f"{error}{far_hint(inquiry.oracle, error)}") from error
    except NotIdentified as error:
        linear = inquiry.activations[1] == "identity"
        hint = "" if inquiry.activations[0] == "hard_tanh" else clipping_hint(inquiry.oracle, linear)
        hint += "" if inquiry.seen is None else f" Of its activation was seen: {inquiry.seen}."
        if not hint:
            raise
        raise NotIdentified(error.stage, error.reason, f"{error}{hint}", final=error.final) from error


@contextmanager
def budget_named():
    """Turn a budget that is used up before anything could be found into an error for the user.

    Raises
    ------
    ValueError
        Where the block ran out of time, questions or memory.
    """
    try:
        yield
    except MemoryLimitError as error:
        raise ValueError(f"{error}; nothing was found before.") from error
    except OutOfBudgetError as error:
        raise ValueError(f"{error} before anything was found: raise max_seconds or max_queries.") from error


def far_hint(oracle, error):
    """What to say where the black box refused to be asked far away.

    Parameters
    ----------
    oracle : Oracle
    error : Exception

    Returns
    -------
    str
    """
    if oracle.input_range is None and "search for saturation" in str(error):
        return " Or state where it may be asked: input_range=(low, high)."
    return ""


def probability_hint(oracle, answers):
    """What to say after a failure where the answers look like probabilities that were taken as they are.

    Parameters
    ----------
    oracle : Oracle
    answers : ndarray of shape (n, m_L)

    Returns
    -------
    str
    """
    sums = answers.sum(axis=1)
    if oracle.response == "predict" and answers.min() >= 0.0 and np.abs(sums - 1.0).max() < 1e-6:
        return " The answers sum to 1: if they are probabilities, use response_method='predict_proba'."
    return ""


def clipping_hint(oracle, linear=True):
    """What to say after a failure where the black box seems to clip its inputs or its answers.

    Asks 1e4 standard deviations from the centre.

    Parameters
    ----------
    oracle : Oracle
    linear : bool, default=True
        Whether outputs are linear: others have limits, and their answers are not clipped.

    Returns
    -------
    str
        Empty where it does not, its range is known, or time or questions are used up.
    """
    if oracle.input_range is not None:
        return ""
    try:
        (low, high), outputs = detect_clipped_inputs(oracle), detect_clipped_outputs(oracle)
    except (BlackBoxError, OutOfBudgetError):
        return ""
    if linear and outputs.any():
        return (
            f" The black box seems to be clipping its answers: output(s) {np.flatnonzero(outputs).tolist()} move at "
            "full rate up to one value and stay there, whatever the inputs. Ask for what comes before that, or give "
            "output_activation if the last layer has such units."
        )
    clipped = np.isfinite(low) | np.isfinite(high)
    if clipped.mean() < 0.5:
        return ""
    i = int(np.argmax(clipped))
    return (
        f" The black box seems to be clipping its inputs: {int(clipped.sum())} of {len(low)} inputs have no effect "
        f"beyond a border, input {i} outside ({low[i]:.4g}, {high[i]:.4g}). State where it may be asked: "
        "input_range=(low, high)."
    )
