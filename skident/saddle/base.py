"""What the classifier and the regressor of saddle-to-saddle training share: parameters, training, record."""

from __future__ import annotations

import math
import warnings
from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions
from skident.training.net import Training, fit_module, resolve_device

from .callbacks import NormAdaptedStep, WeightRecorder
from .localised_loss import activations, as_matrices
from .module import BiasFreeMLP
from .plateaus import detect_escapes

__all__ = ["ATTRIBUTES", "PARAMETERS", "SaddleToSaddleBase"]

_SHORTEST_RECORD = 5  # points of a curve in which a saddle can be seen

PARAMETERS = """depth : int, default=4
        L, at least 2: the number of weight matrices.
    width : int, default=100
        Units of every hidden layer.
    init_scale : float, default=0.03
        Weights are drawn with standard deviation ``init_scale / sqrt(width)``. The smaller, the longer and flatter the
        plateaus, and the lower the rank in between.
    initial_weights : list of L array-like of shape (m_{l-1}, m_l), default=None
        Start there instead, as `SaddleEscapeAnalyzer.initial_weights` gives them (with ``noise`` to get past the first
        saddle).
    relative_step : float, default=0.02
        Until the first escape a step is this share of the norm of all weights, and later at most that.
    learning_rate : float, default=0.3
        c: afterwards the learning rate is ``c a^(2-L)`` with ``a = ||theta|| / sqrt(L)``.
    max_iter : int, default=1000
        Epochs.
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
        step of the escape, numerical rank of every layer. Empty if there are fewer than five records.
    history_ : dict
        ``steps`` (T,), ``losses`` (T,), ``norms`` (T,) of ``||theta|| / sqrt(L)``, ``learning_rates`` (T,), and
        ``singular_values``, a list of L arrays (T, k).
    escape_step_ : int or None
        Step at which the loss had fallen by 2 %, where the learning rate changed its rule; None if it never did.
    weights_ : list of L ndarrays of shape (m_{l-1}, m_l)
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
        "initial_weights": [list, tuple, None],
        "relative_step": [POSITIVE],
        "learning_rate": [POSITIVE],
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
        depth=4,
        width=100,
        *,
        init_scale=0.03,
        initial_weights=None,
        relative_step=0.02,
        learning_rate=0.3,
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
        self.init_scale = init_scale
        self.initial_weights = initial_weights
        self.relative_step = relative_step
        self.learning_rate = learning_rate
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
        sizes = (X.shape[1], *[self.width] * (self.depth - 1), Y.shape[1] if Y.ndim == 2 else int(Y.max()) + 1)
        module = self._module(sizes, rng)
        inputs, targets = self._tensors(X, Y)
        training = self._training(rng)
        self.net_ = fit_module(module, inputs, targets, criterion, training, callbacks=self._all_callbacks(len(X)))
        self.n_iter_, self.weights_ = len(self.net_.history), self._trained_weights()
        recorded = dict(self.net_.callbacks_)
        self.escape_step_ = recorded["step"].escape_step_
        self.history_ = _history(recorded["recorder"])
        self.saddles_ = _saddles(self.history_)
        with torch.no_grad():
            self.loss_ = float(self.net_.criterion_(self.net_.module_(inputs), targets))
            zero_loss = float(self.net_.criterion_(torch.zeros_like(self.net_.module_(inputs)), targets))
        doubt = _doubt(self.loss_, zero_loss, self.escape_step_, self.n_iter_)
        if doubt is not None:
            warnings.warn(doubt, ConvergenceWarning, stacklevel=3)

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

    def _tensors(self, X, Y):
        """Inputs and targets where the training is."""
        device, dtype = resolve_device(self.device), getattr(torch, self.dtype)
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
        return activations(self.weights_[:-1], X)[-1] @ self.weights_[-1]


def _doubt(loss, zero_loss, escape_step, n_epochs):
    """What to say of a training that did not go from saddle to saddle."""
    if loss > 2.0 * zero_loss:
        return (
            f"after {n_epochs} epochs the loss is {loss:.3g}, and {zero_loss:.3g} without any network: for inputs of "
            "this size the weights are not small. Scale X, or lower init_scale, relative_step or learning_rate."
        )
    if escape_step is None:
        return (
            f"training has not left the saddle at the origin after {n_epochs} epochs; raise max_iter or init_scale, or "
            "start from SaddleEscapeAnalyzer.initial_weights."
        )
    return None


def _history(recorder):
    """The record as arrays."""
    return {
        "steps": np.array(recorder.steps_),
        "losses": np.array(recorder.losses_),
        "norms": np.array(recorder.norms_),
        "learning_rates": np.array(recorder.rates_),
        "singular_values": [np.stack(layer) for layer in zip(*recorder.singular_values_)],
    }


def _saddles(history):
    """Plateaus and escapes of a record; none where it is too short to have any."""
    if len(history["steps"]) < _SHORTEST_RECORD:
        return []
    return detect_escapes(history["steps"], history["losses"], history["singular_values"])
