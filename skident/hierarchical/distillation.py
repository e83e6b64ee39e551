"""Options, stage thresholds (eq. 4.1) and INITIAL-DISTILL of Algorithm 1 of Allen-Zhu and Li (2020)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["Algorithm1Options", "LayerRule", "check_options", "initial_distill", "layer_rules"]


@dataclass(frozen=True)
class Algorithm1Options:
    """Parameters that Algorithm 1 leaves to its user; defaults tuned on small `make_hierarchical_target` cases."""

    n_units: int = 30  # m, the width of W_l
    epsilon: float = 1e-3  # target error: stop at an objective, relative to y's variance, of epsilon^2 / 4
    # condition number of the target; singular values above 1 / (10 kappa^2) of the largest count for k_l
    kappa: float = 1.0
    gap: float = 0.01  # factor of the thresholds of eq. (4.1), which assume that d^(1 / C^l) is large
    exponent: float = 2.0  # C of eq. (4.1)
    distillation: float = 1.0  # factor of lambda_3, lambda_4, lambda_5 of eq. (4.1)
    truncation: float = 16.0  # B' of the truncated square
    noise: float = 1e-3  # standard deviation of the noise added to W_l after a batch, relative to the rate
    optimizer: str = "adam"  # "adam" or "sgd"
    polish: int = 60  # epochs of at most 20 L-BFGS steps after the last stage; 0 is the paper's algorithm to its end


@dataclass(frozen=True)
class LayerRule:
    """Thresholds and penalties of one layer, eq. (4.1)."""

    opens: float  # Thres_{l,open}: objective below which W_l becomes trainable
    distills: float  # Thres_{l,distill}: objective below which K_l joins
    penalties: tuple  # (lambda_3, lambda_4, lambda_5) from then on


def check_options(options):
    """`Algorithm1Options` from a dict of some of its fields; ValueError for unknown names and values out of range."""
    known = [f.name for f in dataclasses.fields(Algorithm1Options)]
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        raise ValueError(f"algorithm1_options has unknown keys {unknown}; the keys are {known}.")
    checked = Algorithm1Options(**(options or {}))
    for name, value in dataclasses.asdict(checked).items():
        if name == "optimizer":
            valid = value in ("adam", "sgd")
        else:
            zero = name in ("noise", "distillation", "polish")
            valid = isinstance(value, (int, float)) and (value >= 0 if zero else value > 0)
        if not valid:
            raise ValueError(f"algorithm1_options: {name}={value!r} is out of range; see Algorithm1Options.")
    return checked


def layer_rules(alphas, d, options):
    """`LayerRule` by layer, eq. (4.1), for d inputs.

    The alphas are divided by their Euclidean norm, so that the thresholds are relative to a target of variance about
    one.
    """
    size = math.sqrt(sum(a * a for a in alphas))
    C, g = options.exponent, options.gap
    result = {}
    for layer, alpha in enumerate(alphas, start=2):
        a2 = (alpha / size) ** 2
        before = (alphas[layer - 3] / size) ** 2 if layer > 2 else math.inf
        opens, distills = g * before / d ** (1 / (3 * C ** (layer - 1))), g * a2 / d ** (1 / (6 * C**layer))
        penalties = tuple(options.distillation * a2 / d ** (1 / (q * C**layer)) for q in (6, 3, 2))
        result[layer] = LayerRule(opens, distills, penalties)
    return result


def initial_distill(W, previous, kappa):
    """INITIAL-DISTILL, lines 21 to 23: K_l (k, q) from the singular vectors of ``W_{l,<}^T W_{l,l-1}``, W (m, q).

    Also returns the singular values, descending. `previous` (q,) marks the inputs from layer l - 1; if there are no
    others, the spectrum is that of ``W^T W``. Line 21 counts singular values above ``1 / (10 kappa^2)``, which assumes
    a tiny alpha_{l+1}. For practical alphas the layers above leave a tail near this threshold; k is therefore the
    largest spectral gap among the values counted.
    """
    rest = ~previous
    cross = W[:, rest].T @ W[:, previous] if bool(rest.any()) else W.T @ W
    U, s, Vt = torch.linalg.svd(cross, full_matrices=False)
    count = int((s >= s[0] / (10 * kappa**2)).sum())
    following = torch.cat([s[1:], s.new_zeros(1)])[:count].clamp(min=1e-12 * float(s[0]) + 1e-300)
    k = 1 + int(torch.argmax(s[:count] / following))
    root = s[:k].sqrt()[:, None]
    K = torch.zeros(k, W.shape[1], dtype=W.dtype, device=W.device)
    if bool(rest.any()):
        K[:, rest] = root * U[:, :k].T
    K[:, previous] = root * Vt[:k]
    return K, s[: len(W)].cpu().numpy().astype(np.float64)
