"""Layer widths as the caller states them, and the first layer from saturation checked against them."""

from __future__ import annotations

from skident.base.parameters import check_layer_widths
from skident.network import Architecture, get_activation
from skident.oracle import NotIdentified

from .first_layer import find_first_layer

__all__ = ["first_layer_as_stated", "refuse_surplus", "stated_architecture"]

# Relative error of the outputs below which the search takes them as exact: a tenth of the part of their range below
# which a change is the tail of a step (`circles`).
_EXACT = 1e-10


def stated_architecture(layer_widths, names, n_outputs, first_layer):
    """The `Architecture` of `layer_widths` and the hidden and output activation `names`; no widths if they are None.

    Raises NotIdentified if they are None and saturation cannot find them, ValueError if they are impossible.
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
    """The first layer from saturation, or None if Hessians are to recover it; and the architecture with widths.

    `first_layer` is "saturation", "hessian", or "auto": saturation if the activation has limits, and then the result
    counts only if it is complete or Hessians could do no better. Without stated widths, one hidden layer is assumed.
    Raises NotIdentified if nothing saturates and there is no other way, or if there are more units than stated.
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
                noise=_relevant_noise(oracle.accuracy),
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
    hessians_may_find_more = first_layer == "auto" and hidden.smooth and len(widths) > 2
    return (None if len(first.biases) < wanted and hessians_may_find_more else first), stated


def _relevant_noise(accuracy):
    """Noise (m_L,) that the search must allow for; None if it is too small, or too large to be noise."""
    return accuracy.noise_std if accuracy.is_plausible and accuracy.relative_error > _EXACT else None


def refuse_surplus(first, widths, advice):
    """Raise NotIdentified if there are more first-layer units than stated; `advice` is for clipped inputs."""
    n_units = len(first.biases)
    if n_units > widths[0]:
        raise NotIdentified(
            "first layer",
            "units",
            f"layer_widths says {widths[0]} first-layer units, but {n_units} different ones were found where the black "
            f"box saturates; try layer_widths={(n_units, *widths[1:])}. If it clips its inputs, the clipping shows as "
            f"units: {advice}",
        )
