"""Rearrange one torch module so that its weights, or its units' answers, match those of another."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from skident.optim import best_of

from .answers import similarities_on
from .graph import check_same_graph, symmetry_of, traced
from .matching import Matching, descents
from .symmetry import fitted_factors, moved_arrays

_SAME = 1e-6  # of the norm of all parameters: the two modules are taken to be one


@dataclass(frozen=True, eq=False)
class ModuleAlignment:
    """A module rearranged to match another one, and how.

    Unit i of `module` is unit ``permutations[i]`` of model b, its values multiplied by ``signs[i] * scales[i]``.

    Attributes
    ----------
    module : torch.nn.Module
        A copy of model b with the same function.
    distance, distance_before : float
        Euclidean distance of all parameters from those of model a, now and before.
    permutations : dict of str to ndarray (m,)
        For every group of units that stand in one place, under the name of the submodule that is first to write them.
    signs, scales : dict of str to ndarray (m,)
        For every group of values that may be flipped, or multiplied by a positive number, under the name of the
        submodule that is first to write them.
    """

    module: nn.Module
    distance: float
    distance_before: float
    permutations: dict
    signs: dict
    scales: dict


def align_modules(model_a, model_b, X=None, *, n_starts=6, random_state=None):
    """Permute, flip and rescale the units of a torch module so that its parameters match those of another.

    The modules are traced by `torch.fx`. Units that stand in one place form a group: what a residual stream adds up is
    one group, and concatenations, flattening, pooling, norm layers and depthwise convolutions keep track of theirs.
    Units of a group may be permuted; their values may be multiplied by -1 where what follows is odd (tanh, erf, sin),
    by c > 0 where it is positively homogeneous (ReLU, LeakyReLU, PReLU), and by both in front of batch norm, whose
    weights and running statistics make up for it. Groups that the inputs or the outputs fix stay as they are.

    ``sum_t ||A_t - c P_t B_t||^2`` over all parameters is to be small, over permutations P, signs and scales c. With
    the scales set aside (both modules are brought to a standard form, where the norms of a unit's incoming and outgoing
    weights balance, or are left as they are) permutations and signs are found one group at a time by linear assignment,
    while the others stand still, from several starts; then the scales are fitted, and the closest of all is kept. The
    first start matches units by their weights in order of size, which undoes any symmetry that was applied to one and
    the same module; for two trained modules what is found is a local minimum.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        With the same graph and shapes; neither is changed. Linear layers run along the last axis, which is taken for
        the second one where a later layer wants the channels there; convolutions have batches.
    X : array-like or tensor (n, ...), or tuple of them, default=None
        Inputs, one an argument of ``forward``. If given, units are matched by the correlation of their values over X
        instead, in evaluation mode, with one assignment a group.
    n_starts : int, default=6
        Of the descent; not used with X.
    random_state : int, RandomState instance or None, default=None
        Of random starts and orders.

    Returns
    -------
    ModuleAlignment
        `module` answers as model b does in evaluation mode, up to rounding; in training mode too but for the small
        number that batch norm adds to variances. Without X it is never further from model a than model b was.

    Raises
    ------
    TypeError
        If a model is not a torch.nn.Module.
    ValueError
        If a model cannot be traced, has tensors that are lazy, complex, quantised or not finite, if units reach an
        operation that is not supported (the message names the node), if graphs or shapes differ, if X does not go
        through a model, or if n_starts < 1.

    Notes
    -----
    Sigmoid, GELU, SiLU and other activations that are neither odd nor homogeneous leave permutations. Units that meet
    inputs of the model, or parameters of no layer, in a sum or a product stay as they are. Not supported are attention,
    recurrent layers, grouped convolutions that are not depthwise, and group norm with several groups.

    References
    ----------
    S. K. Ainsworth, J. Hayase, S. Srinivasa (2023). Git Re-Basin: Merging Models modulo Permutation Symmetries. ICLR.

    Examples
    --------
    >>> import copy, torch
    >>> from skident.network import align_modules
    >>> a = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).double()
    >>> b = copy.deepcopy(a)
    >>> with torch.no_grad():
    ...     b[0].weight[:], b[0].bias[:] = 2.0 * a[0].weight.flip(0), 2.0 * a[0].bias.flip(0)
    ...     b[2].weight[:] = a[2].weight.flip(1) / 2.0
    >>> alignment = align_modules(a, b)
    >>> print(alignment.permutations["0"], alignment.scales["0"].round(12), alignment.distance < 1e-12)
    [2 1 0] [0.5 0.5 0.5] True
    """
    if not (isinstance(n_starts, (int, np.integer)) and n_starts >= 1):
        raise ValueError(f"n_starts must be an integer >= 1, got {n_starts!r}.")
    modules = traced(model_a, "model_a"), traced(model_b, "model_b")
    check_same_graph(*modules)
    symmetry = symmetry_of(modules[0])
    a, b = (_arrays(module) for module in modules)

    def distance(move):
        return _distance(modules[0], a, moved_arrays(symmetry, b, *move))

    ones = [np.ones(symmetry.sizes[factor.space]) for factor in symmetry.factors]
    stay = [np.arange(m) for m in symmetry.sizes], ones
    if X is None:
        found = descents(symmetry, a, b, n_starts, check_random_state(random_state))
        moves = ((orders, fitted_factors(symmetry, a, b, orders, factors)) for orders, factors in found)
        enough = _SAME * np.sqrt(sum((a[name] ** 2).sum() for name, _ in modules[0].named_parameters()))
        move, _ = best_of(itertools.chain([stay], moves), distance, lambda costs: costs[-1] <= enough)
    else:
        inputs = [_inputs(X, module) for module in modules]
        matching = Matching(symmetry, a, b)
        match = matching.by_similarities(similarities_on(inputs, modules, symmetry))
        move = match.orders, fitted_factors(symmetry, a, b, match.orders, matching.factors(match))
    named = list(zip(symmetry.factors, move[1]))
    return ModuleAlignment(
        _with_arrays(model_b, moved_arrays(symmetry, b, *move), {block.tensor for block in symmetry.blocks}),
        distance(move),
        distance(stay),
        dict(zip(symmetry.names, move[0])),
        {factor.name: np.sign(c) for factor, c in named if factor.sign},
        {factor.name: np.abs(c) for factor, c in named if factor.scale},
    )


def _arrays(module):
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: t.detach().double().numpy() if t.is_floating_point() else t.numpy() for name, t in tensors}


def _distance(module, a, b):
    """Euclidean distance of the parameters."""
    return float(np.sqrt(sum(((a[name] - b[name]) ** 2).sum() for name, _ in module.named_parameters())))


def _with_arrays(model, arrays, names):
    """A copy of a module with new numbers in some of its tensors."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name in names:
                tensor.copy_(torch.from_numpy(arrays[name]))
    return model


def _inputs(X, module):
    """X as a tuple of tensors; floating point numbers in the module's own type."""
    dtype = next((t.dtype for t in module.parameters() if t.is_floating_point()), torch.get_default_dtype())
    tensors = [torch.as_tensor(one).detach().cpu() for one in (X if isinstance(X, tuple) else (X,))]
    if any(t.ndim == 0 or len(t) == 0 for t in tensors):
        raise ValueError("X has no rows.")
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in tensors)
