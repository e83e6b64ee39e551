"""Recognize a convolution in a dense first layer: units with equal weights on shifted supports."""

import math
from dataclasses import dataclass

import numpy as np

_MAX_CHANNELS = 4  # of inputs whose axes are not given: images with an alpha channel
_MIN_SHARE = 0.9  # of the units that kernels on a grid explain, below which the layer is no convolution
_WEIGHTED_MEANS = 3  # weighted by the errors of units, which differ (tuned on convolutions 5 x 5 and stride 2)
_FEWEST_PLACES = 3.0  # mean units per kernel: fewer say nothing about sharing


@dataclass(frozen=True)
class Convolution:
    """A convolution with shared weights, as part of a dense layer.

    Attributes
    ----------
    kernels : ndarray of shape (K, C, height, width)
        In the order of their first units, each with its largest entry of magnitude 1 and positive: scales and, for odd
        activations, signs of units are not determined.
    biases : ndarray of shape (K,)
        On the scale of `kernels`.
    input_shape : tuple of int
        Channels, height and width of an input; one axis is (C, 1, width).
    stride, padding : tuple of int
        Vertical and horizontal. A padding that no unit shows is 0.
    output_shape : tuple of int
        Kernels, rows and columns of the grid.
    pooling : tuple of int
        Size of the average pooling behind the layer: blocks of the grid with equal outgoing weights; (1, 1) for none.
    units : ndarray of shape (K, rows, columns)
        Unit of every kernel and place; -1 if there is none, such as a unit that is never active.
    spread : float
        Largest difference of a weight from the shared one, relative to the kernel's largest entry.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork
    >>> shifted = np.array([np.roll([1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0], i) for i in range(5)])
    >>> network = FeedforwardNetwork(
    ...     [shifted.T, np.ones((5, 1))], [np.full(5, 0.1), [0.0]], "relu"
    ... )
    >>> print(network.structure((7,)).convolution.kernels[0, 0, 0])
    [-0.5   1.   -0.25]
    """

    kernels: np.ndarray
    biases: np.ndarray
    input_shape: tuple[int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    output_shape: tuple[int, int, int]
    pooling: tuple[int, int]
    units: np.ndarray
    spread: float

    @property
    def n_units(self):
        """Number of units that the kernels explain."""
        return int(np.sum(self.units >= 0))

    def __str__(self):
        count, _, height, width = self.kernels.shape
        axes = " x ".join(map(str, self.input_shape))
        text = f"{count} kernel{'s' * (count > 1)} {height} x {width} on {axes}, stride {_pair(self.stride)}"
        text += f", padding {_pair(self.padding)}"
        return text + (f", average pooling {self.pooling[0]} x {self.pooling[1]}" if self.pooling != (1, 1) else "")


def _pair(sizes):
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} x {sizes[1]}"


def find_convolution(W, b, V, input_shape=None, tol=1e-6):
    """The `Convolution` in a layer W (D, m), b (m,) with outgoing weights V (m, k), and the factors (m,); or None.

    Unit i has ``factors[i]`` times the weights of its kernel. Without `input_shape`, channels and axes are tried: the
    ones with the smallest kernels win. `tol` bounds differences relative to the largest weight of a unit.
    """
    shapes = [_axes(input_shape, len(W))] if input_shape is not None else _shapes(len(W))
    found = [one for shape in shapes if (one := _on_axes(W, b, V, shape, tol)) is not None]
    return min(found, key=lambda one: one[0].kernels.size, default=None)


def _axes(input_shape, n_inputs):
    """Channels, height and width."""
    shape = tuple(int(n) for n in np.atleast_1d(input_shape))
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"input_shape must have one to three axes, got {input_shape}.")
    if math.prod(shape) != n_inputs:
        raise ValueError(
            f"input_shape={input_shape} has {math.prod(shape)} entries, but the network has {n_inputs} inputs."
        )
    return (*[1] * (3 - len(shape)), *shape)


def _shapes(n_inputs):
    """Channels, height and width that n_inputs entries may have."""
    shapes = []
    for channels in range(1, _MAX_CHANNELS + 1):
        pixels, rest = divmod(n_inputs, channels)
        if rest == 0:
            shapes += [(channels, h, pixels // h) for h in range(1, pixels + 1) if pixels % h == 0]
    return [shape for shape in shapes if shape[2] > 2]


def _on_axes(W, b, V, shape, tol):
    """Convolution and factors for inputs of one shape; None if there is none."""
    largest = np.abs(W).max(axis=0)
    used = np.flatnonzero(largest > 0)
    weights = W[:, used] / largest[used]
    inside = np.abs(weights).reshape(*shape, -1).max(axis=0) > tol
    boxes = np.stack([_ends(inside.any(axis=1)), _ends(inside.any(axis=0))])  # (2 axes, first and last, units)
    size = (boxes[:, 1] - boxes[:, 0]).max(axis=1) + 1
    if np.any(size >= np.maximum(shape[1:], 2)) or len(used) < _FEWEST_PLACES:
        return None  # dense, or a kernel as large as the input
    starts = np.stack([_starts(box, k, n) for box, k, n in zip(boxes, size, shape[1:], strict=True)], axis=1)
    patches, visible = _patches(weights, shape, starts, size)
    biases = b[used] / largest[used]
    kernel_of, kernels, factors = _clusters(patches, visible, biases, tol)
    if len(kernels) == 0 or len(used) < _FEWEST_PLACES * len(kernels):
        return None
    grid = _grid(kernel_of, starts, len(kernels))
    if grid is None or np.sum(grid[0] >= 0) < _MIN_SHARE * W.shape[1]:
        return None
    places, stride, padding = grid
    units = np.where(places >= 0, used[places], -1)
    scale, begin = np.zeros(W.shape[1]), np.zeros((W.shape[1], 2), dtype=int)
    scale[used], begin[used] = factors * largest[used], starts
    patches = _patches(W, shape, begin, size)
    kernels, biases, factors, spread = _shared(patches, b, units, scale)
    outgoing = np.where(units[..., None] >= 0, (V * np.abs(factors)[:, None])[units], 0.0)
    pooling = _pooling(outgoing, tol)
    return Convolution(kernels, biases, shape, stride, padding, units.shape, pooling, units, spread), factors


def _ends(occupied):
    """First and last index of True along the first axis (n, m), as (2, m)."""
    return np.stack([np.argmax(occupied, axis=0), len(occupied) - 1 - np.argmax(occupied[::-1], axis=0)])


def _starts(box, size, n):
    """Where kernels of one size start along an axis of n entries, whose supports (2, m) may be cut off at both ends."""
    first, last = box
    return np.where((first == 0) & (last < size - 1), last - size + 1, first)


def _patches(weights, shape, starts, size):
    """Weights (m, C, height, width) beneath the kernel of every unit, and which lie within the input."""
    rows, columns = (starts[:, i, None] + np.arange(size[i]) for i in (0, 1))
    in_rows, in_columns = (rows >= 0) & (rows < shape[1]), (columns >= 0) & (columns < shape[2])
    image = weights.T.reshape(-1, *shape)
    at = np.clip(rows, 0, shape[1] - 1)[:, None, :, None], np.clip(columns, 0, shape[2] - 1)[:, None, None, :]
    unit, channel = np.arange(len(image))[:, None, None, None], np.arange(shape[0])[None, :, None, None]
    visible = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    return image[unit, channel, at[0], at[1]] * visible, np.broadcast_to(visible, (len(image), shape[0], *size))


def _clusters(patches, visible, biases, tol):
    """Kernel of every unit (-1 for none), kernels, and the factor of every unit on its kernel.

    Units with the whole kernel define kernels; a unit at the border joins the one that is parallel where it is visible.
    """
    m = len(patches)
    rows = np.hstack([patches.reshape(m, -1), biases[:, None]])
    seen = np.hstack([visible.reshape(m, -1), np.ones((m, 1), dtype=bool)])
    kernel_of, kernels, factors = np.full(m, -1), [], np.ones(m)
    for i in np.argsort(-seen.sum(axis=1), kind="stable"):
        best = None
        for k, kernel in enumerate(kernels):
            part = kernel[seen[i]]
            factor = rows[i, seen[i]] @ part / max(part @ part, np.finfo(float).tiny)
            gap = np.abs(rows[i, seen[i]] - factor * part).max()
            if factor != 0 and gap < 10 * tol and (best is None or gap < best[0]):
                best = gap, k, factor
        if best is not None:
            kernel_of[i], factors[i] = best[1:]
        elif seen[i].all():
            kernel_of[i] = len(kernels)
            kernels.append(rows[i])
    return kernel_of, kernels, factors


def _grid(kernel_of, starts, n_kernels):
    """Units (K, rows, columns) on the grid of starts, stride and padding; None if the starts are no grid."""
    known = kernel_of >= 0
    stride, counts, first = [], [], starts[known].min(axis=0)
    for axis in (0, 1):
        steps = np.unique(starts[known, axis] - first[axis])
        step = max(1, math.gcd(*(int(s) for s in steps)))
        stride.append(step)
        counts.append(int(steps.max()) // step + 1)
    units = np.full((n_kernels, *counts), -1)
    index = (starts - first) // np.array(stride)
    for i in np.flatnonzero(known):
        if units[kernel_of[i], index[i, 0], index[i, 1]] >= 0:
            return None
        units[kernel_of[i], index[i, 0], index[i, 1]] = i
    stride = [s if n > 1 else stride[1 - a] for a, (s, n) in enumerate(zip(stride, counts, strict=True))]
    return units, tuple(stride), tuple(int(p) for p in np.maximum(0, -first))


def _shared(patches, b, units, scale):
    """Kernels and biases averaged over their units by least squares, factors of the units, largest difference."""
    (patches, visible), factors = patches, np.zeros(len(b))
    kernels, biases, spread = [], [], 0.0
    for row in units:
        of = row[row >= 0]
        s = scale[of]
        own, precision = patches[of] / s[:, None, None, None], s**2
        for _ in range(_WEIGHTED_MEANS):
            w = precision[:, None, None, None] * visible[of]
            kernel = np.sum(own * w, axis=0) / np.maximum(w.sum(axis=0), np.finfo(float).tiny)
            errors = np.mean((own - kernel * visible[of]) ** 2, axis=(1, 2, 3))
            rounding = np.finfo(float).eps ** 2 * np.mean(kernel**2)
            precision = 1.0 / (errors + 0.01 * np.median(errors) + rounding)
        bias = np.sum(b[of] / s * precision) / np.sum(precision)
        unit = kernel.flat[np.argmax(np.abs(kernel))]
        kernel, bias, factors[of] = kernel / unit, bias / unit, s * unit
        gap = patches[of] / factors[of, None, None, None] - kernel * visible[of]
        spread = max(spread, float(np.abs(gap).max()), float(np.abs(b[of] / factors[of] - bias).max()))
        kernels.append(kernel)
        biases.append(bias)
    return np.array(kernels), np.array(biases), factors, spread


def _pooling(outgoing, tol):
    """Size of the largest square blocks of the grid with equal outgoing weights (K, rows, columns, k)."""
    rows, columns = outgoing.shape[1:3]
    for size in range(min(rows, columns), 1, -1):
        cut = outgoing[:, : rows // size * size, : columns // size * size]
        blocks = cut.reshape(len(cut), rows // size, size, columns // size, size, -1)
        if np.ptp(blocks, axis=(2, 4)).max() <= 100 * tol * np.abs(outgoing).max():
            return size, size
    return 1, 1
