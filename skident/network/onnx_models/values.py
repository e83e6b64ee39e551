"""What a tensor of a graph holds, as a function of the model's inputs: matrices, shifts and activations so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..activations import Activation

__all__ = ["Rows", "Step", "Stretch", "unreadable"]


@dataclass(frozen=True)
class Step:
    """A node of the graph.

    Attributes
    ----------
    name : str
        Its own, or its first output's where it has none.
    kind, domain : str
        The operator.
    attributes : dict
    """

    name: str
    kind: str
    domain: str
    attributes: dict


def unreadable(step, reason):
    """The error of a node that is no part of a chain of matrices and activations.

    Parameters
    ----------
    step : Step
    reason : str

    Returns
    -------
    ValueError
    """
    return ValueError(f"from_onnx cannot read node {step.name!r} ({step.kind}): {reason}.")


@dataclass(frozen=True, eq=False)
class Stretch:
    """Affine maps and the activation that ends them.

    Attributes
    ----------
    maps : tuple of (ndarray of shape (k, m), ndarray of shape (m,))
        At least one.
    activation : Activation
    step : Step
        The node of the activation.
    """

    maps: tuple
    activation: Activation
    step: Step


@dataclass(frozen=True, eq=False)
class Rows:
    """A tensor with a batch axis, as a function of the model's inputs.

    Attributes
    ----------
    dims : tuple of int or None
        Its axes behind the batch axis; None where the model does not say.
    batch : int or None
        Length of the batch axis, where the model fixes it.
    stretches : tuple of Stretch
        Finished ones.
    maps : tuple of (ndarray of shape (k, m), ndarray of shape (m,))
        Matrices and shifts since the last activation.
    scale, shift : float or ndarray of shape (m,)
        What every entry was multiplied by and added to before the first of `maps`.
    classes : bool
        Whether these are probabilities, of which the logits are kept: nothing may follow.
    multiple_of : tuple of (Rows, float) or None
        Of which rows these are a multiple, and which, where that was the last step.
    """

    dims: tuple
    batch: int | None = None
    stretches: tuple = ()
    maps: tuple = ()
    scale: float | np.ndarray = 1.0
    shift: float | np.ndarray = 0.0
    classes: bool = False
    multiple_of: tuple | None = None

    @property
    def width(self):
        """Entries a row, or None."""
        return None if None in self.dims else math.prod(self.dims)

    @property
    def plain(self):
        """Whether nothing was done since the last activation, or the inputs."""
        return not self.maps and np.all(self.scale == 1.0) and np.all(self.shift == 0.0)

    def moved(self, factor, offset):
        """``factor * rows + offset``, entry by entry.

        Parameters
        ----------
        factor, offset : float or ndarray of shape (m,)

        Returns
        -------
        Rows
        """
        dims = self.dims
        if None in dims and max(np.size(factor), np.size(offset)) > 1:
            dims = (max(np.size(factor), np.size(offset)),)
        multiple = (self, float(factor)) if np.ndim(factor) == 0 and not np.any(offset) else None
        same = replace(self, dims=dims, multiple_of=multiple)
        if self.maps:
            A, c = self.maps[-1]
            return replace(same, maps=(*self.maps[:-1], (A * factor, c * factor + offset)))
        return replace(same, scale=self.scale * factor, shift=self.shift * factor + offset)

    def times_matrix(self, W):
        """``rows @ W``.

        Parameters
        ----------
        W : ndarray of shape (m, k)

        Returns
        -------
        Rows
        """
        A, c = W, np.zeros(W.shape[1])
        if not self.maps:
            A = np.broadcast_to(self.scale, len(W))[:, None] * W
            c = np.broadcast_to(self.shift, len(W)) @ W
        return Rows((W.shape[1],), self.batch, self.stretches, (*self.maps, (A, c)))

    def activated(self, activation, step):
        """``g(rows)``.

        Parameters
        ----------
        activation : Activation
        step : Step
            The node that does it.

        Returns
        -------
        Rows

        Raises
        ------
        ValueError
            If there is no matrix since the last activation.
        """
        if not self.maps:
            raise unreadable(step, "an activation must follow a matrix product (MatMul or Gemm)")
        return Rows(self.dims, self.batch, (*self.stretches, Stretch(self.maps, activation, step)))
