"""Deep networks through given answers: wide fits whose units start small, then pruned."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from skident.optim import best_of

from .eliminated_readout import fit_hidden_layers
from .pruning import PROMISING, prune_to
from .starts import Search, network_through, random_network

__all__ = ["network_from_small_starts", "small_starts_serve"]

_ROUNDS = ((1.5, 12), (2.0, 100))  # how much wider, and how many starts
_WEIGHTS, _SHIFTS = 0.25, 1.0 / 6.0  # of a start's hidden layers, beside those of `random_network`
_ROWS = 3.0  # answers a parameter of the wide network
_MOST = 3000  # parameters of it: a step costs their square times the answers


def small_starts_serve(n_inputs, architecture):
    """Whether `network_from_small_starts` can fit such networks.

    Parameters
    ----------
    n_inputs : int
    architecture : Architecture

    Returns
    -------
    bool
        Two hidden layers or more, a linear output, and a wide network of at most 3000 parameters.
    """
    deep = len(architecture.widths) >= 3 and architecture.output_activation == "identity"
    return deep and _wider(architecture, _ROUNDS[0][0]).n_parameters(n_inputs) <= _MOST


def network_from_small_starts(draw_answers, n_inputs, architecture, rng, *, search=None):
    """A network of given widths through the answers of another, from wide starts with small weights.

    Parameters
    ----------
    draw_answers, n_inputs, architecture, rng, search
        See `network_through`; the output is linear.

    Returns
    -------
    network : FeedforwardNetwork
        The best found.
    misfit : float

    Raises
    ------
    ValueError
        If the output is not linear.

    Notes
    -----
    Units that start with small weights are nearly linear, and all alike; the fit makes them different one after the
    other, as the answers ask for them, which avoids most local minima: of networks 1.5 times as wide as the truth,
    (10, 8, 1), 11 of 12 starts came below a misfit of 2e-3 on faces of the cube, 3 of 12 with ordinary weights. On
    vertices alone pruning then led to the truth from 4 of 12, and from 1 of 12 with the output layer among the
    parameters. ``O(n P^2)`` a step with the wide network's P parameters, 3 answers for each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.small_starts import network_from_small_starts
    >>> from skident.network import Architecture
    >>> truth = make_network((5, 4, 3, 1), output_activation="identity", shift_scale=0.3, random_state=0)
    >>> U = np.random.default_rng(0).uniform(-1.0, 1.0, (2000, 5))
    >>> _, misfit = network_from_small_starts(
    ...     lambda n: (U[:n], truth(U[:n])), 5, Architecture((4, 3, 1), "tanh"), np.random.RandomState(0))
    >>> print(misfit < 1e-9)
    True
    """
    if architecture.output_activation != "identity":
        raise ValueError(f"output_activation={architecture.output_activation!r}: only linear outputs are eliminated.")
    search = Search() if search is None else search

    def attempts():
        done = 0
        for factor, n_starts in _ROUNDS:
            wide = _wider(architecture, factor)
            n_starts = min(n_starts, search.n_starts - done)
            if n_starts <= 0 or (done and (search.spent or wide.n_parameters(n_inputs) > _MOST)):
                return
            U, Y = draw_answers(30 + int(_ROWS * wide.n_parameters(n_inputs) / architecture.n_outputs))
            start = functools.partial(_one_start, U, Y, architecture, wide, search.tol, search.deadline)
            yield from search.results(start, rng.randint(2**31 - 1, size=n_starts), done)
            done += n_starts

    (network, misfit), _ = best_of(attempts(), lambda found: found[1], lambda misfits: misfits[-1] < search.tol)
    if network is None:  # no start got anywhere: something of these widths
        one = replace(search, n_starts=1)
        return network_through(draw_answers, n_inputs, architecture, rng, search=one, rounds=((1.0, 1),))
    return network, misfit


def _one_start(U, Y, architecture, wide, tol, deadline, seed):
    """A network of the widths asked for and its misfit; None where the wide one gets nowhere."""
    drawn = random_network(U.shape[1], wide, np.random.RandomState(seed))
    weights = [*(_WEIGHTS * W for W in drawn.weights[:-1]), drawn.weights[-1]]
    start = drawn.with_parameters(weights, [_SHIFTS * b for b in drawn.biases])
    network, misfit = fit_hidden_layers(start, U, Y, deadline=deadline)
    if misfit > PROMISING:
        return None, np.inf
    return prune_to(network, U, Y, architecture.widths, tol=tol, deadline=deadline)


def _wider(architecture, factor):
    """All hidden layers wider by a factor."""
    *hidden, n_outputs = architecture.widths
    return architecture.with_widths((*[int(np.ceil(factor * m)) for m in hidden], n_outputs))
