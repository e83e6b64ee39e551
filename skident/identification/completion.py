"""Network completion: from projections on entangled weights to a network, as a scikit-learn regressor."""

from __future__ import annotations

import re
import warnings

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import (
    ACTIVATION_CHOICES,
    AT_LEAST_ONE,
    POSITIVE,
    StrOptions,
    check_layer_widths,
    forgotten_on_error,
)
from skident.base.predictions import in_shape_of_targets
from skident.linalg import column_units
from skident.network import FeedforwardNetwork, get_activation

from .hessians.scales_and_shifts import CompletionProblem, fit_ridge_units, mixing_matrices, solve_completion

__all__ = ["NetworkCompletion"]

# A start whose relative misfit ends below this has found the right valley. Entangled weights of deeper networks are
# approximate, so their best misfit is of the order of their error; one hidden layer's directions are exact.
_GOOD_MISFIT = {"general": 1e-2, "ridge": 1e-6}
_DEFAULT_ITERATIONS = {"lm": 200, "gd": 1000, "adam": 1000}


class NetworkCompletion(RegressorMixin, BaseEstimator):
    """Scales and shifts that complete entangled weights to a network.

    Given the projections ``Z_l = X V_l`` on each layer's entangled weights, the layers' mixing is known,
    ``V_{l+1} = V_l C_l``, and what is left are diagonal scales T_l, R_l and shifts tau_l:

        ``min sum_n || y_n - f(z_n) ||^2``,
        ``y_1 = g(T_1 z_1 + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})``.

    Features that are not arranged in layers, or that lack the last layer, are taken as the hidden layers' projections;
    the last layer's weights are then fitted freely.

    Parameters
    ----------
    layer_widths : sequence of int, default=None
        ``(m_1, ..., m_L)``: the features are blocks of these widths, with or without the last. None reads the blocks
        off feature names ``layer1_0, ...`` where X has them, and else takes all features as one hidden layer.
    activation, output_activation : str, default="tanh", "identity"
    solver : {"lm", "gd", "adam"}, default="lm"
        Levenberg-Marquardt with analytic Jacobian (variable projection for one hidden layer with a free linear
        readout); the paper's full-batch gradient descent, or Adam, by skorch.
    max_iter : int, default=None
        200 Levenberg-Marquardt steps, 1000 epochs.
    tol : float, default=1e-13
        Relative root mean square misfit at which Levenberg-Marquardt stops.
    learning_rate : float, default=0.025
        Of ``gd`` and ``adam``.
    n_init : int, default=4
        Starts tried until one ends with a relative misfit below 0.01 (1e-6 for variable projection): the paper's
        (T = R = 1, tau = 0), pre-activations of unit variance, then random scales.
    start : tuple of two array-like of shape (m_1,), default=None
        First-layer scales and shifts to start from instead, as `EntangledWeightExtractor` stores them.
    device : str, default="cpu"
        Where ``gd`` and ``adam`` run: ``cpu``, ``cuda``, ..., ``auto``.
    dtype : {"float64", "float32"}, default="float64"
        Of ``gd`` and ``adam``.
    callbacks : list of skorch callbacks, default=None
        For ``gd`` and ``adam``; copied.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 prints the misfit of every start; with ``gd`` and ``adam`` skorch's table.

    Attributes
    ----------
    network_ : FeedforwardNetwork
        On the features: its first layer has one nonzero weight a unit.
    scales_ : ndarray of shape (m_1,)
        T_1, the first layer's weights on its features.
    shifts_ : list of ndarray
        tau_l.
    mixings_ : list of ndarray of shape (m_l, m_{l+1})
        C_l.
    layer_widths_ : tuple of int
    misfit_ : float
        ``||f(Z) - Y||_F / ||Y||_F`` on the training data.
    history_ : list of float
        Of the chosen start: sum of squared residuals after every step (in units of y's standard deviations where the
        output is linear), or mean squared error after every epoch.
    n_iter_ : int
    net_ : skorch.NeuralNet
        Only with ``gd`` and ``adam``.
    n_features_in_ : int

    Notes
    -----
    ``3 sum(m_l) - m_L`` unknowns P; a Levenberg-Marquardt step costs ``O(n m_L P^2)``, an epoch
    ``O(n sum m_l m_{l+1})``.
    Exact only where V_l has full column rank, so for ``m_l <= D`` (Proposition 3).

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

    _parameter_constraints = {
        "layer_widths": ["array-like", None],
        "activation": [ACTIVATION_CHOICES],
        "output_activation": [ACTIVATION_CHOICES],
        "solver": [StrOptions({"lm", "gd", "adam"})],
        "max_iter": [AT_LEAST_ONE, None],
        "tol": [POSITIVE],
        "learning_rate": [POSITIVE],
        "n_init": [AT_LEAST_ONE],
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
        n_init=4,
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
        self.n_init = n_init
        self.start = start
        self.device = device
        self.dtype = dtype
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "network_")

    def fit(self, X, y):
        """Fit scales and shifts.

        Parameters
        ----------
        X : array-like of shape (n_samples, m)
            Projections on entangled weights, `EntangledWeightExtractor.transform`.
        y : array-like of shape (n_samples,) or (n_samples, m_L)
            The network's answers.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If widths and features do not fit, rows are too few, or no start gives a finite misfit.

        Warns
        -----
        ConvergenceWarning
            If the best start ended at `max_iter`.
        """
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        with forgotten_on_error(self):
            self._fit(X, y)
        return self

    def _fit(self, X, y):
        rng = check_random_state(self.random_state)
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        widths, blocks = self._blocks(X, Y.shape[1])
        hidden, output = get_activation(self.activation), get_activation(self.output_activation)
        problem = CompletionProblem(
            list(widths),
            [hidden] * (len(widths) - 1) + [output],
            mixing_matrices(blocks),
            free_readout=len(blocks) < len(widths),
        )
        solve = {"lm": self._levenberg_marquardt}.get(self.solver, self._descend)
        weights, biases = solve(problem, blocks, Y, rng)
        self._store(problem, weights, biases, X, Y, one_dimensional=y.ndim == 1)

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
        """Block widths from names ``layer1_0, ...``; None where X has no such names."""
        names = getattr(self, "feature_names_in_", ())
        if any(re.fullmatch(r"inner_\d+", name) for name in names):
            raise ValueError("features named inner_<i> are of layers that were not told apart; give layer_widths.")
        layers = [re.fullmatch(r"layer(\d+)_\d+", name) for name in names]
        if len(layers) == 0 or not all(layers):
            return None
        numbers = [int(match[1]) for match in layers]
        if numbers != sorted(numbers):
            raise ValueError("features named layer<l>_<i> must come layer by layer.")
        return tuple(numbers.count(layer) for layer in sorted(set(numbers)))

    def _levenberg_marquardt(self, problem, blocks, Y, rng):
        """Best of `n_init` starts, in standardised features; weights and shifts on the features as they are."""
        mean, std = column_units(blocks[0])
        U = (blocks[0] - mean) / std
        # A linear last layer takes any offset and unit on, but starts look for answers of order one.
        linear = problem.activations[-1].name == "identity"
        offset, unit = column_units(Y) if linear else (0.0, 1.0)
        Y = (Y - offset) / unit
        ridge = problem.free_readout and len(problem.widths) == 2 and problem.activations[-1].name == "identity"
        solve = self._solve_ridge if ridge else self._solve_general
        best = None
        for scales, shifts, units in self._starts(blocks, ridge, rng):
            omega = problem.initial(scales * std, shifts + scales * mean, units)
            weights, biases, result = solve(problem, U, Y, omega)
            if best is None or result.cost < best[2].cost:
                best = weights, biases, result
            misfit = np.sqrt(result.cost / max(np.sum(Y**2), np.finfo(float).tiny))
            if self.verbose:
                print(f"[NetworkCompletion] {result.n_iter} steps, relative misfit {misfit:.2e}")
            if misfit < _GOOD_MISFIT["ridge" if ridge else "general"]:
                break
        weights, biases, result = best
        if not np.isfinite(result.cost):
            raise ValueError("no start gives finite answers; scale the features.")
        if result.status == "max_iter" and result.n_iter >= self._options()["max_iter"]:
            warnings.warn(
                f"Levenberg-Marquardt stopped after max_iter={result.n_iter} steps at a misfit of "
                f"{np.sqrt(result.cost / max(np.sum(Y**2), np.finfo(float).tiny)):.1e}; raise max_iter or n_init. If X "
                "holds the last layer's projections too, give layer_widths.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.history_, self.n_iter_ = result.history, max(1, result.n_iter)
        first = weights[0] / std[:, None]
        weights, biases = [first, *weights[1:]], [biases[0] - mean @ first, *biases[1:]]
        return [*weights[:-1], weights[-1] * unit], [*biases[:-1], biases[-1] * unit + offset]

    def _starts(self, blocks, ridge, rng):
        """First-layer scales and shifts and all layers' units, for the features as they are; None is all ones."""
        m = blocks[0].shape[1]
        given = self._given_start(m)
        if given is not None:
            yield *given, None
        elif not ridge:
            yield np.ones(m), np.zeros(m), None
        stds = [column_units(Z)[1] for Z in blocks]
        for k in range(self.n_init - (given is not None or not ridge)):
            scales = (0.5 if ridge else 1.0) / stds[0] * (1.0 if k == 0 else np.exp(rng.standard_normal(m)))
            yield scales, -scales * blocks[0].mean(axis=0), [1.0 / scales, *stds[1:]]

    def _given_start(self, m):
        """`start` as two arrays (m,), None if there is none."""
        if self.start is None:
            return None
        try:
            scales, shifts = (np.broadcast_to(np.asarray(s, dtype=float), (m,)) for s in self.start)
        except (TypeError, ValueError):
            scales = shifts = np.full(m, np.nan)
        if not np.isfinite([scales, shifts]).all():
            raise ValueError(f"start must be two arrays of {m} finite numbers, scales and shifts; got {self.start!r}.")
        return scales, shifts

    def _options(self):
        return {"max_iter": self.max_iter or _DEFAULT_ITERATIONS["lm"], "tol": self.tol}

    def _solve_ridge(self, problem, U, Y, omega):
        scales, shifts = omega[problem.slices["T", 0]], omega[problem.slices["tau", 0]]
        network, result = fit_ridge_units(U, Y, problem.activations[0], scales, shifts, **self._options())
        return network.weights, network.biases, result

    def _solve_general(self, problem, U, Y, omega):
        omega = problem.with_readout(omega, U, Y)
        result = solve_completion(problem, U, Y, omega, **self._options())
        return *problem.layers(result.x), result

    def _descend(self, problem, blocks, Y, rng):
        """Full-batch descent by skorch on the features as they are."""
        from .hessians.module import descend

        Z = blocks[0]
        omega = problem.with_readout(problem.initial(*(self._given_start(Z.shape[1]) or (None, None))), Z, Y)
        training = {
            "optimizer": "sgd" if self.solver == "gd" else "adam",
            "lr": self.learning_rate,
            "max_epochs": self.max_iter or _DEFAULT_ITERATIONS[self.solver],
            "device": self.device,
            "seed": rng.randint(2**31 - 1),
            "verbose": self.verbose,
        }
        self.net_ = descend(problem, omega, Z, Y, self.dtype, training, self.callbacks)
        self.history_ = [float(loss) for loss in self.net_.history[:, "train_loss"]]
        self.n_iter_ = len(self.history_)
        if not np.isfinite(self.history_[-1]):
            raise ValueError(
                f"descent diverged (loss {self.history_[-1]}) with learning_rate={self.learning_rate}; lower it, or "
                "use solver='lm'."
            )
        return problem.layers(problem.from_lists(self.net_.module_.to_lists()))

    def _store(self, problem, weights, biases, X, Y, one_dimensional):
        self.scales_ = np.diag(weights[0]).copy()
        self.shifts_ = [b.copy() for b in biases]
        first = np.zeros((X.shape[1], weights[0].shape[1]))
        first[: len(weights[0])] = weights[0]
        names = problem.activations[0].name, problem.activations[-1].name
        self.network_ = FeedforwardNetwork([first, *weights[1:]], biases, *names)
        self.mixings_, self.layer_widths_ = problem.mixings, tuple(problem.widths)
        total = max(float(np.linalg.norm(Y)), np.finfo(float).tiny)
        self.misfit_ = float(np.linalg.norm(self.network_(X) - Y)) / total
        self._one_dimensional = one_dimensional

    def predict(self, X):
        """Answers of the completed network.

        Parameters
        ----------
        X : array-like of shape (n_samples, m)
            Projections on entangled weights.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
            Of the shape that y had in `fit`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        Y = self.network_(X)
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
