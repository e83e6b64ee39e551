"""The units in which a network without biases sees a table: standardised, clipped, and a column of ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import column_units

__all__ = ["StandardInputs", "standard_inputs"]

_LARGEST = 3.0  # standard deviations at which inputs are clipped: columns that hardly ever vary have far outliers


@dataclass(frozen=True)
class StandardInputs:
    """How columns are standardised.

    Attributes
    ----------
    mean, scale : ndarray of shape (D,)
    """

    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, X):
        """What the network sees.

        Parameters
        ----------
        X : ndarray of shape (n, D)

        Returns
        -------
        ndarray of shape (n, D + 1)
            The last column is of ones.
        """
        Z = np.clip((X - self.mean) / self.scale, -_LARGEST, _LARGEST)
        return np.column_stack([Z, np.ones(len(X))])


def standard_inputs(X):
    """Means and standard deviations of the columns.

    Parameters
    ----------
    X : ndarray of shape (n, D)

    Returns
    -------
    StandardInputs

    Examples
    --------
    >>> import numpy as np
    >>> from skident.saddle.inputs import standard_inputs
    >>> X = np.array([[0.0], [4.0]])
    >>> print(standard_inputs(X)(X).tolist())
    [[-1.0, 1.0], [1.0, 1.0]]
    """
    return StandardInputs(*column_units(X))
