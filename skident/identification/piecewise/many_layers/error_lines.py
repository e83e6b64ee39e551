"""Lines through regions where the outputs contradict the layers that are recovered so far."""

from __future__ import annotations

import numpy as np

from ..deep.validation import extend_samples
from ..kernel.robust_fit import fit_outputs
from .critical_set import lines_between

__all__ = ["ErrorLines"]

_FIRST_SAMPLES = 3000  # outputs compared, and ratio to the most, if most networks are wrong at some of them
_MOST_SAMPLES = 12_000  # of which few are wrong: rare units (budget)
_FEW_WRONG = 12  # wrong outputs below which more samples are drawn
_CHOSEN = 6  # wrong outputs through which lines run
_NEAREST = 3  # right ones that each is joined with
_SPREAD = 0.3  # of pairs of points beside these, over their distance
_PAIRS = 4  # of these, per line
_TINY = np.finfo(float).tiny  # instead of zero, where something is divided by


class ErrorLines:
    """Outputs of a model at random points, compared with those of the layers that are recovered so far.

    `options` are those of `fit_outputs`; `samples` are the `OutputSamples`.
    """

    def __init__(self, probe, rng, options):
        self.probe, self.rng, self.options, self.samples = probe, rng, options, None
        self.wrong, self.pairs = None, None

    def right_share(self, layers):
        """Share of the outputs that are linear in what the last of some `RecoveredLayer`s adds to the one before."""
        last = layers[-1]
        for n in (_FIRST_SAMPLES, _MOST_SAMPLES):
            self.samples = extend_samples(self.probe, self.samples, n, self.rng)
            X, F, tol = self.samples
            H = last.prefix.outputs(X)
            sizes, certain = _sizes(last, H)
            certain &= last.prefix.certain(X)
            A = np.column_stack([sizes, H, np.ones(len(X))])
            # Rare units take part, too: not settled as soon as most outputs are explained.
            coef = fit_outputs(A[certain], F[certain], tol[certain], **{**self.options, "settled": 0.0})[0]
            self.errors = (A @ coef - F) / tol[:, None]
            self.wrong = np.abs(self.errors).max(axis=1) > self.options["explained"]
            if self.wrong.sum() > _FEW_WRONG:
                break
        return 1.0 - float(np.mean(self.wrong))

    def lines(self):
        """`Lines` through some wrong outputs and the nearest right ones."""
        X, (right, chosen) = self.samples.X, (np.flatnonzero(~self.wrong), self._chosen())
        apart = np.linalg.norm(X[right][:, None] - X[chosen], axis=2)
        nearest = right[np.argsort(apart, axis=0)[:_NEAREST]]
        self.pairs = X[nearest.ravel()], X[np.tile(chosen, len(nearest))]
        return lines_between(*self.pairs)

    def beside(self, n_grid):
        """`Lines` beside the last ones, or None."""
        if self.pairs is None:
            return None
        one, other = (np.repeat(part, _PAIRS, axis=0) for part in self.pairs)
        size = _SPREAD * np.linalg.norm(other - one, axis=1, keepdims=True) / np.sqrt(one.shape[1])
        one, other = (part + size * self.rng.standard_normal(part.shape) for part in (one, other))
        return lines_between(one, other, n_grid)

    def _chosen(self):
        """Some wrong outputs, by different directions of their errors: those of one missing unit are often parallel."""
        wrong = self.rng.permutation(np.flatnonzero(self.wrong))
        E = self.errors[wrong]
        E = E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), _TINY)
        found, nearness = [], np.zeros(len(wrong))
        for _ in range(min(_CHOSEN, len(wrong))):
            k = int(np.argmin(nearness))
            found.append(wrong[k])
            nearness = np.maximum(nearness, np.abs(E @ E[k]))
            nearness[k] = np.inf
        return np.array(found)


def _sizes(layer, H):
    """Absolute pre-activations (n, K) of a `RecoveredLayer` after outputs H (n, m), and where all are certain (n,).

    Where an input with an unknown weight is active and the unit keeps its sign, they lack a part that is linear in H.
    """
    unknown = ~np.array([unit.mask for unit in layer.units]).T
    kept = np.array([np.zeros(len(H[0])) if unit.kept is None else unit.kept for unit in layer.units]).T * unknown
    on, Z = (H != 0.0).astype(float), H @ layer.weights + layer.biases
    signs, count = on @ kept, on @ np.abs(kept)
    certain = ~np.any(on @ (unknown & (kept == 0.0)) > 0.0, axis=1) & np.all(np.abs(signs) == count, axis=1)
    return np.where(count > 0.0, np.sign(signs) * Z, np.abs(Z)), certain
