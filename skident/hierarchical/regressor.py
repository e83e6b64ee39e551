"""Hierarchical learning with quadratic DenseNets, as a scikit-learn regressor."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from skident.base.linear_reference import linear_r2
from skident.base.parameters import StrOptions
from skident.base.predictions import in_shape_of_targets

from .architecture import warn_if_too_few
from .base import QuadraticDenseNetBase
from .linear_fits import fit_linear
from .options import BY_EPOCHS, LayerPlan, Method
from .readout_choice import fit_auto
from .shrinkage import fit_shrunk_sum
from .units import target_units

__all__ = ["HierarchicalQuadraticNet"]

_MOST_WEIGHTS = 1500  # of Levenberg-Marquardt
_FEWEST_ROWS, _AS_GOOD = 10, 0.03  # to compare with a linear model; R^2 that it may be ahead by
_FITS = {"auto": fit_auto, "sum": fit_shrunk_sum, "linear": fit_linear}  # by readout


class HierarchicalQuadraticNet(RegressorMixin, QuadraticDenseNetBase):
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
        "auto" takes the paper's sum if it explains the data to 1e-10, or has the lower error on held-out samples
        (3-fold cross-validation); Adam and SGD take "linear", Algorithm 1 has the sum.
    curvature : float, default=None
        c of the activation ``z + c z^2``; None is ``z^2``. The paper's WideResNets have 0.1.
    batch_norm : bool or "auto", default="auto"
        After every activation; for Adam and SGD with linear readouts only, and there the default. True is an error for
        all others, Algorithm 1 and the classifier's Theorem 4 among them.
    l2 : float or "auto", default="auto"
        Of linear readouts: by 3-fold cross-validation over infinity, 1, 0.1, ..., 1e-4, where infinity is ridge
        regression in the place of hidden layers (see Notes). Of the sum: zero if it explains the data to 1e-10, and in
        `fit_layers`; else by 3-fold cross-validation over 0, 1e-4, ..., 0.1. Of Adam and SGD: 5e-3.
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
        1 prints a line a start (on stderr) or epoch, 2 shows skorch's progress bar.

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
        Infinite where held-out rows support a linear model only: hidden layers are zero.
    exact_ : bool
        Whether the sum is the target: residuals are at most ``1e-7 (u + |y - median|)``, u 1.5 times the median
        distance from the median, and so are those of every sample without itself (to first order). False if samples
        hardly repeat the information of others: then the sum would fit any target there. It is a statement about the
        samples given: what deviates on none of n samples has a share below 7 / n, with probability .999.
    n_iter_ : int
    restart_losses_ : list of float
        Relative squared error (of weighted samples, for the sum) that every start ended with; for the sum, that of the
        chosen start is of all samples after the last fit.
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
    ``2^L`` grow fast outside of the training data: do not extrapolate. So standardised inputs are clipped at the
    training range widened by a quarter at either end: in `predict`, `transform` and `feature_gradients`, for all fits
    but exact ones (`exact_`) and ridge regression. A sum with noise is penalised by default: without, a few samples
    with large features decide the weights, and R^2 of new samples varied from -0.3 to 0.98 with the seed.

    With ``l2="auto"`` and linear readouts, hidden layers give way to ridge regression that is ahead on held-out rows by
    more than .03 of R^2. Of ``n <= P`` rows they have to convince: an error below that of ridge regression, and of the
    mean, by a factor of 1.5. Then standardised inputs are clipped at the range of the rows itself.

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
        **QuadraticDenseNetBase._parameter_constraints,
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
            If an argument is out of range, connections and widths do not fit, y is constant or too large or too small
            for sums of squares, or the loss explodes (with the layer at which it does).

        Warns
        -----
        ConvergenceWarning
            If there are fewer targets than weights, or the best start ended at `max_iter`; if held-out rows support
            no hidden layer, so that `l2_` is infinite; if ridge regression is better on held-out rows by more than .03
            of R^2, where the fit has estimated its own error but l2 or the sum was asked for.
        """
        return self._fit(X, y, LayerPlan())

    def _validated(self, X, y):
        """X and the targets as columns, in double precision."""
        self._validate_params()
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2, ensure_min_features=2
        )
        self._one_dimensional = y.ndim == 1
        return X, np.asarray(y, dtype=np.float64).reshape(len(X), -1)

    def _standardised(self, X, Y, plan):
        """How to fit, and what: the data in their own units."""
        architecture = self._architecture(X.shape[1], Y.shape[1], plan.depth)
        method = self._method(architecture, plan.start)
        units = target_units(Y)  # checks y, whatever units it is to have
        if plan.start is not None:
            units = plan.start._target_units
        warn_if_too_few(Y.size, architecture.n_weights, type(self).__name__)
        return method, self._problem(X, units.standardised(Y), units, architecture, method, plan)

    def _method(self, architecture, start):
        """Solver and readout; "auto" where the fit is to choose the readout."""
        solver, several = self.solver, architecture.n_outputs > 1
        if solver == "auto":
            solver = "lm" if architecture.n_weights <= _MOST_WEIGHTS else "lbfgs"
        if solver == "algorithm1":
            if several or self.readout == "linear" or self.curvature is not None:
                raise ValueError("solver='algorithm1' has one output, readout='sum' and curvature=None.")
            return self._with_batch_norm(Method(solver, "sum"))
        if self.readout == "sum" and several:
            raise ValueError(f"readout='sum' has one output, y has {architecture.n_outputs}; take readout='linear'.")
        readout = self.readout
        if readout == "auto" and start is not None:
            readout = start.readout_
        if readout == "auto" and (several or self.curvature is not None):
            readout = "linear"
        if self.readout == "auto" and solver in BY_EPOCHS:
            readout = "linear"
        return self._with_batch_norm(Method(solver, readout))

    def _strategy(self, method):
        """The fit that a method asks for, as a function of the problem."""
        if method.solver == "algorithm1":
            return self._by_algorithm1()
        if method.by_epochs:
            return self._by_epochs(method, torch.nn.MSELoss)
        return partial(_FITS[method.readout], search=self._search(method.solver), l2=self.l2)

    def _store(self, fit, problem):
        """As the classifier does, and a warning where a linear model is to be preferred."""
        super()._store(fit, problem)
        x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
        if np.isinf(fit.l2):
            rows, weights = len(problem.x), problem.architecture.n_weights
            warnings.warn(
                f"{type(self).__name__}: N = {rows} rows do not support the P = {weights} weights of hidden layers. "
                f"R^2 of ridge regression on held-out rows is about {1.0 - fit.error:.3f}, and hidden layers do not "
                "improve on it: they are zero (l2_ = inf). Take more rows, or fewer or narrower layers.",
                ConvergenceWarning,
                stacklevel=4,
            )
            return
        if fit.exact or not np.isfinite(fit.error) or len(x) < _FEWEST_ROWS:
            return
        linear = linear_r2(x, y, np.array_split(np.arange(len(x)), 3))  # rows come in random order
        if 1.0 - fit.error < linear - _AS_GOOD:
            warnings.warn(
                f"a linear model is better for these data: R^2 on held-out rows is about {linear:.3f}, and "
                f"{1.0 - fit.error:.3f} for {type(self).__name__}. Take fewer or narrower layers, or a larger l2.",
                ConvergenceWarning,
                stacklevel=4,
            )

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
        Y = self._over_rows(self._checked_inputs(X), lambda module, x: module.predict(x))
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
