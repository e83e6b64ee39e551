"""HierarchicalQuadraticNet: hierarchical learning with quadratic DenseNets as a regressor."""

import warnings
from functools import partial

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from skident.base.better_models import better_model
from skident.base.checked_data import checked_data
from skident.base.parameters import AT_LEAST_ONE, StrOptions
from skident.base.predictions import in_shape_of_targets
from skident.budget.constants import FEWEST_FOLDED

from .architecture import warn_if_too_few
from .automatic_widths import WIDTHS, fit_automatic_widths
from .estimator_base import QuadraticDenseNetBase
from .linear_readout_fits import fit_linear
from .model_selection import fit_auto, fit_penalized_sum
from .problem import STOCHASTIC, LayerPlan, Method
from .scaling import target_scaling

_MAX_WEIGHTS_OF_LM = 1500  # above, L-BFGS: a step of Levenberg-Marquardt costs O(n P^2 + P^3)
_FITS = {"auto": fit_auto, "sum": fit_penalized_sum, "linear": fit_linear}  # by readout


class HierarchicalQuadraticNet(RegressorMixin, QuadraticDenseNetBase):
    """Quadratic DenseNet: hidden features of increasing degree, learned jointly.

    With ``G_0 = x``, ``G_1 = x^2 - E x^2`` of the standardized inputs and, for layers ``l = 2, ..., L``,
    ``S_l = sum_{j in J_l} W_{l,j} G_j + b_l`` and ``G_l = S_l^2``, minimizes

        ``mean (y - F(x))^2 + l2 (sum_l ||W_l||^2 + ||U_l||^2)``,
        ``F(x) = c + D [G_0, G_1] + sum_l alpha_l U_l G_l``

    where the paper's form has ``U_l = (1, ..., 1)``, or signs (footnote 7), and ``D = 0`` (``readout="sum"``).

    Parameters
    ----------
    widths : sequence of int or "auto", default=(4, 4)
        ``(k_2, ..., k_L)``. "auto" selects up to four hidden layers and their units, and averages over the posterior if
        there is noise (see Notes). Use it if the widths are unknown.
    connections : {"paper", "full", "chain"}, or sequence of collections of int, default="paper"
        ``(J_2, ..., J_L)``, each with the previous layer; or a dict by layer. "paper" is ``J_l = {0, ..., l - 3, l -
        1}`` and ``J_2 = {0, 1}``, "full" is all layers below, "chain" the previous one.
    alphas : sequence of float, default=None
        ``(alpha_2, ..., alpha_L)``; None is ``0.3 ** (l - 2)``. They set the scale of S_l and hardly affect fits.
    solver : {"auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"}, default="auto"
        "lm" (Levenberg-Marquardt) and "lbfgs" take several starts; "adam", "sgd" (with momentum) and the paper's
        Algorithm 1 run in skorch. "auto" is "lm" up to 1500 weights, then "lbfgs".
    readout : {"auto", "sum", "linear"}, default="auto"
        "auto" is the paper's sum if it explains the data to 1e-10 or has the lower cross-validated error, else
        "linear". Adam and SGD use "linear", Algorithm 1 the sum.
    curvature : float, default=None
        c of the activation ``z + c z^2``; None is ``z^2``. The paper's WideResNets have 0.1.
    l2 : float or "auto", default="auto"
        Penalty. "auto" is selected by 3-fold cross-validation for the sum, is 0.01 or infinity for linear readouts, and
        5e-3 for Adam and SGD (see Notes). Set a value to save the cross-validation.
    n_starts : int, default=6
        Maximum number of starts; the first that explains the data ends the search. Raise it if `restart_losses_`
        differ.
    max_iter : int, default=None
        Maximum number of steps per start; None is 150 for Levenberg-Marquardt and 8 times as many for L-BFGS.
    learning_rate : float, default=None
        Highest learning rate of one cycle for Adam (0.01) and SGD (0.05), initial rate of Algorithm 1 (0.01).
    max_epochs : int, default=None
        None is 40 for Adam and SGD, and 1500 in all stages of Algorithm 1.
    batch_size : int or "all", default=None
        None is 64 for Adam and SGD, and all samples for Algorithm 1.
    algorithm1_options : dict, default=None
        Parameters of Algorithm 1 that differ from their defaults; see Notes.
    callbacks : list of skorch callbacks, default=None
        Copied; for the solvers that run in skorch.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``; for all solvers but "lm". Fitted networks are on the CPU.
    dtype : {"float64", "float32"}, default="float64"
        For the solvers that run in skorch; the others use float64.
    random_state : int, RandomState or None, default=None
        Draws splits, starts and batches. Predictions depend on it, but not on the order of the rows.
    verbose : int, default=0
        1 prints one line per start (to stderr) or epoch, 2 displays skorch's progress bar.

    Attributes
    ----------
    widths_, connections_, alphas_ : tuple
        As used.
    layer_weights_ : dict of int to dict of int to ndarray of shape (k_l, k_j)
        ``W_{l,j}`` (Algorithm 1: K_{l,j}) by layer l and connection j, for standardized inputs.
    initial_layer_weights_ : dict
        Initial weights of the chosen start, in the same form.
    layer_signs_ : dict of int to ndarray of shape (k_l,), or None
        Signs of the units in the sum, by layer l. None with linear readouts.
    readout_ : {"sum", "linear"}
    l2_ : float
        Infinite if held-out samples support a linear model only: hidden layers are zero. NaN if ``widths="auto"`` and
        the target is not exactly a sum: each unit has its own penalty.
    exact_ : bool
        Whether the sum is the target to rounding, also with each sample left out; see Notes.
    undetected_share_ : float
        If `exact_`: at most this share of new samples from the same distribution has other targets, with confidence
        0.999, about ``6.9 / n``. 1 otherwise.
    n_iter_ : int
    restart_losses_ : list of float
        Final relative squared error of each start; for the sum of weighted samples, and for the chosen start of all
        samples after the last fit.
    history_ : list of float
        The same for the chosen start, step by step; for skorch the training loss of each epoch.
    spectrum_ : dict of int to ndarray
        Algorithm 1: singular values of ``W_{l,<}^T W_{l,l-1}`` when layer l was distilled.
    stage_history_ : list of dict
        Algorithm 1: events with their epoch and objective.
    net_ : skorch.NeuralNet
        For the solvers that run in skorch.
    n_features_in_ : int

    Notes
    -----
    **Cost.** P weights, n samples: a Levenberg-Marquardt step costs ``O(n P^2 + P^3)``, a pass ``O(n P)``. If there are
    enough samples, the first two starts of the sum come from layer-by-layer regression, which gives the signs, too; if
    not, the first comes from ridge regression on terms of degree two. Every other of the random starts has random
    signs. Algorithm 1 runs with positive signs, then with both if these leave more than 1e-3 of the variance and both
    leave less than half of that.

    **Extrapolation.** Polynomials of degree ``2^L`` grow fast outside the training data. `predict`, `transform` and
    `feature_gradients` therefore clip standardized inputs to the training range widened by a quarter at either end, for
    all fits except exact ones (`exact_`) and ridge regression.

    **Penalty.** For linear readouts, "auto" is 0.01, or infinity: ridge regression without hidden layers. That is
    selected if R^2 on held-out samples is higher by more than 0.03. With ``n <=
    P`` samples, hidden layers are kept only if their error is below that of ridge regression, and of the mean, by a
    factor of 1.5, and standardized inputs are clipped at the range of the samples. For the sum, "auto" is zero if the
    sum explains the data to 1e-10, and in `fit_layers`; else it is selected from 0, 1e-4, ..., 0.1. Without a penalty,
    a few samples with large features determine the weights, and R^2 of new samples varied from -0.3 to 0.98 with the
    seed.

    **Widths.** "auto" removes units from two hidden layers of widths ``(6, 4)``, layer by layer: each unit has the
    penalty ``noise q / ||w_i||^2``, updated as the fit improves (automatic relevance determination). If the remaining
    sum explains the data, it is the result; else a sum of three or four hidden layers of up to ``(4, 3, 3, 3)`` units,
    if there are twice as many samples as weights. If none does, Hamiltonian Monte Carlo samples the posterior of
    networks of widths (6, 4), or (4, 2) if there are less than 1.5 samples per weight. Each unit and connection has its
    own variance. Up to 16 chains start at small weights and high noise, each without its share of the samples. If the
    units of a chain explain the data, they are the result. Else `predict` is the interquartile mean of the sampled
    networks. `widths_`, `layer_weights_` and `transform` are then those of the maximum of the posterior with the units
    that it supports.

    **Exactness.** `exact_` states that residuals are at most ``1e-7 (u + |y - median|)``, u 1.5 times the median
    absolute deviation, and so are those of each sample without itself (to first order). It is False if samples hardly
    repeat the information of others: then the sum would fit any target there. It is a statement about the given
    samples; `undetected_share_` bounds what they do not show.

    **Algorithm 1.** Options are ``n_units`` (m = 30 units of W_l), ``epsilon`` (1e-3: stops at an objective of
    ``epsilon^2 / 4``), ``determine_widths`` (False: the given widths; True determines k_l as the paper does, less
    reliably), ``kappa`` (1: singular values above ``1 / (10 kappa^2)`` of the largest are candidates for k_l),
    ``gap`` (0.01, factor of the thresholds of eq. (4.1)), ``exponent`` (C = 2), ``distillation`` (1, factor of
    lambda_3, lambda_4, lambda_5), ``truncation`` (B' = 16), ``noise`` (1e-3 of the rate), ``optimizer`` ("adam" or
    "sgd"), and ``polish`` (60 epochs of L-BFGS on the same objective after the last stage; 0 is the paper's algorithm
    to its end).

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
    >>> X_test = target.sample(1000, random_state=1)
    >>> print(round(net.score(X_test, target(X_test)), 8))
    1.0
    """

    _parameter_constraints = {
        **QuadraticDenseNetBase._parameter_constraints,
        "solver": [StrOptions({"auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"})],
        "widths": ["array-like", AT_LEAST_ONE, StrOptions({"auto"})],
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
        l2="auto",
        n_starts=6,
        max_iter=None,
        learning_rate=None,
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
        self.l2 = l2
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.algorithm1_options = algorithm1_options
        self.callbacks = callbacks
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None):
        """Fit the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least two features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Not constant.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative; integer weights count as repetitions.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, connections and widths do not match, y is constant or overflows sums of
            squares, or the loss overflows (with the layer at which it does).

        Warns
        -----
        ConvergenceWarning
            If there are fewer targets than weights; if the best start reached `max_iter`; if held-out samples support
            no hidden layer, so that `l2_` is infinite; if ridge regression, on the inputs or on terms of degree two, a
            kernel or boosting is better on held-out samples by more than 0.015 of R^2; if Algorithm 1 has other widths
            than given.
        """
        return self._fit(X, y, sample_weight, LayerPlan())

    def _validated(self, X, y):
        """X and the targets as columns, in float64."""
        self._validate_params()
        X, y = checked_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2, ensure_min_features=2
        )
        self._one_dimensional = y.ndim == 1
        return X, np.asarray(y, dtype=np.float64).reshape(len(X), -1)

    def _method_and_problem(self, X, Y, weights, plan):
        """The method and the problem: standardized inputs and targets."""
        architecture = self._architecture(X.shape[1], Y.shape[1], plan.depth)
        method = self._method(architecture, plan.start)
        scaling = target_scaling(Y, weights)  # also checks y
        if plan.start is not None:
            scaling = plan.start._target_scaling
        if self._selects_widths:
            self._check_selection(Y, plan)
        else:
            warn_if_too_few(Y.size, architecture.n_weights, type(self).__name__)
        return method, self._problem((X, scaling.standardized(Y), weights), scaling, architecture, method, plan)

    @property
    def _selects_widths(self):
        """Whether widths="auto"."""
        return isinstance(self.widths, str)

    def _given_widths(self):
        """``(k_2, ..., k_L)``; for "auto" those from which units are removed."""
        if not self._selects_widths:
            return super()._given_widths()
        given = [values for values in (self.connections, self.alphas) if values is not None]
        return WIDTHS[: min((len(values) for values in given if not isinstance(values, str)), default=len(WIDTHS))]

    def _check_selection(self, Y, plan):
        """Raise ValueError unless widths="auto" applies to targets (n, o), parameters and plan."""
        name = f"{type(self).__name__}(widths='auto')"
        if plan.depth is not None:
            raise ValueError("fit_layers needs the widths of the layers; give widths=(k_2, ..., k_L), not 'auto'.")
        if Y.shape[1] > 1:
            raise ValueError(f"{name} has one output, y has {Y.shape[1]}; give widths, for example (4, 4).")
        plain = self.solver in ("auto", "lm") and self.readout in ("auto", "sum") and self.curvature is None
        if not plain or self.l2 != "auto":
            raise ValueError(f"{name} needs solver 'auto' or 'lm', readout 'auto' or 'sum', l2='auto', curvature=None.")
        if len(Y) < FEWEST_FOLDED:
            raise ValueError(f"{name} needs {FEWEST_FOLDED} samples or more, got {len(Y)}; give widths.")

    def _method(self, architecture, start):
        """Solver and readout; "auto" if the fit is to select the readout."""
        solver, several = self.solver, architecture.n_outputs > 1
        if solver == "auto":
            small = self._selects_widths or architecture.n_weights <= _MAX_WEIGHTS_OF_LM
            solver = "lm" if small else "lbfgs"
        if solver == "algorithm1":
            if several or self.readout == "linear" or self.curvature is not None:
                raise ValueError("solver='algorithm1' has one output, readout='sum' and curvature=None.")
            return Method(solver, "sum")
        if self.readout == "sum" and several:
            raise ValueError(f"readout='sum' has one output, y has {architecture.n_outputs}; take readout='linear'.")
        readout = self.readout
        if readout == "auto" and start is not None:
            readout = start.readout_
        if readout == "auto" and (several or self.curvature is not None):
            readout = "linear"
        if self.readout == "auto" and solver in STOCHASTIC:
            readout = "linear"
        return Method(solver, readout)

    def _strategy(self, method, n_samples):
        """The fit that a method requires, as a function of the problem."""
        if method.solver == "algorithm1":
            return self._algorithm1_fit()
        if method.stochastic:
            return self._stochastic_fit(method, torch.nn.MSELoss)
        if self._selects_widths:
            return partial(fit_automatic_widths, options=self._solver_options("lm"))
        return partial(_FITS[method.readout], options=self._solver_options(method.solver), l2=self.l2)

    def _store(self, fit, problem):
        """Fitted attributes, and a warning if a linear model is preferable."""
        super()._store(fit, problem)
        x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
        if np.isinf(fit.l2):
            n_weights = problem.architecture.n_weights
            warnings.warn(
                f"{type(self).__name__}: N = {len(x)} samples do not support the P = {n_weights} weights of hidden "
                f"layers. R^2 of ridge regression on held-out samples is about {1.0 - fit.error:.3f}, and hidden "
                "layers do not improve on it: they are zero (l2_ = inf). Take more samples, or fewer layers.",
                ConvergenceWarning,
                stacklevel=4,
            )
            return
        if fit.exact or not np.isfinite(fit.error):
            return
        # Samples come in random order. Without errors of single samples, all have the estimated one.
        folds = np.array_split(np.arange(len(x)), 3)
        squares = np.full(len(x), fit.error * problem.variance()) if fit.squares is None else fit.squares
        better = better_model(x, y, squares, folds, weights=problem.sample_weights)
        if better is not None:
            better.warn(type(self).__name__, stacklevel=4)

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
        X = self._checked_inputs(X)
        if self._predictor is None:
            Y = self._in_chunks(X, lambda module, x: module.predict(x))
        else:
            Y = self._in_chunks(X, lambda _, x: self._predictor.predict(x))
            Y = self._target_scaling.center + self._target_scaling.scale * Y
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
