"""A network that was read from its layers: polished, and judged by fresh probe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.network import FeedforwardNetwork

from ..kernel.robust_fit import NOISY
from .repair import Asked, errors_of, more_answers, polished, pruned, smaller_networks, where_untested

__all__ = ["Judged", "judge"]

_FEW = 0.02  # share of wrong probe up to which a network without linear part is preferred, of noisy probe
_SOME = 0.5  # and up to which one is polished on these as well
_ROUNDS = 4  # of polish on probe that were wrong


@dataclass(frozen=True)
class Judged:
    """A polished network and how much of fresh probe it explains.

    Attributes
    ----------
    network : FeedforwardNetwork
        In the units of `DeepProbe`.
    linear : ndarray of shape (m_{L-1}, r)
        Inner weights of its pairs of units that stand for a linear part.
    asked : Asked
        The probe it was judged by.
    X : ndarray of shape (k, D)
        The points of these that are answered.
    error : ndarray of shape (k,)
        Above 1 where the network is wrong; see `errors_of`.
    """

    network: FeedforwardNetwork
    linear: np.ndarray
    asked: Asked
    X: np.ndarray
    error: np.ndarray

    @property
    def wrong(self):
        """Share of the probe that the network does not explain."""
        return float(np.mean(self.error > 1.0)) if len(self.error) else 1.0

    def beside(self, probe, others):
        """The same network, judged by other probe too.

        Parameters
        ----------
        probe : DeepProbe
            Whose units those are.
        others : Asked

        Returns
        -------
        Judged
        """
        return _compared(probe, self.network, self.linear, self.asked.joined(others))


def judge(probe, readout, asked, n_check, rng):
    """The network of a readout, polished; without its linear part where that only makes up for weights that are off.

    Parameters
    ----------
    probe : DeepProbe
    readout : Readout
    asked : Asked or None
        DeepProbe there are.
    n_check : int
        DeepProbe that a network must explain, so many more where it was polished on some of them.
    rng : numpy.random.RandomState

    Returns
    -------
    Judged

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    none, noisy, best = readout.linear[:, :0], probe.resolution > NOISY, None
    for network, linear in _candidates(probe, readout, noisy, rng):
        found = _of_network(probe, network, linear, asked, n_check, rng)
        asked = found.asked
        best = found if best is None or found.wrong < best.wrong else best
        if best.wrong <= (_FEW if noisy else 0.0):
            break
    if noisy and not best.wrong:
        smaller = pruned(probe, best.network, best.asked, rng)
        return best if smaller is best.network else _compared(probe, smaller, none, best.asked)
    return best


def _candidates(probe, readout, noisy, rng):
    """Networks and their linear parts: first without these; of noisy probe, then without a unit that may be false."""
    if readout.plain is not None:
        none = readout.linear[:, :0]
        yield readout.plain, none
        if noisy and readout.plain.layer_widths[-2] > 2:
            yield from ((smaller, none) for smaller in smaller_networks(probe, readout.plain, rng))
    yield readout.network, readout.linear


def _of_network(probe, network, linear, asked, n_check, rng):
    """A network polished and judged; polished again on what was wrong by little, where that is not much."""
    best, told = None, None
    for _ in range(_ROUNDS):
        network = polished(probe, network, rng, told)
        for n in (n_check // 8, n_check):
            asked = more_answers(probe, asked, n, rng)
            found = _compared(probe, network, linear, asked)
            if found.wrong:
                break
        else:
            if probe.resolution <= NOISY:
                X = where_untested(probe, network, found.X, rng)
                found = found.beside(probe, Asked(X, *probe.query(X)))
                asked = found.asked
        gained = best is None or found.wrong < best.wrong
        best = found if gained else best
        if not gained or best.wrong == 0 or best.wrong > _SOME or probe.resolution > NOISY:
            break
        # On these it will be right; so many others must show that it is.
        told, n_check = _wrong_ones(best), n_check + len(asked.X)
    return best


def _compared(probe, network, linear, asked):
    X, error = errors_of(probe, network, asked)
    return Judged(network, linear, asked, X, error)


def _wrong_ones(judged):
    """Of the probe, the wrong ones."""
    wrong = np.flatnonzero(np.isfinite(judged.asked.tol))[judged.error > 1.0]
    return Asked(*(part[wrong] for part in judged.asked))
