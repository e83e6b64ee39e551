"""Tables: dataclasses of arrays with one row an item."""

from __future__ import annotations

import numpy as np

__all__ = ["Rows"]


class Rows:
    """A dataclass of which every field is an array of the same number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.kernel.segments import KinkSet
    >>> kinks = KinkSet(np.eye(3), np.eye(3), np.array([3.0, 1.0, 2.0]))
    >>> print(len(kinks), kinks.take(kinks.errors < 2.5).joined(kinks).errors)
    3 [1. 2. 3. 1. 2.]
    """

    @classmethod
    def stacked(cls, parts):
        """Several tables as one.

        Parameters
        ----------
        parts : list of Rows
            Of this class; at least one.

        Returns
        -------
        Rows
        """
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def __len__(self):
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def take(self, index):
        """Some of the rows.

        Parameters
        ----------
        index : ndarray or slice
            Of integers or booleans.

        Returns
        -------
        Rows
        """
        return type(self)(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def joined(self, other):
        """These rows and others.

        Parameters
        ----------
        other : Rows

        Returns
        -------
        Rows
        """
        return self.stacked([self, other])
