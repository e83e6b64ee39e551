"""The activations of quadratic networks: squares, truncated and tilted."""

from __future__ import annotations

import math

from torch import nn

__all__ = ["TiltedSquare", "TruncatedSquare"]


class TruncatedSquare(nn.Module):
    """``z^2`` up to ``|z| = bound``, constant ``2.2 bound^2`` from ``|z| = 2 bound`` on, smooth and monotone between.

    The derivative between is ``2 bound (1 - t)^3 (1 + 4 t + 9 t^2)`` with ``t = |z| / bound - 1``, so that the function
    has three continuous derivatives, all ``O(bound)``.

    Parameters
    ----------
    bound : float
        B' of Section 2.1; infinity is the plain square.

    Examples
    --------
    >>> import torch
    >>> from skident.hierarchical.squares import TruncatedSquare
    >>> print(round(TruncatedSquare(2.0)(torch.tensor(100.0)).item(), 4))
    8.8
    """

    def __init__(self, bound=math.inf):
        super().__init__()
        self.bound = float(bound)

    def forward(self, z):
        """The square, entry by entry.

        Parameters
        ----------
        z : Tensor

        Returns
        -------
        Tensor
        """
        if math.isinf(self.bound):
            return z * z
        size = z.abs()
        t = (size / self.bound - 1.0).clamp(0.0, 1.0)
        grown = t + t**2 / 2 - 4 * t**4 + 4.6 * t**5 - 1.5 * t**6
        return size.clamp(max=self.bound) ** 2 + 2 * self.bound**2 * grown


class TiltedSquare(nn.Module):
    """``z + c z^2``, the activation of the paper's quadratic WideResNets (Appendix A.3, c = 0.1).

    Parameters
    ----------
    curvature : float
        c.
    """

    def __init__(self, curvature):
        super().__init__()
        self.curvature = float(curvature)

    def forward(self, z):
        """The activation, entry by entry.

        Parameters
        ----------
        z : Tensor

        Returns
        -------
        Tensor
        """
        return z + self.curvature * z * z
