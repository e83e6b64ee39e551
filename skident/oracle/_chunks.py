"""`ChunkSize`: rows per call of a black box, limited by memory and by the time budget."""

from __future__ import annotations

import math
import time

from skident.budget import rows_at_once
from skident.budget.constants import CHUNK_COPIES

_MAX_SHARE = 0.05  # of max_seconds per chunk, since the budget is only checked between chunks
_MIN_SECONDS = 0.01  # duration from which a chunk measures the time per row, not the overhead of a call


class ChunkSize:
    """Split rows into chunks that fit into memory and, for a slow black box, into a share of max_seconds."""

    def __init__(self, n_inputs, max_seconds):
        self.row_bytes = 8 * CHUNK_COPIES * n_inputs
        self.max_seconds = math.inf if max_seconds is None else _MAX_SHARE * max_seconds
        self.seconds_per_row = 0.0

    def chunks(self, n, max_rows):
        """Yield slices of n rows; the time until the next one is requested is taken as the black box's."""
        first = 0
        while first < n:
            rows = slice(first, min(first + self._n_rows(max_rows), n))
            began, first = time.perf_counter(), rows.stop
            yield rows
            self._record(rows.stop - rows.start, time.perf_counter() - began)

    def _n_rows(self, max_rows):
        n = rows_at_once(self.row_bytes, at_most=max_rows)
        return (
            n if self.seconds_per_row * n <= self.max_seconds else max(1, int(self.max_seconds / self.seconds_per_row))
        )

    def _record(self, n, seconds):
        if seconds > _MIN_SECONDS or self.seconds_per_row:
            self.seconds_per_row = min(self.seconds_per_row or math.inf, seconds / n)
