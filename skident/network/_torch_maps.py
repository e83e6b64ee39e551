"""Affine torch modules as dense matrices: linear layers, convolutions, average pooling, batch norm in eval mode."""

import copy
import math

import numpy as np
import torch
from torch import nn

from skident.budget.constants import BLOCK_ENTRIES

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_LINEAR_MAPS = (
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.ZeroPad2d,
)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_MAX_ENTRIES = 2**27  # of a dense matrix (memory: 1 GiB)


class AffineMap:
    """``rows -> rows @ matrix + offset`` of flattened rows, the axes of a row after it, and whether it has weights.

    A map of single entries has a vector instead of a matrix.
    """

    def __init__(self, matrix, offset, dims, weighted=True):
        self.matrix, self.offset, self.dims, self.weighted = matrix, offset, dims, weighted

    def then(self, other):
        """This map followed by another one."""
        A, B = self.matrix, other.matrix
        if B.ndim == 1:
            return AffineMap(A * B, self.offset * B + other.offset, other.dims, self.weighted)
        A = A[:, None] * B if A.ndim == 1 else A @ B
        return AffineMap(
            A, np.broadcast_to(self.offset, len(B)) @ B + other.offset, other.dims, self.weighted or other.weighted
        )

    def arrays(self):
        """Matrix and offset."""
        return np.diag(self.matrix) if self.matrix.ndim == 1 else self.matrix, self.offset


class Entrywise(nn.Module):
    """``rows -> factor * rows + offset`` with constants that are broadcast to a row, or a batch of one row."""

    def __init__(self, factor, offset):
        super().__init__()
        self.factor, self.offset = factor, offset


def affine_map_of(path, module, dims):
    """The `AffineMap` of a module on rows of axes `dims` (None if unknown); None if it is not affine."""
    if isinstance(module, nn.Linear):
        return _linear(path, module, dims)
    if isinstance(module, Entrywise):
        return _entrywise(path, module, dims)
    if _is_plain(module, _BATCH_NORMS):
        return _batch_norm(path, module, dims)
    if _is_plain(module, (*_CONVOLUTIONS, *_LINEAR_MAPS)):
        return _dense(path, module, dims)
    return None


def _is_plain(module, kinds):
    """Whether a module is of one of the kinds, and does not define its own forward."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def reshaped(path, module, dims):
    """Axes of a row after a Flatten or Unflatten, as a tuple in a list; empty for other modules."""
    if isinstance(module, nn.Flatten) and module.start_dim == 1:
        return [dims if dims is None or len(dims) == 1 else (math.prod(dims),)]
    if isinstance(module, nn.Unflatten) and module.dim == 1:
        size = tuple(int(m) for m in module.unflattened_size)
        if -1 in size and dims is None:
            raise unreadable(path, module, "the number of inputs is unknown; write the size without -1")
        known = math.prod(m for m in size if m > 0)
        size = tuple(math.prod(dims) // known if m == -1 else m for m in size)
        if dims is not None and math.prod(dims) != math.prod(size):
            raise unreadable(path, module, f"it does not keep rows of axes {dims}")
        return [size]
    return []


def _linear(path, linear, dims):
    if type(linear).forward is not nn.Linear.forward or nn.parameter.is_lazy(linear.weight):
        raise unreadable(path, linear, "it is not a plain, initialized Linear")
    if dims is not None and len(dims) > 1:
        raise unreadable(path, linear, f"its rows have the axes {dims}; Flatten must come before")
    W = linear.weight.detach().cpu().double().numpy().T
    b = np.zeros(W.shape[1]) if linear.bias is None else linear.bias.detach().cpu().double().numpy()
    return AffineMap(W, b, (W.shape[1],))


def _entrywise(path, module, dims):
    """A factor and an offset per entry, or for all of them if the number of entries is unknown."""
    factor, offset = (part.double().cpu().numpy() for part in (module.factor, module.offset))
    sizes = np.broadcast_shapes(factor.shape, offset.shape)
    try:
        wanted = (1, *dims) if dims is not None else (1, max(sizes, default=1))
        factor, offset = (np.broadcast_to(part, wanted).ravel() for part in (factor, offset))
    except ValueError as error:
        raise unreadable(path, module, f"constants of shape {sizes} do not fit rows of axes {dims}") from error
    return AffineMap(factor, offset, dims or (sizes[-1:] if len(factor) > 1 else None), weighted=False)


def _batch_norm(path, norm, dims):
    """A factor and an offset per channel, from the running mean and variance."""
    if norm.training or norm.running_mean is None:
        remedy = "call .eval() first" if norm.running_mean is not None else "it has no running statistics"
        raise unreadable(path, norm, f"its outputs depend on the other rows of the batch (training mode); {remedy}")
    dims = (norm.num_features,) if dims is None else dims
    if dims[0] != norm.num_features:
        raise unreadable(path, norm, f"it has {norm.num_features} channels, but its rows have the axes {dims}")
    mean, variance = (part.detach().cpu().double().numpy() for part in (norm.running_mean, norm.running_var))
    factor = 1.0 / np.sqrt(variance + norm.eps)
    factor = factor if norm.weight is None else factor * norm.weight.detach().cpu().double().numpy()
    bias = 0.0 if norm.bias is None else norm.bias.detach().cpu().double().numpy()
    repeats = math.prod(dims[1:])
    return AffineMap(np.repeat(factor, repeats), np.repeat(bias - mean * factor, repeats), dims, weighted=False)


def _dense(path, module, dims):
    """The matrix of a linear module, from its outputs at the unit vectors, and its bias."""
    if dims is None:
        raise unreadable(path, module, "the axes of its inputs are unknown; set input_shape, or begin with Unflatten")
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise unreadable(path, module, "only padding_mode='zeros' is supported")
    module = copy.deepcopy(module).double().cpu()
    bias, module.bias = getattr(module, "bias", None), None
    width = math.prod(dims)
    with torch.no_grad():
        try:
            out = tuple(module(torch.zeros(1, *dims, dtype=torch.float64)).shape[1:])
        except RuntimeError as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise unreadable(path, module, f"it does not take rows of axes {dims} ({reason})") from error
        if width * math.prod(out) > _MAX_ENTRIES:
            raise unreadable(path, module, f"its dense matrix has {width} x {math.prod(out)} entries, more than 2^27")
        basis, n = torch.eye(width, dtype=torch.float64), max(1, BLOCK_ENTRIES // max(width, math.prod(out)))
        parts = [module(basis[i : i + n].reshape(-1, *dims)) for i in range(0, width, n)]
        matrix = torch.cat([part.reshape(len(part), -1) for part in parts]).numpy()
    offset = np.zeros(matrix.shape[1])
    if bias is not None:
        offset = np.repeat(bias.detach().numpy(), math.prod(out[1:]))
    return AffineMap(matrix, offset, out, weighted=isinstance(module, _CONVOLUTIONS))


def unreadable(path, module, reason):
    """A ValueError that names a submodule."""
    name = f"submodule {path!r}, {module}" if path else type(module).__name__
    return ValueError(f"from_torch cannot read {name}: {reason}.")
