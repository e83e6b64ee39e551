"""What the classifier and the regressor of saddle-to-saddle training share: parameters, training, record."""

from __future__ import annotations

import dataclasses
import math
import warnings
from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.column_scales import scales_for_classes
from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions
from skident.training.net import Training, resolve_device

from .callbacks import NormAdaptedStep, WeightRecorder
from .descent import Descent, saddles_of
from .doubts import doubt_of
from .inputs import standard_inputs
from .localised_loss import activations, as_matrices
from .module import BiasFreeMLP
from .rehearsal import RehearsalPlan
from .stopping import forecast_training

__all__ = ["ATTRIBUTES", "PARAMETERS", "SaddleToSaddleBase"]

_FOLDS = 3  # networks that tell how long to train
_NOISE = 0.5  # standard deviations of the inputs, on which a classifier is tried

PARAMETERS = """depth : int, default=3
        L, at least 2: the number of weight matrices.
    width : int, default=100
        Units of every hidden layer.
    init_scale : float, default=0.03
        Weights are drawn with standard deviation ``init_scale / sqrt(width)``. The smaller, the longer and flatter the
        plateaus, and the lower the rank in between.
    n_escapes : int, "all" or None, default=None
        None trains to the end: by gradient descent out of the saddle at the origin, from there by Adam for as many
        epochs as networks trained on two thirds of the rows needed to be best on the third that each was not shown.
        A number is the paper's training, gradient descent throughout, which ends on the plateau behind so many escapes;
        "all" goes on until `max_iter`.
    standardize : bool, default=True
        Whether the network sees the columns of X less their means, over their standard deviations, clipped at three,
        and a column of ones behind them in place of biases. A classifier's standard deviations have a floor where a
        kernel tells classes better with it (`skident.base.column_scales`). False: X as it is.
    initial_weights : list of L array-like of shape (m_{l-1}, m_l), default=None
        Start there instead, as `SaddleEscapeAnalyzer.initial_weights` gives them (with ``noise`` to get past the first
        saddle). Standardised inputs have ``m_0 = D + 1``.
    relative_step : float, default=0.05
        Until the first escape a step is this share of the norm of all weights, and later at most that.
    learning_rate : float, default=0.3
        c: with `n_escapes` the learning rate is afterwards ``c a^(2-L)`` with ``a = ||theta|| / sqrt(L)``. Six layers
        want 8: with 1 they may stay behind the first saddle.
    finish_rate : float, default=0.002
        Rate of Adam after the first escape, where `n_escapes` is None.
    max_iter : int, default=1000
        Epochs at most.
    batch_size : int, default=None
        Rows a step; None is all of them, so an epoch is a step.
    record_every : int, default=10
        Steps between two records of loss and singular values.
    n_singular_values : int, default=10
        Recorded of every layer.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``. The data stay there during training.
    dtype : {"float64", "float32"}, default="float64"
    callbacks : list of skorch callbacks, default=None
        Copied.
    random_state : int, RandomState or None, default=None
        Draws weights and batches.
    verbose : int, default=0
        1 prints skorch's table."""

ATTRIBUTES = """saddles_ : list of Saddle
        Plateaus and escapes as `skident.saddle.detect_escapes` finds them in the record, the start first: step, loss,
        step of the escape, numerical rank of every layer. Empty if there are fewer than five records. The saddles of
        gradient descent only with `n_escapes`: Adam hardly stops at any.
    history_ : dict
        ``steps`` (T,), ``losses`` (T,), ``norms`` (T,) of ``||theta|| / sqrt(L)``, ``learning_rates`` (T,), and
        ``singular_values``, a list of L arrays (T, k).
    escape_step_ : int or None
        Step at which the loss had fallen by 2 %, where the learning rate changed its rule; None if it never did.
    held_out_score_ : float
        Without `n_escapes`: R^2 or accuracy on held-out rows of the networks that told how long to train. NaN where
        none of them left the origin.
    linear_score_ : float
        What ridge or logistic regression reaches on the same rows; NaN for fewer than ten rows, and with `n_escapes`.
    input_noise_ : float
        Standard deviation of the noise that standardised inputs had in the training by Adam: 0.5 for classifiers whose
        networks on parts of the rows had a lower held-out loss with it, else 0.
    weights_ : list of L ndarrays of shape (m_{l-1}, m_l)
        On standardised inputs ``m_0 = D + 1``.
    loss_ : float
        On the training data, at the end.
    net_ : skorch.NeuralNet
    n_iter_ : int
        Epochs.
    n_features_in_ : int"""


class SaddleToSaddleBase(BaseEstimator):
    """Parameters, training and record of the classifier and the regressor."""

    _parameter_constraints = {
        "depth": [Interval(Integral, 2, None, closed="left")],
        "width": [AT_LEAST_ONE],
        "init_scale": [POSITIVE],
        "n_escapes": [AT_LEAST_ONE, StrOptions({"all"}), None],
        "standardize": ["boolean"],
        "initial_weights": [list, tuple, None],
        "relative_step": [POSITIVE],
        "learning_rate": [POSITIVE],
        "finish_rate": [POSITIVE],
        "max_iter": [AT_LEAST_ONE],
        "batch_size": [AT_LEAST_ONE, None],
        "record_every": [AT_LEAST_ONE],
        "n_singular_values": [AT_LEAST_ONE],
        "device": [str],
        "dtype": [StrOptions({"float64", "float32"})],
        "callbacks": [list, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        depth=3,
        width=100,
        *,
        n_escapes=None,
        standardize=True,
        init_scale=0.03,
        initial_weights=None,
        relative_step=0.05,
        learning_rate=0.3,
        finish_rate=0.002,
        max_iter=1000,
        batch_size=None,
        record_every=10,
        n_singular_values=10,
        device="cpu",
        dtype="float64",
        callbacks=None,
        random_state=None,
        verbose=0,
    ):
        self.depth = depth
        self.width = width
        self.n_escapes = n_escapes
        self.standardize = standardize
        self.init_scale = init_scale
        self.initial_weights = initial_weights
        self.relative_step = relative_step
        self.learning_rate = learning_rate
        self.finish_rate = finish_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.record_every = record_every
        self.n_singular_values = n_singular_values
        self.device = device
        self.dtype = dtype
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "weights_")

    def _train(self, X, Y, criterion):
        """Train on targets as the criterion takes them, numbers (n, k) or class numbers (n,), and store everything."""
        rng = check_random_state(self.random_state)
        self._input_units = self._units(X, Y) if self.standardize else None
        seen = self._seen(X)
        sizes = (seen.shape[1], *[self.width] * (self.depth - 1), Y.shape[1] if Y.ndim == 2 else int(Y.max()) + 1)
        module = self._module(sizes, rng)
        inputs, targets = self._tensors(seen, Y)
        run = Descent(module, inputs, targets, criterion, self._training(rng))
        if self.n_escapes is None:
            forecast = self._forecast(X, seen, Y, sizes, rng)
            callbacks = self._all_callbacks(len(X))
            self._keep(run.to_the_end(callbacks, forecast.n_epochs, self.finish_rate, forecast.noise))
        else:
            forecast = None
            self._keep(run.from_saddle_to_saddle(self._all_callbacks(len(X)), self.n_escapes))
        self.held_out_score_, self.linear_score_ = (np.nan, np.nan) if forecast is None else forecast.scores
        self.input_noise_ = 0.0 if forecast is None or forecast.noise is None else _NOISE
        doubt = doubt_of(self, forecast, run.zero_loss())
        if doubt is not None:
            warnings.warn(doubt, ConvergenceWarning, stacklevel=3)

    def _forecast(self, X, seen, Y, sizes, rng):
        """How long to train, from networks on parts of the rows."""
        inputs, targets = self._tensors(seen, Y, "float32" if self.standardize else self.dtype)
        plan = RehearsalPlan(
            sizes=sizes,
            folds=np.array_split(rng.permutation(len(X)), min(_FOLDS, len(X))),
            init_scale=self.init_scale,
            relative_step=self.relative_step,
            finish_rate=self.finish_rate,
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            start=self._start(sizes),
            seed=int(rng.randint(2**31 - 1)),
            noise=(*[_NOISE] * X.shape[1], 0.0) if self.standardize else None,
        )
        return forecast_training(X, Y, (inputs, targets), is_classifier(self), plan)

    def _keep(self, trained):
        """The trained network and its record."""
        self.net_, self.history_, self.escape_step_ = trained.net, trained.history, trained.escape_step
        self.n_iter_, self.loss_ = trained.n_epochs, trained.loss
        self.weights_ = self._trained_weights()
        self.saddles_ = saddles_of(self.history_)

    def _units(self, X, Y):
        """Means and standard deviations of the columns; for classes with a floor where that tells them better."""
        units = standard_inputs(X)
        if not is_classifier(self):
            return units
        return dataclasses.replace(units, scale=scales_for_classes(X, Y.reshape(len(Y), -1)[:, 0].astype(int)))

    def _seen(self, X):
        """What the network sees of X."""
        return X if self._input_units is None else self._input_units(X)

    def _module(self, sizes, rng):
        """The network at its start: drawn, or `initial_weights`."""
        start = self._start(sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.randint(2**31 - 1))
            return BiasFreeMLP(sizes, self.init_scale, start, getattr(torch, self.dtype))

    def _start(self, sizes):
        """`initial_weights` as arrays of these sizes, or None."""
        if self.initial_weights is None:
            return None
        weights = as_matrices(self.initial_weights)
        wanted = list(zip(sizes[:-1], sizes[1:]))
        if [W.shape for W in weights] != wanted or not all(np.isfinite(W).all() for W in weights):
            raise ValueError(
                f"initial_weights must be finite arrays of shapes {wanted} (depth={self.depth}, width={self.width}, "
                f"and one output for two classes, else one a class or target); got {[W.shape for W in weights]}."
            )
        if not any(W.any() for W in weights):
            raise ValueError("initial_weights are all zero, where the gradient vanishes; give small ones.")
        return weights

    def _tensors(self, X, Y, dtype=None):
        """Inputs and targets where the training is."""
        device, dtype = resolve_device(self.device), getattr(torch, dtype or self.dtype)
        # A copy: torch warns of tensors on read-only arrays.
        inputs = torch.as_tensor(X.copy(), dtype=dtype, device=device)
        return inputs, torch.as_tensor(Y, dtype=dtype if Y.dtype.kind == "f" else torch.int64, device=device)

    def _training(self, rng):
        """Plain gradient descent; `NormAdaptedStep` sets its rates."""
        return Training(
            optimizer="sgd",
            momentum=0.0,
            max_epochs=self.max_iter,
            batch_size=-1 if self.batch_size is None else self.batch_size,
            device=resolve_device(self.device),
            seed=rng.randint(2**31 - 1),
            verbose=self.verbose,
        )

    def _all_callbacks(self, n_samples):
        """The steps and the record, then the user's."""
        n_batches = 1 if self.batch_size is None else math.ceil(n_samples / self.batch_size)
        return [
            ("step", NormAdaptedStep(self.relative_step, self.learning_rate, window=n_batches)),
            ("recorder", WeightRecorder(self.record_every, self.n_singular_values)),
            *(self.callbacks or []),
        ]

    def _trained_weights(self):
        """The net's weights as arrays, where training stayed finite."""
        weights = as_matrices(self.net_.module_.weights)
        if not all(np.isfinite(W).all() for W in weights):
            raise ValueError(
                f"training diverged with learning_rate={self.learning_rate} and relative_step={self.relative_step}; "
                "lower them, or scale X."
            )
        return weights

    def _outputs(self, X):
        """What the network answers, (n, k)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return activations(self.weights_[:-1], self._seen(X))[-1] @ self.weights_[-1]
