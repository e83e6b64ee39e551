"""Outputs of a network in float32 as torch computes them on this machine."""

import numpy as np
import torch

from .single_precision import BLOCK


def emulate_torch(network, X):
    """Outputs (n, m_L) of a network at inputs X (n, D) by a torch module in float32, in calls of 8,192 rows."""
    module = network.to_torch(dtype=torch.float32)
    inputs = torch.from_numpy(X.astype(np.float32))
    with torch.no_grad():
        parts = [module(inputs[first : first + BLOCK]).numpy() for first in range(0, len(X), BLOCK)]
    return np.concatenate(parts).astype(float)
