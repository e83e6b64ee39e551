"""What all ways of identifying a black box share, and what each of them gives."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from skident.base.progress import StageLog
from skident.fitting.design import design_points
from skident.fitting.polish import polish_from_oracle
from skident.fitting.starts import Budget
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import Oracle

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor
from .saturation.first_layer import FirstLayer

__all__ = ["Job", "Trial", "finish", "where_units_move", "worst_error"]

_NOISE_LEFT = 20.0  # largest error on noisy answers, in standard deviations of their noise, that noise explains
_MOST_NOISE = 0.02  # relative; what looks like more is no noise around a network, but steps or something else


@dataclass
class Job:
    """What all attempts at one black box share."""

    box: object
    oracle: Oracle
    rng: np.random.RandomState
    log: StageLog
    names: tuple[str, str]
    widths: tuple[int, ...] | None
    held_out: np.ndarray
    held_out_answers: np.ndarray
    sigma: np.ndarray | None  # noise of every output, absolute; None at rounding level
    extractor: EntangledWeightExtractor
    completion: NetworkCompletion
    polish: bool
    tol: float
    repeatable: bool = True
    discover: bool = False
    max_neurons: int = 200
    n_starts: int | None = None
    max_seconds: float | None = None
    n_jobs: int | None = None
    extraction_queries: int = 0
    first: FirstLayer | None = None
    precise: bool = True
    reason: str = ""
    began: float = field(default_factory=time.perf_counter)

    @property
    def shallow(self):
        """Whether there is no hidden layer, or one below a linear output."""
        return self.widths is None or len(self.widths) == 1 or (len(self.widths) == 2 and self.names[1] == "identity")

    @property
    def n_visible(self):
        """Weights that show in Hessians: a linear output layer's do not."""
        return sum(self.widths) if get_activation(self.names[1]).curved else sum(self.widths[:-1])

    @property
    def noise(self):
        """Noise of the worst output, relative to the standard deviation of its answers."""
        if self.sigma is None:
            return 0.0
        return float(np.max(self.sigma / np.maximum(self.held_out_answers.std(axis=0), np.finfo(float).tiny)))

    @property
    def fitted(self):
        """Relative misfit at which a fit to the answers counts as found."""
        # Where widths are to be found, a network too small must not pass for noise.
        margin = 1.5 if self.discover else 3.0
        return max(1e-9, margin * self.noise) if self.noise <= _MOST_NOISE else 1e-9

    @property
    def enough(self):
        """Error on fresh inputs at which no further attempt is made: all that the answers' noise allows."""
        return max(self.tol, _NOISE_LEFT * self.noise) if self.noise <= _MOST_NOISE else self.tol

    @property
    def late(self):
        """Whether `max_seconds` are over."""
        return self.max_seconds is not None and time.perf_counter() - self.began > self.max_seconds

    def widths_allow_shifts(self, first):
        """Whether gradients may tell the first layer's shifts: no more units than inputs, and fewer after them."""
        m_1 = len(first.biases)
        return m_1 <= self.oracle.n_inputs and (self.widths is None or self.widths[1] < m_1)

    def budget(self, n_parameters):
        """Random starts of a fit with so many parameters, in the time that is left."""
        n_starts = self.n_starts
        if n_starts is None:
            n_starts = int(np.clip(3e6 / n_parameters**2, 24, 40))
        left = np.inf if self.max_seconds is None else self.max_seconds - (time.perf_counter() - self.began)
        return Budget(n_starts, left, self.n_jobs)


@dataclass
class Trial:
    """What one attempt gave: a network of standardised inputs, its error on fresh inputs, and where it went wrong."""

    network: FeedforwardNetwork
    error: float
    stage: str
    misfit: float
    route: str
    extractor: EntangledWeightExtractor | None = None
    completion: NetworkCompletion | None = None


def finish(job, network, misfit, stage, route, extractor=None, completion=None):
    """Polish, and compare with the black box on fresh inputs."""
    if job.polish:
        network, misfit = polish_from_oracle(job.oracle, network, job.rng, job.log, noise=job.sigma)
    error = worst_error(job.held_out_answers, network(job.held_out))
    return Trial(network, error, stage, misfit, route, extractor, completion)


def where_units_move(network):
    """Inputs (n, D) at which first-layer units are on the move, for judging whether all units are needed."""
    n = 200 + 2 * network.n_parameters // network.n_outputs
    return design_points(network.weights[0], network.biases[0], n, 1.0, np.random.RandomState(0))


def worst_error(answers, found):
    """Largest error of any output over its largest deviation from its mean: offsets and other outputs hide nothing.

    Below a millionth of the largest answer, a deviation is taken as rounding and that millionth is the unit.
    """
    largest = np.abs(answers).max(axis=0)
    unit = np.maximum(np.abs(answers - answers.mean(axis=0)).max(axis=0), 1e-6 * largest)
    if not np.isfinite(found).all():
        return np.inf
    return float(np.max(np.abs(found - answers) / np.maximum(unit, np.finfo(float).tiny)))
