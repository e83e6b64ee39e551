"""Recover the logits of a classifier with one or two hidden ReLU layers from labels."""

from __future__ import annotations

from skident.oracle import NotIdentified

from .one_layer import one_layer
from .search import Search
from .two_layers import two_layers

__all__ = ["identify_logits"]


def identify_logits(labels, rng, say=lambda text: None):
    """Logits of a classifier with one or two hidden ReLU layers, widths unknown; else NotIdentified."""
    search = Search(labels, rng, say)
    try:
        found = one_layer(search)
        if not found.wrong:
            return found
    except NotIdentified as error:
        if error.final:
            raise
        found, reason = None, error
    try:
        deep = two_layers(search, say)
    except NotIdentified as error:
        if found is not None:
            return found
        raise error if error.reason == "scattered" else reason from None
    return deep if found is None or deep.wrong * found.checked <= found.wrong * deep.checked else found
