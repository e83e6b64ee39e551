"""One inquiry into a black box: how it is asked, what is looked for, and when to stop."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from skident.base.parameters import check_layer_widths
from skident.base.progress import StageLog
from skident.fitting.random_starts import StartLimits
from skident.network import Architecture
from skident.oracle import MAX_NOISE, Accuracy, Oracle

from .activation import ActivationEvidence
from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor
from .input_range import fresh_rows, spaced

__all__ = [
    "FreshAnswers",
    "Inquiry",
    "Limits",
    "Pipeline",
    "ask_fresh",
    "sought_widths",
]

_NOISE_LEFT = 20.0  # largest error on noisy answers, in standard deviations of their noise, that noise explains
_SEARCHING = 0.75  # of the time for random starts; the rest is for the polish


@dataclass(frozen=True)
class FreshAnswers:
    """Rows that no fit sees, by which networks are judged.

    Attributes
    ----------
    inputs : ndarray of shape (n, D)
        Standardised.
    answers : ndarray of shape (n, m_L)
    accuracy : Accuracy
        Of the answers.
    """

    inputs: np.ndarray
    answers: np.ndarray
    accuracy: Accuracy

    @property
    def sigma(self):
        """Error of every output, absolute, (m_L,); None at rounding level."""
        return self.accuracy.noise_std

    @property
    def noise(self):
        """Error of the worst output, relative to the standard deviation of its answers; 0 at rounding level."""
        return 0.0 if self.sigma is None else self.accuracy.relative_error


@dataclass(frozen=True)
class Pipeline:
    """The stages of the route by Hessians, unfitted, and whether they come first.

    Attributes
    ----------
    extractor : EntangledWeightExtractor
    completion : NetworkCompletion
    first : bool
        Whether the route by Hessians is taken before any other: its stages were given, or the black box cannot be asked
        far out.
    """

    extractor: EntangledWeightExtractor
    completion: NetworkCompletion
    first: bool

    @classmethod
    def of(cls, extractor, completion, n_jobs=None, verbose=0):
        """The stages as they were given, cloned, or as they are by default, with jobs and verbosity.

        Parameters
        ----------
        extractor : EntangledWeightExtractor or None
        completion : NetworkCompletion or None
        n_jobs : int, default=None
        verbose : int, default=0

        Returns
        -------
        Pipeline
        """
        given = extractor is not None or completion is not None
        extractor = EntangledWeightExtractor() if extractor is None else clone(extractor)
        completion = NetworkCompletion() if completion is None else clone(completion)
        extractor.set_params(n_jobs=n_jobs, verbose=verbose)
        return cls(extractor, completion.set_params(verbose=max(0, verbose - 1)), first=given)


@dataclass(frozen=True)
class Limits:
    """What an inquiry must reach, and what it may take.

    Attributes
    ----------
    tol : float
        Relative maximum error on fresh inputs of an exact network.
    polish : bool
    max_neurons : int
        Hidden units at most of a network of unknown widths.
    n_starts, n_jobs : int or None
    """

    tol: float
    polish: bool = True
    max_neurons: int = 200
    n_starts: int | None = None
    n_jobs: int | None = None


@dataclass(frozen=True)
class Inquiry:
    """What all attempts at one black box share, and none of them changes.

    Attributes
    ----------
    box : object
        The black box.
    oracle : Oracle
        How it is asked, and how often.
    X : ndarray of shape (n, D)
        Rows where it is used, and may be asked.
    activations : tuple of str
        Of the hidden layers and of the last one.
    widths : tuple of int or None
    discover : bool
        Whether depth and widths are to be found; without it, None is one hidden layer.
    fresh : FreshAnswers
    pipeline : Pipeline
    limits : Limits
    rng : numpy.random.RandomState
    log : StageLog
    seen : ActivationEvidence or None
        Of the activation, where it was not told and had to be looked for.
    """

    box: object
    oracle: Oracle
    X: np.ndarray
    activations: tuple[str, str]
    widths: tuple[int, ...] | None
    discover: bool
    fresh: FreshAnswers
    pipeline: Pipeline
    limits: Limits
    rng: np.random.RandomState
    log: StageLog
    seen: ActivationEvidence | None = None

    @property
    def takes_logits(self):
        """Whether answers turned out to be probabilities, and the network of their logits is looked for."""
        return self.seen is not None and self.oracle.response == "predict_proba"

    @property
    def shallow(self):
        """Whether there is no hidden layer, or one below a linear output."""
        n_layers = 2 if self.widths is None else len(self.widths)
        return self.widths is None or n_layers == 1 or (n_layers == 2 and self.activations[1] == "identity")

    @property
    def fit_tolerance(self):
        """Relative misfit at which a fit to the answers counts as found."""
        # Where widths are to be found, a network too small must not pass for noise.
        margin = 1.5 if self.discover else 3.0
        return max(1e-9, margin * self.fresh.noise) if self.fresh.noise <= MAX_NOISE else 1e-9

    @property
    def accepted_error(self):
        """Error on fresh inputs at which no further attempt is made: all that the answers' noise allows."""
        tol, noise = self.limits.tol, self.fresh.noise
        return max(tol, _NOISE_LEFT * noise) if noise <= MAX_NOISE else tol

    @property
    def out_of_time(self):
        """Whether `max_seconds` are over."""
        return self.oracle.clock.out_of_time

    @property
    def search_is_over(self):
        """Whether the share of `max_seconds` that random starts may take is over."""
        return time.perf_counter() > self.oracle.clock.share(_SEARCHING)

    def architecture(self, widths=None):
        """An architecture with the activations looked for.

        Parameters
        ----------
        widths : sequence of int, default=None
            Those looked for.

        Returns
        -------
        Architecture
        """
        return Architecture(self.widths if widths is None else widths, *self.activations)

    def widths_allow_shifts(self, first):
        """Whether gradients may tell the first layer's shifts: no more units than inputs, and fewer after them.

        Parameters
        ----------
        first : FirstLayer

        Returns
        -------
        bool
        """
        m_1 = len(first.biases)
        return m_1 <= self.oracle.n_inputs and (self.widths is None or self.widths[1] < m_1)

    def search(self, n_parameters, tol, progress: Callable | None = None):
        """Random starts of a fit with so many parameters, in the time that is left.

        Parameters
        ----------
        n_parameters : int
        tol : float
            Relative root mean square misfit that counts as found.
        progress : callable, default=None

        Returns
        -------
        Search
        """
        limits = self.limits
        n_starts = int(np.clip(3e6 / n_parameters**2, 24, 40)) if limits.n_starts is None else limits.n_starts
        return StartLimits(n_starts, self.oracle.clock.share(_SEARCHING), limits.n_jobs, tol, progress)

    def noise_refuted_by(self, error):
        """The same inquiry without noise, where a network agrees with the answers far better than noise would let it.

        Where most units are saturated, steps look like noise.

        Parameters
        ----------
        error : float
            Of the network on fresh inputs.

        Returns
        -------
        Inquiry
        """
        refuted = error < 0.01 * self.fresh.noise
        return replace(self, fresh=replace(self.fresh, accuracy=self.fresh.accuracy.as_exact())) if refuted else self


def sought_widths(layer_widths, n_outputs, output_activation, seen=None):
    """Widths to look for, and whether they are to be found.

    Parameters
    ----------
    layer_widths : sequence of int, "auto" or None
    n_outputs : int
    output_activation : str
    seen : ActivationEvidence, default=None
        Where the output's activation was looked for and is not linear, None is depth and widths to be found.

    Returns
    -------
    widths : tuple of int or None
    discover : bool

    Raises
    ------
    ValueError
        If the widths are impossible, or None cannot mean one hidden layer with linear output.
    """
    nonlinear = seen is not None and output_activation != "identity"
    if isinstance(layer_widths, str) or (layer_widths is None and nonlinear):
        return None, True
    if layer_widths is not None:
        if seen is not None and seen.output.name == "softmax" and n_outputs == 1 and layer_widths[-1] == 2:
            layer_widths = (*layer_widths[:-1], 1)  # the log-odds of the second of two classes
        return check_layer_widths(layer_widths, n_outputs), False
    if output_activation != "identity":
        raise ValueError(
            "layer_widths=None finds one hidden layer with linear output, got "
            f"output_activation={output_activation!r}; give layer_widths."
        )
    return None, False


def ask_fresh(oracle, X, spread, rng, n_check):
    """Rows that no fit sees, half of them of X where it has so many, and the accuracy of their answers.

    The oracle knows that accuracy then.

    Parameters
    ----------
    oracle : Oracle
    X : ndarray of shape (n, D)
        Rows that may be asked.
    spread : float
        Of the other rows, in standard deviations.
    rng : numpy.random.RandomState
    n_check : int
        Rows at most.

    Returns
    -------
    FreshAnswers

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked.
    """
    rows = spaced(oracle.from_inputs(X), n_check // 2)
    U, Y = oracle.query_precise(functools.partial(fresh_rows, rows, spread, rng), len(rows) + n_check - n_check // 2)
    return FreshAnswers(U, Y, oracle.measure_accuracy(U[:200], Y, rng))
