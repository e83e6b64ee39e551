"""Widths of a sum of squares: each unit has its own penalty, and units without support are removed."""

import copy
import dataclasses

import torch

from skident.budget.constants import MANY_ROUNDS, MAX_STARTS, NEAR_STEPS

from .degree_two import start_from_degree_two
from .problem import copy_layers
from .solvers import set_trainable
from .sum_fits import EXPLAINED

_FIRST_L2 = (0.1,)  # of layer 2, whose residual is all that the layers above contribute
_NEXT_L2 = (1e-3, 1e-4)  # of a new layer: larger penalties set it to zero
_STEPS_PER_ROUND = 6  # of Levenberg-Marquardt (budget)
_FIRST_PRUNING = 3  # rounds after which units are removed
_DECAY = 0.7  # of the assumed noise per round: it starts as below and falls to the mean squared residual
_NOISE_OF_FIRST = 2e-2  # relative to the variance, when layer 2 is fitted
NOISE_OF_NEXT = 1e-3  # `_NOISE_OF_FIRST` for a new layer, or a network that almost explains the data
_LEAST_NOISE = 1e-7  # relative to the variance: below, the penalties do not change the fit
_STEPS_OF_TEST = 15  # of Levenberg-Marquardt without penalty, for that loss (budget)
_LEAST_NORM = 0.05  # weight norm relative to the largest in the layer, below which a unit is removed
_REMOVED_NORM = 1e-12  # squared norm that is added, in robust units: a removed unit's penalty is finite


def grown_layers(problem, options, samples):
    """Fit the sum form layer by layer from above the true widths; the problem with the widths that remain, a module.

    With one penalty for all weights, ``||W||^2`` is the nuclear norm of ``M = W^T W``, the matrix in which a layer's
    regression is linear. Penalties ``noise q / ||w_i||^2`` per unit, updated as the fit improves, are the maximum
    marginal likelihood (automatic relevance determination; MacKay 1992, Tipping 2001): they reduce the rank without
    shrinking the units that remain. No layer is added to a sum that explains the data.
    """
    widths, module, part, whole = (), None, problem, problem.architecture
    scale = float((samples.factors * (samples.y - samples.y.mean())).square().sum())
    for layer, width in enumerate(whole.widths, start=2):
        if module is not None and _is_complete(module, options, samples, scale):
            break
        kind = dataclasses.replace(whole.up_to(layer), widths=(*widths, width))
        part = dataclasses.replace(problem, architecture=kind)
        noise = _NOISE_OF_FIRST if layer == 2 else NOISE_OF_NEXT
        part, module = pruned_fit(part, options, _start(part, options, module, samples), samples, noise * scale)
        widths = module.widths
    return part, module


def _is_complete(module, options, samples, scale):
    """Whether the layers fitted so far explain the data; if so, the module is changed to do it."""
    trial = copy.deepcopy(module)
    set_trainable(trial)
    complete = options.minimize(trial, samples, max_iter=_STEPS_OF_TEST).cost < EXPLAINED * scale
    if complete:
        copy_layers(trial, module)
    return complete


def _start(problem, options, lower, samples):
    """The best of some starts with a new layer on top of `lower`; every other one has random signs."""
    best, least = None, float("inf")
    for k in range(1 if lower is None else MAX_STARTS):
        module = problem.build("sum")
        if lower is not None:
            copy_layers(lower, module)
            if k % 2:
                module.signs[-1].copy_(torch.as_tensor(problem.rng.choice([-1.0, 1.0], module.widths[-1])))
        elif 0 in module.connections[0]:
            start_from_degree_two(module, samples)
        set_trainable(module, kinds={"weights", "offset"})
        for l2 in _FIRST_L2 if lower is None else _NEXT_L2:
            result = options.minimize(module, samples, l2=l2, max_iter=NEAR_STEPS, patience=NEAR_STEPS // 4)
        if result.cost < least or best is None:
            best, least = module, result.cost
    return best


def pruned_fit(problem, options, module, samples, total):
    """Rounds of fits with one penalty per unit; `total` is the assumed sum of squared noise at the start."""
    n, floor = len(samples.x), _LEAST_NOISE * total
    noise = total / n
    for k in range(MANY_ROUNDS):
        if k >= _FIRST_PRUNING:
            problem, module = without_small_units(problem, module)
        set_trainable(module, kinds={"weights", "offset"})
        options.minimize(module, samples, l2=unit_penalties(module, noise), max_iter=_STEPS_PER_ROUND)
        with torch.no_grad():
            left = float(samples.squared_errors(module).sum())
        noise = min(_DECAY * noise, max(left, floor) / n)
    return without_small_units(problem, module)


@torch.no_grad()
def unit_penalties(module, noise):
    """The penalty of each trained parameter's square (P,): ``noise q / ||w_i||^2`` for the q weights of a unit."""
    parts = []
    for (kind, _), p in module.blocks():
        if p.requires_grad:
            norms = (p**2).sum(dim=1, keepdim=True) + _REMOVED_NORM if kind == "weights" else None
            parts.append(torch.zeros(p.numel(), dtype=p.dtype) if norms is None else _per_weight(p, noise / norms))
    return torch.cat(parts)


def _per_weight(p, values):
    """``q values`` (k, 1) repeated for the q weights of each unit, flattened."""
    return (p.shape[1] * values).expand_as(p).reshape(-1)


@torch.no_grad()
def without_small_units(problem, module):
    """Problem and module without units of small weight norm; the last layer is changed to its principal units."""
    top, bias, signs = module.weights[-1], module.biases[-1], module.signs[-1]
    # The signed sum is z^T M z with z = (h, 1): the main eigenpairs of M are units as well.
    Q, R = torch.linalg.qr(torch.cat([top, bias[:, None]], dim=1).T)
    values, vectors = torch.linalg.eigh(R @ (signs[:, None] * R.T))
    units = values.abs().sqrt()[:, None] * (Q @ vectors).T
    for part, new in ((top, units[:, :-1]), (bias, units[:, -1]), (signs, torch.where(values < 0.0, -1.0, 1.0))):
        part.zero_()
        part[: len(new)] = new.to(part)
    norms = [torch.linalg.vector_norm(W, dim=1) for W in module.weights]
    return with_units(problem, module, [_large(norm, _LEAST_NORM) for norm in norms])


def _large(norms, least):
    """Indices of norms of at least `least` times the largest; never empty."""
    kept = torch.nonzero(norms >= least * norms.max())[:, 0]
    return kept if len(kept) else norms.argmax()[None]


@torch.no_grad()
def with_units(problem, module, kept):
    """Problem and module with the units `kept` (indices by layer) alone."""
    if all(len(units) == len(W) for units, W in zip(kept, module.weights)):
        return problem, module
    kind = dataclasses.replace(problem.architecture, widths=tuple(len(units) for units in kept))
    problem = dataclasses.replace(problem, architecture=kind)
    smaller = problem.build("sum")
    for i, (W, units) in enumerate(zip(module.weights, kept)):
        columns = [kept[j - 2] if j >= 2 else torch.arange(module.n_features) for j in module.connections[i]]
        starts = [0, *torch.tensor(module.sizes(i + 2)).cumsum(0).tolist()]
        columns = torch.cat([start + part for start, part in zip(starts, columns)])
        smaller.weights[i].copy_(W[units][:, columns])
        smaller.biases[i].copy_(module.biases[i][units])
        smaller.signs[i].copy_(module.signs[i][units])
    smaller.offset.copy_(module.offset)
    return problem, smaller
