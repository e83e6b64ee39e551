"""``skident export``: write the network of a file in another format."""

from __future__ import annotations

from .models import WRITTEN, check_destination, network_from, write_network
from .results import FOUND, Result

__all__ = ["export"]


def export(options):
    """Read a network and write it in the format of the destination."""
    check_destination(options.output, WRITTEN)
    written = network_from(options.model)
    write_network(written, options.output)
    numbers = {
        "layer_widths": written.layer_widths,
        "activation": written.activation,
        "n_parameters": written.n_parameters,
        "written": options.output,
    }
    return Result(FOUND, f"{written.summary()}\n\nwritten: {options.output}", numbers)
