"""Adam (Kingma and Ba, 2015) on arrays in single precision, and batches of rows for it."""

import numpy as np

_MOMENTUM = 0.9  # decay of the first moments (its default)
_SQUARES = 0.99  # decay of the second moments (0.999 by default; batches are few)
_TINY = np.float32(1e-8)  # added to the root of the second moments (its default)


class Adam:
    """Steps on several arrays, in place, each with its rate."""

    def __init__(self, arrays, rates):
        self.arrays, self.rates = arrays, rates
        self.means, self.squares = ([np.zeros_like(a) for a in arrays] for _ in range(2))

    def step(self, gradients, share):
        """One step with that share of the rates."""
        for a, g, mean, square, rate in zip(self.arrays, gradients, self.means, self.squares, self.rates, strict=True):
            mean *= _MOMENTUM
            mean += (1.0 - _MOMENTUM) * g
            square *= _SQUARES
            square += (1.0 - _SQUARES) * g * g
            a -= np.float32(share * rate) * mean / (np.sqrt(square) + _TINY)


def batches(arrays, size, rng):
    """Batches of `size` rows in random order, without end."""
    n = len(arrays[0])
    size = min(size, n)
    while True:
        order = rng.permutation(n)
        for start in range(0, n - size + 1, size):
            rows = order[start : start + size]
            yield tuple(a[rows] for a in arrays)
