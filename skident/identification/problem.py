"""The problem that methods solve: which model is queried, what is sought, what is held out, what is allowed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import clone

from skident.base.progress import StageLog
from skident.fitting.random_starts import StartLimits
from skident.network import Architecture
from skident.oracle import MAX_NOISE, Accuracy, Oracle

from .activation import ActivationEvidence
from .attempt import max_error_over_deviation, relative_to_deviation
from .completion import NetworkCompletion
from .constants import SEARCH_SHARE
from .extractor import EntangledWeightExtractor
from .options import IdentifierOptions

NOISE_STDS = 20.0  # largest error on held-out samples that noise explains, in standard deviations of the noise
_BOUNDS = 2.0  # bounds of a logit's error that a right network explains: one of the output, one of the fit
_MAX_NEURONS = 200  # hidden units of a search by default (budget)
_REFUTES_NOISE = 0.01  # error relative to the noise, below which the noise was an artifact of steep steps
_START_WORK = 3e6  # random starts times squared parameters (budget): a search takes about as long for any size
_STARTS = (24, 40)  # fewest and most random starts by default (budget; tuned on identification/targets)
_MIN_FIT_TOL = 1e-9  # relative residual of a fit to exact outputs: rounding of a Gauss-Newton step, ten times


@dataclass(frozen=True)
class Options:
    """Validated constructor arguments of a `NetworkIdentifier`, with those of its `IdentifierOptions`."""

    layer_widths: object
    activations: tuple[str, str]
    response: str
    tol: float
    strategy: str
    extractor: EntangledWeightExtractor | None
    completion: NetworkCompletion | None
    polish: bool
    n_check: int
    n_attempts: int
    max_neurons: int | None
    n_starts: int | None
    emulate: object
    batch_size: int | None
    vectorized: bool
    n_jobs: int | None
    verbose: int
    weight_dtype: str | None

    @classmethod
    def of(cls, identifier, chosen, response):
        """Options of an identifier, given its `IdentifierOptions` and what is queried."""
        names = IdentifierOptions._get_param_names()
        return cls(
            layer_widths=identifier.layer_widths,
            activations=(identifier.activation, identifier.output_activation),
            response=response,
            tol=identifier.tol,
            n_jobs=identifier.n_jobs,
            verbose=identifier.verbose,
            weight_dtype=identifier.weight_dtype,
            **{name: getattr(chosen, name) for name in names},
        )


@dataclass(frozen=True)
class HeldOut:
    """Held-out samples, which no fit uses: standardized inputs (n, D), outputs (n, m_L), and their accuracy.

    `n_rows` and `n_normal` count those from X and from N(center, scale^2), 0 if they were chosen by their outputs.
    `bounds` (n,) are those of the rows' errors, if these differ from row to row.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    accuracy: Accuracy
    n_rows: int = 0
    n_normal: int = 0
    bounds: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def error_of(self, network):
        """Relative maximum error of a network of standardized inputs; that of noise if the rows' bounds explain it."""
        Y, Z = self.outputs, network(self.inputs)
        error = max_error_over_deviation(Y, Z)
        if self.noise_std is None:
            return error
        beyond = relative_to_deviation(np.maximum(np.abs(Z - Y) - _BOUNDS * self.bounds[:, None], 0.0), Y)
        return min(error, max(beyond, self.relative_noise))

    @property
    def noise_std(self):
        """Standard deviation of every output's error (m_L,); None at rounding level."""
        return self.accuracy.noise_std

    @property
    def relative_noise(self):
        """Error of the worst output, relative to its standard deviation; 0 at rounding level."""
        return 0.0 if self.noise_std is None else self.accuracy.relative_error


@dataclass(frozen=True)
class Pipeline:
    """Unfitted stages of the Hessian pipeline; `first`: whether it comes before any other method."""

    extractor: EntangledWeightExtractor
    completion: NetworkCompletion
    first: bool

    @classmethod
    def of(cls, options):
        """Clones of the given stages, or the default ones, with jobs and verbosity."""
        given = options.extractor is not None or options.completion is not None
        extractor = EntangledWeightExtractor() if options.extractor is None else clone(options.extractor)
        completion = NetworkCompletion() if options.completion is None else clone(options.completion)
        extractor.set_params(n_jobs=options.n_jobs, verbose=options.verbose)
        return cls(extractor, completion.set_params(verbose=max(0, options.verbose - 1)), first=given)

    def near_data(self):
        """The pipeline that recovers the first layer from Hessians, before any other method."""
        return Pipeline(self.extractor.set_params(first_layer="hessian"), self.completion, first=True)


@dataclass(frozen=True)
class Problem:
    """What all steps share, and none changes.

    Attributes
    ----------
    model : object
        As given by the user, fitted.
    oracle : Oracle
        Queries the model in standardized coordinates; counts into its budget.
    X : ndarray of shape (n, D)
        Samples within the input range.
    activations : tuple of str
        Of the hidden layers and of the output.
    widths : tuple of int or None
        Layer widths, outputs last; None if unknown.
    discover : bool
        Whether depth and widths are unknown; without it, None is one hidden layer.
    held_out : HeldOut
    pipeline : Pipeline
    options : Options
    rng : numpy.random.RandomState
    log : StageLog
    detected : ActivationEvidence or None
        Evidence for the activations, if they were detected.
    prediction : Prediction or None
        What outputs within the input range determine, if most parameters remain undetermined.
    one : tuple of (OneOutput, callable) or None
        One of several outputs from which these are recovered, and what poses its problem.
    """

    model: object
    oracle: Oracle
    X: np.ndarray
    activations: tuple[str, str]
    widths: tuple[int, ...] | None
    discover: bool
    held_out: HeldOut
    pipeline: Pipeline
    options: Options
    rng: np.random.RandomState
    log: StageLog
    detected: ActivationEvidence | None = None
    prediction: object | None = None
    one: tuple | None = None

    @property
    def identifies_logits(self):
        """Whether outputs were detected to be probabilities, so that the network of the logits is recovered."""
        requested = self.options.response == "predict_proba"
        return self.detected is not None and self.oracle.response == "predict_proba" and not requested

    @property
    def shallow(self):
        """Whether there is no hidden layer, or one below a linear output."""
        n_layers = 2 if self.widths is None else len(self.widths)
        return self.widths is None or n_layers == 1 or (n_layers == 2 and self.activations[1] == "identity")

    @property
    def fit_tol(self):
        """Relative residual below which a fit explains the outputs."""
        # If widths are unknown, a network with too few units must not pass for noise.
        margin = 1.5 if self.discover else 3.0
        noise = self.held_out.relative_noise
        return max(_MIN_FIT_TOL, margin * noise) if noise <= MAX_NOISE else _MIN_FIT_TOL

    @property
    def accepted_error(self):
        """Error on held-out samples below which no further step is made: `tol`, or what the noise explains."""
        tol, noise = self.options.tol, self.held_out.relative_noise
        return max(tol, NOISE_STDS * noise) if noise <= MAX_NOISE else tol

    def max_neurons(self, counted=0):
        """Hidden units at most, if so many were counted in the first layer."""
        given = self.options.max_neurons
        return max(_MAX_NEURONS, 2 * counted) if given is None else given

    def allowing(self, counted):
        """The problem with a limit of hidden units that allows for those counted in the first layer."""
        return replace(self, options=replace(self.options, max_neurons=self.max_neurons(counted)))

    @property
    def out_of_time(self):
        """Whether `max_seconds` have ended."""
        return self.oracle.budget.out_of_time

    @property
    def out_of_search_time(self):
        """Whether the share of `max_seconds` for random starts has ended."""
        return time.perf_counter() > self.oracle.budget.share(SEARCH_SHARE)

    def architecture(self, widths=None):
        """Architecture with the problem's activations, and its widths unless others are given."""
        return Architecture(self.widths if widths is None else widths, *self.activations)

    def search(self, n_parameters, tol, callback: Callable | None = None):
        """Random starts for a fit of `n_parameters` up to a relative residual of `tol`, within the search time."""
        n_starts = self.options.n_starts
        if n_starts is None:
            n_starts = int(np.clip(_START_WORK / n_parameters**2, *_STARTS))
        return StartLimits(n_starts, self.oracle.budget.share(SEARCH_SHARE), self.options.n_jobs, tol, callback)

    def without_refuted_noise(self, error):
        """The problem without noise if a network agrees far better than noise allows: steep steps look like noise.

        Rounded inputs stay: the network agrees at numbers that are not rounded only.
        """
        if self.oracle.rounds_inputs or error >= _REFUTES_NOISE * self.held_out.relative_noise:
            return self
        return replace(self, held_out=replace(self.held_out, accuracy=self.held_out.accuracy.as_exact()))
