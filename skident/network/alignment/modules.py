"""`align_modules`: rearrange one torch module so that its weights, or its units' outputs, match another's."""

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from skident.budget.constants import SAME_SINGLE
from skident.optim import best_of

from .graph import difference_of_graphs, symmetry_of, traced
from .matching import Matching, descents
from .symmetry import fitted_factors, moved_arrays
from .unequal import matched_layers
from .unit_outputs import similarities_on

_RESOLUTION = 1e-7  # of residuals: root of the rounding of a correlation, of outputs in float32


@dataclass(frozen=True, eq=False)
class ModuleAlignment:
    """A module rearranged to match another one, and how.

    Unit i of `module` is unit ``permutations[i]`` of model b, with values multiplied by ``signs[i] * scales[i]``.

    Attributes
    ----------
    module : torch.nn.Module
        A copy of model b with the same function.
    distance, distance_before : float
        Euclidean distance of all parameters from those of model a, now and before.
    permutations : dict of str to ndarray (m,)
        For every group of units that are permuted together, by the submodule that writes them first.
    signs, scales : dict of str to ndarray (m,)
        For every group of values that may be flipped or rescaled, by the submodule that writes them first.
    layers : dict of str to (str or None)
        The layer of model b for every group of model a; None if model b lacks it.
    residuals : dict of str to ndarray (m,) or None
        Of modules of unequal shapes: the share of the deviation of every unit's outputs on X that a multiple of its
        partner leaves, 1 without a partner. `permutations` then have -1 there, `distance` is nan, and `module` has the
        units in the order of their partners, those without one behind them.
    """

    module: nn.Module
    distance: float
    distance_before: float
    permutations: dict
    signs: dict
    scales: dict
    layers: dict | None = None
    residuals: dict | None = None

    def __str__(self):
        rows = [("layer of a", "layer of b", "units", "matched", "median residual", "largest")]
        for name, order in self.permutations.items():
            found, other = order >= 0, name if self.layers is None else self.layers[name]
            left = [] if self.residuals is None else self.residuals[name][found]
            sizes = [np.median(left), np.max(left)] if len(left) else []
            sizes = [f"{v:.2g}" if v > _RESOLUTION else f"<{_RESOLUTION:g}" for v in sizes] or ["-", "-"]
            rows.append((name, other or "dropped", str(len(order)), str(int(found.sum())), *sizes))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)


def align_modules(model_a, model_b, X=None, *, n_starts=6, random_state=None):
    """Permute, flip and rescale the units of a torch module so that its parameters match those of another.

    Minimizes ``sum_t ||A_t - c P_t B_t||^2`` over all parameters, over permutations P, signs and scales c of the units
    that leave the function of `model_b` unchanged.

    Parameters
    ----------
    model_a, model_b : torch.nn.Module
        Neither is changed. Linear layers run along the last axis, convolutions have batches. With other graphs or
        shapes, X is needed: layers are matched in their order, one may be missing, and units one to one.
    X : array-like or tensor (n, ...), or tuple of them, default=None
        Inputs, one per argument of ``forward``. If given, units are matched by the correlation of their outputs on X.
    n_starts : int, default=6
        Starts of the descent; not used with X. More for trained modules that end in local minima.
    random_state : int, RandomState instance or None, default=None
        For random starts and orders.

    Returns
    -------
    ModuleAlignment
        The outputs of `module` in evaluation mode are those of model b, up to rounding; in training mode too but for
        batch norm's epsilon. Without X, its distance to model a is never larger than model b's.

    Raises
    ------
    ValueError
        If a model cannot be traced, units reach an operation that is not supported (the message names the node), graphs
        or shapes differ without X, a model raises on X, or n_starts < 1. TypeError if a model is not a torch.nn.Module.

    Notes
    -----
    The modules are traced by `torch.fx`. Units that are added (a residual stream) form one group; concatenation,
    flattening, pooling, norm layers and depthwise convolutions keep the groups of their inputs. Values may be
    multiplied by -1 if what follows is odd (tanh, erf, sin), by c > 0 if it is positively homogeneous (ReLU, LeakyReLU,
    PReLU), and by both before batch norm, whose weights and running statistics compensate. Sigmoid, GELU, SiLU and
    other activations leave permutations only. Units that meet inputs or outputs of the model, or a parameter of no
    layer, stay in place. Not supported: attention, recurrent layers, grouped convolutions other than depthwise, group
    norm with several groups.

    Scales are set aside first: both modules are brought to a standard form, in which the norms of a unit's incoming and
    outgoing weights balance, or keep their scales. Permutations and signs then follow by linear assignment of one group
    at a time, with the others fixed, from several starts; the scales are fitted last, and the closest module is kept.
    The first start compares sorted weights, which undoes any symmetry of the same module. For two trained modules the
    result is a local minimum.

    References
    ----------
    S. K. Ainsworth, J. Hayase, S. Srinivasa (2023). Git Re-Basin: Merging Models modulo Permutation Symmetries. ICLR.

    Examples
    --------
    >>> import copy, torch
    >>> from skident import align_modules
    >>> a = torch.nn.Sequential(
    ...     torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    ... ).double()
    >>> b = copy.deepcopy(a)
    >>> with torch.no_grad():
    ...     b[0].weight[:], b[0].bias[:] = 2.0 * a[0].weight.flip(0), 2.0 * a[0].bias.flip(0)
    ...     b[2].weight[:] = a[2].weight.flip(1) / 2.0
    >>> alignment = align_modules(a, b)
    >>> print(
    ...     alignment.permutations["0"],
    ...     alignment.scales["0"].round(12),
    ...     alignment.distance < 1e-12,
    ... )
    [2 1 0] [0.5 0.5 0.5] True
    """
    if not (isinstance(n_starts, (int, np.integer)) and n_starts >= 1):
        raise ValueError(f"n_starts must be an integer >= 1, got {n_starts!r}.")
    modules = traced(model_a, "model_a"), traced(model_b, "model_b")
    if difference := difference_of_graphs(*modules):
        if X is None:
            raise ValueError(f"{difference} Give X to match their units by outputs.")
        return _unequal(model_b, modules, [_inputs(X, module) for module in modules])
    symmetry = symmetry_of(modules[0])
    a, b = (_arrays(module) for module in modules)

    def distance(move):
        return _distance(modules[0], a, moved_arrays(symmetry, b, *move))

    ones = [np.ones(symmetry.sizes[factor.space]) for factor in symmetry.factors]
    stay = [np.arange(m) for m in symmetry.sizes], ones
    if X is None:
        matches = descents(symmetry, a, b, n_starts, check_random_state(random_state))
        moves = ((orders, fitted_factors(symmetry, a, b, orders, factors)) for orders, factors in matches)
        enough = SAME_SINGLE * np.sqrt(sum((a[name] ** 2).sum() for name, _ in modules[0].named_parameters()))
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


def _unequal(model_b, modules, inputs):
    """The alignment of modules with other graphs or shapes."""
    rows, symmetry = matched_layers(inputs, modules)
    orders = [np.arange(m) for m in symmetry.sizes]
    for _, name, order, *_ in rows:
        if name is not None:
            space = symmetry.names.index(name)
            orders[space] = np.concatenate([order[order >= 0], np.setdiff1d(orders[space], order)])
    ones = [np.ones(symmetry.sizes[factor.space]) for factor in symmetry.factors]
    moved = moved_arrays(symmetry, _arrays(modules[1]), orders, ones)
    return ModuleAlignment(
        _with_arrays(model_b, moved, {block.tensor for block in symmetry.blocks}),
        np.nan,
        np.nan,
        {name: order for name, _, order, *_ in rows},
        {name: signs for name, *_, signs in rows},
        {},
        {name: other for name, other, *_ in rows},
        {name: residuals for name, _, _, residuals, _ in rows},
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
    """X as a tuple of tensors; floating point numbers get the module's dtype."""
    dtype = next((t.dtype for t in module.parameters() if t.is_floating_point()), torch.get_default_dtype())
    tensors = [torch.as_tensor(one).detach().cpu() for one in (X if isinstance(X, tuple) else (X,))]
    if any(t.ndim == 0 or len(t) == 0 for t in tensors):
        raise ValueError("X has no rows.")
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in tensors)
