"""Elementwise torch modules for the activations that torch.nn does not have."""

import functools

import torch
from torch import nn


class Sin(nn.Module):
    """``z -> sin(z)``.

    Examples
    --------
    >>> import torch
    >>> from skident.network.torch_activations import Sin
    >>> print(Sin()(torch.zeros(1)).item())
    0.0
    """

    def forward(self, z):
        """``sin(z)``."""
        return torch.sin(z)


class Erf(nn.Module):
    """``z -> erf(z)``, the Gauss error function.

    Examples
    --------
    >>> import torch
    >>> from skident.network.torch_activations import Erf
    >>> print(round(Erf()(torch.ones(1)).item(), 4))
    0.8427
    """

    def forward(self, z):
        """``erf(z)``."""
        return torch.special.erf(z)


class Quadratic(nn.Module):
    """``z -> z^2``.

    Examples
    --------
    >>> import torch
    >>> from skident.network.torch_activations import Quadratic
    >>> print(Quadratic()(torch.tensor(3.0)).item())
    9.0
    """

    def forward(self, z):
        """``z^2``."""
        return z * z


class Clip(nn.Module):
    """``z -> min(max(z, low), high)``, with bounds for all columns or one per column; infinite ones are none."""

    def __init__(self, low, high):
        super().__init__()
        for name, bound in (("low", low), ("high", high)):
            self.register_buffer(name, torch.as_tensor(bound, dtype=torch.float64))

    def forward(self, z):
        """Clip the columns.

        Parameters
        ----------
        z : torch.Tensor of shape (..., columns)

        Returns
        -------
        torch.Tensor of the same shape
        """
        return torch.clamp(z, self.low.to(z.dtype), self.high.to(z.dtype))


class Bounded(Clip):
    """An activation between other limits (low, high), one pair for all columns or one per column."""

    def __init__(self, base, limits, low, high):
        super().__init__(low, high)
        self.base, self.limits = base, limits

    def forward(self, z):
        """The activation, shifted and scaled.

        Parameters
        ----------
        z : torch.Tensor of shape (..., columns)

        Returns
        -------
        torch.Tensor of the same shape
        """
        low, high = self.low.to(z.dtype), self.high.to(z.dtype)
        return low + (high - low) * (self.base(z) - self.limits[0]) / (self.limits[1] - self.limits[0])


class PartlyLinear(nn.Module):
    """An activation of all columns but the last ones, which do not change.

    Examples
    --------
    >>> import torch
    >>> from skident.network.torch_activations import PartlyLinear
    >>> print(PartlyLinear(torch.nn.ReLU(), 1)(torch.tensor([-2.0, 3.0, -4.0])))
    tensor([ 0.,  3., -4.])
    """

    def __init__(self, base, n_linear):
        super().__init__()
        self.base, self.n_linear = base, n_linear

    def forward(self, z):
        """The activation of the first columns, and the last ones.

        Parameters
        ----------
        z : torch.Tensor of shape (..., columns)

        Returns
        -------
        torch.Tensor of the same shape
        """
        return torch.cat([self.base(z[..., : -self.n_linear]), z[..., -self.n_linear :]], dim=-1)


class Table(nn.Module):
    """Polynomials on adjacent intervals, and straight lines beyond them.

    Examples
    --------
    >>> import torch
    >>> from skident.network.torch_activations import Table
    >>> print(Table([-1.0, 1.0], [[0.25, 0.5, 0.25]], [0.0, 1.0])(torch.tensor([-5.0, 0.0, 3.0])))
    tensor([0.0000, 0.2500, 3.0000])
    """

    def __init__(self, edges, coefficients, slopes):
        super().__init__()
        for name, array in (("edges", edges), ("coefficients", coefficients), ("slopes", slopes)):
            self.register_buffer(name, torch.tensor(array, dtype=torch.float64))

    def forward(self, z):
        """The polynomial of the interval in which z lies.

        Parameters
        ----------
        z : torch.Tensor

        Returns
        -------
        torch.Tensor of the same shape
        """
        edges, columns, slopes = (part.to(z.dtype) for part in (self.edges, self.coefficients.T, self.slopes))
        inside = torch.clamp(z, edges[0], edges[-1])
        place = torch.bucketize(inside.detach(), edges[1:-1].contiguous(), right=True)
        x = (inside - 0.5 * (edges[1:] + edges[:-1])[place]) / (0.5 * torch.diff(edges)[place])
        value = torch.zeros_like(x)
        for column in columns.flip(0):
            value = value * x + column[place]
        return value + slopes[0] * torch.clamp(z - edges[0], max=0.0) + slopes[1] * torch.clamp(z - edges[-1], min=0.0)


# The module of every built-in activation.
MODULES = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU, "softplus": nn.Softplus, "gelu": nn.GELU}
MODULES |= {"hard_tanh": nn.Hardtanh, "silu": nn.SiLU, "elu": nn.ELU, "sin": Sin, "erf": Erf, "quadratic": Quadratic}
MODULES |= {"mish": nn.Mish, "hardswish": nn.Hardswish, "selu": nn.SELU, "identity": nn.Identity}
MODULES |= {"gelu_tanh": functools.partial(nn.GELU, approximate="tanh")}
