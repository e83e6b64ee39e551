"""Activations that torch.nn lacks, as parameterless modules acting componentwise on tensors of any shape."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Erf", "Quadratic", "Sin"]


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
        """Apply it.

        Parameters
        ----------
        z : torch.Tensor of any shape

        Returns
        -------
        torch.Tensor of the same shape
        """
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
        """Apply it.

        Parameters
        ----------
        z : torch.Tensor of any shape

        Returns
        -------
        torch.Tensor of the same shape
        """
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
        """Apply it.

        Parameters
        ----------
        z : torch.Tensor of any shape

        Returns
        -------
        torch.Tensor of the same shape
        """
        return z * z
