"""A network read from its layers: polished, pruned, and validated on held-out outputs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import OUTPUTS_PER_PARAMETER, TINY
from skident.fitting.polish import polish_network
from skident.linalg import lapack
from skident.network import FeedforwardNetwork

from ..constants import FEWEST_UNITS, TIGHT_RANK_TOL
from ..piecewise.kernel.robust_fit import NOISY
from .readout import hidden_outputs, point_pool, spread_points

# Validation.
_RADII = (1.0, 3.0, 4.0, 6.0)  # spreads of held-out samples, in standard deviations of the inputs
_WRONG = 1e-9  # error of an output over its deviation that no rounding of a right network makes
_RIGHT = 0.1  # error over that of a wrong output below which one is right
_WRONG_ERRORS = 1e3  # `_WRONG` in errors of the output, which weights known to rounding amplify
_WRONG_NOISE = 12.0  # `_WRONG` for noisy outputs: six deviations, and as much for the fit
_FIRST_SHARE = 8  # divisor of the samples tested first: most wrong networks fail there
_FEW_WRONG = 0.02  # share of wrong noisy outputs up to which a network without linear part is preferred
_SOME_WRONG = 0.5  # share of wrong outputs up to which a network is polished on these as well
_HARDLY_WRONG = 0.01  # `_SOME_WRONG` below which it is polished only if some of these take part
_CHANGING_SHARE = 0.25  # of samples where missing units would show, over the others
_FEWEST_CHANGING = 300  # of these
_N_POLISHES = 4  # on outputs that were wrong
_DIRECTIONS = (1.0, 3.0, 6.0)  # distances along directions in which the units change most, in units of sqrt(D)
_FAR_SPREADS = (3.0, 6.0, 12.0)  # of samples beside those near the center, in standard deviations of the inputs
_BEYOND = (-1.0, 2.0)  # parts of the lines between two inputs on which there are samples
# Polish.
_OUTPUTS_NOISY = 10.0  # `OUTPUTS_PER_PARAMETER` for noisy outputs
_MORE_OUTPUTS = 50  # beyond these
_POLISHED_TOL = 1e-4  # relative error above which an output takes no part: a unit is missing there
_POLISHED_ERRORS = 1e3  # `_POLISHED_TOL` in errors of the output
_MOST_POLISHED = 5000  # parameters above which a fit takes minutes
_NEARLY_ALL = 0.98  # share of nearly right outputs below which so many parameters are not fitted: units are missing
_EXACT_ERRORS = 30.0  # errors by which an output of an exact network is off at most
_NOISE_STD = 0.5  # of noisy outputs, in units of the probe, whose errors bound 2 deviations
_FITTING_SHARE = 0.6  # of noisy outputs, above which a network is polished on these alone
_INACCURATE = 30.0  # accuracy over that of the better outputs above which one is left out
_MOSTLY = 0.9  # share of accurate outputs below which more are queried
_POOL_NUMBERS = 1_000_000  # entries of the points among which those are searched where weights matter
_POOL_SPREADS = (1.0, 2.0, 3.0)  # their spreads, in standard deviations of the inputs
_N_PER_WEIGHT = 4  # points at which a weight must change the outputs
_NEAREST = 40  # points per weight that is not tested
# Pruning.
_N_SMALLER = 2  # smaller networks tried at a time
_OUTPUTS_PER_UNIT = 10  # for fitting output weights again
_OPPOSITE = -0.99  # cosine of two units that stand for a linear part


class OutputSamples(NamedTuple):
    """Outputs of the probe by which networks are validated."""

    X: np.ndarray  # (n, D)
    F: np.ndarray  # (n, m_L)
    tol: np.ndarray  # (n,), infinite if the output is lost

    @classmethod
    def at(cls, probe, X):
        """Queried at points (n, D)."""
        return cls(X, *probe.query(X))

    def joined(self, other):
        """These samples and others."""
        return OutputSamples(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def take(self, index):
        """The samples of an index array or mask."""
        return OutputSamples(*(part[index] for part in self))


def extend_samples(probe, samples, n, rng):
    """n samples at random points, or more: with those there are (or None), they validate later networks too."""
    X = spread_points(probe, [], n if samples is None else max(n - len(samples.X), 0), rng, radii=_RADII)
    new = OutputSamples.at(probe, X)
    return new if samples is None else samples.joined(new)


def scaled_errors(probe, network, samples):
    """Points (k, D) with outputs, and errors (k,) of a network there over those of a right one: above 1 it is wrong."""
    X, F, tol = samples.take(np.isfinite(samples.tol))
    error = np.abs(network(X) - F).max(axis=1)
    if probe.resolution > NOISY:
        return X, error / (_WRONG_NOISE * tol)
    return X, error / np.maximum(_WRONG / probe.resolution, _WRONG_ERRORS * tol)


@dataclass(frozen=True)
class Validation:
    """A polished network, in units of the probe, and how much of held-out outputs it explains."""

    network: FeedforwardNetwork
    linear: np.ndarray  # (m_{L-1}, r), inner weights of its pairs of units that stand for a linear part
    samples: OutputSamples
    X: np.ndarray  # (k, D), those of their points that have outputs
    error: np.ndarray  # (k,), above 1 where the network is wrong

    @classmethod
    def of(cls, probe, network, linear, samples):
        """Of a network on samples."""
        return cls(network, linear, samples, *scaled_errors(probe, network, samples))

    @property
    def wrong_share(self):
        """Share of the outputs that the network does not explain."""
        return float(np.mean(self.error > 1.0)) if len(self.error) else 1.0

    def wrong_samples(self):
        """The samples that the network does not explain."""
        return self.samples.take(np.flatnonzero(np.isfinite(self.samples.tol))[self.error > 1.0])

    def right_and_wrong(self):
        """Indices of right samples and of wrong ones: those wrong by much, where units are missing, if there are some.

        All others are right then: smaller errors are those of the weights.
        """
        missing = self.error > _POLISHED_TOL / _WRONG
        right, wrong = (~missing, missing) if missing.any() else (self.error < _RIGHT, self.error > 1.0)
        return np.flatnonzero(right), np.flatnonzero(wrong)

    def with_samples(self, probe, others):
        """The same network on further samples too."""
        return Validation.of(probe, self.network, self.linear, self.samples.joined(others))

    def or_better(self, probe, other):
        """The better of this and another, earlier one (or None), both on the samples of this one."""
        if other is None:
            return self
        other = Validation.of(probe, other.network, other.linear, self.samples)
        return self if self.wrong_share < other.wrong_share else other


def validate_readout(probe, readout, samples, n_samples, inputs, rng):
    """The `Validation` of a readout's network, polished; without its linear part if that only makes up for weights.

    The network must explain `n_samples` outputs, a quarter more where missing units would show, also between and beyond
    `inputs` (k, D), and as many more as it was polished on; `samples` there are (or None).
    """
    best = None
    for network, linear in _candidates(probe, readout, rng):
        found = _polished_and_validated(probe, network, linear, samples, n_samples, inputs, rng)
        samples = found.samples
        best = found.or_better(probe, best)
        if best.wrong_share <= (_FEW_WRONG if probe.resolution > NOISY else 0.0):
            break
    return best


def _candidates(probe, readout, rng):
    """Networks and their linear parts: first without these, and on noisy outputs without a unit that may be false."""
    plain = readout.without_linear
    if plain is not None:
        none = readout.linear[:, :0]
        yield plain, none
        if probe.resolution > NOISY and plain.layer_widths[-2] > FEWEST_UNITS:
            yield from ((smaller, none) for smaller in smaller_networks(probe, plain, rng))
    yield readout.network, readout.linear


def _polished_and_validated(probe, network, linear, samples, n_samples, inputs, rng):
    """A network polished and validated; polished again on what was wrong by little, if that is not much."""
    best, wrong = None, None
    for polished in range(_N_POLISHES + 1):
        network = polish(probe, network, rng, samples, wrong) if polished else network
        for n in (n_samples // _FIRST_SHARE, n_samples):
            samples = extend_samples(probe, samples, n, rng)
            found = Validation.of(probe, network, linear, samples)
            if found.wrong_share:
                break
        else:
            if not polished and not _is_exact(network, samples):
                continue
            if probe.resolution <= NOISY:
                more = OutputSamples.at(probe, untested_points(probe, network, found.X, rng))
                n = max(_FEWEST_CHANGING, int(_CHANGING_SHARE * n_samples))
                more = more.joined(sample_where_units_change(probe, network, inputs, n, rng))
                found = found.with_samples(probe, more)
                samples = found.samples
        best = found.or_better(probe, best)
        gained = best is found
        if not polished and best.wrong_share:
            continue
        if not gained or not 0 < best.wrong_share <= _SOME_WRONG or probe.resolution > NOISY:
            break
        if best.wrong_share < _HARDLY_WRONG and not np.any(_takes_part(probe, network, best.wrong_samples())):
            break
        # On these it will be right; as many others must confirm that it is.
        wrong, n_samples = best.wrong_samples(), n_samples + len(samples.X)
    return best


def _is_exact(network, samples):
    """Whether a network is right on samples up to errors that no polish repairs."""
    samples = samples.take(np.isfinite(samples.tol))
    error = np.abs(network(samples.X) - samples.F).max(axis=1)
    return bool(np.all(error < _EXACT_ERRORS * np.minimum(samples.tol, _INACCURATE * np.median(samples.tol))))


def sample_where_units_change(probe, network, inputs, n, rng):
    """About n samples where missing units would show: a third of each kind, and half as many of a fourth.

    Along directions in which the units change most, at their rarer signs, on lines between and beyond two of the
    `inputs` (k, D), and where few units of the first layer are active. Trained networks change little in most
    directions, so random points hardly reach the places where a rare unit changes its sign.
    """
    D, third = probe.n_inputs, n // 3
    along = rng.standard_normal((third, network.weights[0].shape[1])) @ network.weights[0].T
    norms = np.maximum(np.linalg.norm(along, axis=1, keepdims=True), TINY)
    along *= np.sqrt(D) * rng.choice(_DIRECTIONS, (third, 1)) / norms
    rare = rng.permutation(spread_points(probe, _hidden_layers(network), 0, rng))[:third]
    parts = [along, rare, _points_of_few_units(network, n // 2, rng)]
    if len(inputs):
        one, other = (inputs[rng.randint(len(inputs), size=n - third - len(rare))] for _ in range(2))
        parts.append(one + rng.uniform(*_BEYOND, (len(one), 1)) * (other - one))
    return OutputSamples.at(probe, probe.oracle.clip_to_range(np.concatenate(parts)))


def _points_of_few_units(network, n, rng):
    """At most n points (k, D) at which few units of the first layer are active, often one, near the center.

    Units of the second layer that are rare since one of their weights opposes all others show at a few per cent of
    these, and at a few of 10,000 random points. Of layers wider than the input, other units are as they happen to be.
    """
    D, K = network.weights[0].shape
    chosen = rng.permutation(K)[:D]
    W, b = network.weights[0][:, chosen], network.biases[0][chosen]
    active = rng.uniform(size=(n, len(b))) < rng.uniform(size=(n, 1)) ** 2
    active[np.arange(n), rng.randint(len(b), size=n)] = True
    Z = np.where(active, 1.0, -1.0) * np.abs(rng.standard_normal(active.shape)) * np.linalg.norm(W, axis=0)
    X = (Z - b) @ lapack.pinv(W)
    return X[np.linalg.norm(X, axis=1) < max(_DIRECTIONS) * np.sqrt(D)]


def samples_farther_out(probe, n, rng):
    """Samples (n) at random points of the spreads at which units change that are always active near the center."""
    X = rng.choice(_FAR_SPREADS, (n, 1)) * rng.standard_normal((n, probe.n_inputs))
    return OutputSamples.at(probe, probe.oracle.clip_to_range(X))


def _hidden_layers(network):
    return list(zip(network.weights[:-1], network.biases[:-1], strict=True))


def polish(probe, network, rng, held_out, more=None):
    """A network fitted to outputs where all its weights matter, and to `more` samples; as it was if that is better.

    It is not fitted, and none are queried, if too few of the `held_out` ones take part: units are missing.
    """
    noisy = probe.resolution > NOISY
    per_parameter = _OUTPUTS_NOISY if noisy else OUTPUTS_PER_PARAMETER
    least = _SOME_WRONG if noisy else _NEARLY_ALL
    most = _MOSTLY if not noisy and network.n_parameters > _MOST_POLISHED else 1.0
    right = np.mean(scaled_errors(probe, network, held_out)[1] < 1.0)
    if right > most or np.mean(_takes_part(probe, network, held_out)) < least:
        return network
    samples = _accurate_samples(
        probe, network, int(per_parameter * network.n_parameters / network.n_outputs) + _MORE_OUTPUTS, rng
    )
    X, F, tol = samples if more is None else samples.joined(more)
    error = np.abs(network(X) - F).max(axis=1)
    good = _takes_part(probe, network, OutputSamples(X, F, tol))
    if not noisy and np.all(error[good] < _EXACT_ERRORS * tol[good]):  # what is wrong lacks units
        return network
    better = polish_network(network, X[good], F[good], noise=_NOISE_STD if noisy else None)[0]
    if noisy:  # points that were on the wrong side of a boundary are on the right one now
        fits = np.isfinite(tol) & (np.abs(better(X) - F).max(axis=1) < _WRONG_NOISE * tol)
        if fits.mean() > _FITTING_SHARE:
            better = polish_network(better, X[fits], F[fits], noise=_NOISE_STD)[0]
    after = np.abs(better(X) - F).max(axis=1)
    return better if np.median(after) <= np.median(error) else network


def _takes_part(probe, network, samples):
    """Which samples (n,) take part in a fit: where a network is wrong by much, a unit is missing."""
    error = np.abs(network(samples.X) - samples.F).max(axis=1)
    return np.isfinite(samples.tol) & (error < max(_POLISHED_TOL / probe.resolution, _POLISHED_ERRORS))


def _accurate_samples(probe, network, n, rng):
    """About n samples at random points and where weights matter, without those far less accurate than others.

    Log-odds are uncertain where a probability is near 1, all over one side of the decision boundary.
    """
    samples, accurate = None, np.zeros(1, dtype=bool)
    for _ in range(2):
        if accurate.mean() < _MOSTLY:
            new = OutputSamples.at(probe, spread_points(probe, _hidden_layers(network), n, rng))
            samples = new if samples is None else samples.joined(new)
            limit = _INACCURATE * np.sort(samples.tol)[len(samples.tol) // 4]
            accurate = samples.tol <= limit
    X = _points_where_weights_matter(probe, network, samples.X[accurate], rng)
    samples = samples.joined(OutputSamples.at(probe, X))
    return samples.take(samples.tol <= limit)


def _pool(probe, network, spreads, rng):
    """Many random points (n, D)."""
    return point_pool(probe, _hidden_layers(network), _POOL_NUMBERS // (2 * probe.n_inputs), spreads, rng)


def _chosen(pool, indices, n, rng):
    """At most n points of a pool, from a list of index arrays."""
    indices = np.unique(np.concatenate(indices)) if indices else np.zeros(0, dtype=int)
    return pool[rng.permutation(indices)[:n]]


def _points_where_weights_matter(probe, network, X, rng):
    """Points at which weights change the outputs that do so at few of the points X (n, D); at most n."""
    pool, chosen = _pool(probe, network, _POOL_SPREADS, rng), []
    for (inner, outer), (inner_pool, outer_pool) in zip(_traffic(network, X), _traffic(network, pool), strict=True):
        for i, k in np.argwhere(inner.T @ outer < _N_PER_WEIGHT):
            chosen.append(np.flatnonzero(inner_pool[:, i] * outer_pool[:, k])[:_N_PER_WEIGHT])
    return _chosen(pool, chosen, len(X), rng)


def untested_points(probe, network, X, rng):
    """Points that test weights without effect at the points X (n, D): 40 per weight, at most n.

    At these its input is active, and its unit nearly so, as the network is.
    """
    slope, chosen = _slope(network), []
    pool = H = _pool(probe, network, _RADII, rng)
    pairs = [None, *_traffic(network, X)[::-1]]  # of layer 1 all weights matter
    for pair, (W, b) in zip(pairs, _hidden_layers(network), strict=True):
        Z = H @ W + b
        check_deadline()
        for i, k in np.argwhere(pair[0].T @ pair[1] < _N_PER_WEIGHT) if pair is not None else ():
            on = np.flatnonzero(H[:, i] > 0)
            chosen.append(on[np.argsort(-Z[on, k] / H[on, i])[:_NEAREST]])
        H = np.maximum(Z, slope * Z)
    return _chosen(pool, chosen, len(X), rng)


def _slope(network):
    return getattr(network.activations[0], "negative_slope", 0.0)


def _traffic(network, X):
    """Per layer from the last hidden one to the second: masks of active inputs, and of active units that matter."""
    H, before, on, slope = X, [], [], _slope(network)
    for W, b in _hidden_layers(network):
        before.append(H > 0)
        Z = H @ W + b
        on.append((Z > 0).astype(np.float32))
        H = np.maximum(Z, slope * Z)
    matters, pairs = np.abs(network.weights[-1]).sum(axis=1) > 0, []
    reached = np.broadcast_to(matters, on[-1].shape).astype(np.float32)
    for layer in range(len(on) - 1, 0, -1):
        outer = on[layer] * reached
        pairs.append((before[layer].astype(np.float32), outer))
        reached = (outer @ (network.weights[layer] != 0).T.astype(np.float32) > 0).astype(np.float32)
    return pairs


def smaller_networks(probe, network, rng):
    """The two best networks without one unit of the last hidden layer, or a pair that stands for a linear part.

    The output weights are fitted again; the better network is first.
    """
    X = spread_points(probe, _hidden_layers(network), _OUTPUTS_PER_UNIT * network.layer_widths[-2] + _MORE_OUTPUTS, rng)
    samples = OutputSamples.at(probe, X)
    samples = samples.take(np.isfinite(samples.tol))
    smaller = [_without(network, units, samples) for units in _removable(network)]
    return [candidate for _, candidate in sorted(smaller, key=lambda pair: pair[0])[:_N_SMALLER]]


def _removable(network):
    """Lists of single units of the last hidden layer, and of opposite pairs."""
    V = np.vstack([network.weights[-2], network.biases[-2]])
    V = V / np.maximum(np.linalg.norm(V, axis=0), TINY)
    return [[k] for k in range(V.shape[1])] + [list(pair) for pair in np.argwhere(np.triu(V.T @ V < _OPPOSITE, 1))]


def _without(network, units, samples):
    """The median residual of a network without some units, its output weights fitted again, and that network."""
    *W, _ = (w.copy() for w in network.weights)
    *b, _ = (v.copy() for v in network.biases)
    W[-1], b[-1] = np.delete(W[-1], units, axis=1), np.delete(b[-1], units)
    X, F, tol = samples
    H = np.column_stack([hidden_outputs(list(zip(W, b, strict=True)), X), np.ones(len(X))])
    out = lapack.lstsq(H / tol[:, None], F / tol[:, None], rcond=TIGHT_RANK_TOL)[0]
    residual = np.median(np.abs(H @ out - F).max(axis=1) / tol)
    return residual, FeedforwardNetwork([*W, out[:-1]], [*b, out[-1]], network.activation)
