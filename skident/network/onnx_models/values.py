"""Value of a tensor in a graph as a function of the model's inputs: affine maps and activations so far."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from ..activations import Activation

_MAX_ENTRIES = 2**25  # of an array whose size a model states in its shapes and attributes (memory: 256 MiB)
_MAX_WORK = 2**32  # multiplications of reading a model (time: below a second)
_WORK_PER_BYTE = 64  # multiplications more for each byte of the model: every weight may be moved some eight times
ENTRY = 64  # multiplications that an entry of a new array counts as (memory: 2^26 entries, 512 MiB, of all arrays)


class Allowance:
    """What reading one model may cost: sizes are checked before anything is allocated."""

    def __init__(self, n_bytes):
        self._left = _MAX_WORK + _WORK_PER_BYTE * n_bytes

    def spend(self, step, work=0, entries=0):
        """Count multiplications, and entries of one array; ValueError if the model needs too many."""
        self._left -= work + ENTRY * entries
        if entries > _MAX_ENTRIES:
            raise unreadable(step, f"it needs an array of {entries:.3g} entries, more than 2^25")
        if self._left < 0:
            raise unreadable(step, "reading it takes too much work or memory for a model of this size")


@dataclass(frozen=True)
class Step:
    """A node of the graph, with its attributes as Python values."""

    name: str
    kind: str
    domain: str
    attributes: dict
    allowance: Allowance | None = None


def unreadable(step, reason):
    """ValueError of a node that does not belong to a chain of matrices and activations."""
    return ValueError(f"from_onnx cannot read node {step.name!r} ({step.kind}): {reason}.")


@dataclass(frozen=True, eq=False)
class Layer:
    """Affine maps (W, b) and the activation after them."""

    maps: tuple
    activation: Activation
    step: Step


@dataclass(frozen=True, eq=False)
class BatchTensor:
    """A tensor with a batch axis, as a function of the model's inputs.

    Attributes
    ----------
    dims : tuple of int or None
        Its axes after the batch axis; None if the model does not state them.
    batch : int or None
        Length of the batch axis, if the model fixes it; 0 if there is no batch axis.
    layers : tuple of Layer
        Completed layers.
    maps : tuple of (ndarray of shape (k, m), ndarray of shape (m,))
        Affine maps since the last activation.
    scale, offset : float or ndarray of shape (m,)
        Factor and summand of every entry before the first of `maps`.
    sparse : tuple of (csr_array of shape (k, m), Step) or None
        If given, these are rows of what `scale` and `offset` describe, multiplied by it; and the node that did so.
    classes : bool
        Whether these are probabilities, stored as logits: nothing may follow.
    multiple_of : tuple of (BatchTensor, float) or None
        The tensor of which this one is a multiple, and the factor, if that was the last step.
    """

    dims: tuple
    batch: int | None = None
    layers: tuple = ()
    maps: tuple = ()
    scale: float | np.ndarray = 1.0
    offset: float | np.ndarray = 0.0
    sparse: tuple | None = None
    classes: bool = False
    multiple_of: tuple | None = None

    @property
    def width(self):
        """Entries per row, or None."""
        return None if None in self.dims else math.prod(self.dims)

    @property
    def plain(self):
        """Whether nothing follows the last activation, or the inputs."""
        return not self.maps and self.sparse is None and np.all(self.scale == 1.0) and np.all(self.offset == 0.0)

    def scaled(self, factor, offset):
        """``factor * rows + offset``, entry by entry."""
        if self.sparse is not None:
            return self.settled().scaled(factor, offset)
        dims = self.dims
        if None in dims and max(np.size(factor), np.size(offset)) > 1:
            dims = (max(np.size(factor), np.size(offset)),)
        multiple = (self, float(factor)) if np.ndim(factor) == 0 and not np.any(offset) else None
        same = replace(self, dims=dims, multiple_of=multiple)
        if self.maps:
            A, c = self.maps[-1]
            A = A if np.ndim(factor) == 0 and factor == 1.0 else A * factor
            return replace(same, maps=(*self.maps[:-1], (A, c * factor + offset)))
        return replace(same, scale=self.scale * factor, offset=self.offset * factor + offset)

    def flat(self):
        """The rows as (n, m)."""
        return replace(self, dims=(self.width,), multiple_of=None)

    def selected(self, places, dims, step):
        """The entries at `places` as rows with the axes `dims`; zeros where a place is -1."""
        if np.array_equal(places, np.arange(self.width)):
            return replace(self, dims=dims, multiple_of=None)
        (kept,) = np.nonzero(places >= 0)
        shape = self.width, len(places)
        return self.times_sparse(csr_array((np.ones(len(kept)), (places[kept], kept)), shape=shape), dims, step)

    def times_sparse(self, S, dims, step):
        """``rows @ S`` with the axes `dims`: a part of the matrix before, or, after an activation, of the next one."""
        if self.maps:
            A, c = self.maps[-1]
            step.allowance.spend(step, ENTRY * len(A) * S.nnz, len(A) * S.shape[1])
            return replace(self, dims=dims, maps=(*self.maps[:-1], (A @ S, c @ S)), multiple_of=None)
        S = S if self.sparse is None else self.sparse[0] @ S
        return replace(self, dims=dims, sparse=(S, step), multiple_of=None)

    def settled(self):
        """The same, with a matrix in place of a sparse one."""
        return self if self.sparse is None else replace(self.times_matrix(np.eye(self.width)), dims=self.dims)

    def times_matrix(self, W):
        """``rows @ W``."""
        A, c = W, np.zeros(W.shape[1])
        if self.sparse is not None:
            S, step = self.sparse
            step.allowance.spend(step, entries=S.shape[0] * W.shape[1])
            A = S @ W
        if not (self.maps or self.plain):
            A, c = np.broadcast_to(self.scale, len(A))[:, None] * A, np.broadcast_to(self.offset, len(A)) @ A
        return BatchTensor((W.shape[1],), self.batch, self.layers, (*self.maps, (A, c)))

    def activated(self, activation, step):
        """``g(rows)``; ValueError unless a matrix product comes before."""
        maps = self.settled().maps
        if not maps:
            raise unreadable(step, "an activation must follow a matrix product (MatMul or Gemm)")
        return BatchTensor(self.dims, self.batch, (*self.layers, Layer(maps, activation, step)))


def joined(maps, step):
    """Matrix and bias of several affine maps in a row."""
    W, b = maps[0]
    for A, c in maps[1:]:
        step.allowance.spend(step, len(W) * A.size, len(W) * A.shape[1])
        with np.errstate(all="ignore"):  # the network's entries must be finite
            W, b = W @ A, b @ A + c
    return W, b
