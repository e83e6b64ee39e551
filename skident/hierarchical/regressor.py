"""Hierarchical learning with quadratic DenseNets, as a scikit-learn regressor and classifier."""

from __future__ import annotations

import copy

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import StrOptions, forgotten_on_error
from skident.base.predictions import in_shape_of_targets

from .algorithm1 import run_algorithm1
from .architecture import n_parameters, warn_if_too_few
from .base import HiddenFeatures, LayerArgument
from .classifier import HierarchicalQuadraticNetClassifier
from .linear_fits import fit_linear
from .sum_fits import fit_auto, fit_skorch, fit_sum

__all__ = ["HierarchicalQuadraticNet", "HierarchicalQuadraticNetClassifier"]


class HierarchicalQuadraticNet(LayerArgument, RegressorMixin, HiddenFeatures):
    """Quadratic DenseNet: hidden features of growing degree, learned together.

    With ``G_0 = x``, ``G_1 = x^2 - E x^2`` of the standardised inputs and, for layers ``l = 2, ..., L``,
    ``S_l = sum_{j in J_l} W_{l,j} G_j + b_l`` and ``G_l = S_l^2``, minimises

        ``mean (y - F(x))^2 + l2 (sum_l ||W_l||^2 + ||U_l||^2)``,
        ``F(x) = c + D [G_0, G_1] + sum_l alpha_l U_l G_l``

    where the paper's form has ``U_l = (1, ..., 1)`` and ``D = 0`` (``readout="sum"``).

    Parameters
    ----------
    widths : sequence of int, default=(4, 4)
        ``(k_2, ..., k_L)``.
    connections : {"paper", "full", "chain"}, or sequence of collections of int, default="paper"
        ``(J_2, ..., J_L)``, each with the previous layer; or a dict by layer. "paper" is
        ``J_l = {0, ..., l - 3, l - 1}`` and ``J_2 = {0, 1}``, "full" is all layers below, "chain" the previous one.
    alphas : sequence of float, default=None
        ``(alpha_2, ..., alpha_L)``; None is ``0.3 ** (l - 2)``. They set the units of S_l and matter little for fits.
    solver : {"auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"}, default="auto"
        Levenberg-Marquardt and L-BFGS from several starts; Adam, SGD with momentum, and the paper's Algorithm 1, by
        skorch. "auto" is "lm" up to 1500 weights, then "lbfgs".
    readout : {"auto", "sum", "linear"}, default="auto"
        "auto" takes the paper's sum where it explains the data to 1e-10, or has the lower estimated error on new data
        (generalised against 3-fold cross-validation); Adam and SGD take "linear", Algorithm 1 has the sum.
    curvature : float, default=None
        c of the activation ``z + c z^2``; None is ``z^2``. The paper's WideResNets have 0.1.
    batch_norm : bool or "auto", default="auto"
        After every activation; for Adam and SGD with linear readouts only, and there the default.
    l2 : float or "auto", default="auto"
        Of linear readouts: by 3-fold cross-validation over 1, 0.1, ..., 1e-4; of the sum: zero; of Adam and SGD: 5e-3.
    n_init : int, default=6
        Starts at most; the first that explains the data ends the search. Where rows suffice, the first two starts of
        the sum come from regressions layer by layer, the others are random.
    max_iter : int, default=None
        Steps of a start at most; None is 150 (Levenberg-Marquardt) and 8 times as many of L-BFGS.
    lr : float, default=None
        Highest rate of one cycle for Adam (0.01) and SGD (0.05), rate of Algorithm 1's first target error (0.01).
    max_epochs : int, default=None
        40; of Algorithm 1 1500 in all.
    batch_size : int or "all", default=None
        64; of Algorithm 1 all rows.
    algorithm1_options : dict, default=None
        ``n_units`` (m = 30 units of W_l), ``epsilon`` (1e-3: ends below an objective of ``epsilon^2 / 4``), ``kappa``
        (1: singular values above ``1 / (10 kappa^2)`` of the largest are candidates for k_l), ``gap`` (0.01, factor of
        the thresholds of eq. (4.1)), ``exponent`` (C = 2), ``distillation`` (1, factor of lambda_3, lambda_4,
        lambda_5), ``truncation`` (B' = 16), ``noise`` (1e-3 of the rate), ``optimizer`` ("adam" or "sgd"), ``polish``
        (60 epochs of L-BFGS on the same objective after the last stage; 0: the paper's way to the end).
    callbacks : list of skorch callbacks, default=None
        Copied; for the solvers that skorch runs.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``; of all solvers. Fitted networks are on the CPU.
    dtype : {"float64", "float32"}, default="float64"
        Of the solvers that skorch runs; the others need float64.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 prints a line a start or epoch, 2 shows skorch's progress bar.

    Attributes
    ----------
    widths_, connections_, alphas_ : tuple
        As used; Algorithm 1 finds the widths.
    layer_weights_ : dict of int to dict of int to ndarray of shape (k_l, k_j)
        ``W_{l,j}`` (Algorithm 1: K_{l,j}) by layer l and connection j, on standardised inputs.
    initial_layer_weights_ : dict
        What the chosen start began with, in the same form.
    readout_ : {"sum", "linear"}
    l2_ : float
    exact_ : bool
        Whether the sum explains the data to a relative loss of 1e-10.
    n_iter_ : int
    restart_losses_ : list of float
        Relative squared error (of weighted rows, for the sum) that every start ended with.
    history_ : list of float
        The same of the chosen start, step by step; of skorch the training loss of every epoch.
    spectrum_ : dict of int to ndarray
        Algorithm 1: singular values of ``W_{l,<}^T W_{l,l-1}`` when layer l was distilled.
    stage_history_ : list of dict
        Algorithm 1: what happened at which epoch and objective.
    net_ : skorch.NeuralNet
        Where skorch trained.
    n_features_in_ : int

    Notes
    -----
    P weights, n rows: a Levenberg-Marquardt step costs ``O(n P^2 + P^3)``, a pass ``O(n P)``. Polynomials of degree
    ``2^L`` grow fast outside of the training data: do not extrapolate.

    References
    ----------
    Allen-Zhu, Li (2020), "Backward Feature Correction: How Deep Learning Performs Deep Learning".

    Examples
    --------
    >>> from skident import HierarchicalQuadraticNet
    >>> from skident.datasets import make_hierarchical_target
    >>> target = make_hierarchical_target(8, (3, 2), random_state=0)
    >>> X = target.sample(1000, random_state=0)
    >>> net = HierarchicalQuadraticNet(widths=(3, 2), random_state=0).fit(X, target(X))
    >>> fresh = target.sample(1000, random_state=1)
    >>> print(round(net.score(fresh, target(fresh)), 8))
    1.0
    """

    _parameter_constraints = {
        **HiddenFeatures._parameter_constraints,
        "solver": [StrOptions({"auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"})],
    }

    def __init__(
        self,
        widths=(4, 4),
        *,
        connections="paper",
        alphas=None,
        solver="auto",
        readout="auto",
        curvature=None,
        batch_norm="auto",
        l2="auto",
        n_init=6,
        max_iter=None,
        lr=None,
        max_epochs=None,
        batch_size=None,
        algorithm1_options=None,
        callbacks=None,
        device="cpu",
        dtype="float64",
        random_state=None,
        verbose=0,
    ):
        self.widths = widths
        self.connections = connections
        self.alphas = alphas
        self.solver = solver
        self.readout = readout
        self.curvature = curvature
        self.batch_norm = batch_norm
        self.l2 = l2
        self.n_init = n_init
        self.max_iter = max_iter
        self.lr = lr
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.algorithm1_options = algorithm1_options
        self.callbacks = callbacks
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y):
        """Fit the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least two features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Not constant.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, connections and widths do not fit, y is constant, or the loss explodes.

        Warns
        -----
        ConvergenceWarning
            If there are fewer targets than weights, or the best start ended at `max_iter`.
        """
        return self._checked_fit(X, y)

    def _checked_fit(self, X, y, depth=None, fixed=(), start=None):
        self._validate_params()
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2, ensure_min_features=2
        )
        with forgotten_on_error(self):
            self._fit(X, np.asarray(y, dtype=np.float64), depth, fixed, start)
        return self

    def _fit(self, X, y, depth, fixed, start):
        Y = y.reshape(len(X), -1)
        constant = np.ptp(Y, axis=0) <= 1e-14 * np.abs(Y).max(axis=0)
        if constant.any():
            raise ValueError(
                f"y is constant ({Y[0, constant][0]:g} in all {len(Y)} rows): there is nothing to learn. Check the "
                "target column."
            )
        self._one_dimensional = y.ndim == 1
        widths, connections, _ = self._architecture(X.shape[1], depth)
        n_weights = n_parameters(X.shape[1], widths, connections)
        warn_if_too_few(Y.size, n_weights, type(self).__name__)
        solver = self._solver(n_weights)
        self._y_center, self._y_scale = Y.mean(axis=0), float(np.sqrt(np.mean((Y - Y.mean(axis=0)) ** 2)))
        if start is not None:
            self._y_center, self._y_scale = start._y_center, start._y_scale
        targets = (Y - self._y_center) / self._y_scale
        problem, _ = self._problem(X, targets, Y.shape[1], solver, depth, fixed, start)
        if solver == "algorithm1":
            return self._algorithm1(problem)
        fit = self._run(lambda: self._solve(problem, solver), problem)
        self._to_units(fit.module)
        fit.initial.scale_output_(self._y_scale)
        self._store(fit, problem)

    def _solver(self, n_weights):
        if self.solver != "auto":
            return self.solver
        return "lm" if n_weights <= 1500 else "lbfgs"

    def _solve(self, problem, solver):

        readout, batch_norm = self._readout(solver), self._batch_norm(solver)
        if readout == "sum" and problem.n_outputs > 1:
            raise ValueError(f"readout='sum' has one output, y has {problem.n_outputs}; take readout='linear'.")
        if readout == "auto":
            one_square = problem.n_outputs == 1 and self.curvature is None
            readout = "auto" if one_square else "linear"
            readout = readout if problem.start is None else problem.start.readout
        if solver in ("adam", "sgd"):
            return fit_skorch(
                problem,
                readout=readout,
                batch_norm=batch_norm,
                criterion=torch.nn.MSELoss,
                training=self._training(solver),
            )
        if readout == "auto":
            return fit_auto(problem, self.l2)
        if readout == "sum":
            return fit_sum(problem, 0.0 if self.l2 == "auto" else float(self.l2))
        return fit_linear(problem, self.l2)

    def _to_units(self, module):
        """From standardised targets to y's units, in place."""

        with torch.no_grad():
            module.scale_output_(self._y_scale)
            module.offset += torch.as_tensor(self._y_center, dtype=module.offset.dtype, device=module.offset.device)

    def _start_module(self):
        """A copy of the fitted module, for standardised targets."""

        module = copy.deepcopy(self._module)
        with torch.no_grad():
            module.offset -= torch.as_tensor(self._y_center, dtype=module.offset.dtype)
            return module.scale_output_(1.0 / self._y_scale)

    def _algorithm1(self, problem):

        if problem.n_outputs != 1 or self.readout == "linear" or self.curvature is not None:
            raise ValueError("solver='algorithm1' has one output, readout='sum' and curvature=None.")
        fit = self._run(lambda: run_algorithm1(problem, self._algorithm1_settings()), problem)
        self._to_units(fit.module)
        self._store_distilled(fit, problem)

    def predict(self, X):
        """Predicted targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Of the shape that y had in `fit`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        Y = self._over_rows(X, lambda module, x: getattr(module, "predict", module)(x)).astype(np.float64)
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
