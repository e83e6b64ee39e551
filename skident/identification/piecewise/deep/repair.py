"""A network that was found: its polish, its errors on fresh probe, and the kinks beside them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.fitting.polish import polish_network
from skident.network import FeedforwardNetwork

from ..kernel.gradient import normals_at
from ..kernel.lines import CriticalPoints, Segments, gaps_on_segments
from ..kernel.locate import scan_segments
from ..kernel.robust_fit import NOISY
from .readout import hidden_outputs, spread_points

__all__ = [
    "Asked",
    "errors_of",
    "kinks_beside_errors",
    "more_answers",
    "polished",
    "pruned",
    "smaller_networks",
    "unexplained_kinks",
    "where_untested",
]

_FAR = (1.0, 3.0, 4.0, 6.0)  # spreads of the points that are looked at in the end
_PATHS = 6  # lines from right to wrong probe
_WRONG = 1e-9  # relative error that no rounding of a right network makes
_ROUNDINGS = 1e3
_EXACT = 30.0  # roundings by which an answer of an exact network is off at most
_UNSHARP, _MOSTLY = 30.0, 0.9  # over the accuracy of the better ones, and the share of probe that must not be so
_NOISES = 12.0  # and of noisy probe, in units of their noise
_ANSWERS, _ANSWERS_NOISY = 2.0, 10.0  # probe a parameter at which a network is polished
_DEVIATION = 0.5  # of noise, in its own units
_PRUNED = 2  # units at most without which a fit is tried at a time
_POOL, _POOL_SPREADS, _SEEN = 1_000_000, (1.0, 2.0, 3.0), 4  # numbers in points where weights matter; points a weight
_NEAREST = 40  # points that tell of a weight which was not tested
_MOST = 0.6  # share of probe that fit from which on a network is polished on these alone


def unexplained_kinks(probe, lines, explain, n_intervals, rng):
    """Kinks on lines that nothing explains, with their normals.

    Parameters
    ----------
    probe : DeepProbe
    lines : Segments
    explain : callable
        Of points (n, D): which of them lie on kinks that are known.
    n_intervals : int
        Parts of a line at first.
    rng : numpy.random.RandomState

    Returns
    -------
    CriticalPoints

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    line, t = scan_segments(probe, lines, rng, n_intervals=n_intervals)
    points, rooms = lines.at(line, t), gaps_on_segments(lines, line, t)
    new = ~explain(points)
    return normals_at(probe, points[new], lines.directions[line[new]], rooms[new], rng)[0]


def polished(probe, network, rng, told=None):
    """A network fitted to probe at points where all its weights matter, or as it was where that does not help.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
        In the units of `probe`.
    rng : numpy.random.RandomState
    told : Asked, default=None
        Further probe to fit.

    Returns
    -------
    FeedforwardNetwork

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    noisy = probe.resolution > NOISY
    n = int((_ANSWERS_NOISY if noisy else _ANSWERS) * network.n_parameters / network.n_outputs) + 50
    asked = _sharp_answers(probe, network, n, rng)
    X, F, tol = asked if told is None else asked.joined(told)
    error = np.abs(network(X) - F).max(axis=1)
    good = np.isfinite(tol) & (error < max(1e-4 / probe.resolution, 1e3))
    if not noisy and np.all(error[good] < _EXACT * tol[good]):  # what is wrong is so for want of units
        return network
    if good.sum() * network.n_outputs < 1.2 * network.n_parameters:
        return network
    better = polish_network(network, X[good], F[good], noise=_DEVIATION if noisy else None)[0]
    if noisy:  # where a kink was on the wrong side of a point, it is on the right one now
        fits = np.isfinite(tol) & (np.abs(better(X) - F).max(axis=1) < _NOISES * tol)
        if fits.mean() > _MOST:
            better = polish_network(better, X[fits], F[fits], noise=_DEVIATION)[0]
    after = np.abs(better(X) - F).max(axis=1)
    return better if np.median(after) <= np.median(error) else network


def _where_weights_matter(probe, network, X, rng):
    """Points at which weights move the probe that do so at few of those given."""
    D, slope = probe.n_inputs, getattr(network.activations[0], "negative_slope", 0.0)
    pool = probe.oracle.clip_to_range(rng.choice(_POOL_SPREADS, (_POOL // D, 1)) * rng.standard_normal((_POOL // D, D)))
    seen, available = (_traffic(network, points, slope) for points in (X, pool))
    chosen = []
    for (inner, outer), (inner_pool, outer_pool) in zip(seen, available, strict=True):
        for i, k in np.argwhere(inner.T @ outer < _SEEN):
            chosen.append(np.flatnonzero(inner_pool[:, i] * outer_pool[:, k])[:_SEEN])
    chosen = np.unique(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=int)
    return pool[rng.permutation(chosen)[: len(X)]]


def where_untested(probe, network, X, rng):
    """Points that tell of weights which do not matter at those given, as the network is: its unit nearly on there.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
        In the units of `probe`.
    X : ndarray of shape (n, D)
        At which it was right.
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (k, D)
        For every such weight, up to 40 points where its input is on; as many as those given at most.
    """
    D, slope, chosen = probe.n_inputs, getattr(network.activations[0], "negative_slope", 0.0), []
    pool = probe.oracle.clip_to_range(rng.choice(_FAR, (_POOL // D, 1)) * rng.standard_normal((_POOL // D, D)))
    pairs, H = _traffic(network, X, slope)[::-1], pool
    for layer, (W, b) in enumerate(zip(network.weights[:-1], network.biases[:-1], strict=True)):
        Z = H @ W + b
        check_deadline()
        for i, k in np.argwhere(pairs[layer - 1][0].T @ pairs[layer - 1][1] < _SEEN) if layer else ():
            on = np.flatnonzero(H[:, i] > 0)
            chosen.append(on[np.argsort(-Z[on, k] / H[on, i])[:_NEAREST]])
        H = np.maximum(Z, slope * Z)
    chosen = np.unique(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=int)
    return pool[rng.permutation(chosen)[: len(X)]]


def _traffic(network, X, slope):
    """For every layer but the first: where its inputs are on, and where its units are and reach the output."""
    H, before, on = X, [], []
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        before.append(H > 0)
        Z = H @ W + b
        on.append((Z > 0).astype(np.float32))
        H = np.maximum(Z, slope * Z)
    back, pairs = np.abs(network.weights[-1]).sum(axis=1) > 0, []
    reached = np.broadcast_to(back, on[-1].shape).astype(np.float32)
    for layer in range(len(on) - 1, 0, -1):
        outer = on[layer] * reached
        pairs.append((before[layer].astype(np.float32), outer))
        reached = (outer @ (network.weights[layer] != 0).T.astype(np.float32) > 0).astype(np.float32)
    return pairs


def _sharp_answers(probe, network, n, rng):
    """About n probe at random points and where weights matter, without those far less accurate than others.

    Log-odds are uncertain where a probability is near 1, all over one side of the decision boundary.
    """
    layers = list(zip(network.weights[:-1], network.biases[:-1], strict=True))
    asked, sharp = None, np.zeros(1, dtype=bool)
    for _ in range(2):
        if sharp.mean() < _MOSTLY:
            X = spread_points(probe, layers, n, rng)
            fresh = Asked(X, *probe.query(X))
            asked = fresh if asked is None else asked.joined(fresh)
            limit = _UNSHARP * np.sort(asked.tol)[len(asked.tol) // 4]
            sharp = asked.tol <= limit
    X = _where_weights_matter(probe, network, asked.X[sharp], rng)
    asked = asked.joined(Asked(X, *probe.query(X)))
    return Asked(*(part[asked.tol <= limit] for part in asked))


def pruned(probe, network, asked, rng):
    """A network without units of its last hidden layer that noisy probe do not show.

    Where the probe are noisy, a unit may be found twice, or a linear part be taken for what units are off by.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
        In the units of `probe`; one that explains them.
    asked : Asked
        DeepProbe by which a smaller network is judged.
    rng : numpy.random.RandomState

    Returns
    -------
    FeedforwardNetwork

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    while network.layer_widths[-2] > 2:
        for candidate in smaller_networks(probe, network, rng):
            candidate = polished(probe, candidate, rng)
            if not np.any(errors_of(probe, candidate, asked)[1] > 1.0):
                network = candidate
                break
        else:
            return network
    return network


def smaller_networks(probe, network, rng):
    """The networks that explain probe best without some units of the last hidden layer, output weights fitted anew.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
        In the units of `probe`.
    rng : numpy.random.RandomState

    Returns
    -------
    list of FeedforwardNetwork
        Two at most, the better one first.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    layers = list(zip(network.weights[:-1], network.biases[:-1], strict=True))
    X = spread_points(probe, layers, 10 * network.layer_widths[-2] + 50, rng)
    F, tol = probe.query(X)
    X, F, tol = (v[np.isfinite(tol)] for v in (X, F, tol))
    smaller = [_without(network, units, X, F, tol) for units in _sets_of_units(network)]
    return [candidate for _, candidate in sorted(smaller, key=lambda pair: pair[0])[:_PRUNED]]


def _sets_of_units(network):
    """Single units of the last hidden layer, and pairs that stand for a linear part."""
    V = np.vstack([network.weights[-2], network.biases[-2]])
    V = V / np.maximum(np.linalg.norm(V, axis=0), np.finfo(float).tiny)
    pairs = np.argwhere(np.triu(V.T @ V < -0.99, 1))
    return [[k] for k in range(V.shape[1])] + [list(pair) for pair in pairs]


def _without(network, units, X, F, tol):
    """The misfit of a network without some units, its output weights fitted anew, and that network."""
    *W, _ = (w.copy() for w in network.weights)
    *b, _ = (v.copy() for v in network.biases)
    W[-1], b[-1] = np.delete(W[-1], units, axis=1), np.delete(b[-1], units)
    H = np.column_stack([hidden_outputs(list(zip(W, b, strict=True)), X), np.ones(len(X))])
    out = np.linalg.lstsq(H / tol[:, None], F / tol[:, None], rcond=1e-12)[0]
    misfit = np.median(np.abs(H @ out - F).max(axis=1) / tol)
    return misfit, FeedforwardNetwork([*W, out[:-1]], [*b, out[-1]], network.activation)


class Asked(NamedTuple):
    """DeepProbe by which networks are judged.

    Attributes
    ----------
    X : ndarray of shape (n, D)
    F : ndarray of shape (n, m_L)
    tol : ndarray of shape (n,)
        Infinite where the answer is lost.
    """

    X: np.ndarray
    F: np.ndarray
    tol: np.ndarray

    def joined(self, other):
        """These probe and others.

        Parameters
        ----------
        other : Asked

        Returns
        -------
        Asked
        """
        return Asked(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def more_answers(probe, asked, n, rng):
    """Outputs at n random points, with those there are already: they tell of later networks too.

    Parameters
    ----------
    probe : DeepProbe
    asked : Asked or None
    n : int
    rng : numpy.random.RandomState

    Returns
    -------
    Asked

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    X = spread_points(probe, [], n if asked is None else max(n - len(asked.X), 0), rng, radii=_FAR)
    fresh = Asked(X, *probe.query(X))
    return fresh if asked is None else asked.joined(fresh)


def errors_of(probe, network, asked):
    """Errors of a network, over what rounding and the last digits of a right one explain.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
        In the units of `probe`.
    asked : Asked

    Returns
    -------
    X : ndarray of shape (k, D)
        Those of the points that are answered.
    error : ndarray of shape (k,)
        Above 1 where the network is wrong.
    """
    clear = np.isfinite(asked.tol)
    X, F, tol = (part[clear] for part in asked)
    error = np.abs(network(X) - F).max(axis=1)
    if probe.resolution > NOISY:
        return X, error / (_NOISES * tol)
    return X, error / np.maximum(_WRONG / probe.resolution, _ROUNDINGS * tol)


def kinks_beside_errors(probe, network, X, error, rng):
    """Kinks that are none of a network's, between points where it is wrong and the nearest where it is right.

    Parameters
    ----------
    probe : DeepProbe
    network : FeedforwardNetwork
    X : ndarray of shape (n, D)
    error : ndarray of shape (n,)
        See `errors_of`.
    rng : numpy.random.RandomState

    Returns
    -------
    CriticalPoints

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    right, wrong = np.flatnonzero(error < 0.1), np.flatnonzero(error > 1.0)
    if len(right) == 0 or len(wrong) == 0:
        return CriticalPoints(X[:0], X[:0], error[:0])
    wrong = rng.permutation(np.resize(wrong, max(_PATHS, len(wrong))))[:_PATHS]
    apart = np.linalg.norm(X[right][:, None] - X[wrong], axis=2)
    # The nearest right point, or the next ones where a wrong point comes again.
    rank = np.array([np.sum(wrong[:i] == w) for i, w in enumerate(wrong)])
    start = right[np.argsort(apart, axis=0)[rank % len(right), np.arange(len(wrong))]]
    V = X[wrong] - X[start]
    length = np.linalg.norm(V, axis=1)
    lines = Segments(X[start], V / length[:, None], np.zeros(len(V)), 1.3 * length)

    near = max(1e-6, 300.0 * probe.resolution)

    def explain(points):
        known, H = np.zeros(len(points), dtype=bool), points
        for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
            Z = H @ W + b
            H = network.activations[0](Z)
            if len(points):
                known |= np.abs(Z).min(axis=1) < near * np.median(np.abs(Z))
        return known

    return unexplained_kinks(probe, lines, explain, 8, rng)
