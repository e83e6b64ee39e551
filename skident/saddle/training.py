"""Bias-free ReLU networks trained from small weights, from saddle to saddle, with a record of what happened."""

from __future__ import annotations

import math
import warnings
from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions, forgotten_on_error
from skident.base.predictions import in_shape_of_targets
from skident.training.net import Training, fit_module, resolve_device

from .callbacks import NormAdaptedStep, WeightRecorder
from .localised_loss import activations, as_matrices
from .module import BiasFreeMLP, HalfSquaredError
from .plateaus import detect_escapes

__all__ = ["SaddleToSaddleClassifier", "SaddleToSaddleRegressor"]

_PARAMETERS = """depth : int, default=4
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

_ATTRIBUTES = """saddles_ : list of Saddle
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


class _SaddleToSaddle(BaseEstimator):
    """What the classifier and the regressor share."""

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

    def _train(self, X, Y, criterion):
        """Train, and store everything; Y is what the criterion takes."""
        rng = check_random_state(self.random_state)
        device, dtype = resolve_device(self.device), getattr(torch, self.dtype)
        n_outputs = Y.shape[1] if Y.ndim == 2 else len(self.classes_)
        # A copy: torch warns of tensors on read-only arrays.
        inputs = torch.as_tensor(X.copy(), dtype=dtype, device=device)
        sizes = (X.shape[1], *[self.width] * (self.depth - 1), n_outputs)
        start = self._start(sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.randint(2**31 - 1))
            module = BiasFreeMLP(sizes, self.init_scale, start, dtype)
        n_batches = 1 if self.batch_size is None else math.ceil(len(X) / self.batch_size)
        targets = torch.as_tensor(Y, dtype=dtype if Y.dtype.kind == "f" else torch.int64, device=device)
        training = Training(
            optimizer="sgd",
            momentum=0.0,
            max_epochs=self.max_iter,
            batch_size=-1 if self.batch_size is None else self.batch_size,
            device=device,
            seed=rng.randint(2**31 - 1),
            verbose=self.verbose,
        )
        callbacks = [
            ("step", NormAdaptedStep(self.relative_step, self.learning_rate, window=n_batches)),
            ("recorder", WeightRecorder(self.record_every, self.n_singular_values)),
            *(self.callbacks or []),
        ]
        self.net_ = fit_module(module, inputs, targets, criterion, training, callbacks=callbacks)
        found = dict(self.net_.callbacks_)
        self._store(found["step"], found["recorder"])
        with torch.no_grad():
            self.loss_ = float(self.net_.criterion_(self.net_.module_(inputs), targets))

    def _store(self, step, recorder):
        self.n_iter_ = len(self.net_.history)
        weights = [W.detach().cpu().numpy().astype(np.float64) for W in self.net_.module_.weights]
        if not all(np.isfinite(W).all() for W in weights):
            raise ValueError(
                f"training diverged with learning_rate={self.learning_rate} and relative_step={self.relative_step}; "
                "lower them, or scale X."
            )
        self.escape_step_ = step.escape_step_
        self.history_ = {
            "steps": np.array(recorder.steps_),
            "losses": np.array(recorder.losses_),
            "norms": np.array(recorder.norms_),
            "learning_rates": np.array(recorder.rates_),
            "singular_values": [np.stack(layer) for layer in zip(*recorder.singular_values_)],
        }
        self.saddles_ = []
        if len(recorder.steps_) >= 5:
            history = self.history_
            self.saddles_ = detect_escapes(history["steps"], history["losses"], history["singular_values"])
        if self.escape_step_ is None:
            warnings.warn(
                f"training has not left the saddle at the origin after {self.n_iter_} epochs; raise max_iter or "
                "init_scale, or start from SaddleEscapeAnalyzer.initial_weights.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.weights_ = weights

    def _outputs(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return activations(self.weights_[:-1], X)[-1] @ self.weights_[-1]


class SaddleToSaddleClassifier(ClassifierMixin, _SaddleToSaddle):
    __doc__ = f"""A bias-free ReLU network trained from small weights on the log loss, with its saddles on record.

    Minimises the mean cross-entropy by gradient descent whose steps adapt to the norm of the weights, so that training
    neither stands still near the saddle at the origin nor explodes when it leaves. From small weights it goes from
    saddle to saddle, and the deep layers are of low rank in between.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    classes_ : ndarray
    {_ATTRIBUTES}

    Notes
    -----
    With two classes there is one output, else one a class. No scaling and no biases: centre X, or add a column of ones.
    A step costs ``O(n sum_l m_(l-1) m_l)``, a record the singular values of all layers.

    Source: Appendix B of Bantzis, Simon, Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks", whose rule
    ``c a^(2-L)`` alone does not leave the origin in reasonable time where L = 6.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skident import SaddleToSaddleClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = SaddleToSaddleClassifier(depth=3, width=20, max_iter=200, random_state=0).fit(scale(X), y)
    >>> print(classifier.score(scale(X), y) > 0.9)
    True
    """

    def fit(self, X, y):
        """Train.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,)
            Labels of at least two classes.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite, y has one class or is continuous, `initial_weights` do not fit, or training diverges.

        Warns
        -----
        ConvergenceWarning
            If training did not leave the saddle at the origin.
        """
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        with forgotten_on_error(self):
            self.classes_, codes = np.unique(y, return_inverse=True)
            k = len(self.classes_)
            if k < 2:
                raise ValueError(f"y has one class only ({str(self.classes_[0])!r}); at least two classes are needed.")
            if k == 2:
                self._train(X, codes[:, None].astype(np.float64), torch.nn.BCEWithLogitsLoss)
            else:
                self._train(X, codes, torch.nn.CrossEntropyLoss)
        return self

    def decision_function(self, X):
        """Logits (n_samples, n_classes), or with two classes the log-odds (n_samples,) of the second."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X):
        """Probabilities (n_samples, n_classes)."""
        from scipy.special import expit, softmax

        outputs = self._outputs(X)
        if len(self.classes_) == 2:
            return np.hstack([expit(-outputs), expit(outputs)])
        return softmax(outputs, axis=1)

    def predict(self, X):
        """Labels (n_samples,)."""
        outputs = self._outputs(X)
        codes = (outputs[:, 0] > 0).astype(int) if len(self.classes_) == 2 else np.argmax(outputs, axis=1)
        return self.classes_[codes]


class SaddleToSaddleRegressor(RegressorMixin, _SaddleToSaddle):
    __doc__ = f"""A bias-free ReLU network trained from small weights on the squared error, with its saddles on record.

    Minimises half the mean squared norm of ``f(x) - (y - mean) / scale``, where the scale is the root mean square of
    the centred targets, by gradient descent whose steps adapt to the norm of the weights. Losses are in these units:
    half the number of targets at the origin.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    intercept_ : ndarray of shape (n_outputs,)
        The mean of y: what a network without biases cannot learn.
    target_scale_ : float
    {_ATTRIBUTES}

    See Also
    --------
    SaddleToSaddleClassifier : The same for labels, with notes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from skident import SaddleToSaddleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = SaddleToSaddleRegressor(depth=3, width=20, max_iter=300, random_state=0).fit(scale(X), y)
    >>> print(regressor.score(scale(X), y) > 0.5)
    True
    """

    def fit(self, X, y):
        """Train.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite, y is constant, `initial_weights` do not fit, or training diverges.

        Warns
        -----
        ConvergenceWarning
            If training did not leave the saddle at the origin.
        """
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        with forgotten_on_error(self):
            Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
            self.intercept_ = Y.mean(axis=0)
            centred = Y - self.intercept_
            self.target_scale_ = float(np.sqrt(np.mean(centred**2)))
            if self.target_scale_ <= 1e-13 * np.abs(Y).max() or self.target_scale_ == 0:
                raise ValueError(
                    "y is constant: with its mean taken out there is nothing to learn, and the origin is no saddle."
                )
            self._one_dimensional = y.ndim == 1
            self._train(X, centred / self.target_scale_, HalfSquaredError)
        return self

    def predict(self, X):
        """Targets (n_samples,) or (n_samples, n_outputs), as y had in `fit`."""
        Y = self._outputs(X) * self.target_scale_ + self.intercept_
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
