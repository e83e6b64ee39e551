"""The numbers of Algorithm 1: its options, the thresholds of eq. (4.1), INITIAL-DISTILL."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["Algorithm1Options", "LayerRule", "check_options", "initial_distill", "layer_rules"]


@dataclass(frozen=True)
class Algorithm1Options:
    """What Algorithm 1 leaves to its user.

    Attributes
    ----------
    n_units : int
        m, the units of W_l.
    epsilon : float
        Target error: the objective, relative to y's variance, is to fall below ``epsilon^2 / 4``.
    kappa : float
        Condition number of the target: singular values of ``W_{l,<}^T W_{l,l-1}`` above ``1 / (10 kappa^2)`` of the
        largest count for k_l, and lambda_6 depends on it.
    gap : float
        Factor of the thresholds of eq. (4.1), which are meant for dimensions so large that ``d^(1 / C^l)`` is large.
    exponent : float
        C of eq. (4.1).
    distillation : float
        Factor of lambda_3, lambda_4, lambda_5 of eq. (4.1).
    truncation : float
        B' of the truncated square.
    noise : float
        Standard deviation of the noise on W_l after a batch, relative to the rate.
    optimizer : {"adam", "sgd"}
    polish : int
        Epochs of 20 full-batch L-BFGS steps at most, on the same objective and without noise, once the last stage
        stalls; 0 is the paper's algorithm to its end.
    """

    n_units: int = 30
    epsilon: float = 1e-3
    kappa: float = 1.0
    gap: float = 0.01
    exponent: float = 2.0
    distillation: float = 1.0
    truncation: float = 16.0
    noise: float = 1e-3
    optimizer: str = "adam"
    polish: int = 60


@dataclass(frozen=True)
class LayerRule:
    """What eq. (4.1) says of a layer.

    Attributes
    ----------
    opens, distils : float
        ``Thres_{l,open}`` and ``Thres_{l,distil}``: objectives below which W_l becomes trainable and K_l joins.
    penalties : tuple of float
        ``(lambda_3, lambda_4, lambda_5)`` from then on.
    """

    opens: float
    distils: float
    penalties: tuple


def check_options(options):
    """Algorithm 1's options from a dict of some of them.

    Parameters
    ----------
    options : dict or None
        By the names of `Algorithm1Options`; what is not there has its default.

    Returns
    -------
    Algorithm1Options

    Raises
    ------
    ValueError
        If a name is unknown or a value out of range.
    """
    known = [f.name for f in dataclasses.fields(Algorithm1Options)]
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        raise ValueError(f"algorithm1_options has unknown keys {unknown}; the keys are {known}.")
    checked = Algorithm1Options(**(options or {}))
    for name, value in dataclasses.asdict(checked).items():
        if name == "optimizer":
            good = value in ("adam", "sgd")
        else:
            zero = name in ("noise", "distillation", "polish")
            good = isinstance(value, (int, float)) and (value >= 0 if zero else value > 0)
        if not good:
            raise ValueError(f"algorithm1_options: {name}={value!r} is out of range; see Algorithm1Options.")
    return checked


def layer_rules(alphas, d, options):
    """Thresholds and penalties by layer, eq. (4.1).

    In units of the variance: the alphas are divided by their Euclidean norm, so that they are those of a target of
    variance about one. W_2 is open from the beginning.

    Parameters
    ----------
    alphas : sequence of float
        ``(alpha_2, ..., alpha_L)``.
    d : int
        Number of inputs.
    options : Algorithm1Options

    Returns
    -------
    dict of int to LayerRule
    """
    size = math.sqrt(sum(a * a for a in alphas))
    C, g = options.exponent, options.gap
    result = {}
    for layer, alpha in enumerate(alphas, start=2):
        a2 = (alpha / size) ** 2
        before = (alphas[layer - 3] / size) ** 2 if layer > 2 else math.inf
        opens, distils = g * before / d ** (1 / (3 * C ** (layer - 1))), g * a2 / d ** (1 / (6 * C**layer))
        penalties = tuple(options.distillation * a2 / d ** (1 / (q * C**layer)) for q in (6, 3, 2))
        result[layer] = LayerRule(opens, distils, penalties)
    return result


def initial_distill(W, previous, kappa):
    """INITIAL-DISTILL, lines 21 to 23: k_l and K_l from the singular values of ``W_{l,<}^T W_{l,l-1}``.

    Line 21 counts singular values above ``1 / (10 kappa^2)``. That they are well above it or well below holds where
    alpha_{l+1} is tiny; for those of practice the layers above leave a tail near it, so that among the values counted,
    the cut is where the ratio to the next one is largest.

    Parameters
    ----------
    W : Tensor (m, q)
    previous : Tensor of bool (q,)
        The inputs that come from layer l - 1; where there are no others, the spectrum is of ``W^T W`` itself.
    kappa : float
        Singular values above ``1 / (10 kappa^2)`` of the largest count.

    Returns
    -------
    K : Tensor (k, q)
    singular_values : ndarray
        Descending, not more than m.
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
