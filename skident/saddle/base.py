"""What the classifier and the regressor of saddle-to-saddle training share: parameters, training, record."""

import dataclasses
import functools
import math
import warnings
from numbers import Integral

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data
from skident.base.column_scales import scales_for_classes
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions
from skident.budget.constants import INPUT_NOISE, N_FOLDS
from skident.training.net import Training, WeightedLoss, resolve_device

from .diagnosis import diagnose
from .early_stopping import FinishRate, StoppingOptions, choose_epochs
from .localized_loss import activations, as_matrices
from .module import BiasFreeMLP, input_scaling
from .training_phases import NormAdaptedStep, TrainingRun, WeightRecorder, saddles_of

_RATE_OF_CLASSES = 0.002  # constant: on digits of other writers, falling rates lose accuracy of 0.005 to 0.012 (tuned)
# On five tables, other seeds than the benchmark's, R^2 is 0.008 higher on average than with a constant rate of 0.002,
# after fewer epochs.
_RATE_OF_TARGETS = 0.012  # at first (tuned, see above)
_HALF_RATE_AFTER = 30.0  # epochs (tuned, see above)

PARAMETERS = """depth : int, default=3
        L, at least 2: the number of weight matrices.
    width : int, default=100
        Units of each hidden layer.
    init_scale : float, default=0.03
        Weights are drawn with standard deviation ``init_scale / sqrt(width)``. The smaller, the longer and flatter the
        plateaus, and the lower the rank in between.
    n_escapes : int, "all" or None, default=None
        None trains to the end: gradient descent out of the saddle at the origin, then Adam with early stopping. A
        number is the paper's training: gradient descent only, which ends on the plateau after so many escapes; "all"
        continues until `max_iter`.
    standardize : bool, default=True
        Whether inputs are standardized, clipped at three standard deviations, and extended by a column of ones in
        place of biases. Set it to False to train on X unchanged.
    initial_weights : list of L array-like of shape (m_{l-1}, m_l), default=None
        Initial weights, as `SaddleEscapeAnalyzer.initial_weights` gives them (with ``noise`` to get past the first
        saddle); None draws them. For standardized inputs ``m_0 = D + 1``.
    relative_step : float, default=0.05
        Until the first escape, the size of a step relative to the norm of all weights; later its upper bound.
    learning_rate : float, default=0.3
        c: with `n_escapes` the learning rate is ``c a^(2-L)`` after the first escape, ``a = ||theta|| / sqrt(L)``. Six
        layers need 8: with 1 they may stay at the first saddle.
    max_iter : int, default=1000
        Maximum number of epochs.
    batch_size : int, default=None
        Samples per step; None is all of them, so that an epoch is a step.
    record_every : int, default=10
        Steps between two records of loss and singular values.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``. The data stay there during training.
    dtype : {"float64", "float32"}, default="float64"
    callbacks : list of skorch callbacks, default=None
        Copied.
    random_state : int, RandomState or None, default=None
        Draws weights, splits and batches. Predictions depend on it, but not on the order of the rows.
    verbose : int, default=0
        1 prints skorch's table."""

ATTRIBUTES = """saddles_ : list of Saddle
        Plateaus and escapes as `skident.saddle.detect_escapes` detects them in the record, the start first. Empty for
        fewer than five records. Only with `n_escapes` they are saddles of gradient descent: Adam rarely stops at one.
    history_ : dict
        ``steps`` (T,), ``losses`` (T,), ``norms`` (T,) of ``||theta|| / sqrt(L)``, ``learning_rates`` (T,), and
        ``singular_values``, a list of L arrays (T, k), the ten largest.
    escape_step_ : int or None
        Step at which the loss had fallen by 2 %, where the learning rate changes its rule; None if it did not.
    held_out_score_ : float
        Without `n_escapes`: R^2 or accuracy on held-out samples, of the networks that determined the number of epochs.
        NaN if none of them left the origin.
    linear_score_ : float
        The same for ridge or logistic regression; NaN for fewer than ten samples, and with `n_escapes`.
    input_noise_ : float
        Standard deviation of the noise on standardized inputs during Adam: 0.5 for classifiers with a lower held-out
        loss with it, else 0.
    weights_ : list of L ndarrays of shape (m_{l-1}, m_l)
        For standardized inputs ``m_0 = D + 1``.
    loss_ : float
        Final loss on the training data.
    net_ : skorch.NeuralNet
    n_iter_ : int
        Epochs.
    n_features_in_ : int"""


class SaddleToSaddleBase(ReportedEstimator):
    """Parameters, training and record of the classifier and the regressor."""

    _reported = ("saddles_", "escape_step_", "loss_", "held_out_score_", "linear_score_", "n_iter_")

    _parameter_constraints = {
        "depth": [Interval(Integral, 2, None, closed="left")],
        "width": [AT_LEAST_ONE],
        "init_scale": [POSITIVE],
        "n_escapes": [AT_LEAST_ONE, StrOptions({"all"}), None],
        "standardize": ["boolean"],
        "initial_weights": [list, tuple, None],
        "relative_step": [POSITIVE],
        "learning_rate": [POSITIVE],
        "max_iter": [AT_LEAST_ONE],
        "batch_size": [AT_LEAST_ONE, None],
        "record_every": [AT_LEAST_ONE],
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
        max_iter=1000,
        batch_size=None,
        record_every=10,
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
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.record_every = record_every
        self.device = device
        self.dtype = dtype
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "weights_")

    def _train(self, X, Y, weights, criterion):
        """Train on targets as the criterion takes them, (n, k) or class numbers (n,); set the attributes.

        `weights` (n,) are those of the samples, or None. Returns constants (k,) to add to the outputs.
        """
        rng = check_random_state(self.random_state)
        self._input_scaling = self._scaling(X, Y, weights) if self.standardize else None
        inputs = self._network_inputs(X)
        module = self._module(self._sizes(inputs, Y), rng)
        x, targets = self._tensors(inputs, Y)
        if weights is not None:
            targets, criterion = (targets, x.new_tensor(weights)), functools.partial(WeightedLoss, criterion)
        run = TrainingRun(module, x, targets, criterion, self._training(rng))
        if self.n_escapes is None:
            stopping = self._choose_epochs(X, inputs, Y, weights, rng)
            callbacks = self._all_callbacks(len(X))
            self._store_training(run.to_the_end(callbacks, stopping.n_epochs, self._rate(), stopping.noise))
        else:
            stopping = None
            self._store_training(run.from_saddle_to_saddle(self._all_callbacks(len(X)), self.n_escapes))
        self.held_out_score_, self.linear_score_ = (np.nan, np.nan) if stopping is None else stopping.scores[:2]
        self.input_noise_ = 0.0 if stopping is None or stopping.noise is None else INPUT_NOISE
        problem = diagnose(self, stopping, run.zero_loss())
        if problem is not None:
            warnings.warn(problem, ConvergenceWarning, stacklevel=3)
        elif stopping is not None and stopping.better is not None:
            stopping.better.warn(type(self).__name__, stacklevel=3)
        outputs = self._network_outputs(inputs)
        relative = 0.0 if stopping is None else stopping.constants
        return np.zeros(outputs.shape[1]) + relative * np.sqrt(np.mean(outputs**2))

    def _choose_epochs(self, X, inputs, Y, weights, rng):
        """Number of epochs and input noise, from networks trained on parts of the samples."""
        tensors = self._tensors(inputs, Y, "float32" if self.standardize else self.dtype)
        sizes = self._sizes(inputs, Y)
        options = StoppingOptions(
            sizes=sizes,
            folds=np.array_split(rng.permutation(len(X)), min(N_FOLDS, len(X))),
            init_scale=self.init_scale,
            relative_step=self.relative_step,
            rate=self._rate(),
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            start=self._start(sizes),
            seed=int(rng.randint(2**31 - 1)),
            noise=(*[INPUT_NOISE] * X.shape[1], 0.0) if self.standardize else None,
            weights=weights,
        )
        return choose_epochs(X, Y, tensors, is_classifier(self), options)

    def _sizes(self, inputs, Y):
        """``(D, m_1, ..., m_L)``."""
        return (inputs.shape[1], *[self.width] * (self.depth - 1), Y.shape[1] if Y.ndim == 2 else int(Y.max()) + 1)

    def _rate(self):
        """Learning rate of Adam, and how it falls."""
        if is_classifier(self):
            return FinishRate(_RATE_OF_CLASSES)
        return FinishRate(_RATE_OF_TARGETS, _HALF_RATE_AFTER)

    def _store_training(self, record):
        """Store the trained network and its record."""
        self.net_, self.history_, self.escape_step_ = record.net, record.history, record.escape_step
        self.n_iter_, self.loss_ = record.n_epochs, record.loss
        self.weights_ = self._trained_weights()
        self.saddles_ = saddles_of(self.history_)

    def _scaling(self, X, Y, weights):
        """Means and standard deviations; for classes with lower bounds if a kernel classifier is better with them."""
        scaling = input_scaling(X, weights)
        if not is_classifier(self):
            return scaling
        labels = Y.reshape(len(Y), -1)[:, 0].astype(int)
        return dataclasses.replace(scaling, scale=scales_for_classes(X, labels, weights))

    def _network_inputs(self, X):
        """The network's inputs."""
        return X if self._input_scaling is None else self._input_scaling(X)

    def _module(self, sizes, rng):
        """The network with random weights, or with `initial_weights`."""
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
                f"and one output for two classes, else one per class or target); got {[W.shape for W in weights]}."
            )
        if not any(W.any() for W in weights):
            raise ValueError("initial_weights are all zero, where the gradient vanishes; give small ones.")
        return weights

    def _tensors(self, X, Y, dtype=None):
        """Inputs and targets on the training device."""
        device, dtype = resolve_device(self.device), getattr(torch, dtype or self.dtype)
        # A copy: torch warns of tensors on read-only arrays.
        inputs = torch.as_tensor(X.copy(), dtype=dtype, device=device)
        return inputs, torch.as_tensor(Y, dtype=dtype if Y.dtype.kind == "f" else torch.int64, device=device)

    def _training(self, rng):
        """Plain gradient descent; `NormAdaptedStep` sets its learning rates."""
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
        """Learning rates and record, then the user's callbacks."""
        n_batches = 1 if self.batch_size is None else math.ceil(n_samples / self.batch_size)
        return [
            ("step", NormAdaptedStep(self.relative_step, self.learning_rate, window=n_batches)),
            ("recorder", WeightRecorder(self.record_every)),
            *(self.callbacks or []),
        ]

    def _trained_weights(self):
        """The net's weights as arrays; ValueError if training diverged."""
        weights = as_matrices(self.net_.module_.weights)
        if not all(np.isfinite(W).all() for W in weights):
            raise ValueError(
                f"training diverged with learning_rate={self.learning_rate} and relative_step={self.relative_step}; "
                "lower them, or scale X."
            )
        return weights

    def _outputs(self, X):
        """The network's outputs (n, k)."""
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        return self._network_outputs(self._network_inputs(X))

    def _network_outputs(self, inputs):
        return activations(self.weights_[:-1], inputs)[-1] @ self.weights_[-1]
