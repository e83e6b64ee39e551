"""`Extremes`: the largest and smallest outputs of a model so far, and the inputs that gave exactly these."""

from typing import NamedTuple

import numpy as np

_MAX_INPUTS = 16  # distinct inputs kept per extreme: enough to distinguish a plateau from a coincidence
_MIN_INPUTS = 3  # distinct inputs with exactly equal extreme outputs that form a plateau
_MAX_ENTRIES = 2**20  # entries of inputs kept in all (8 MB), with many outputs and inputs


class Plateau(NamedTuple):
    """An extreme output that a model gave at several distinct inputs.

    Attributes
    ----------
    output : int
    side : {-1, 1}
        1 for the largest output, -1 for the smallest.
    value : float
    inputs : ndarray of shape (n, D)
        Some of the inputs that gave it, in the order of the queries.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle, Plateau
    >>> oracle = Oracle(lambda X: np.minimum(X.sum(axis=1), 1.0), 2)
    >>> _ = oracle(np.arange(-6.0, 12.0).reshape(9, 2))
    >>> plateau = oracle.extremes.plateaus()[0]
    >>> print(isinstance(plateau, Plateau), plateau.side, plateau.value)
    True 1 1.0
    """

    output: int
    side: int
    value: float
    inputs: np.ndarray


class Extremes:
    """Extremes of every output so far, in the model's own units.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle.extremes import Extremes
    >>> extremes, X = Extremes(), np.arange(8.0)[:, None]
    >>> extremes.update(X, np.minimum(X, 4.0))
    >>> [(plateau.side, plateau.value, len(plateau.inputs)) for plateau in extremes.plateaus()]
    [(1, 4.0, 4)]
    """

    def __init__(self):
        self._values, self._inputs, self._max_inputs = None, {}, _MAX_INPUTS

    def update(self, X, Y):
        """Include more outputs.

        Parameters
        ----------
        X : ndarray of shape (n, D)
        Y : ndarray of shape (n, m_L)
        """
        if self._values is None:
            self._values = np.full((2, Y.shape[1]), -np.inf)
            self._full = np.zeros(self._values.shape, dtype=bool)
            self._max_inputs = int(np.clip(_MAX_ENTRIES // (2 * Y.shape[1] * X.shape[1]), _MIN_INPUTS, _MAX_INPUTS))
        top = np.stack([-Y.min(axis=0), Y.max(axis=0)])
        for which in np.argwhere((top > self._values) | ((top == self._values) & ~self._full)):
            side, output = (int(i) for i in which)
            new = X[Y[:, output] == (2 * side - 1) * top[side, output]]
            if top[side, output] == self._values[side, output]:
                new = np.concatenate([self._inputs[side, output], new])
            self._values[side, output] = top[side, output]
            self._inputs[side, output] = kept = _distinct(new, self._max_inputs)
            self._full[side, output] = len(kept) >= self._max_inputs

    def plateaus(self):
        """Extremes that at least three distinct inputs share.

        Returns
        -------
        list of Plateau
            Sorted by output.
        """
        plateaus = []
        for (side, output), inputs in sorted(self._inputs.items(), key=lambda item: item[0][::-1]):
            if len(inputs) >= _MIN_INPUTS:
                sign = 2 * side - 1
                plateaus.append(Plateau(output, sign, float(sign * self._values[side, output]), inputs))
        return plateaus


def _distinct(X, at_most):
    """The first distinct rows of X, at most so many."""
    kept = {}
    for row in X:
        if len(kept) == at_most:
            break
        kept.setdefault(row.tobytes(), row)
    return np.array(list(kept.values()))
