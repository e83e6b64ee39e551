"""What a black box was asked in an audit, and how exact its answers are."""

from __future__ import annotations

import numpy as np

from skident.oracle import BlackBoxError

from .inputs import InputBox, candidate_inputs, chosen_inputs, inputs_on_both_sides
from .parameters import ParameterEffects
from .rounding import Arithmetic, numbers_of, rounding_of_answers

__all__ = ["FEWEST_ROWS", "AskedRows"]

_EACH, _EACH_IN_ALL, _OTHERS = (3, 12), 6000, 64  # rows a unit in the first round, of all units together, and besides
_REPEATED, _NOISY_REPEATS = 4, 16  # rows asked twice to see whether answers come again; as many more if they do not
FEWEST_ROWS = 4 * _REPEATED
_SIGMAS = 8.0  # standard deviations of rounding or noise that count as the same
_ROUNDINGS = 16.0  # of the largest answer, by which answers that come again may differ
_TOO_FEW = 1.3  # a deviation measured by twenty numbers may be too small by as much
_MOST_WORK = 2e9  # multiplications spent on candidates
_CANDIDATES = 4  # candidates a row asked


class AskedRows:
    """Rows asked so far, their answers, and by how much these may differ.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        That is known.
    X : ndarray of shape (n, D)
        Where the black box is used.
    tol : float or None
        Largest difference, over the standard deviation of that output's answers, that still counts as the same.
    most : int
        Rows asked at most, `FEWEST_ROWS` at least.
    single : bool
        Whether the black box computes in double precision with weights that are rounded to single.

    Attributes
    ----------
    X : ndarray of shape (k, D)
        Rows asked.
    Y, tolerance : ndarray of shape (k, m_L)
        Answers, and what they may differ by.
    box : InputBox
    unseen : list of (layer, unit)
        Units that rest at every candidate.
    kind : str
        The numbers in which answers come, or ``noise``.
    """

    def __init__(self, oracle, network, X, tol, most, single):
        self._oracle, self.network, self._tol, self._most, self._single = oracle, network, tol, most, single
        self._rows, self.box = X, InputBox.of(X)

    def first(self, rng):
        """The first round, at inputs where units show; how the black box computes; which units rest everywhere.

        Parameters
        ----------
        rng : numpy.random.RandomState

        Raises
        ------
        ValueError
            If the black box has another number of outputs than the network.
        BlackBoxError
            If it fails.
        """
        n_units, left = sum(self.network.layer_widths[:-1]), self._most - 2 * _REPEATED
        n_each = int(np.clip(_EACH_IN_ALL // max(n_units, 1), *_EACH))
        n = min(n_each * n_units + _OTHERS, left)
        work = self.network.n_parameters * (1 + self.network.n_outputs)
        many = int(np.clip(_MOST_WORK // work, n, max(_CANDIDATES * n, 512)))
        drawn = candidate_inputs(self._rows, self.box, many, rng)
        drawn = inputs_on_both_sides(self.network, drawn, self.box, rng)
        effects = self._effects(drawn, np.ones((len(drawn), self.network.n_outputs)))
        hidden = range(self.network.n_layers - 1)
        resting = [np.flatnonzero(effects.strength(layer).max(axis=0) == 0) for layer in hidden]
        self.unseen = [(layer, int(unit)) for layer, units in enumerate(resting) for unit in units]
        self.X = drawn[chosen_inputs(effects, n, n_each, rng)]
        self.Y, self._error = self._oracle.ask(self.X)
        wanted, given = self.network.n_outputs, self.Y.shape[1]
        if wanted != given:
            raise ValueError(f"the black box gives {given} output(s), the network {wanted}.")
        self.arithmetic = self._measured(self._oracle(self.X[:_REPEATED]))
        self._settle()

    def more(self, rng):
        """As many other rows as may be asked.

        Parameters
        ----------
        rng : numpy.random.RandomState

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        left = self._most - self._oracle.n_queries - _REPEATED
        if left <= 0:
            return
        X = candidate_inputs(self._rows, self.box, left, rng)[rng.permutation(left)]
        Y, error = self._oracle.ask(X)
        self.X, self.Y, self._error = np.vstack([self.X, X]), np.vstack([self.Y, Y]), np.append(self._error, error)
        self._settle()

    def compared(self):
        """Effects of the parameters at what was asked, and the largest difference over its tolerance.

        Returns
        -------
        effects : ParameterEffects
        excess : float
        """
        effects = self._effects(self.X, self.tolerance)
        return effects, float(np.max(np.abs(self.Y - effects.answers) / self.tolerance))

    def _effects(self, X, tolerance):
        centred = self._oracle.response == "predict_proba" and self.network.n_outputs > 1
        return ParameterEffects(self.network, X, tolerance, centred)

    def check_drift(self):
        """Refuse a black box that answers otherwise than before.

        Raises
        ------
        BlackBoxError
            If it does.
        """
        again = self._oracle(self.X[:_REPEATED])
        gap = np.abs(again - self.Y[:_REPEATED]) / (2.0 * self.tolerance[:_REPEATED])
        if gap.max() > 1.0:
            raise BlackBoxError(
                f"the black box changed while it was audited: asked again in the end, it answered otherwise by "
                f"{np.abs(again - self.Y[:_REPEATED]).max():.1e}. Audit a model that stays as it is."
            )

    @property
    def n_queries(self):
        """Rows asked."""
        return self._oracle.n_queries

    def _measured(self, again):
        """The numbers in which answers come, and their noise if they do not come again."""
        oracle, Y = self._oracle, self.Y
        proba = oracle.response == "predict_proba"
        kind, decimals = oracle.precision if proba else numbers_of(Y, self.network(self.X))
        gap, largest = Y[: len(again)] - again, np.abs(Y).max(axis=0)
        unit = np.finfo(np.float32 if kind == "float32" else np.float64).eps
        noise = np.zeros(Y.shape[1])
        if np.any(np.abs(gap) > _ROUNDINGS * unit * largest + self._error[: len(again), None]):
            room = max(0, min(_NOISY_REPEATS, self._most - oracle.n_queries - _REPEATED, len(self.X)))
            gap = np.vstack([gap, Y[:room] - oracle(self.X[:room])])
            noise = _TOO_FEW * np.sqrt(np.mean(gap**2, axis=0) / 2.0)
        if kind == "float64" and self._single:
            kind = "float32"
        self.kind = "noise" if noise.any() else kind
        return Arithmetic(kind, decimals, kind == "float32" or self._single, noise)

    def _settle(self):
        """Tolerances of all answers."""
        network, of = self.network, self.arithmetic
        own = rounding_of_answers(network, self.X, single=False)
        theirs = rounding_of_answers(network, self.X, single=True) if of.single else own
        tolerance = _SIGMAS * np.sqrt(own**2 + theirs**2 + of.noise**2) + self._error[:, None]
        step = of.spacing(self.Y) if self._oracle.response == "predict" else np.zeros(self.Y.shape)
        if step.any():  # what was computed in single precision before may round to the next number
            single = rounding_of_answers(network, self.X, single=True)
            tolerance += 0.5 * step + np.minimum(_SIGMAS * single, 0.5 * step)
        if self._tol is not None:
            tolerance = np.maximum(tolerance, self._tol * self.Y.std(axis=0))
        self.tolerance = tolerance
