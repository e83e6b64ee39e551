"""Whether the outputs of a black box depend on the other rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["PROBE_ROWS", "BatchProbe", "probe_batches", "spread_rows"]

PROBE_ROWS = 4  # rows queried as one batch; the first half of them again, one at a time
_HALF = PROBE_ROWS // 2
_FALSE_ALARM = 1e-4  # probability that noise counts as batch dependence, which costs time but no correctness


@dataclass(frozen=True)
class BatchProbe:
    """Outputs of a few rows in one batch and one at a time.

    Attributes
    ----------
    Y : ndarray of shape (4, m_L)
        In one batch.
    half : ndarray of shape (2, m_L)
        Outputs of the first two rows, queried one at a time.
    """

    Y: np.ndarray
    half: np.ndarray

    @property
    def gap(self):
        """Differences of the first two rows' outputs, (2, m_L)."""
        return self.Y[:_HALF] - self.half

    def differs(self, rounding):
        """Whether the outputs differ by more than their rounding, ndarray of shape (m_L,)."""
        return bool(np.any(np.abs(self.gap) > rounding))

    def depends_on_batch(self, oracle, rows, rounding):
        """Whether batches, rather than noise, explain the difference.

        rows (4, D), rounding (m_L,).

        Six queries. An F-test of the difference between the batches against that between repetitions of a batch.
        """
        Y, half = oracle(rows), _one_by_one(oracle, rows)
        floor = np.maximum(rounding, np.finfo(float).tiny)
        repeated = np.vstack([self.Y - Y, self.half - half]) / floor
        between = 0.5 * (self.Y[:_HALF] + Y[:_HALF] - self.half - half) / floor
        noise = 0.5 * np.mean(repeated**2, axis=0) + 1.0  # at least the rounding, whose square is 1 here
        ratio = np.mean(between**2 / noise)
        return bool(ratio > stats.f.isf(_FALSE_ALARM, between.size, repeated.size))


def probe_batches(oracle, rows):
    """Query four rows as one batch, and the first two again, one at a time.

    rows (4, D).
    """
    return BatchProbe(oracle(rows), _one_by_one(oracle, rows))


def _one_by_one(oracle, rows):
    return np.vstack([oracle(row[None]) for row in rows[:_HALF]])


def spread_rows(X):
    """The rows in an order in which the first two have the smallest entries and the next two the largest.

    Dynamic quantization takes its scale from the largest entries of a batch, so the scale of the first two rows differs
    from that of the first four.

    X (n, D); returns (n, D).
    """
    order = np.argsort(np.abs(X).max(axis=1), kind="stable")
    first = np.concatenate([order[:_HALF], order[_HALF:][-_HALF:]])
    return X[np.concatenate([first, np.setdiff1d(np.arange(len(X)), first)])]
