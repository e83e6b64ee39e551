"""Outputs of a piecewise linear black box in units of their error: how large that error is, and where."""

import numpy as np

from skident.budget.constants import EPS, TINY
from skident.oracle import NotIdentified

from ...constants import DETECTION_TOL, DEVIATIONS_OF_ERROR
from ...query_points import query_block

_RANGE_TOL = 1e-12  # distance from the input range at which a point still counts as inside: rounding of the clipping
_OUTPUT_ROUNDINGS = 16.0  # eps times the largest output: rounding of a layer's sums, with a margin

_RELIABLE_TOL = 1e5  # errors above which every line detects it: far out, rounding loses three digits
_DETECTION_TOL_NOISY = 12.0  # `DETECTION_TOL` for noisy outputs, whose errors bound 3 deviations
_RELIABLE_TOL_NOISY = 1e3  # of noisy outputs; noise does not grow with the distance

# Measuring the error, by second differences in small windows.
_MARGIN = 16.0  # over the upper quartile of second differences: the largest of a few thousand outputs
_ROUNDING_DEVIATIONS = 1.75  # `DEVIATIONS_OF_ERROR` for rounding to decimals, whose largest error is sqrt(3) deviations
_WIDE_STEP = 3e-4  # in standard deviations of the inputs; few windows of this size contain an activation boundary
_NARROW_STEP = 3e-6  # curvature decreases by the squared ratio of the two steps, noise does not
_QUANTILE = 0.75  # of second differences: fewer windows contain a boundary, and half of rounded ones may be 0
_CURVED = 1e-11  # second difference over spread: outputs of float64 networks of usual size are exact to 1e-14
_NARROW_SHARE = 0.03  # share of the expected curvature that the narrow step must show
_NARROW_FACTOR = 30.0  # largest multiple of the expected curvature that still is curvature
_FLOAT_SAG = 1e-14  # second difference over spread that is rounding
_CONSTANT_SHARE = 0.5  # windows without any change: more are a step function
_BENT_SAG = 4.0  # errors by which a second difference shows curvature of noisy outputs
_CURVED_ERRORS = 100.0  # errors by which curvature of the outputs' size must bend them over a step
_BENT_SHARE = 0.75  # of the windows: a ReLU network has boundaries in fewer
_LONGEST_STEP = 0.2  # standard deviations of the inputs; step in which curvature is measured beside noise


class Probe:
    """The oracle's outputs, each in units of its error near the center, and the accuracy of every output.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.kernel.output_error import Probe
    >>> F, tol = Probe(Oracle(lambda X: X[:, 0] - X[:, 1], 2), np.array([1e-3])).query(np.array([[3.0, 1.0]]))
    >>> print(F.round(6)[0, 0], tol.round(3)[0])
    2000.0 3.236
    """

    def __init__(self, oracle, output_error, exact=True):
        """`output_error` (m_L,): see `measure_rounding`; `exact`: whether that is the rounding of float64."""
        self.oracle, self.output_error, self.exact = oracle, output_error, exact
        self.deviations = _MARGIN if exact and oracle.accuracy.exact else DEVIATIONS_OF_ERROR  # that an error bounds
        self.spread = 1.0  # of the points queried, in standard deviations of the inputs
        self.length_scale = np.sqrt(oracle.n_inputs)  # usual distance of standardized inputs from the center
        self.detection_tol = DETECTION_TOL if exact else _DETECTION_TOL_NOISY
        self.reliable_tol = _RELIABLE_TOL if exact else _RELIABLE_TOL_NOISY
        # Rounding to decimals, and noise, are equal everywhere; that of binary digits grows with the outputs.
        self._error_grows = exact or oracle.accuracy.grows

    def __call__(self, U):
        """Outputs (n, m_L) at points (n, D), in units of their error."""
        return self.oracle(U) / self.output_error

    def query(self, U):
        """Outputs (n, m_L) at points (n, D) and their accuracy (n,), both in units of the error near the center.

        The accuracy is 1 near the center, grows with the distance and the outputs, is larger where logits are
        uncertain, and infinite where they are lost and outside the input range.
        """
        Y, error = self._query_inside(U)
        F = Y / self.output_error
        tol = self.tol(U)[:, 0]
        if self._error_grows:
            tol = np.maximum(tol, _OUTPUT_ROUNDINGS * EPS * np.abs(F).max(axis=1, initial=0.0))
        return F, tol + error / self.output_error.min()

    def query_block(self, U):
        """Outputs (..., m_L) and accuracies (...) at a block of points (..., D); see `query`."""
        F, tol = self.query(U.reshape(-1, U.shape[-1]))
        return F.reshape(*U.shape[:-1], -1), tol.reshape(U.shape[:-1])

    def _query_inside(self, U):
        """Outputs and their uncertainties; 0 and infinite outside the input range."""
        inside = self.inside(U)
        if inside.all():
            return self.oracle.query(U)
        Y, error = np.zeros((len(U), len(self.output_error))), np.full(len(U), np.inf)
        Y[inside], error[inside] = self.oracle.query(U[inside])
        return Y, error

    def inside(self, U):
        """Which points (n, D) may be queried: a mask (n,)."""
        if self.oracle.input_range is None:
            return np.ones(len(U), dtype=bool)
        return np.all(np.abs(self.oracle.clip_to_range(U) - U) < _RANGE_TOL, axis=1)

    def tol(self, U):
        """Accuracy (n, 1) of the outputs at points (n, D), logits' own uncertainty apart."""
        return (1.0 + np.linalg.norm(U, axis=1) / self.length_scale * self._error_grows)[:, None]


class DeepProbe(Probe):
    """A probe of a network with several hidden layers: every output loses accuracy with the distance.

    `spread` (m_L,) is the standard deviation of the outputs. The resolution is the error over that, of the best output.
    """

    def __init__(self, oracle, output_error, spread):
        super().__init__(oracle, output_error)
        self.n_inputs, self.n_outputs = oracle.n_inputs, len(output_error)
        self.resolution = float(np.min(output_error / np.maximum(spread, TINY)))

    def query(self, U):
        """Outputs (n, m_L) and accuracies (n,); see `Probe.query`. The outputs' size does not count."""
        Y, error = self._query_inside(U)
        return Y / self.output_error, self.tol(U)[:, 0] + error / self.output_error.min()


def probe_of(oracle, rng, *, far=30.0):
    """The oracle as a probe for activation boundaries, with the error of its outputs measured where it is unknown.

    Raises `NotIdentified` if the outputs are not piecewise linear up to their error.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.piecewise.kernel.output_error import probe_of
    >>> probe = probe_of(Oracle(lambda X: np.maximum(X[:, 0], X[:, 1]), 2), np.random.RandomState(0))
    >>> print(probe.output_error.max() < 1e-13)
    True
    """
    accuracy = oracle.accuracy
    if accuracy.exact or oracle.response == "predict_proba":
        return Probe(oracle, measure_rounding(oracle, rng, far=far))
    if accuracy.kind == "noise":
        try:  # dense activation boundaries look like noise
            return Probe(oracle, measure_rounding(oracle, rng, far=far))
        except NotIdentified:
            pass
    margin = _ROUNDING_DEVIATIONS if accuracy.kind == "decimals" else DEVIATIONS_OF_ERROR
    output_error = np.maximum(margin * accuracy.std, TINY)
    _refuse_smooth_noisy(oracle, output_error, rng)
    return Probe(oracle, output_error, exact=False)


def _refuse_smooth_noisy(oracle, output_error, rng, n_windows=48):
    """Raise if the outputs bend by more than their error in most windows that are as short as it allows."""
    D = oracle.n_inputs
    step = min(np.sqrt(_CURVED_ERRORS * np.max(output_error / oracle.accuracy.output_std)), _LONGEST_STEP)
    X, E = rng.standard_normal((2, n_windows, D))
    E *= step / np.linalg.norm(E, axis=1, keepdims=True)
    U = oracle.clip_to_range(X, min(step, 0.5 * max(oracle.reach, 0.0)))
    F = query_block(oracle, U[:, None] + np.array([-1.0, 0.0, 1.0])[:, None] * E[:, None])
    sag = np.max(np.abs(F[:, 0] - 2.0 * F[:, 1] + F[:, 2]) / output_error, axis=1)
    if np.mean(sag > _BENT_SAG) > _BENT_SHARE:
        raise NotIdentified(
            "activation boundaries",
            "smooth",
            f"the outputs bend everywhere: in {np.mean(sag > _BENT_SAG):.0%} of all places by more than their noise "
            f"over a step of {step:.1e}. The black box is smooth, or has very many units; try activation='tanh', "
            "'softplus' or 'gelu'.",
        )


def measure_rounding(oracle, rng, *, n_windows=24, far=30.0):
    """Rounding errors (m_L,) of piecewise linear outputs, from second differences in small windows near the center.

    `skident.oracle.measure_noise` needs smooth outputs. This one tolerates activation boundaries, and raises
    `NotIdentified` ("smooth", "noisy", "steps") if the outputs are not linear between them up to a relative 1e-11.
    ``6 n_windows`` queries; rounding that shows away from the center only is measured `far` standard deviations out.
    """
    X, E = _windows(oracle, rng, n_windows)
    offsets = np.array([0.0, -_WIDE_STEP, _WIDE_STEP, -_NARROW_STEP, _NARROW_STEP])
    F = query_block(oracle, X[:, None] + offsets[:, None] * E[:, None])
    flat = np.all(F[:, 3:] == F[:, :1], axis=(1, 2))
    if flat.mean() > _CONSTANT_SHARE and len(np.unique(F[flat, 0], axis=0)) > 2:
        raise NotIdentified(
            "activation boundaries",
            "steps",
            f"{flat.sum()} of {n_windows} outputs do not change at all over a distance of {_NARROW_STEP:g} (in units "
            "of the inputs' scale), yet they differ from each other: they are rounded or saturated, or piecewise "
            "constant (a tree, nearest neighbors).",
        )
    coarse = np.quantile(np.abs(F[:, 1] - 2.0 * F[:, 0] + F[:, 2]), _QUANTILE, axis=0)
    fine = np.quantile(np.abs(F[:, 3] - 2.0 * F[:, 0] + F[:, 4]), _QUANTILE, axis=0)
    largest, spread = np.abs(F).max(axis=(0, 1)), np.ptp(F, axis=(0, 1))
    worst = int(np.argmax(coarse / np.maximum(spread, TINY)))
    if coarse[worst] > _CURVED * spread[worst] + 4.0 * EPS * largest[worst]:
        if not _is_crossed(coarse[worst] / spread[worst], fine[worst] / spread[worst]):
            _refuse_curved(coarse[worst] / spread[worst], fine[worst] / spread[worst])
        coarse = fine
    # Outputs that are flat near the center show their rounding farther out; it grows with the distance.
    if not oracle.restricted:
        largest = np.maximum(largest, np.abs(oracle(far * X)).max(axis=0) / far)
    output_error = _MARGIN * np.maximum(coarse, EPS * largest)
    return np.where(output_error > 0, output_error, 1.0)


def _windows(oracle, rng, n_windows):
    """Centers and directions of windows, (n, D) each; of a restricted oracle where its outputs are most precise."""
    if not oracle.restricted:
        return rng.standard_normal((2, n_windows, oracle.n_inputs))
    X = oracle.clip_to_range(rng.standard_normal((8 * n_windows, oracle.n_inputs)), 1e-2)
    return X[np.argsort(oracle.query(X)[1], kind="stable")[:n_windows]], rng.standard_normal(
        (n_windows, oracle.n_inputs)
    )


def _is_crossed(coarse, fine):
    """Whether many of the wide windows contain a boundary: narrow ones show rounding, and no curvature."""
    return fine < _FLOAT_SAG and fine < _NARROW_SHARE * coarse * (_NARROW_STEP / _WIDE_STEP) ** 2


def _refuse_curved(coarse, fine):
    """Raise an error that distinguishes curvature, which falls with the squared step, from noise and rounding."""
    expected = coarse * (_NARROW_STEP / _WIDE_STEP) ** 2
    large_enough = fine > _NARROW_SHARE * expected or expected < 0.1 * _FLOAT_SAG
    if fine < max(_NARROW_FACTOR * expected, _FLOAT_SAG) and large_enough:
        raise NotIdentified(
            "activation boundaries",
            "smooth",
            f"the outputs bend everywhere: second differences are mostly {coarse:.1e} of their spread over a "
            f"step of {_WIDE_STEP:g}, {fine:.1e} over {_NARROW_STEP:g}. The black box is smooth, no ReLU network; try "
            "activation='tanh', 'softplus' or 'gelu'.",
        )
    raise NotIdentified(
        "activation boundaries",
        "noisy",
        f"second differences of the outputs are {coarse:.1e} of their spread over a step of {_WIDE_STEP:g} and "
        f"{fine:.1e} over {_NARROW_STEP:g}: noise or rounding of that size hides the activation boundaries, which "
        f"takes outputs exact to {_CURVED:g}. Query the black box in float64, without rounding.",
    )
