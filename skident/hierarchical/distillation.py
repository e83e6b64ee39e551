"""Options, stage thresholds (eq. 4.1) and INITIAL-DISTILL of Algorithm 1 of Allen-Zhu and Li (2020)."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

from .degree_two import signed_root


@dataclass(frozen=True)
class Algorithm1Options:
    """Parameters that Algorithm 1 leaves to its user; defaults tuned on small `make_hierarchical_target` cases."""

    n_units: int = 30  # m, the width of W_l
    epsilon: float = 1e-3  # target error: stop at an objective, relative to y's variance, of epsilon^2 / 4
    # condition number of the target; singular values above 1 / (10 kappa^2) of the largest count for k_l
    kappa: float = 1.0
    determine_widths: bool = False  # whether line 21 determines the k_l; else they are the given widths
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
            zero = name in ("noise", "distillation", "polish", "determine_widths")
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


def initial_distill(M, n_last, *, width=None, kappa=1.0):
    """INITIAL-DISTILL, lines 21 to 23: ``K_l`` (k, q) and signs (k,) from ``M = W_l^T diag(p) W_l``, (q, q).

    Also returns the singular values of ``M_{<,l-1}``, descending; the last `n_last` inputs are those from layer l - 1.
    If there are no others, the spectrum is that of M. k is `width` if given. Line 21 counts singular values above ``1 /
    (10 kappa^2)``, which assumes a tiny alpha_{l+1}. For practical alphas the layers above leave a tail near this
    threshold; k is therefore the largest spectral gap among the values counted.

    Lines 22 and 23 take ``K_<`` and ``K_{l-1}`` from the singular vectors, with ``K_<^T K_{l-1} = M_{<,l-1}``. So do
    ``T^T K_<`` and ``T^-1 K_{l-1}`` for any T. Here T is such that ``K_<^T diag(s) K_<`` is M's block on the singular
    vectors U, too, of whose eigenvalues s are the signs.
    """
    known = len(M) - n_last or n_last
    U, spectrum, _ = torch.linalg.svd(M[:known, known:] if known < len(M) else M, full_matrices=False)
    count = int((spectrum >= spectrum[0] / (10 * kappa**2)).sum())
    following = torch.cat([spectrum[1:], spectrum.new_zeros(1)])[:count].clamp(min=1e-12 * float(spectrum[0]) + 1e-300)
    U = U[:, : width or 1 + int(torch.argmax(spectrum[:count] / following))]
    turn = torch.block_diag(U, torch.eye(len(M) - known, dtype=M.dtype, device=M.device))  # (q, k + n_last)
    K, signs, _ = signed_root(turn.T @ M @ turn, U.shape[1], len(M) - known)
    return K @ turn.T, signs, spectrum.cpu().numpy().astype(np.float64)
