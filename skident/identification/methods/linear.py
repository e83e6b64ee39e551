"""Linear models: one layer, by least squares on outputs near the center."""

import numpy as np

from skident.linalg import lapack
from skident.network import FeedforwardNetwork

from ..attempt import Attempt, relative_to_deviation

_OUTPUTS = 3  # queries per coefficient: rounding and noise average out
_FEWEST = 40  # queries at least
_PER_INPUT = 400  # queries per input of rounded probabilities, of which a tenth refutes linear ones (budget)
_SPREADS = (0.5, 1.0, 2.0)  # standard deviations of their inputs: nearer, fewer are lost
_BIASED = 0.2  # bound of the error of a logit, beyond which rounding moves the mean of the logarithm by over 0.7 %
_PAIRS = 20  # of opposite points (budget): half of them with a bend show units
_BEND = 2.0  # errors of a linear model up to which it explains a bend: one at the center, one at the mean of a pair


class LinearFit:
    """A linear model as a network of one layer without hidden units."""

    name = "linear fit"

    def refuses(self, problem):
        """See `Method`."""
        if problem.activations[1] == "identity":
            return None
        return f"a linear model is fitted before a linear output, got output_activation={problem.activations[1]!r}."

    def run(self, problem, step, state):
        """See `Method`; None if the outputs are not linear, unless no hidden unit was detected."""
        oracle = problem.oracle
        coarse = oracle.response == "predict_proba" and oracle.precision.kind == "decimals"
        if problem.activations[0] != "identity" and not coarse and _bends(problem):
            return None
        with problem.log.stage("linear fit", oracle) as entry:
            if coarse and _fit(*_coarse_samples(problem, _PER_INPUT // 10))[1] > _BEND:
                return None
            samples = _coarse_samples(problem, _PER_INPUT) if coarse else _samples(problem)
            A, entry["residual"] = _fit(*samples)
        network = FeedforwardNetwork([A[:-1]], [A[-1]], "identity", "identity")
        error = problem.held_out.error_of(network)
        if error >= problem.accepted_error and problem.activations[0] != "identity":
            return None
        return Attempt(network, error, "linear", entry["residual"], self.name, minimal=True)


def _samples(problem):
    """Inputs (n, D), outputs (n, m_L), and equal weights."""
    n, rng, D = max(_FEWEST, _OUTPUTS * (problem.oracle.n_inputs + 1)), problem.rng, problem.oracle.n_inputs
    return *problem.oracle.query_precise(lambda n, factor: factor * rng.standard_normal((n, D)), n), np.ones((1, 1))


def _coarse_samples(problem, n):
    """Inputs (k, D) with logits (k, m_L) of rounded probabilities that are not lost, and bounds of their errors."""
    oracle, n = problem.oracle, n * (problem.oracle.n_inputs + 1)
    U = oracle.clip_to_range(problem.rng.choice(_SPREADS, (n, 1)) * problem.rng.standard_normal((n, oracle.n_inputs)))
    Y, error = oracle.query(U)
    kept = error <= _BIASED
    return U[kept], Y[kept], error[kept, None]


def _fit(U, Y, error):
    """Coefficients (D + 1, m_L) of outputs Y (n, m_L), and the largest residual over its error."""
    design = np.column_stack([U, np.ones(len(U))])
    A = lapack.lstsq(design / error, Y / error, rcond=None)[0]
    return A, float(np.max(np.abs(design @ A - Y) / error, initial=0.0))


def _bends(problem):
    """Whether the mean of outputs at most pairs of opposite points is not that at the center, as in a linear model."""
    oracle = problem.oracle
    V = problem.rng.standard_normal((_PAIRS, oracle.n_inputs))
    Y, error = oracle.query(np.concatenate([V, -V, np.zeros((1, oracle.n_inputs))]))
    precise = oracle.is_precise(error)
    kept = precise[:_PAIRS] & precise[_PAIRS:-1]
    if not precise[-1] or kept.sum() < _PAIRS // 2:
        return False
    bends = 0.5 * (Y[:_PAIRS] + Y[_PAIRS:-1])[kept] - Y[-1]
    sizes = [relative_to_deviation(bend[None], problem.held_out.outputs) for bend in bends]
    return bool(np.median(sizes) > _BEND * problem.accepted_error)


METHOD = LinearFit()
