"""How many rows a black box is given at once."""

from __future__ import annotations

import math
import time

from skident.budget import rows_at_once

_COPIES = 4  # of a chunk's inputs: standardised, as inputs, the black box's own, and what it makes of them
_SHARE = 0.05  # of max_seconds that a chunk may take, as the clock is looked at before it only
_MEASURED = 0.01  # seconds from which a chunk's duration is that of its rows, and not of the call


class Pace:
    """Chunks of rows that keep to the memory, and with a slow black box to the time.

    Parameters
    ----------
    n_inputs : int
        D.
    max_seconds : float or None
    """

    def __init__(self, n_inputs, max_seconds):
        self.row_bytes = 8 * _COPIES * n_inputs
        self.seconds = math.inf if max_seconds is None else _SHARE * max_seconds
        self.row_seconds = 0.0

    def chunks(self, n, at_most):
        """Slices of n rows; the time between two of them is taken for that of the black box.

        Parameters
        ----------
        n : int
        at_most : int
            Rows per slice.

        Yields
        ------
        slice
        """
        first = 0
        while first < n:
            rows = slice(first, min(first + self._rows(at_most), n))
            began, first = time.perf_counter(), rows.stop
            yield rows
            self._measure(rows.stop - rows.start, time.perf_counter() - began)

    def _rows(self, at_most):
        rows = rows_at_once(self.row_bytes, at_most=at_most)
        return rows if self.row_seconds * rows <= self.seconds else max(1, int(self.seconds / self.row_seconds))

    def _measure(self, n, seconds):
        if seconds > _MEASURED or self.row_seconds:
            self.row_seconds = min(self.row_seconds or math.inf, seconds / n)
