"""Network completion: from projections on entangled weights to a network, as a scikit-learn regressor."""

import re
import warnings

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    StrOptions,
    check_layer_widths,
    forgotten_on_error,
)
from skident.base.predictions import in_shape_of_targets
from skident.base.progress import StageLog
from skident.network import Architecture, FeedforwardNetwork, get_activation
from skident.optim import one_thread
from skident.oracle import NotIdentified

from .hessians.completion_problem import (
    Completed,
    CompletionProblem,
    best_completion,
    completion_starts,
    mixing_matrices,
)

# Steps or epochs; budget. Descent converges linearly: the paper's experiments take some 1,000 epochs.
_DEFAULT_ITERATIONS = {"lm": 200, "gd": 1000, "adam": 1000}


class NetworkCompletion(RegressorMixin, ReportedEstimator):
    """Complete entangled weights to a network: fit its scales and biases.

    Given the projections ``Z_l = X V_l`` on each layer's entangled weights, the layers' mixing is known,
    ``V_{l+1} = V_l C_l``. The unknowns are diagonal scales T_l, R_l and biases tau_l (the paper's shifts):

        ``min sum_n || y_n - f(z_n) ||^2``,
        ``y_1 = g(T_1 z_1 + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})``.

    Features that are not arranged in layers, or that lack the last layer, are taken as the hidden layers' projections;
    the last layer's weights are then fitted freely.

    Parameters
    ----------
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``: the features are blocks of these widths, with or without the last. None reads the blocks
        from feature names ``layer1_0, ...``, and without them takes all features as one hidden layer.
    activation, output_activation : str, default="tanh", "identity"
        Names as in `FeedforwardNetwork`.
    solver : {"lm", "gd", "adam"}, default="lm"
        ``lm``: Levenberg-Marquardt with analytic Jacobian (variable projection for one hidden layer with a free linear
        readout). ``gd``: the paper's full-batch gradient descent. ``adam``: Adam, both by skorch.
    max_iter : int, default=None
        Steps; None: 200 of Levenberg-Marquardt, 1,000 epochs of the others. Raise it after a ConvergenceWarning.
    tol : float, default=1e-13
        Relative root mean square residual at which Levenberg-Marquardt stops.
    learning_rate : float, default=0.025
        Of ``gd`` and ``adam``.
    n_starts : int, default=4
        Starts tried until one ends with a relative residual below 0.01 (1e-6 for variable projection). Raise it if the
        best one is larger.
    start : tuple of two array-like of shape (m_1,), default=None
        First-layer scales and biases to start from, as `EntangledWeightExtractor` stores them.
    device : str, default="cpu"
        Where ``gd`` and ``adam`` run: ``cpu``, ``cuda``, ..., ``auto``.
    dtype : {"float64", "float32"}, default="float64"
        Of ``gd`` and ``adam``.
    callbacks : list of skorch callbacks, default=None
        For ``gd`` and ``adam``; copied.
    random_state : int, RandomState or None, default=None
        Seed; pass an int for reproducible results.
    verbose : int, default=0
        1 prints the residual of every start on stderr; with ``gd`` and ``adam`` skorch's table.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        On the features: each unit of its first layer has one nonzero weight.
    scales_ : ndarray of shape (m_1,)
        T_1, the first layer's weights on its features.
    biases_ : list of ndarray
        tau_l.
    mixings_ : list of ndarray of shape (m_l, m_{l+1})
        C_l.
    layer_widths_ : tuple of int
    residual_ : float
        ``||f(Z) - Y||_F / ||Y||_F`` on the training data.
    history_ : list of float
        Of the chosen start: sum of squared residuals after every step (in units of y's standard deviations if the
        output is linear), or mean squared error after every epoch.
    n_iter_ : int
    net_ : skorch.NeuralNet
        Only with ``gd`` and ``adam``.
    n_features_in_ : int

    Notes
    -----
    ``3 sum(m_l) - m_L`` unknowns P; a Levenberg-Marquardt step costs ``O(n m_L P^2)``, an epoch
    ``O(n sum m_l m_{l+1})``. The starts are the paper's (T = R = 1, tau = 0), then pre-activations of unit variance,
    then random scales. Exact only where V_l has full column rank, so for ``m_l <= D`` (Proposition 3).

    References
    ----------
    Fiedler, Fornasier, Klock, Rauchensteiner (2021), "Stable Recovery of Entangled Weights", Section 3.4, eq. (18).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skident import EntangledWeightExtractor, NetworkCompletion
    >>> from skident.datasets import make_network
    >>> network = make_network((10, 8, 3), random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((300, 10))
    >>> widths = (8, 3)
    >>> pipeline = make_pipeline(
    ...     EntangledWeightExtractor(network, layer_widths=widths, random_state=0),
    ...     NetworkCompletion(layer_widths=widths, output_activation="tanh"))
    >>> pipeline = pipeline.fit(X, network(X))
    >>> print(round(pipeline.score(X, network(X)), 6))
    1.0
    """

    _reported = ("layer_widths_", "residual_", "n_iter_")

    _parameter_constraints = {
        "layer_widths": ["array-like", None],
        "activation": [ACTIVATION_CHOICES],
        "output_activation": [ACTIVATION_CHOICES],
        "solver": [StrOptions({"lm", "gd", "adam"})],
        "max_iter": [AT_LEAST_ONE, None],
        "tol": [POSITIVE],
        "learning_rate": [POSITIVE],
        "n_starts": [AT_LEAST_ONE],
        "start": [tuple, list, None],
        "device": [str],
        "dtype": [StrOptions({"float64", "float32"})],
        "callbacks": [list, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        layer_widths=None,
        *,
        activation="tanh",
        output_activation="identity",
        solver="lm",
        max_iter=None,
        tol=1e-13,
        learning_rate=0.025,
        n_starts=4,
        start=None,
        device="cpu",
        dtype="float64",
        callbacks=None,
        random_state=None,
        verbose=0,
    ):
        self.layer_widths = layer_widths
        self.activation = activation
        self.output_activation = output_activation
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.n_starts = n_starts
        self.start = start
        self.device = device
        self.dtype = dtype
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def fit(self, X, y):
        """Fit scales and biases.

        Parameters
        ----------
        X : array-like of shape (n_samples, m)
            Projections on entangled weights, `EntangledWeightExtractor.transform`.
        y : array-like of shape (n_samples,) or (n_samples, m_L)
            The network's outputs.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite; widths and features do not match; samples are too few for the mixing; `start` is
            not two arrays of m_1 finite numbers; no start gives a finite residual; the descent diverges; or `device`
            is not available.

        Warns
        -----
        ConvergenceWarning
            If the best start ended at `max_iter`.
        """
        with forgotten_on_error(self), one_thread():
            self._validate_params()
            self._fit(
                *checked_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
            )
        return self

    def _fit(self, X, y):
        rng = check_random_state(self.random_state)
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        problem, blocks = self._problem(X, Y.shape[1])
        start = self._given_start(problem.widths[0])
        solve = self._levenberg_marquardt if self.solver == "lm" else self._descend
        self._store(problem, solve(problem, blocks, Y, start, rng), X, Y)
        self._one_dimensional = y.ndim == 1

    def _problem(self, X, n_outputs):
        """The completion problem, and the features of every block."""
        widths, blocks = self._blocks(X, n_outputs)
        names = (get_activation(name).name for name in (self.activation, self.output_activation))
        return CompletionProblem(Architecture(widths, *names), mixing_matrices(blocks)), blocks

    def _blocks(self, X, n_outputs):
        """Layer widths and the features of every block."""
        widths = self.layer_widths
        if widths is None:
            widths = self._widths_from_names() or (X.shape[1], n_outputs)
        widths = check_layer_widths(widths)
        if widths[-1] != n_outputs and sum(widths) == X.shape[1]:
            widths = (*widths, n_outputs)
        check_layer_widths(widths, n_outputs)
        if X.shape[1] not in (sum(widths), sum(widths[:-1])):
            raise ValueError(
                f"X has {X.shape[1]} features, but layer_widths={widths} need {sum(widths)} (one a unit), or "
                f"{sum(widths[:-1])} without the last layer."
            )
        n_blocks = len(widths) if X.shape[1] == sum(widths) else len(widths) - 1
        return widths, np.split(X, np.cumsum(widths[: n_blocks - 1]), axis=1)

    def _widths_from_names(self):
        """Block widths from names ``layer1_0, ...``; None if X has no such names."""
        names = getattr(self, "feature_names_in_", ())
        if any(re.fullmatch(r"inner_\d+", name) for name in names):
            raise ValueError("features named inner_<i> are of layers that were not distinguished; give layer_widths.")
        layers = [re.fullmatch(r"layer(\d+)_\d+", name) for name in names]
        if len(layers) == 0 or not all(layers):
            return None
        numbers = [int(match[1]) for match in layers]
        if numbers != sorted(numbers):
            raise ValueError("features named layer<l>_<i> must come layer by layer.")
        return tuple(numbers.count(layer) for layer in sorted(set(numbers)))

    def _given_start(self, m):
        """`start` as two arrays (m,), or None."""
        if self.start is None:
            return None
        try:
            scales, biases = (np.broadcast_to(np.asarray(s, dtype=float), (m,)) for s in self.start)
        except (TypeError, ValueError):
            scales = biases = np.full(m, np.nan)
        if not np.isfinite([scales, biases]).all():
            raise ValueError(f"start must be two arrays of {m} finite numbers, scales and biases; got {self.start!r}.")
        return scales, biases

    def _levenberg_marquardt(self, problem, blocks, Y, start, rng):
        """The best of several starts, in standardized features and outputs."""
        starts = completion_starts(problem, blocks, start, self.n_starts, rng)
        log = StageLog(self.verbose, "NetworkCompletion")
        found = best_completion(problem, blocks[0], Y, starts, max_iter=self._max_iter(), tol=self.tol, log=log)
        if found.stopped:
            warnings.warn(
                f"Levenberg-Marquardt stopped after max_iter={found.n_iter} steps at a residual of "
                f"{found.residual:.1e}; raise max_iter or n_starts. If X holds the last layer's projections too, "
                "give layer_widths.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return found

    def _max_iter(self):
        return self.max_iter or _DEFAULT_ITERATIONS[self.solver]

    def _descend(self, problem, blocks, Y, start, rng):
        """Full-batch descent by skorch on the features as they are."""
        from .hessians.completion_module import Training, descend

        params = problem.with_readout(problem.initial(*(start or (None, None))), blocks[0], Y)
        training = Training(
            optimizer="sgd" if self.solver == "gd" else "adam",
            lr=self.learning_rate,
            max_epochs=self._max_iter(),
            batch_size=-1,
            momentum=0.0,
            device=self.device,
            seed=rng.randint(2**31 - 1),
            verbose=self.verbose,
        )
        self.net_ = descend(problem, params, blocks[0], Y, training, dtype=self.dtype, callbacks=self.callbacks)
        history = [float(loss) for loss in self.net_.history[:, "train_loss"]]
        if not np.isfinite(history[-1]):
            raise NotIdentified(
                "completion",
                "diverged",
                f"descent diverged (loss {history[-1]}) with learning_rate={self.learning_rate}; lower it, or "
                "use solver='lm'.",
            )
        layers = problem.layers(problem.from_lists(self.net_.module_.to_lists()))
        return Completed(*layers, history, len(history))

    def _store(self, problem, found, X, Y):
        self.scales_ = np.diag(found.weights[0]).copy()
        self.biases_ = [b.copy() for b in found.biases]
        first = np.zeros((X.shape[1], problem.widths[0]))
        first[: problem.widths[0]] = found.weights[0]
        names = problem.activations[0].name, problem.activations[-1].name
        self.network_ = FeedforwardNetwork([first, *found.weights[1:]], found.biases, *names)
        self.mixings_, self.layer_widths_ = problem.mixings, problem.widths
        self.history_, self.n_iter_ = found.history, found.n_iter
        total = max(float(np.linalg.norm(Y)), np.finfo(float).tiny)
        self.residual_ = float(np.linalg.norm(self.network_(X) - Y)) / total

    def predict(self, X):
        """Outputs of the completed network.

        Parameters
        ----------
        X : array-like of shape (n_samples, m)
            Projections on entangled weights.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
            In the shape of y in `fit`.
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        Y = self.network_(X)
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
