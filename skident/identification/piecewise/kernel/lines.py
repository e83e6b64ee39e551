"""Lines through input space, tables of points on them, and where two linear pieces meet."""

from dataclasses import dataclass

import numpy as np


class Table:
    """A dataclass whose fields are arrays with one row per item.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.kernel.lines import CriticalPoints
    >>> critical = CriticalPoints(np.eye(3), np.eye(3), np.array([3.0, 1.0, 2.0]))
    >>> print(len(critical), critical.take(critical.errors < 2.5).joined(critical).errors)
    3 [1. 2. 3. 1. 2.]
    """

    @classmethod
    def stacked(cls, parts):
        """One table from a list of at least one."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def __len__(self):
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def take(self, index):
        """The rows of an index array, mask or slice."""
        return type(self)(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def joined(self, other):
        """These rows followed by those of another table."""
        return self.stacked([self, other])


@dataclass(frozen=True)
class Line:
    """One line ``origin + t direction``, with ``|t| <= reach`` or ``reach = (low, high)``."""

    origin: np.ndarray  # (D,)
    direction: np.ndarray  # (D,), norm 1
    reach: float | tuple

    @property
    def ends(self):
        """``(low, high)``."""
        return self.reach if isinstance(self.reach, tuple) else (-self.reach, self.reach)

    def at(self, t):
        """Points (n, D) at positions t (n,)."""
        return self.origin + t[:, None] * self.direction


@dataclass(frozen=True)
class Segments(Table):
    """Many lines ``origin + t direction`` with ``low <= t <= high``."""

    origins: np.ndarray  # (n, D)
    directions: np.ndarray  # (n, D), norm 1
    low: np.ndarray  # (n,)
    high: np.ndarray  # (n,)

    def at(self, line, t):
        """Points (k, D) or (k, q, D) at positions t (k,) or (k, q) of the lines with indices `line` (k,)."""
        if t.ndim == 1:
            return self.origins[line] + t[:, None] * self.directions[line]
        return self.origins[line][:, None] + t[:, :, None] * self.directions[line][:, None]


@dataclass(frozen=True)
class CriticalPoints(Table):
    """Points on activation boundaries (Carlini et al. 2020) with the normals of the boundaries there."""

    points: np.ndarray  # (k, D)
    normals: np.ndarray  # (k, D), norm 1
    errors: np.ndarray  # (k,), of the normals


def meeting_point(a, f_a, slope_a, b, f_b, slope_b):
    """Where linear pieces through (a, f_a) and (b, f_b) are closest to each other (n,), and their jump in slope.

    Shapes: a, b (n,); values and slopes (n, m_L).
    """
    jump = slope_b - slope_a
    rise = f_b - f_a - slope_b * (b - a)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return a - np.sum(jump * rise, axis=1) / np.sum(jump**2, axis=1), jump


def gaps_on_segments(lines, line, t):
    """Distances (k,) of sorted positions t on lines from their neighbors on the same line, and from its ends."""
    if len(t) == 0:
        return t
    gap = np.where(line[1:] == line[:-1], t[1:] - t[:-1], np.inf)
    before, after = np.append(np.inf, gap), np.append(gap, np.inf)
    ends = np.minimum(t - lines.low[line], lines.high[line] - t)
    return np.minimum(np.minimum(before, after), np.maximum(ends, 1e-9))  # a point at the end of a line keeps a gap


def random_segments(probe, n, rng, *, reach, radii=(1.0,)):
    """n `Segments` in random directions through random points with spreads `radii`, within the input range.

    `reach` is their half length in units of ``sqrt(D)``.
    """
    oracle, D = probe.oracle, probe.oracle.n_inputs
    origins = rng.choice(radii, (n, 1)) * rng.standard_normal((n, D))
    V = rng.standard_normal((n, D))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    high = np.full(n, reach * np.sqrt(D))
    low = -high
    if oracle.input_range is not None:
        origins = oracle.clip_to_range(origins)
        bounds = np.stack([oracle.from_inputs(bound) for bound in oracle.input_range])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (bounds[:, None] - origins) / V
        # An input that the line does not change, at its bound, does not end it.
        t = np.where(np.isnan(t), np.array([-np.inf, np.inf])[:, None, None], t)
        high = np.minimum(high, t.max(axis=0).min(axis=1) * (1.0 - 1e-12))  # within rounding of the clipping
        low = np.maximum(low, t.min(axis=0).max(axis=1) * (1.0 - 1e-12))
    return Segments(origins, V, low, high)
