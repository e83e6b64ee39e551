"""Several outputs from one of them: their values are linear functions of the same last hidden layer."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import EPS, MANY_ROUNDS
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle

from ..activation import between_plateaus
from ..activation.outputs import inverse
from ..constants import PROBED
from ..query_points import evenly_spaced_rows

_SAMPLES = 200  # samples of X by which one of several outputs is chosen (budget)
_TRIED_OUTPUTS = 2  # of several outputs, one after the other (budget)
_PER_COEFFICIENT = 3.0  # values per coefficient of an output, at first (budget)
_ALIKE = 1e3  # times the least error of a value, up to which errors count as equal: few values would decide otherwise
_SMALLEST = 1e-100  # size of the values of an output, at least: weights of one that is always 0 do not overflow
_DETERMINED = 1e-3  # smallest singular value, columns scaled to norm 1, of values that determine all coefficients


@dataclass(frozen=True)
class OneOutput:
    """The problem of one of several outputs, `outputs` being the reduction to the values before them."""

    index: int
    outputs: object

    def __str__(self):
        return f"output {self.index}, which has the hidden layers of all"

    @classmethod
    def accepts(cls, problem):
        """What the reading of the outputs has chosen."""
        return None if problem.one is None else problem.one[0]

    def oracle(self, oracle):
        """The oracle of the values before this output."""
        place = {"center": oracle.center, "scale": oracle.scale, "budget": oracle.budget}
        column = Oracle(
            _Column(oracle.raw_outputs, self.index), oracle.n_inputs, input_range=oracle.input_range, **place
        )
        column.outputs, column.n_outputs = oracle.outputs, 1
        return self.outputs.of(self.index).apply(column)

    def apply(self, problem):
        """The problem of this output."""
        return problem.one[1]()

    def invert(self, problem, attempt):
        """The attempt with all outputs: their coefficients by least squares, weighted by the errors of the values."""
        one = attempt.network
        last = _last_hidden(one)
        coef = _coefficients(problem, self.outputs, last)
        names = one.activations[0], problem.activations[1]
        network = FeedforwardNetwork([*one.weights[:-1], coef[:-1]], [*one.biases[:-1], coef[-1]], *names)
        error = problem.held_out.error_of(network)
        return replace(attempt, network=network, error=error, sample=None, extractor=None, completion=None)


def standardized(oracle, X):
    """An oracle whose outputs are scaled by those at some samples."""
    oracle.standardize_outputs(oracle(evenly_spaced_rows(oracle.from_inputs(X), PROBED)))
    return oracle


def through_one(reading, before, hidden=None):
    """Yield readings of several outputs from one of them, first that whose values `before` are lost least.

    Few inputs keep the values of all of them. `hidden` is the activation of the hidden units, detected if None.
    """
    oracle, X = reading.oracle, reading.X
    kept = np.mean(before.kept(oracle(evenly_spaced_rows(oracle.from_inputs(X), _SAMPLES))), axis=0)
    for k in np.argsort(-kept, kind="stable")[:_TRIED_OUTPUTS]:
        one = OneOutput(int(k), before)
        inner = standardized(one.oracle(oracle), X)
        name = between_plateaus(inner) if hidden is None else hidden
        if name is not None:
            of_one = replace(reading, oracle=inner, activations=(name, "identity"), detected=None)
            yield replace(reading, activations=(name, before.activation), one=(one, of_one))


class _Column:
    """One output of a black box."""

    def __init__(self, outputs, index):
        self._outputs, self._index = outputs, index

    def __call__(self, X):
        return np.asarray(self._outputs(X), dtype=float).reshape(len(X), -1)[:, self._index]


def _last_hidden(network):
    """The outputs of the last hidden layer of a network, or its inputs, and 1, as a function of its inputs."""
    if len(network.weights) == 1:
        return lambda U: np.column_stack([U, np.ones(len(U))])
    hidden = FeedforwardNetwork(network.weights[:-1], network.biases[:-1], *[network.activations[0]] * 2)
    return lambda U: np.column_stack([hidden(U), np.ones(len(U))])


def _coefficients(problem, outputs, last):
    """Coefficients (m + 1, m_L) of all outputs over the last hidden layer, from as many samples as these need.

    Each round draws farther: some outputs are not lost there alone.
    """
    oracle, rng, activation = problem.oracle, problem.rng, problem.activations[1]
    m = last(np.zeros((1, oracle.n_inputs))).shape[1]
    n, U, Y = int(_PER_COEFFICIENT * m), np.empty((0, oracle.n_inputs)), None
    for farther in range(MANY_ROUNDS + 1):
        new = oracle.clip_to_range(
            np.exp(rng.uniform(0.0, 1.0 + farther, (n, 1))) * rng.standard_normal((n, oracle.n_inputs))
        )
        Y = oracle(new) if Y is None else np.concatenate([Y, oracle(new)])
        U = np.concatenate([U, new])
        H = last(U)
        fits = [_fit(H, *values) for values in _values(outputs, activation, Y, oracle)]
        if min(least for _, least in fits) > _DETERMINED:
            break
        n = len(U)
    return np.column_stack([coef for coef, _ in fits])


def _values(outputs, activation, Y, oracle):
    """Values before each output (n,), and their errors, infinite where they are lost."""
    error = EPS * np.abs(Y) + (0.0 if oracle.accuracy.exact else oracle.accuracy.std)
    Z, error = inverse(activation if isinstance(activation, str) else "identity", Y, error)
    kept = outputs.kept(Y)
    size = np.max(np.abs(Z), axis=0, where=kept, initial=_SMALLEST)
    return zip(Z.T, np.where(kept, np.maximum(error, EPS * size), np.inf).T, strict=True)


def _fit(H, z, error):
    """Coefficients of a value z (n,) over the columns of H (n, m), and how well it determines them."""
    kept = np.isfinite(error)
    if kept.sum() < H.shape[1]:
        return np.zeros(H.shape[1]), 0.0
    weight = 1.0 / np.maximum(error[kept], _ALIKE * error[kept].min())
    A = weight[:, None] * H[kept]
    size = np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny)
    coef, _, _, s = lapack.lstsq(A / size, weight * z[kept], rcond=None)
    return coef / size, s[-1] / max(s[0], np.finfo(float).tiny)
