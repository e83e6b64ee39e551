"""Lines through regions where the outputs contradict the layers that are recovered so far."""

import functools

import numpy as np

from skident.budget.constants import TINY

from ...constants import SPREAD
from ...units.validation import extend_samples
from ..kernel.robust_fit import fit_outputs
from .critical_set import lines_between

_FIRST_SAMPLES = 3000  # outputs compared, and ratio to the most, if most networks are wrong at some of them
_MOST_SAMPLES = 12_000  # of which few are wrong: rare units (budget)
_FEW_WRONG = 12  # wrong outputs below which more samples are drawn
_CHOSEN = 6  # wrong outputs through which lines run
_JOINED = 3  # right ones that each is joined with
_AROUND = 150  # outputs around wrong ones, if these are fewer than through which lines run (budget)
_SPREADS = (0.03, 0.1, 0.3, 1.0)  # distances of these over that of the nearest right one
_COMPARED = 1000  # right ones among which it is the nearest (memory)
_PAIRS = 4  # of points beside these, per line


class ErrorLines:
    """Outputs of a model at random points, compared with those of the layers that are recovered so far.

    `options` are those of `fit_outputs`; `samples` are the `OutputSamples`.
    """

    def __init__(self, probe, rng, options):
        self.probe, self.rng, self.options, self.samples = probe, rng, options, None
        self.wrong, self.pairs, self.predict = None, None, None

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
            self.predict = functools.partial(_predicted, last, coef)
            self.errors = (A @ coef - F) / tol[:, None]
            self.wrong = self._are_wrong(self.errors)
            if self.wrong.sum() > _FEW_WRONG:
                break
        return 1.0 - float(np.mean(self.wrong))

    def take(self, validation):
        """Take over the samples of a `Validation`, and where its network is wrong."""
        lost = ~np.isfinite(validation.samples.tol)
        self.samples = validation.samples.take(~lost)
        self.predict, self.wrong = validation.network, validation.error > 1.0
        self.errors = (self.predict(self.samples.X) - self.samples.F) / self.samples.tol[:, None]

    def lines(self):
        """`Lines` through some wrong outputs and the nearest right ones."""
        X, errors, wrong = self.samples.X, self.errors, self.wrong
        if wrong.sum() < _CHOSEN:
            more = self._around(X[wrong], X[~wrong])
            X, errors, wrong = (np.concatenate(pair) for pair in zip((X, errors, wrong), more, strict=True))
        right, chosen = np.flatnonzero(~wrong), self._chosen(errors, wrong)
        apart = np.linalg.norm(X[right][:, None] - X[chosen], axis=2)
        nearest = right[np.argsort(apart, axis=0)[:_JOINED]]
        self.pairs = X[nearest.ravel()], X[np.tile(chosen, len(nearest))]
        return lines_between(*self.pairs)

    def _around(self, X, right):
        """Points around X (k, D), where outputs are wrong, as far as the nearest `right` ones; errors; which are wrong.

        Lines through few points have too few critical points of the unit that is missing.
        """
        X = np.resize(X, (_AROUND, X.shape[1]))
        right = right[self.rng.permutation(len(right))[:_COMPARED]]
        apart = np.linalg.norm(X[:, None] - right, axis=2).min(axis=1)
        size = self.rng.choice(_SPREADS, _AROUND) * apart / np.sqrt(X.shape[1])
        X = X + size[:, None] * self.rng.standard_normal(X.shape)
        F, tol = self.probe.query(X)
        errors = (self.predict(X) - F) / tol[:, None]
        return X, errors, self._are_wrong(errors)

    def _are_wrong(self, errors):
        return np.abs(errors).max(axis=1) > self.options["explained"]

    def beside(self, n_grid):
        """`Lines` beside the last ones, or None."""
        if self.pairs is None:
            return None
        one, other = (np.repeat(part, _PAIRS, axis=0) for part in self.pairs)
        size = SPREAD * np.linalg.norm(other - one, axis=1, keepdims=True) / np.sqrt(one.shape[1])
        one, other = (part + size * self.rng.standard_normal(part.shape) for part in (one, other))
        return lines_between(one, other, n_grid)

    def _chosen(self, errors, wrong):
        """Some wrong outputs, by different directions of their errors: those of one missing unit are often parallel."""
        wrong = self.rng.permutation(np.flatnonzero(wrong))
        E = errors[wrong]
        E = E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), TINY)
        found, nearness = [], np.zeros(len(wrong))
        for _ in range(min(_CHOSEN, len(wrong))):
            k = int(np.argmin(nearness))
            found.append(wrong[k])
            nearness = np.maximum(nearness, np.abs(E @ E[k]))
            nearness[k] = np.inf
        return np.array(found)


def _predicted(layer, coef, X):
    """Outputs (n, m_L) at points (n, D) from coefficients of what a `RecoveredLayer` adds to the one before."""
    H = layer.prefix.outputs(X)
    return np.column_stack([_sizes(layer, H)[0], H, np.ones(len(X))]) @ coef


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
