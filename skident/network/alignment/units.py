"""Spaces of units: which entries of a module's tensors belong to which unit, and what these may be multiplied by.

Units that must be permuted together form a *space*: the module's function does not change if they are permuted in all
tensors that read or write them. Their values may also be multiplied by a *factor* each, ``v -> c v``, as far as the
following operations allow: any c != 0 if all are linear, c > 0 through a ReLU, c = 1 or -1 through a tanh. Values that
are added have one space and one factor. A norm layer ends a factor and begins another one.
"""

import itertools
from dataclasses import dataclass, replace

from .blocks import Factor, Symmetry, blocks_of


@dataclass(frozen=True)
class Segment:
    """Part of a value's axis of units.

    `space` and `factor` are None for entries that are not units, such as inputs of the model. `size` is the number of
    units, None if unknown. `flattened` units have several consecutive entries.
    """

    space: int | None = None
    factor: int | None = None
    size: int | None = None
    flattened: bool = False


@dataclass(frozen=True)
class Units:
    """A value with units along `axis`: 1 after convolutions, -1 after linear layers. `ndim` is None if unknown."""

    segments: tuple[Segment, ...]
    axis: int
    ndim: int | None = None


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: its segments, and the power to which the factor of each multiplies the tensor's entries.

    `second` has the segments whose factors act too, with power -1: a depthwise kernel's inputs.
    """

    segments: tuple[Segment, ...]
    power: int
    second: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """A parameter or running statistic with units along some axes; `axes` maps the number of an axis to its `Axis`."""

    shape: tuple[int, ...]
    axes: dict
    trained: bool
    step: int
    link: tuple[Segment, ...] = ()
    variance: str | None = None
    eps: float = 0.0


class _Classes:
    """Union-find; the root of a class is its oldest member."""

    def __init__(self):
        self.parent = []

    def new(self):
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def root(self, i):
        while self.parent[i] != i:
            i = self.parent[i]
        return i

    def unite(self, i, j):
        first, last = sorted((self.root(i), self.root(j)))
        self.parent[last] = first


class UnitRegistry:
    """Collect spaces, factors and tensors in the order of the graph; `symmetry` then returns what is free."""

    def __init__(self):
        self._spaces, self._factors = _Classes(), _Classes()
        self._space_names, self._sizes, self._pinned = [], [], set()
        self._factor_names, self._no_sign, self._no_scale = [], set(), set()
        self.tensors = {}

    # -- spaces and factors --------------------------------------------------------------------------------------------

    def new_units(self, name, size):
        """New units with a factor of their own, named after what writes them."""
        space = self._spaces.new()
        self._space_names.append(name)
        self._sizes.append(size)
        return Segment(space, self.new_factor(name), size)

    def new_factor(self, name):
        """Number of a new factor without restrictions, named after what writes the values."""
        self._factor_names.append(name)
        return self._factors.new()

    def with_new_factors(self, name, segments):
        """The same units with new factors."""
        names = [name] if len(segments) == 1 else [f"{name}[{k}]" for k in range(len(segments))]
        return tuple(replace(s, factor=self.new_factor(title)) for s, title in zip(segments, names))

    def restrict(self, segments, *, sign=True, scale=True):
        """Forbid signs or scales of the segments' factors."""
        for segment in segments:
            if segment.factor is not None:
                self._no_sign |= set() if sign else {segment.factor}
                self._no_scale |= set() if scale else {segment.factor}

    def pin(self, segments):
        """Forbid everything: order, signs and scales stay."""
        self.restrict(segments, sign=False, scale=False)
        self._pinned |= {s.space for s in segments if s.space is not None}

    def unite(self, segments, others, *, factors=True):
        """Identify two lists of segments unit by unit; entries that are not units pin the other ones."""
        if not all(s.space is not None for s in (*segments, *others)):
            self.pin(segments)
            self.pin(others)
            return
        if [(s.size, s.flattened) for s in segments] != [(s.size, s.flattened) for s in others]:
            sizes = [[s.size for s in side] for side in (segments, others)]
            raise ValueError(f"units of {sizes[0]} and {sizes[1]} channels meet there, which cannot be put in pairs.")
        for one, other in zip(segments, others):
            self._spaces.unite(one.space, other.space)
            if factors:
                self._factors.unite(one.factor, other.factor)

    def add_tensor(self, name, tensor):
        """Add a tensor with its units; if it has units already, both are identified."""
        known = self.tensors.setdefault(name, tensor)
        if known is tensor:
            return
        for axis in known.axes.keys() | tensor.axes.keys():
            one, other = known.axes.get(axis, Axis((Segment(),), 0)), tensor.axes.get(axis, Axis((Segment(),), 0))
            self.unite(one.segments, other.segments)
            apart = one.power - other.power  # c^apart = 1
            self.restrict(one.segments, sign=apart % 2 == 0, scale=apart == 0)
            if one.second or other.second:
                self.unite(one.second or (Segment(),), other.second or (Segment(),))
        if known.link or tensor.link:
            self.unite(known.link or (Segment(),), tensor.link or (Segment(),))

    # -- what is free --------------------------------------------------------------------------------------------------

    def symmetry(self, values):
        """The `Symmetry` of everything collected; `values` are the `Units` of the graph's nodes by name."""
        pinned = {self._spaces.root(i) for i in self._pinned}
        roots = [i for i in range(len(self._sizes)) if self._spaces.root(i) == i and i not in pinned]
        spaces = {root: k for k, root in enumerate(roots)}
        factors, numbers = self._free_factors(spaces)
        numbering = _Numbering(self._spaces, spaces, self._factors, numbers)
        blocks = [b for name, tensor in self.tensors.items() for b in blocks_of(name, tensor, numbering)]
        return Symmetry(
            [self._space_names[i] for i in roots],
            [self._sizes[i] for i in roots],
            factors,
            sorted(blocks, key=lambda block: block.step),
            {name: place for name, value in values.items() if (place := numbering.place(value))},
        )

    def _free_factors(self, spaces):
        """Factors with some freedom, and their numbers by root."""
        no_sign = {self._factors.root(i) for i in self._no_sign}
        no_scale = {self._factors.root(i) for i in self._no_scale}
        owners = {self._factors.root(s.factor): self._spaces.root(s.space) for s in self._all_segments()}
        factors, numbers = [], {}
        for root in sorted(owners):
            sign, scale = root not in no_sign, root not in no_scale
            if owners[root] in spaces and (sign or scale):
                numbers[root] = len(factors)
                factors.append(Factor(self._factor_names[root], spaces[owners[root]], sign, scale))
        return factors, numbers

    def _all_segments(self):
        for tensor in self.tensors.values():
            for axis in tensor.axes.values():
                yield from (s for s in (*axis.segments, *axis.second) if s.space is not None)
            yield from (s for s in tensor.link if s.space is not None)


class _Numbering:
    """Numbers of the free spaces and factors of segments; None if nothing is free."""

    def __init__(self, space_classes, spaces, factor_classes, factors):
        self._space_classes, self._spaces = space_classes, spaces
        self._factor_classes, self._factors = factor_classes, factors

    def space(self, segment):
        return None if segment.space is None else self._spaces.get(self._space_classes.root(segment.space))

    def factor(self, segment):
        return None if segment.factor is None else self._factors.get(self._factor_classes.root(segment.factor))

    def place(self, units):
        """(axis, list of (first entry, space, factor)) of a value, empty if nothing is free."""
        if any(s.flattened or s.size is None for s in units.segments):
            return ()
        starts = itertools.accumulate((s.size for s in units.segments), initial=0)
        found = [(i, self.space(s), self.factor(s)) for i, s in zip(starts, units.segments)]
        found = [entry for entry in found if entry[1] is not None]
        return (units.axis, found) if found else ()
