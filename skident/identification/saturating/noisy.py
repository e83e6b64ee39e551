"""One hidden layer of saturating units from outputs with large errors: a joint fit from the units of far steps."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import MAD, UNIFORM
from skident.fitting.design import design_points
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish
from skident.fitting.screening import Unexplained, near_planes, screened_planes
from skident.fitting.standard_errors import parameter_jacobian
from skident.linalg import lapack
from skident.network import FeedforwardNetwork, get_activation

from ..constants import QUANTILE, TOLERATED

_FIRST_ROWS = 12.0  # queries per parameter of the first joint fits (budget)
_FIRST_ROUNDS = 2  # changes of the weights in these
_NEARLY = 1.3  # scale of the residuals up to which only small units are missing
_ROWS = 100.0  # further queries per parameter of the joint fit (budget)
_CHECKED = 1000  # further queries that a network has to explain
_FARTHEST_SPREAD = 8.0  # spread of the farthest of these, in standard deviations
_EXPLAINED = 1.3  # scale of the residuals, in standard deviations of the errors, up to which they are errors
_SPREAD = 3.0  # factor by which norms of their weights are larger or smaller than those of the units known
_SCREENING_ROWS = 60.0  # outputs per parameter that show what a further unit explains (budget)
_CLOSE = 0.1  # relative distance of units drawn from known ones
_FIRST_FURTHER = 4  # further units that are no close ones: errors of a fit that has not converged look like these
_N_BEST = 16  # units near which others are drawn
_FURTHER = 10  # further units at most
_SIGNIFICANT = 30.0  # standard errors of an outgoing weight below which a unit may be redundant: two may be one
_REMOVALS = 2  # units whose removal is tried before none is redundant
_CUT = 6.0  # standard deviations from which a residual costs no more
_LEAST = 1e-7  # smallest error over the outputs' deviation: rounding of float32 inside of the model
_RCOND = 1e-9  # singular values of the joint information, relative, below which parameters are undetermined


@dataclass(frozen=True)
class NoisyNetwork:
    """A network, what it was fitted to, and the scale of its residuals on further outputs in units of their errors."""

    network: FeedforwardNetwork
    sample: FitSample
    scale: float


def queries_of_noisy_network(n_inputs, n_units):
    """Queries of `find_noisy_network` for so many units, without those of further ones."""
    return int((_FIRST_ROWS + _ROWS) * (n_inputs + 2) * n_units) + _CHECKED


def find_noisy_network(oracle, first, activation, rng):
    """The `NoisyNetwork` of one hidden layer and one output from a `FirstLayer`; None if none explains the outputs.

    Far out a saturating unit is a step, whose height does not depend on the distance: 2 for tanh, against errors of
    1e-2 and less. Its direction is about as precise as the outputs, its bias is lost there. So a joint fit to outputs
    near the units follows, then units too low for steps, which explain what that fit leaves over.
    """
    search = _Search(oracle, get_activation(activation), rng)
    rows = search.near_units(first.weights, first.biases, _FIRST_ROWS)
    fit = search.completed(search.regressed(first.weights, first.biases, rows), rows)
    if fit.scale > _NEARLY:
        return None
    rows = search.near_units(fit.network.weights[0], fit.network.biases[0], _ROWS)
    fit = search.with_further_units(search.polished(fit.network, rows), rows)
    n_units = fit.network.layer_widths[0]
    fit = search.without_redundant_units(fit, rows)
    if fit.network.layer_widths[0] < n_units:  # redundant units may have hidden small ones
        fit = search.with_further_units(fit, rows)
    checked = search.near(_CHECKED)
    scale = residual_scale((fit.network(checked.inputs) - checked.outputs) / checked.std, QUANTILE)
    return NoisyNetwork(fit.network, replace(rows, std=rows.std * fit.scale), scale) if scale < _EXPLAINED else None


@dataclass(frozen=True)
class _Search:
    """Queries of one model, and fits to them."""

    oracle: object
    activation: object
    rng: np.random.RandomState

    def std_of(self, Y):
        """Standard deviations of the errors of outputs, in the shape of these: half a spacing in their own binade."""
        oracle, accuracy = self.oracle, self.oracle.accuracy
        if not accuracy.grows:
            return np.full(Y.shape, accuracy.std[0])
        raw = np.abs(oracle.output_center[0] + oracle.output_scale[0] * Y)
        spacing = np.ldexp(accuracy.eps, np.frexp(raw)[1] - 1) / np.abs(oracle.output_scale[0])
        return np.hypot(UNIFORM * spacing, _LEAST)

    def sample(self, U):
        """The `FitSample` of outputs at points U (n, D)."""
        U = self.oracle.representable(U)
        Y = self.oracle(U)
        return FitSample(U, Y, self.std_of(Y))

    def near(self, n):
        """A sample near the center, of several spreads."""
        spread = _FARTHEST_SPREAD ** self.rng.uniform(size=(n, 1))
        return self.sample(spread * self.rng.standard_normal((n, self.oracle.n_inputs)))

    def near_units(self, weights, biases, per_parameter):
        """A sample near the units' hyperplanes and near the center."""
        D, m = weights.shape
        n = int(per_parameter * (D + 2) * m)
        close = design_points(weights, biases, n // 2, 1.0, self.rng)
        return _joined([self.sample(close), self.near(n - n // 2)])

    def completed(self, network, rows):
        """A network with further units until it explains a sample, or none explains more; errors are tolerated first.

        While units are missing, all outputs weigh the same and other units are hardly moved.
        """
        for k in range(_FURTHER + 1):
            tolerant = _tolerant(network, rows)
            if k:
                w, b = self._unit_of_residual(network, tolerant, close=k > _FIRST_FURTHER)
                wider = np.column_stack([network.weights[0], w]), np.append(network.biases[0], b)
                network = self.regressed(*wider, tolerant)
            fit = self.polished(network, tolerant, max_rounds=_FIRST_ROUNDS)
            network = fit.network
            fit = replace(fit, scale=residual_scale((network(rows.inputs) - rows.outputs) / rows.std, QUANTILE))
            if fit.scale < _NEARLY or self.oracle.budget.out_of_time:
                break
        return fit

    def regressed(self, weights, biases, rows):
        """The network of first-layer units whose outgoing weights and constant are fitted to a sample."""
        H = np.column_stack([self.activation(rows.inputs @ weights + biases), np.ones(len(rows.inputs))])
        coef = lapack.lstsq(H / rows.std, rows.outputs / rows.std, rcond=None)[0]
        return FeedforwardNetwork([weights, coef[:-1]], [biases, coef[-1]], self.activation.name)

    def polished(self, network, rows, **options):
        """The `RobustFit` of a network."""
        out_of_time = lambda _: self.oracle.budget.out_of_time  # noqa: E731
        return robust_polish(
            network, rows.inputs, rows.outputs, rows.std, quantile=QUANTILE, callback=out_of_time, **options
        )

    def with_further_units(self, fit, rows):
        """The fit with further units, as long as they are significant: too small for steps."""
        for _ in range(_FURTHER):
            if self.oracle.budget.out_of_time:
                break
            network = fit.network
            w, b = self._unit_of_residual(network, _tolerant(network, rows), close=True)
            wider = self.regressed(np.column_stack([network.weights[0], w]), np.append(network.biases[0], b), rows)
            more = self.polished(wider, rows)
            if not self._pays(fit, more, rows):
                break
            fit = more
        return fit

    def _unit_of_residual(self, network, rows, close):
        """Weights (D,) and bias of the unit that explains most of the residuals near the center.

        With `close`, half of the units drawn are close to known ones, which may be two units.
        """
        D, rng = self.oracle.n_inputs, self.rng
        near = np.flatnonzero(np.linalg.norm(rows.inputs, axis=1) < 3.0 * _FARTHEST_SPREAD * np.sqrt(D))
        some = rng.permutation(near)[: int(_SCREENING_ROWS * network.n_parameters)]
        rows = FitSample(*(getattr(rows, name)[some] for name in _FIELDS))
        known = np.vstack([network.weights[0], network.biases[0]])
        norm = np.median(np.linalg.norm(network.weights[0], axis=0))

        def draw(n):
            n_close = n // 2 if close else 0
            planes = rng.standard_normal((D + 1, n - n_close))
            planes[:D] /= np.sqrt(D)
            planes *= norm * _SPREAD ** rng.uniform(-1.0, 1.0, n - n_close)
            return np.hstack([planes, near_planes(known[:, rng.randint(known.shape[1], size=n_close)], _CLOSE, rng)])

        best = screened_planes(Unexplained(network, rows), self.activation, draw, rng, _N_BEST)[:, 0]
        return best[:D], best[D]

    def without_redundant_units(self, fit, rows):
        """The fit of the units that explain more than noise, of those whose outgoing weight is hardly significant."""
        while True:
            size = np.abs(fit.network.weights[1][:, 0]) / _outgoing_errors(fit.network, rows)
            doubtful = [k for k in np.argsort(size)[:_REMOVALS] if size[k] < _SIGNIFICANT and len(size) > 1]
            smaller = (self._without_unit(fit.network, k, rows) for k in doubtful)
            less = next((less for less in smaller if not self._pays(less, fit, rows)), None)
            if less is None:
                return fit
            fit = less

    def _without_unit(self, network, k, rows):
        kept = np.arange(network.layer_widths[0]) != k
        return self.polished(self.regressed(network.weights[0][:, kept], network.biases[0][kept], rows), rows)

    def _pays(self, fit, more, rows):
        """Whether a unit more explains more than noise does: the Bayesian information criterion."""
        n = len(rows.inputs)
        gain = n * np.log(_cost(fit, rows) / _cost(more, rows))  # whatever the measured error is off by
        return gain > (self.oracle.n_inputs + 2) * np.log(n)


_FIELDS = ("inputs", "outputs", "std")


def _joined(samples):
    """The `FitSample` of all rows of several."""
    return FitSample(*(np.concatenate([getattr(sample, name) for sample in samples]) for name in _FIELDS))


def _tolerant(network, rows):
    """The sample with errors of at least a share of the residuals: without it, the smallest outputs outweigh others."""
    scale = MAD * float(np.median(np.abs(network(rows.inputs) - rows.outputs)))
    return replace(rows, std=np.hypot(rows.std, TOLERATED * scale))


def _cost(fit, rows):
    """Sum of the squared residuals without outliers, in units of the errors."""
    return float(np.sum(np.minimum(np.abs(fit.network(rows.inputs) - rows.outputs) / rows.std, _CUT) ** 2))


def _outgoing_errors(network, rows):
    """Standard errors (m_1,) of the outgoing weights of a fit."""
    J = parameter_jacobian(network, rows.inputs) / rows.std
    A = J.T @ J
    size = 1.0 / np.sqrt(np.maximum(np.diag(A), np.finfo(float).tiny))
    values, vectors = lapack.eigh(A * size * size[:, None])
    errors = size * np.sqrt(np.sum(vectors**2 / np.maximum(values, _RCOND * values[-1]), axis=1))
    first = network.weights[0].size + network.biases[0].size
    return errors[first : first + len(network.biases[0])]
