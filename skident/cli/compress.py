"""``skident compress``: write the smallest network with the outputs of the one in a file."""

from __future__ import annotations

from skident.compression import NetworkCompressor

from .models import check_destination, network_from, write_network
from .results import FOUND, NOT_FOUND, Result
from .tables import read_table

__all__ = ["compress"]


def compress(options):
    """Reduce the network in a file as far as the tolerance allows, and write it; unchanged if it cannot be reduced."""
    check_destination(options.output)
    network = network_from(options.model)
    X, _ = read_table(options.data, network.n_inputs)
    compressor = NetworkCompressor(
        network,
        tol=options.tol,
        metric=options.metric,
        max_seconds=options.max_seconds,
        random_state=options.seed,
        verbose=0 if options.quiet else 1,
    ).fit(X)
    smaller = compressor.network_
    if options.output is not None:
        write_network(smaller, options.output)
    is_smaller = smaller.n_parameters < network.n_parameters
    text = (
        f"{smaller.summary()}\n\n"
        f"{'smaller' if is_smaller else 'no smaller network found'}: {network.n_parameters} parameters before, "
        f"{smaller.n_parameters} now; error {compressor.error_:.2e} on held-out rows (tol={options.tol:g})"
    )
    numbers = {
        "smaller": is_smaller,
        "layer_widths_before": network.layer_widths,
        "layer_widths": smaller.layer_widths,
        "n_parameters_before": network.n_parameters,
        "n_parameters": smaller.n_parameters,
        "error": compressor.error_,
        "written": options.output,
    }
    return Result(FOUND if is_smaller else NOT_FOUND, text, numbers)
