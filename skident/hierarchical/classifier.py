"""Quadratic DenseNets as a classifier; public in `skident.hierarchical`."""

from __future__ import annotations

import copy
from numbers import Integral

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import Interval, StrOptions, forgotten_on_error

from .algorithm1 import run_algorithm1
from .architecture import n_parameters, warn_if_too_few
from .base import HiddenFeatures, LayerArgument
from .class_fits import fit_cross_entropy, fit_theorem4
from .sum_fits import fit_skorch

__all__ = ["HierarchicalQuadraticNetClassifier"]


class HierarchicalQuadraticNetClassifier(LayerArgument, ClassifierMixin, HiddenFeatures):
    """Quadratic DenseNet for classes: `HierarchicalQuadraticNet` on cross-entropy, or on the loss of Theorem 4.

    ``loss="cross_entropy"`` minimises ``mean -log softmax(F(x))_y + l2 Reg`` with linear readouts, by SGD with batch
    norm after the activations (Appendix A.3). ``loss="theorem4"`` is for two classes decided by the sign of
    ``x_0 + F(x)``, F the paper's sum: it minimises ``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` for
    v = 1, 4, 16 in turn, y in {-1, 1}.

    Parameters
    ----------
    widths : sequence of int, default=(32, 16)
        ``(k_2, ..., k_L)``.
    loss : {"cross_entropy", "theorem4"}, default="cross_entropy"
    offset_column : int, default=None
        With ``loss="theorem4"``: the column of X that is x_0, taken as it is. None learns a direct part
        ``D [x, x^2]`` instead of x_0.
    solver : {"auto", "sgd", "adam", "lbfgs", "algorithm1"}, default="auto"
        "auto" is SGD for cross-entropy and L-BFGS for Theorem 4; Algorithm 1 is for Theorem 4 with `offset_column`.
    connections, alphas, curvature, batch_norm, n_init, max_iter, lr, max_epochs, batch_size, algorithm1_options,
    callbacks, device, dtype, random_state, verbose
        As for `HierarchicalQuadraticNet`.
    readout : {"auto", "sum", "linear"}, default="auto"
        Linear for cross-entropy, the sum for Theorem 4; others are refused.
    l2 : float or "auto", default="auto"
        5e-3 for SGD and Adam, 1e-3 for L-BFGS, 1e-5 for Theorem 4.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    widths_, connections_, alphas_, layer_weights_, initial_layer_weights_, readout_, l2_, n_iter_, history_,
    spectrum_, stage_history_, net_
        As for `HierarchicalQuadraticNet`.
    restart_losses_ : list of float
        Objective that every start ended with.
    n_features_in_ : int

    Notes
    -----
    Inputs are standardised, and for SGD and Adam clipped at three standard deviations.

    References
    ----------
    Allen-Zhu, Li (2020), "Backward Feature Correction: How Deep Learning Performs Deep Learning", Section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skident import HierarchicalQuadraticNetClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = HierarchicalQuadraticNetClassifier(widths=(8, 4), max_epochs=10, random_state=0).fit(X[:400], y[:400])
    >>> print(bool(clf.score(X[400:], y[400:]) > 0.93))
    True
    """

    _parameter_constraints = {
        **HiddenFeatures._parameter_constraints,
        "loss": [StrOptions({"cross_entropy", "theorem4"})],
        "offset_column": [Interval(Integral, 0, None, closed="left"), None],
        "solver": [StrOptions({"auto", "lbfgs", "adam", "sgd", "algorithm1"})],
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
        self.loss = loss
        self.offset_column = offset_column
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
        y : array-like of shape (n_samples,)
            Labels of two or more classes.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an argument is out of range, connections and widths do not fit, there is one class (or, for Theorem 4,
            more than two), or the loss explodes.

        Warns
        -----
        ConvergenceWarning
            For Theorem 4, if there are fewer rows than weights; if L-BFGS ended at `max_iter`.
        """
        return self._checked_fit(X, y)

    def _checked_fit(self, X, y, depth=None, fixed=(), start=None):
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)
        check_classification_targets(y)
        with forgotten_on_error(self):
            self._fit(X, y, depth, fixed, start)
        return self

    def _fit(self, X, y, depth, fixed, start):
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class, {self.classes_[0]!r}, in all {len(y)} rows; a classifier needs two classes or more."
            )
        solver = self._solver()
        if self.loss == "theorem4":
            problem, fit = self._theorem4(X, labels, solver, depth, fixed, start)
        else:
            problem, _ = self._problem(X, labels, len(self.classes_), solver, depth, fixed, start)
            fit = self._run(lambda: self._cross_entropy(problem, solver), problem)
        if solver == "algorithm1":
            return self._store_distilled(fit, problem)
        self._store(fit, problem)

    def _solver(self):
        solver = self.solver
        if solver == "auto":
            solver = "lbfgs" if self.loss == "theorem4" else "sgd"
        wanted = ("lbfgs", "algorithm1") if self.loss == "theorem4" else ("sgd", "adam", "lbfgs")
        form = "sum" if self.loss == "theorem4" else "linear"
        if solver not in wanted or self.readout not in ("auto", form):
            raise ValueError(
                f"loss={self.loss!r} has the solvers {wanted} and readout={form!r}; got solver={self.solver!r}, "
                f"readout={self.readout!r}."
            )
        return solver

    def _readout(self, solver):
        return "sum" if self.loss == "theorem4" else "linear"

    def _cross_entropy(self, problem, solver):

        batch_norm = self._batch_norm(solver)
        if solver == "lbfgs":
            return fit_cross_entropy(problem, self.l2)
        return fit_skorch(
            problem,
            readout="linear",
            batch_norm=batch_norm,
            criterion=torch.nn.CrossEntropyLoss,
            training=self._training(solver),
        )

    def _theorem4(self, X, labels, solver, depth, fixed, start):
        """The problem and its fit."""

        if len(self.classes_) > 2:
            raise ValueError(
                f"loss='theorem4' is for two classes, y has {len(self.classes_)}; take loss='cross_entropy'."
            )
        column = self.offset_column
        if column is not None and column >= X.shape[1]:
            raise ValueError(f"offset_column={column}, but X has columns 0, ..., {X.shape[1] - 1}.")
        if column is not None and X.shape[1] < 3:
            raise ValueError("X has n_features = 2, of which one is x_0; the network needs at least two others.")
        n_inputs = X.shape[1] - (column is not None)
        widths, connections, _ = self._architecture(n_inputs, depth)
        warn_if_too_few(len(X), n_parameters(n_inputs, widths, connections), type(self).__name__)
        targets = np.where(labels == 1, 1.0, -1.0)[:, None]
        problem, order = self._problem(X, targets, 1, solver, depth, fixed, start, column)
        x0 = None
        if column is not None:
            x0 = torch.as_tensor(X[order][:, [column]], dtype=problem.x.dtype, device=problem.x.device)
        if solver != "algorithm1":
            return problem, self._run(lambda: fit_theorem4(problem, x0, self.l2), problem)
        if x0 is None:
            raise ValueError("solver='algorithm1' for loss='theorem4' needs offset_column, the column x_0 of X.")

        return problem, self._run(lambda: run_algorithm1(problem, self._algorithm1_settings(), x0), problem)

    def _start_module(self):
        return copy.deepcopy(getattr(self._module, "net", self._module))

    def decision_function(self, X):
        """Logits: ``F(x)``, of the second class where there are two (minus those of the first).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For Theorem 4 ``v (x_0 + F(x))``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        F = self._over_rows(X, lambda module, x: getattr(module, "predict", module)(x)).astype(np.float64)
        if self.loss == "theorem4":
            x0 = 0.0 if self._offset_column is None else X[:, self._offset_column]
            return self._sharpness * (x0 + F[:, 0])
        return F[:, 1] - F[:, 0] if len(self.classes_) == 2 else F

    def predict_proba(self, X):
        """Probabilities of the classes.

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
