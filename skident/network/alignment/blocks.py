"""Blocks: the parts of a module's tensors that a symmetry of its units moves, and the symmetry with all of them."""

import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NormLink:
    """How a norm layer's weights depend on the factor of its inputs, through its running variance.

    With inputs ``c z`` the running variance is ``c^2 v``; the weights ``w sign(c) sqrt(c^2 v + eps) / sqrt(c^2 (v +
    eps))`` compensate for it. Without a running variance c is 1 or -1.
    """

    factor: int
    variance: str | None
    eps: float


@dataclass(frozen=True)
class Block:
    """A part of a tensor that has one space along each of its axes of units.

    Attributes
    ----------
    tensor : str
    where : tuple of slice
    fold, order : tuple of int
        ``array[where].reshape(fold).transpose(order)`` has the units first.
    spaces : tuple of int
        One or two.
    powers : tuple of dict
        For each of these axes, factor: power.
    trained : bool
        Whether it is a parameter, not a running statistic.
    step : int
        Place of the operation in the graph.
    norm : NormLink or None
    """

    tensor: str
    where: tuple
    fold: tuple[int, ...]
    order: tuple[int, ...]
    spaces: tuple[int, ...]
    powers: tuple[dict, ...]
    trained: bool
    step: int
    norm: NormLink | None

    def read(self, array):
        """The block of a tensor as (m, h, r): units of one or two spaces (h = 1 for one), and the rest."""
        folded = array[self.where].reshape(self.fold).transpose(self.order)
        h = folded.shape[1] if len(self.spaces) == 2 else 1
        return np.ascontiguousarray(folded).reshape(folded.shape[0], h, -1)

    def write(self, array, values):
        """Write the values (m, h, r) back into the tensor, in place."""
        shape = tuple(self.fold[k] for k in self.order)
        array[self.where] = values.reshape(shape).transpose(np.argsort(self.order)).reshape(array[self.where].shape)


@dataclass(frozen=True)
class Factor:
    """What the values of a space's units may be multiplied by: signs, positive scales."""

    name: str
    space: int
    sign: bool
    scale: bool


@dataclass(frozen=True)
class Symmetry:
    """All spaces that can be permuted, the factors that are free, and the blocks that move with them.

    `names` and `sizes` are those of the spaces, after the submodule that writes them first. `values` maps the name of a
    node to (axis, list of (first entry, space, factor or None)), the place of its units.
    """

    names: list[str]
    sizes: list[int]
    factors: list[Factor]
    blocks: list[Block]
    values: dict


def extents(segments, total):
    """(first entry, units, entries per unit) of every segment, so that all together have `total` entries."""
    flat, unknown = [s for s in segments if s.flattened], [s for s in segments if s.size is None]
    rest = total - sum(s.size or 0 for s in segments if not s.flattened)
    inner = 1
    if flat and not unknown and (len(flat) == 1 or len(flat) == len(segments)):
        units = sum(s.size for s in flat)
        inner, rest = divmod(rest, units)
    elif len(unknown) == 1 and not flat:
        unknown, rest = rest, 0
    if rest or inner < 1:
        sizes = [s.size for s in segments]
        raise ValueError(f"its {total} inputs cannot be divided among units of {sizes} channels.")
    found, start = [], 0
    for s in segments:
        size = unknown if s.size is None else s.size
        found.append((start, size, inner if s.flattened else 1))
        start += found[-1][1] * found[-1][2]
    return found


def blocks_of(name, tensor, numbering):
    """The blocks of a tensor, cut along the segments of all its axes; those without movable units are left out.

    ``numbering.space(segment)`` and ``numbering.factor(segment)`` return numbers, None for what cannot move.
    """
    cuts = []
    for k, n in enumerate(tensor.shape):
        axis = tensor.axes.get(k)
        if axis is None:
            cuts.append([(slice(None), n, 1, None, {}, None)])
            continue
        second = axis.second or (None,) * len(axis.segments)
        link = tensor.link or (None,) * len(axis.segments)
        cuts.append([])
        for (start, size, inner), s, t, pre in zip(extents(axis.segments, n), axis.segments, second, link):
            powers = {}
            for segment, power in ((s, axis.power), (t, -1)):
                number = None if segment is None else numbering.factor(segment)
                if number is not None:
                    powers[number] = powers.get(number, 0) + power
            linked = None if pre is None else numbering.factor(pre)
            where = slice(start, start + size * inner)
            cuts[-1].append((where, size, inner, numbering.space(s), powers, linked))
    blocks = [_block(name, tensor, parts) for parts in itertools.product(*cuts)]
    return [block for block in blocks if block is not None]


def _block(name, tensor, parts):
    """One combination of segments; None if none of them can move."""
    where, sizes, inner, spaces, powers, links = zip(*parts)
    units = [2 * k for k, space in enumerate(spaces) if space is not None]
    if not units:
        return None
    fold = tuple(n for pair in zip(sizes, inner) for n in pair)
    rest = tuple(i for i in range(len(fold)) if i not in units)
    link = next((factor for factor in links if factor is not None), None)
    norm = None if link is None else NormLink(link, tensor.variance, tensor.eps)
    return Block(
        name,
        where,
        fold,
        (*units, *rest),
        tuple(spaces[i // 2] for i in units),
        tuple(powers[i // 2] for i in units),
        tensor.trained,
        tensor.step,
        norm,
    )
