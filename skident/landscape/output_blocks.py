"""Networks with several outputs whose units have one output each: the parameters of the blocks, one after the other."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.budget.constants import LEAST_DIVISOR
from skident.network import FeedforwardNetwork

__all__ = ["stacked_blocks"]

_ALONG_OUTPUTS = ("scale_", "quadratic_form_", "coef_", "intercept_")
_ALONG_OUTPUTS += ("alpha_", "linear_weight_", "held_out_score_", "linear_score_")
_LISTS = ("solver_", "history_")


def stacked_blocks(blocks):
    """Fitted attributes of `QuadraticNetRegressor` for several outputs, from one fitted to each output."""
    stacked = {name: np.stack([getattr(block, name) for block in blocks]) for name in _ALONG_OUTPUTS}
    stacked |= {name: [getattr(block, name) for block in blocks] for name in _LISTS}
    certificates = [block.certificate_ for block in blocks]
    columns = [block.output_weights_[:, None] for block in blocks]
    ranges = [block.input_range_ for block in blocks]
    return stacked | {
        "certificates_": certificates,
        "certificate_": max(certificates, key=lambda c: (not c.is_global, c.gap / max(c.null_loss, LEAST_DIVISOR))),
        "center_": blocks[0].center_,
        "input_range_": None if any(one is None for one in ranges) else ranges[0],
        "hidden_weights_": np.vstack([block.hidden_weights_ for block in blocks]),
        "output_weights_": scipy.linalg.block_diag(*columns),
        "n_iter_": max(block.n_iter_ for block in blocks),
        "network_": _block_network([block.network_ for block in blocks]),
    }


def _block_network(networks):
    """One network (d, k, o) of networks (d, k_j, 1) with the same inputs."""
    first, last = (list(layer) for layer in zip(*(net.weights for net in networks), strict=True))
    hidden, constants = (list(layer) for layer in zip(*(net.biases for net in networks), strict=True))
    weights = [np.hstack(first), scipy.linalg.block_diag(*last)]
    return FeedforwardNetwork(weights, [np.concatenate(hidden), np.concatenate(constants)], "quadratic", "identity")
