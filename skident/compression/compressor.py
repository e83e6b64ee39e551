"""A network made as small as a tolerance allows."""

import functools
import time
from numbers import Real

from sklearn.utils import check_random_state

from skident.base.checked_data import checked_model_data
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import (
    AT_LEAST_ONE,
    POSITIVE,
    Interval,
    StrOptions,
    center_and_scale,
    forgotten_on_error,
)
from skident.base.predictions import NetworkPredictions
from skident.base.progress import StageLog
from skident.budget import MemoryLimitError, OutOfBudgetError, time_limit
from skident.network import center_outputs, change_inputs
from skident.optim import one_thread
from skident.oracle import Oracle
from skident.oracle.black_box import (
    called_as,
    check_columns,
    is_classifying,
    known_network,
    named_rows,
    resolve_black_box,
)

from .smaller_network import Compression, compress_network


class NetworkCompressor(NetworkPredictions, ReportedEstimator):
    """The smallest network whose outputs agree with a given one around samples, to a tolerance.

    Finds the fewest hidden units with ``error <= tol``, where the error is measured on held-out rows of X between
    the network's own outputs and those of the smaller one; targets y play no part. Units are left out one after the
    other, the least needed first, the others taking over what they can, and all parameters are fitted again to the
    network's outputs. What the network does far from X is given up where that saves units.

    Parameters
    ----------
    estimator : regressor, classifier, FeedforwardNetwork or torch.nn.Module, default=None
        The network, whose weights must be known: an `MLPRegressor` or `MLPClassifier`, also behind affine
        transformers, a `FeedforwardNetwork`, a torch ``Sequential`` of linear layers and one kind of activation, the
        path of an ``.onnx`` file of such a network, or a fitted `NetworkIdentifier` (which makes a network of a black
        box). Without y it is taken as it is. With y an estimator is cloned and fitted on (X, y) first, a fitted one
        with a warning, unless it is inside `FrozenEstimator`. None is a small tanh `MLPRegressor`.
    tol : float, default=1e-2
        Largest error.
    metric : {"auto", "outputs", "probabilities", "labels"}, default="auto"
        ``outputs``: root mean square error over rows and outputs, every output relative to its standard deviation on
        X. ``probabilities``: the same of the classes' probabilities, the outputs being logits. ``labels``: share of
        the rows whose most probable class changes; one row at least once there is any, so `tol` below one over the
        number of held-out rows allows none. ``auto`` is ``labels`` for scikit-learn's classifiers, else ``outputs``.
    held_out : float, default=0.25
        Share of the rows of X that errors are measured on and that no fit sees.
    max_iter : int, default=60
        Levenberg-Marquardt steps after every removal, at most.
    max_seconds : float, default=None
        Seconds for `fit`. When they end, the smallest network until then is returned with a warning. None is no limit.
    random_state : int, RandomState or None, default=None
        Draws held-out rows and steps.
    verbose : int, default=0
        1 prints a line a network tried.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        In canonical form. Of a classifier the network of its logits, with zero mean over the classes.
    layer_widths_ : tuple of int
        ``(m_1, ..., m_L)``, outputs last.
    error_ : float
        Of `network_` on the held-out rows; at most `tol`.
    path_ : list of dict
        ``layer_widths``, ``n_parameters``, ``error`` and ``accepted`` (whether the error is at most `tol`) of the
        network as given and of every one fitted: size against error. The last is `network_`.
    n_iter_ : int
        Networks fitted, at least 1.
    estimator_ : object
        The network as given, fitted.
    classes_ : ndarray
        Of a classifier.
    n_features_in_ : int

    Notes
    -----
    `skident.compression.compress_network` describes the algorithm and its cost. The function is kept around the rows of
    X too: it is fitted at rows of X and at rows moved by Gaussian steps of 0.7 of their deviations. The result is a
    local optimum: no unit tried can be left out of it, but a smaller network may exist. relu networks are compressed
    too; a unit that never bends on the data is then a linear function, and several are merged. With ``y`` in mind
    rather than the network's outputs, compare `score` before and after. On rows that the network was trained on a
    classifier is surer than on others: of the digits data two to three times `tol` of the labels changed on new rows,
    which the tolerance does not promise anything about. Give X that it was not trained on, if there is any.

    Where the estimator is a classifier, so is this: `predict` gives labels, `predict_proba` probabilities,
    `decision_function` the logits, and `score` is the accuracy.

    References
    ----------
    Hassibi, Stork (1993), "Second order derivatives for network pruning: optimal brain surgeon".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skident import NetworkCompressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> mlp = MLPRegressor(
    ...     hidden_layer_sizes=(50,), activation="tanh", solver="lbfgs", random_state=0
    ... )
    >>> mlp = mlp.fit(X, np.sin(X[:, 0] + X[:, 1]))
    >>> compressor = NetworkCompressor(FrozenEstimator(mlp), tol=0.02, random_state=0).fit(X)
    >>> print(compressor.layer_widths_[0] < 10, compressor.error_ <= 0.02)
    True True
    """

    _reported = ("layer_widths_", "error_", "n_iter_")

    # Read by `NetworkPredictions`: classifiers return probabilities here, nothing else does.
    response_method = "auto"

    _parameter_constraints = {
        "estimator": "no_validation",
        "tol": [POSITIVE],
        "metric": [StrOptions({"auto", "outputs", "probabilities", "labels"})],
        "held_out": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [AT_LEAST_ONE],
        "max_seconds": [POSITIVE, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        tol=1e-2,
        metric="auto",
        held_out=0.25,
        max_iter=60,
        max_seconds=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.tol = tol
        self.metric = metric
        self.held_out = held_out
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def fit(self, X, y=None):
        """Compress the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Where the network is used. The columns of a DataFrame must be those that the estimator was fitted with.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first; labels for a classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite, has one row or another number of columns than the network has inputs, or the network
            cannot be read; or `max_seconds` end before a unit is removed.
        TypeError
            If the estimator is no network whose weights are known.
        """
        with forgotten_on_error(self), one_thread():
            began, frame = time.perf_counter(), X
            self._validate_params()
            X, y, response = checked_model_data(self, X, y)
            classifies = response == "predict_proba"
            rng = check_random_state(self.random_state)
            box, network = self._read_network(named_rows(X, frame), y, rng, classifies)
            smaller, path = self._compress_in_time(network, X, rng, classifies, began)
            self._store(box, smaller, path, named_rows(X, frame), classifies)
        return self

    def _read_network(self, X, y, rng, classifies):
        """The estimator, fitted, and its network."""
        seed = rng.randint(2**31 - 1)
        box = resolve_black_box(self.estimator, X, y, seed, classifiers=True)
        check_columns(box, X)
        network = known_network(box)
        if network.n_inputs != X.shape[1]:
            raise ValueError(f"X has {X.shape[1]} features, but the network to compress has {network.n_inputs} inputs.")
        return box, center_outputs(network) if classifies else network

    def _compress_in_time(self, network, X, rng, classifies, began):
        """`_compress` until `max_seconds` after a moment of `time.perf_counter`."""
        if self.max_seconds is None:
            return self._compress(network, X, rng, classifies)
        try:
            with time_limit(began + self.max_seconds, f"max_seconds={self.max_seconds:g} are over"):
                return self._compress(network, X, rng, classifies)
        except MemoryLimitError:
            raise
        except OutOfBudgetError as error:
            raise ValueError(f"{error} before any unit was removed: raise max_seconds.") from error

    def _compress(self, network, X, rng, classifies):
        """The smaller network, as a function of X as it is, and the path to it."""
        center, scale = center_and_scale(X, None)
        metric = ("labels" if classifies else "outputs") if self.metric == "auto" else self.metric
        smaller, path = compress_network(
            change_inputs(network, center, scale),
            (X - center) / scale,
            tol=self.tol,
            rng=rng,
            metric=metric,
            options=Compression(held_out=self.held_out, max_iter=self.max_iter),
            callback=functools.partial(_say_entry, StageLog(self.verbose, type(self).__name__)),
        )
        smaller = change_inputs(smaller, -center / scale, 1.0 / scale)
        return (center_outputs(smaller) if classifies else smaller), path

    def _store(self, box, network, path, X, classifies):
        self.network_, self.layer_widths_ = network.canonical(), network.layer_widths
        self.error_, self.path_, self.n_iter_ = path[-1]["error"], path, max(1, len(path) - 1)
        self.estimator_ = box
        self._one_dimensional, self._labels = _returns_vectors(box, X), None
        if classifies:
            self.classes_ = self._labels = box.classes_


def _returns_vectors(box, X):
    """Whether an estimator returns (n,) instead of (n, 1)."""
    if not hasattr(box, "predict") or is_classifying(box):
        return False
    oracle = Oracle(called_as(box, X), X.shape[1])
    oracle.query_inputs(X[:1])
    return oracle.one_dimensional


def _say_entry(log, entry):
    kept = "kept" if entry["accepted"] else "refused"
    log.say(f"widths {entry['layer_widths']}: error {entry['error']:.2e}, {kept}")
