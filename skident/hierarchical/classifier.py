"""HierarchicalQuadraticNetClassifier: quadratic DenseNets for classification, and their fits by L-BFGS."""

import copy
import dataclasses
from functools import partial
from numbers import Integral, Real
from operator import attrgetter

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from skident.base.checked_data import checked_data
from skident.base.column_scales import scales_for_classes
from skident.base.parameters import CLASS_WEIGHT, Interval, StrOptions
from skident.budget.constants import MAX_STARTS
from skident.optim import best_of

from .architecture import warn_if_too_few
from .estimator_base import QuadraticDenseNetBase
from .problem import Attempt, Fit, LayerPlan, Method
from .scaling import TargetScaling
from .solvers import fit_lbfgs, set_trainable
from .stochastic_fits import NoiseSelection
from .sum_fits import regressed_signs

# Small tables: at three times the rate, three eighths of the epochs have an equal mean accuracy on seven tables of 150
# to 570 samples (within 0.001); on the digits of other writers fewer epochs lose 0.004.
_SHORT_TRAINING = (0.15, 30)  # largest rate of SGD, and epochs (budget)
_LONG_TRAINING = 80  # epochs
_MANY_SAMPLES = 1000  # from which on the long training is used
_SHARPNESS = 16.0  # v of Theorem 4, as at the end of Algorithm 1
_L2 = 1e-3  # default of cross-entropy; not tuned, of the order of the grid for least squares
_L2_OF_THEOREM4 = 1e-5  # default; small, since the planted sum is in the class and only its scale must be bounded
_STEPS = 300  # of L-BFGS (budget)
_STEPS_OF_THEOREM4 = 400  # of L-BFGS per value of v (budget)
_GRADIENT_TOL = 1e-6  # largest entry of the gradient at convergence, of cross-entropy per sample
_GRADIENT_TOL_OF_THEOREM4 = 1e-7  # smaller, since accurate logits are the solution here


class HierarchicalQuadraticNetClassifier(ClassifierMixin, QuadraticDenseNetBase):
    """Quadratic DenseNet for classification: `HierarchicalQuadraticNet` on cross-entropy, or on the loss of Theorem 4.

    ``loss="cross_entropy"`` minimizes ``mean -log softmax(F(x))_y + l2 Reg`` with linear readouts, by SGD with batch
    norm after the activations (Appendix A.3). ``loss="theorem4"`` is for two classes given by the sign of
    ``x_0 + F(x)``, F the paper's sum: it minimizes ``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` for
    v = 16, y in {-1, 1}.

    Parameters
    ----------
    widths : sequence of int, default=(32, 16)
        ``(k_2, ..., k_L)``.
    loss : {"cross_entropy", "theorem4"}, default="cross_entropy"
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by label; ``balanced`` gives all classes the same total weight. Set it if rare
        classes matter as much as frequent ones.
    offset_column : int, default=None
        For ``loss="theorem4"``: the column of X that is x_0, used unscaled. None learns a direct part ``D [x, x^2]``
        instead of x_0.
    solver : {"auto", "sgd", "adam", "lbfgs", "algorithm1"}, default="auto"
        "auto" is SGD for cross-entropy and L-BFGS for Theorem 4. Algorithm 1 requires Theorem 4 with `offset_column`.
    connections, alphas, curvature, n_starts, max_iter, learning_rate, max_epochs, batch_size,
    algorithm1_options, callbacks, device, dtype, random_state, verbose
        As for `HierarchicalQuadraticNet`; `max_epochs` is 80 by default, with SGD on less than 1,000 samples 30 at
        three times the rate.
    readout : {"auto", "sum", "linear"}, default="auto"
        Linear for cross-entropy, the sum for Theorem 4; other combinations raise ValueError.
    l2 : float or "auto", default="auto"
        Weight of Reg. "auto" is 5e-3 for SGD and Adam (2e-3 with input noise), 1e-3 for L-BFGS, 1e-5 for Theorem 4.
    input_noise : float or "auto", default="auto"
        For SGD and Adam: standard deviation of Gaussian noise on the standardized inputs. "auto" selects 0.5 or 0 by
        the log loss on held-out samples. Set 0 to save the additional trainings.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    widths_, connections_, alphas_, layer_weights_, initial_layer_weights_, readout_, l2_, n_iter_, history_,
    spectrum_, stage_history_, net_
        As for `HierarchicalQuadraticNet`.
    restart_losses_ : list of float
        Final objective of each start.
    input_noise_ : float
        Standard deviation used in training.
    held_out_score_, linear_score_ : float
        Accuracy on the held-out samples that selected the noise, and that of logistic regression; else NaN.
    n_features_in_ : int

    Notes
    -----
    Predictions depend on `random_state`, which draws splits, starts and batches, but not on the order of the rows.

    Input noise is selected by trainings of three quarters of the epochs on two thirds of the samples; with less than
    300 samples each third is held out in turn. `fit_layers` with `start` uses 0 for "auto".

    Inputs are standardized, and for SGD and Adam clipped at three standard deviations. Standardization amplifies
    columns that hardly vary; the deviations therefore have a lower bound if a kernel classifier is better with it
    (`skident.base.column_scales`). On wine sorted by class, boosting and logistic regression
    are better.

    References
    ----------
    Allen-Zhu, Li (2020), "Backward Feature Correction: How Deep Learning Performs Deep Learning", Section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skident import HierarchicalQuadraticNetClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = HierarchicalQuadraticNetClassifier(widths=(8, 4), random_state=0).fit(X[::2], y[::2])
    >>> print(bool(clf.score(X[1::2], y[1::2]) > 0.93))
    True
    """

    _parameter_constraints = {
        **QuadraticDenseNetBase._parameter_constraints,
        "loss": [StrOptions({"cross_entropy", "theorem4"})],
        "offset_column": [Interval(Integral, 0, None, closed="left"), None],
        "solver": [StrOptions({"auto", "lbfgs", "adam", "sgd", "algorithm1"})],
        "input_noise": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "class_weight": CLASS_WEIGHT,
    }

    def __init__(
        self,
        widths=(32, 16),
        *,
        connections="paper",
        alphas=None,
        loss="cross_entropy",
        offset_column=None,
        solver="auto",
        readout="auto",
        curvature=None,
        l2="auto",
        input_noise="auto",
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
        class_weight=None,
    ):
        self.widths = widths
        self.connections = connections
        self.alphas = alphas
        self.loss = loss
        self.offset_column = offset_column
        self.solver = solver
        self.readout = readout
        self.curvature = curvature
        self.l2 = l2
        self.input_noise = input_noise
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
        self.class_weight = class_weight

    def fit(self, X, y, sample_weight=None):
        """Fit the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least two features.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative; integer weights count as repetitions.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, connections and widths do not match, there is one class (or, for Theorem 4,
            more than two), or the loss overflows.

        Warns
        -----
        ConvergenceWarning
            If L-BFGS reached `max_iter`; for Theorem 4, if there are fewer samples than weights; if a linear model, a
            kernel or boosting is better on the held-out samples that selected the noise, by more than 0.015.
        """
        return self._fit(X, y, sample_weight, LayerPlan())

    def _validated(self, X, y):
        """X in float64, and y if it has labels."""
        self._validate_params()
        X, y = checked_data(self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)
        check_classification_targets(y)
        return X, y

    def _method_and_problem(self, X, y, weights, plan):
        """The method and the problem: standardized inputs, classes encoded for the loss."""
        self.classes_, targets = self._encoded(y)
        method, column = self._method(), self._checked_offset_column(X)
        n_outputs = 1 if self.loss == "theorem4" else len(self.classes_)
        architecture = self._architecture(X.shape[1] - (column is not None), n_outputs, plan.depth)
        if self.loss == "theorem4":
            warn_if_too_few(len(X), architecture.n_weights, type(self).__name__)
        return method, self._problem((X, targets, weights), TargetScaling(), architecture, method, plan, column)

    def _encoded(self, y):
        """Classes and targets: class numbers (n,), or -1 and 1 in a column (n, 1) for Theorem 4."""
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class, {classes[0]!r}, in all {len(y)} samples; a classifier needs two classes or more."
            )
        if self.loss == "cross_entropy":
            return classes, labels
        if len(classes) > 2:
            raise ValueError(f"loss='theorem4' is for two classes, y has {len(classes)}; take loss='cross_entropy'.")
        return classes, np.where(labels == 1, 1.0, -1.0)[:, None]

    def _method(self):
        """Solver and readout, checked against the loss."""
        squares = self.loss == "theorem4"
        solver = self.solver if self.solver != "auto" else "lbfgs" if squares else "sgd"
        wanted = ("lbfgs", "algorithm1") if squares else ("sgd", "adam", "lbfgs")
        form = "sum" if squares else "linear"
        if solver not in wanted or self.readout not in ("auto", form):
            raise ValueError(
                f"loss={self.loss!r} has the solvers {wanted} and readout={form!r}; got solver={self.solver!r}, "
                f"readout={self.readout!r}."
            )
        return Method(solver, form)

    def _checked_offset_column(self, X):
        """The column x_0 of X, or None if the loss has none."""
        column = self.offset_column
        if self.loss == "cross_entropy":
            return None
        if column is None:
            if self.solver == "algorithm1":
                raise ValueError("solver='algorithm1' for loss='theorem4' needs offset_column, the column x_0 of X.")
            return None
        if column >= X.shape[1]:
            raise ValueError(f"offset_column={column}, but X has columns 0, ..., {X.shape[1] - 1}.")
        if X.shape[1] < 3:
            raise ValueError("X has n_features = 2, of which one is x_0; the network needs at least two others.")
        return column

    def _strategy(self, method, n_samples):
        """The fit that loss and method require, as a function of the problem."""
        if method.solver == "algorithm1":
            return self._algorithm1_fit()
        if method.stochastic:
            short = n_samples < _MANY_SAMPLES and method.solver == "sgd"
            rate, max_epochs = _SHORT_TRAINING if short else (None, _LONG_TRAINING)
            return self._stochastic_fit(method, torch.nn.CrossEntropyLoss, self.input_noise, rate, max_epochs)
        fit = fit_theorem4 if self.loss == "theorem4" else fit_cross_entropy
        return partial(fit, options=self._solver_options(method.solver), l2=self.l2)

    def _scaling_of(self, samples, offset_column, method):
        """Input scaling; for SGD and Adam with lower bounds on the scales if these help a kernel classifier."""
        units = super()._scaling_of(samples, offset_column, method)
        return dataclasses.replace(units, scale=scales_for_classes(*samples)) if method.clips else units

    def _store(self, fit, problem):
        """Fitted attributes, and the scores on held-out samples."""
        super()._store(fit, problem)
        noise_selection = fit.noise_selection or NoiseSelection()
        self.input_noise_ = fit.input_noise
        self.held_out_score_, self.linear_score_ = noise_selection.score, noise_selection.linear
        if noise_selection.better is not None:
            noise_selection.better.warn(type(self).__name__, stacklevel=4)

    def decision_function(self, X):
        """Logits ``F(x)``; with two classes, the logit of the second class minus that of the first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For Theorem 4 ``v (x_0 + F(x))``.
        """
        X = self._checked_inputs(X)
        F = self._in_chunks(X, lambda module, x: module.predict(x))
        if self.loss == "theorem4":
            x0 = self._input_scaling.offsets(X)
            return self._sharpness * (F[:, 0] if x0 is None else x0[:, 0] + F[:, 0])
        return F[:, 1] - F[:, 0] if len(self.classes_) == 2 else F

    def predict_proba(self, X):
        """Class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        F = self.decision_function(X)
        return softmax(np.column_stack([np.zeros_like(F), F]) if F.ndim == 1 else F, axis=1)

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        F = self.decision_function(X)
        return self.classes_[(F > 0).astype(int) if F.ndim == 1 else F.argmax(axis=1)]


def fit_cross_entropy(problem, options, l2="auto"):
    """Linear readouts by L-BFGS on the multinomial cross-entropy, best of at most two starts; l2="auto" is 1e-3."""
    l2 = _L2 if l2 == "auto" else float(l2)
    attempts = (_cross_entropy_attempt(problem, options, l2) for _ in range(min(MAX_STARTS, options.n_starts)))
    best, losses = best_of(attempts, attrgetter("loss"))
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2)


def _cross_entropy_attempt(problem, options, l2):
    """L-BFGS from one random or given start."""
    module = problem.build("linear")
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)

    def loss():
        losses = torch.nn.functional.cross_entropy(module(problem.x), problem.y, reduction="none")
        return problem.mean(losses[:, None]).sum()

    result = fit_lbfgs(module, loss, l2=l2, max_iter=options.max_iter or _STEPS, tol=_GRADIENT_TOL)
    return Attempt(module, initial, result.cost, result.history, result.status != "max_iter")


def fit_theorem4(problem, options, l2="auto"):
    """Minimize ``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` by L-BFGS for v = 16.

    Theorem 4, eq. (3.3); y in {-1, 1}, (n, 1). Without ``x0``, F has a direct part ``D [x, x^2]`` instead. Best of at
    most two starts; l2="auto" is 1e-5.
    """
    l2 = _L2_OF_THEOREM4 if l2 == "auto" else float(l2)
    attempts = (_theorem4_attempt(problem, options, l2, k) for k in range(min(MAX_STARTS, options.n_starts)))
    best, losses = best_of(attempts, attrgetter("loss"))
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2, sharpness=_SHARPNESS)


def _theorem4_attempt(problem, options, l2, k):
    """The attempt from start k; the second one has the signs of a regression on y."""
    offset = 0.0 if problem.x0 is None else problem.x0
    net = problem.build("sum", direct=problem.x0 is None)
    if k == 1 and problem.start is None:
        net.all_signs.copy_(regressed_signs(problem))
    initial = copy.deepcopy(net)
    set_trainable(net, fixed=problem.fixed)

    def loss():
        return problem.mean(torch.nn.functional.softplus(-problem.y * _SHARPNESS * (offset + net(problem.x)))).sum()

    max_iter = options.max_iter or _STEPS_OF_THEOREM4
    result = fit_lbfgs(net, loss, l2=_SHARPNESS * l2, max_iter=max_iter, tol=_GRADIENT_TOL_OF_THEOREM4)
    options.log.say(f"start {k + 1}: cross-entropy {result.cost:.4f}")
    return Attempt(net, initial, result.cost, result.history, result.status != "max_iter")
