"""What is stated of a network's widths, and the first layer from far away held against it."""

from __future__ import annotations

from skident.base.parameters import check_layer_widths
from skident.network import Architecture, get_activation
from skident.oracle import NotIdentified

from .first_layer import find_first_layer

__all__ = ["first_layer_as_stated", "refuse_surplus", "stated_architecture"]

_FINE = 1e-10  # relative error of answers below the billionth of their range that is taken as the tail of a step


def stated_architecture(layer_widths, names, n_outputs, first_layer):
    """Widths and activations as stated.

    Parameters
    ----------
    layer_widths : sequence of int or None
        ``(m_1, ..., m_L)``.
    names : tuple of str
        Hidden and output activation.
    n_outputs : int
        m_L.
    first_layer : {"auto", "saturation", "hessian"}
        See `first_layer_as_stated`.

    Returns
    -------
    Architecture
        Without any widths where they are left to saturation.

    Raises
    ------
    ValueError
        If the widths are impossible.
    NotIdentified
        If they are left to a first layer that will not be seen to saturate.
    """
    names = [get_activation(name).name for name in names]
    if layer_widths is not None:
        return Architecture(check_layer_widths(layer_widths, n_outputs), *names)
    if get_activation(names[0]).saturating and first_layer != "hessian":
        return Architecture((), *names)
    raise NotIdentified(
        "first layer",
        "options",
        "layer_widths=None needs a first layer that saturates (tanh, sigmoid, erf) and first_layer='saturation', got "
        f"activation={names[0]!r}, first_layer={first_layer!r}; give layer_widths.",
    )


def first_layer_as_stated(oracle, stated, first_layer, rng, log):
    """The first layer from far away, if it is to be found there, and the network's widths.

    Parameters
    ----------
    oracle : Oracle
    stated : Architecture
        From `stated_architecture`. Without widths a single hidden layer is taken for granted.
    first_layer : {"auto", "saturation", "hessian"}
        Whether to look far away; ``auto`` where the activation has limits, and what is found there counts only if it
        is enough, or if Hessians could do no better.
    rng : numpy.random.RandomState
    log : StageLog
        Gets the stage "first layer (saturation)".

    Returns
    -------
    first : FirstLayer or None
        None where Hessians are to show the first layer. It may have fewer units than stated.
    architecture : Architecture
        With widths.

    Raises
    ------
    NotIdentified
        (a ValueError) If nothing saturates and `first_layer` or missing widths leave no other way.
    ValueError
        If there are more units than stated.
    """
    hidden, widths = get_activation(stated.activation), stated.widths
    if len(widths) == 1 or first_layer == "hessian" or (first_layer == "auto" and not hidden.saturating):
        return None, stated
    wanted = widths[0] if widths else None
    with log.stage("first layer (saturation)", oracle, wanted, "units") as entry:
        try:
            first = find_first_layer(
                oracle,
                activation=hidden.name,
                n_units=wanted,
                rng=rng,
                callback=entry["progress"],
                noise=_worth_minding(oracle.accuracy),
            )
        except NotIdentified as error:
            if wanted is None:
                raise NotIdentified(
                    "saturation", error.reason, f"{error} Give layer_widths to use Hessians instead."
                ) from error
            if first_layer == "saturation":
                raise
            return None, stated
    if wanted is None:
        return first, stated.with_widths((len(first.biases), oracle.n_outputs))
    refuse_surplus(first, widths, "use first_layer='hessian'.")
    hessians_may_show_more = first_layer == "auto" and hidden.smooth and len(widths) > 2
    return (None if len(first.biases) < wanted and hessians_may_show_more else first), stated


def _worth_minding(accuracy):
    """Errors that the search has to reckon with, (m_L,); None where they are too small, or too large to be errors."""
    return accuracy.noise_std if accuracy.is_plausible and accuracy.relative_error > _FINE else None


def refuse_surplus(first, widths, advice):
    """Raise where more first-layer units were found than there should be.

    Parameters
    ----------
    first : FirstLayer
    widths : sequence of int
        ``(m_1, ..., m_L)`` as stated.
    advice : str
        What to do where clipping of the inputs passes for units.

    Raises
    ------
    ValueError
        If there are more than m_1.
    """
    found = len(first.biases)
    if found > widths[0]:
        raise NotIdentified(
            "first layer",
            "units",
            f"layer_widths says {widths[0]} first-layer units, but {found} different ones were found where the black "
            f"box saturates; try layer_widths={(found, *widths[1:])}. If it clips its inputs, the clipping shows as "
            f"units: {advice}",
        )
