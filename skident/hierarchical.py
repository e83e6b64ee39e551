"""Hierarchical learning with quadratic DenseNets, as a scikit-learn regressor and classifier."""

from __future__ import annotations

import copy
import warnings
from numbers import Integral, Real

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skident._hierarchical_checks import (
    check_alphas,
    check_connections,
    check_widths,
    exploding_layer,
    n_parameters,
    warn_if_too_few,
)
from skident._validation import AT_LEAST_ONE, POSITIVE, Interval, StrOptions, forgotten_on_error

__all__ = ["HierarchicalQuadraticNet", "HierarchicalQuadraticNetClassifier"]

_TRAINED = ("adam", "sgd", "algorithm1")  # by skorch
_LARGEST_INPUT = 3.0  # standard deviations at which trained nets with batch norm see the inputs clipped
_CHUNK = 20_000  # rows a forward pass


class _Features(TransformerMixin, BaseEstimator):
    """What regressor and classifier share. `transform` is here without its argument, as `set_output` wants it."""

    _parameter_constraints = {
        "widths": ["array-like", AT_LEAST_ONE],
        "connections": [StrOptions({"paper", "full", "chain"}), "array-like", tuple, list, dict],
        "alphas": ["array-like", None],
        "readout": [StrOptions({"auto", "sum", "linear"})],
        "curvature": [POSITIVE, None],
        "batch_norm": [StrOptions({"auto"}), "boolean"],
        "l2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "n_init": [AT_LEAST_ONE],
        "max_iter": [AT_LEAST_ONE, None],
        "lr": [POSITIVE, None],
        "max_epochs": [AT_LEAST_ONE, None],
        "batch_size": [AT_LEAST_ONE, StrOptions({"all"}), None],
        "algorithm1_options": [dict, None],
        "callbacks": [list, None],
        "device": [str],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __sklearn_is_fitted__(self):
        return hasattr(self, "layer_weights_")

    def transform(self, X):
        return self._hidden_features(X, None)

    def get_feature_names_out(self, input_features=None):
        """Names ``layer<l>_<i>`` of the columns of `transform`, layer by layer.

        Parameters
        ----------
        input_features : None or array-like of str
            Checked against those seen in `fit`.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        if input_features is not None:
            seen = getattr(self, "feature_names_in_", None)
            if len(input_features) != self.n_features_in_:
                expected = f"should have length equal to {self.n_features_in_}"
                raise ValueError(f"input_features {expected}, got {len(input_features)}.")
            if seen is not None and list(seen) != list(input_features):
                raise ValueError("input_features is not equal to feature_names_in_.")
        layers = enumerate(self.widths_, start=2)
        return np.array([f"layer{layer}_{i}" for layer, k in layers for i in range(k)], dtype=object)

    def _hidden_features(self, X, layer):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        layers = list(range(2, len(self.widths_) + 2))
        if layer is not None and layer not in layers:
            raise ValueError(f"layer must be one of {layers}, got {layer!r}.")
        S = self._over_rows(X, lambda module, x: module.hidden(x)[0])
        return S[layer] if layer is not None else np.hstack([S[number] for number in layers])

    def feature_gradients(self, X, layer):
        """Gradients of the hidden features by the standardised inputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        layer : int
            In 2, ..., L.

        Returns
        -------
        ndarray of shape (n_samples, k_l, n_inputs)
            Where inputs are clipped, at the clipped ones; without the offset column.
        """
        import torch

        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if layer not in range(2, len(self.widths_) + 2):
            raise ValueError(f"layer must be one of {list(range(2, len(self.widths_) + 2))}, got {layer!r}.")
        net = getattr(self._module, "net", self._module)
        u = torch.as_tensor(self._inputs(X), dtype=next(net.parameters()).dtype).requires_grad_()
        S = net.hidden(u)[0][layer]
        columns = [torch.autograd.grad(S[:, i].sum(), u, retain_graph=True)[0] for i in range(S.shape[1])]
        return _array(torch.stack(columns, dim=1))

    def fit_layers(self, X, y, *, depth, fixed=(), start=None):
        """Fit with only the layers ``2, ..., depth``, some of them at the weights of another fit.

        What backward feature correction is measured by: "train only <= l" is ``depth=l``; "fix <= l, train the rest"
        is ``depth=L, fixed=range(2, l + 1), start=fitted``; "train all" from there is the same without `fixed`.

        Parameters
        ----------
        X, y
            As for `fit`; with `start`, the data that it was fitted on.
        depth : int
            In 2, ..., L: layers above it are left out.
        fixed : collection of int, default=()
            Layers whose weights stay as they are in `start`.
        start : estimator, default=None
            Fitted, of the same kind. Layers that it has begin at its weights, the others at random ones.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a layer is not there, or as `fit` does.
        """
        self._validate_params()
        layers = range(2, len(check_widths(self.widths)) + 2)
        if isinstance(depth, bool) or not isinstance(depth, Integral) or depth not in layers:
            raise ValueError(f"depth must be in {list(layers)}, the layers of widths={self.widths!r}; got {depth!r}.")
        known = [] if start is None else range(2, len(start.widths_) + 2)
        if not set(fixed) <= set(known) & set(range(2, depth + 1)):
            raise ValueError(f"fixed layers must be among the layers of start ({list(known)}), got {sorted(fixed)}.")
        if self.solver == "algorithm1":
            raise ValueError("solver='algorithm1' opens its layers by itself; fit_layers needs another solver.")
        return self._checked_fit(X, y, depth=depth, fixed=tuple(sorted(fixed)), start=start)

    def _architecture(self, n_features, depth):
        """Widths, connections and alphas of layers 2, ..., depth."""
        widths = check_widths(self.widths)
        connections = check_connections(self.connections, len(widths))
        alphas = check_alphas(self.alphas, len(widths))
        kept = len(widths) if depth is None else depth - 1
        return widths[:kept], connections[:kept], alphas[:kept]

    def _problem(self, X, targets, n_outputs, solver, depth, fixed, start, offset_column=None):
        """Standardised rows in random order, on the device; the order for whoever needs it."""
        import torch

        from skident._hierarchical_fits import Problem
        from skident._skorch import resolve_device

        rng = check_random_state(self.random_state)
        widths, connections, alphas = self._architecture(X.shape[1], depth)
        self._offset_column = offset_column
        if start is not None:
            self._center, self._scale, self._bound = start._center, start._scale, start._bound
        else:
            inputs = np.delete(X, offset_column, axis=1) if offset_column is not None else X
            self._center, self._scale = _center_and_scale(inputs)
            self._bound = _LARGEST_INPUT if solver in ("adam", "sgd") and self._readout(solver) == "linear" else None
        order = rng.permutation(len(X))
        device = resolve_device(self.device)
        dtype = getattr(torch, self.dtype if solver in _TRAINED else "float64")
        options = {"solver": solver, "n_init": self.n_init, "max_iter": self.max_iter, "curvature": self.curvature}
        return Problem(
            x=torch.as_tensor(self._inputs(X)[order], dtype=dtype, device=device),
            y=torch.as_tensor(targets[order], dtype=None if targets.dtype.kind == "i" else dtype, device=device),
            widths=widths, connections=connections, alphas=alphas, n_outputs=n_outputs, rng=rng,
            options={**options, "verbose": self.verbose},
            start=None if start is None else start._start_module(),
            fixed=fixed,
        ), order

    def _inputs(self, X):
        """What the network sees of X."""
        if self._offset_column is not None:
            X = np.delete(X, self._offset_column, axis=1)
        u = (X - self._center) / self._scale
        return u if self._bound is None else np.clip(u, -self._bound, self._bound)

    def _training(self, solver):
        """Arguments of `fit_module`."""
        rates = {"sgd": 0.05, "adam": 0.01}
        return {
            "optimizer": solver,
            "lr": self.lr or rates[solver],
            "max_epochs": self.max_epochs or 40,
            "batch_size": -1 if self.batch_size == "all" else self.batch_size or 64,
            "weight_decay": 5e-3 if self.l2 == "auto" else float(self.l2),
            "device": self.device,
            "callbacks": self.callbacks,
            "verbose": self.verbose,
        }

    def _batch_norm(self, solver):
        trained = solver in ("adam", "sgd") and self._readout(solver) == "linear"
        if self.batch_norm != "auto" and self.batch_norm and not trained:
            raise ValueError(
                f"batch_norm=True needs solver 'sgd' or 'adam' with linear readouts; got solver={solver!r}, "
                f"readout={self.readout!r}."
            )
        return trained if self.batch_norm == "auto" else bool(self.batch_norm)

    def _readout(self, solver):
        return ("linear" if solver in _TRAINED else "auto") if self.readout == "auto" else self.readout

    def _run(self, fit, problem):
        """``fit()``, with the layer named where it diverges."""
        try:
            return fit()
        except FloatingPointError as error:
            module = error.args[0] if error.args else problem.build("linear" if problem.n_outputs > 1 else "sum")
            layer = exploding_layer(module, problem.x)
            raise ValueError(
                f"the loss exploded (not finite, although gradients are clipped), first at layer {layer} of layers 2, "
                f"..., {len(problem.widths) + 1}. Lower lr, take fewer layers, or remove outliers from X."
            ) from None

    def _store(self, fit, problem):
        module = fit.module.cpu()
        module.eval()
        self._module = module
        net, self._sharpness = getattr(module, "net", module), getattr(module, "sharpness", None)
        self.alphas_, self.connections_, self.widths_ = problem.alphas, problem.connections, tuple(net.widths)
        sizes = [net.n_features, net.n_features, *net.widths]
        self.layer_weights_ = _by_connection(net.weights, problem.connections, sizes)
        self.initial_layer_weights_ = _by_connection(fit.initial.weights, problem.connections, sizes)
        self.readout_, self.l2_, self.exact_ = net.readout, fit.l2, fit.exact
        self._store_training(fit)
        if not (fit.converged or fit.exact):
            warnings.warn(
                f"{type(self).__name__}: the solver stopped after {self.n_iter_} steps, at a loss of "
                f"{min(fit.restart_losses):.1e}; raise max_iter or n_init.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _algorithm1_settings(self):
        from skident._hierarchical_algorithm1 import make_settings

        training = self._training("adam")
        skorch = {name: training[name] for name in ("batch_size", "device", "callbacks", "verbose")}
        skorch["batch_size"] = training["batch_size"] if self.batch_size else -1
        return make_settings(
            self.algorithm1_options, lr=self.lr or 0.01, max_epochs=self.max_epochs or 1500, skorch=skorch
        )

    def _store_distilled(self, fit, problem):
        """The fitted attributes of Algorithm 1."""
        net = self._module = fit.module.cpu()
        n_open = len(net.K)
        self._sharpness = fit.extra["sharpness"]
        self.widths_, self.alphas_ = tuple(net.widths), problem.alphas[:n_open]
        self.connections_ = problem.connections[:n_open]
        sizes = [net.n_features, net.n_features, *[k * (k + 1) // 2 for k in net.widths]]
        self.layer_weights_ = _by_connection(net.K, self.connections_, sizes)
        self.initial_layer_weights_, self.readout_, self.l2_, self.exact_ = {}, "sum", 0.0, False
        self.spectrum_, self.stage_history_ = fit.extra["spectrum"], fit.extra["stages"]
        self._store_training(fit)
        if not fit.converged or n_open < len(problem.widths):
            warnings.warn(
                f"{type(self).__name__}: Algorithm 1 stopped after max_epochs={self.n_iter_} epochs with {n_open} of "
                f"{len(problem.widths)} layers and an objective of {self.history_[-1]:.1e}; raise max_epochs.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _store_training(self, fit):
        self.restart_losses_ = [float(loss) for loss in fit.restart_losses]
        self.history_ = [float(loss) for loss in fit.history]
        self.n_iter_ = max(1, len(self.history_) - (fit.net is None))
        if fit.net is not None:
            self.net_ = fit.net
            self.net_.device = "cpu"  # where its module is now

    def _over_rows(self, X, function):
        """``function(module, x)`` in chunks of rows, as arrays; a dict of them where it gives a dict."""
        import torch

        dtype = next(self._module.parameters()).dtype
        u, parts = self._inputs(X), []
        net = getattr(self._module, "net", self._module)
        with torch.no_grad():
            for start in range(0, len(u), _CHUNK):
                parts.append(function(net, torch.as_tensor(u[start : start + _CHUNK], dtype=dtype)))
        if isinstance(parts[0], dict):
            return {key: np.concatenate([_array(part[key]) for part in parts]) for key in parts[0]}
        return np.concatenate([_array(part) for part in parts])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


class _LayerArgument:
    """Adds the layer to `transform`, outside of scikit-learn's wrapping for `set_output`."""

    def transform(self, X, layer=None):
        """Hidden features ``S_l(x)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        layer : int, default=None
            In 2, ..., L; None is all of them side by side.

        Returns
        -------
        ndarray of shape (n_samples, k_l)
            In units in which ``sum_l alpha_l ||S_l(x)||^2`` plus a constant predicts y, for ``readout_="sum"``. Always
            an array where a layer is named; as `set_output` asks where not.

        Raises
        ------
        ValueError
            If there is no such layer.
        """
        return super().transform(X) if layer is None else self._hidden_features(X, layer)


class HierarchicalQuadraticNet(_LayerArgument, RegressorMixin, _Features):
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
        Random starts at most; the first that explains the data ends the search.
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
        **_Features._parameter_constraints,
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
        import torch

        from skident._hierarchical_fits import fit_auto, fit_linear, fit_skorch, fit_sum

        readout, batch_norm = self._readout(solver), self._batch_norm(solver)
        if readout == "sum" and problem.n_outputs > 1:
            raise ValueError(f"readout='sum' has one output, y has {problem.n_outputs}; take readout='linear'.")
        if readout == "auto":
            one_square = problem.n_outputs == 1 and self.curvature is None
            readout = "auto" if one_square else "linear"
            readout = readout if problem.start is None else problem.start.readout
        if solver in ("adam", "sgd"):
            return fit_skorch(
                problem, readout=readout, batch_norm=batch_norm, criterion=torch.nn.MSELoss,
                training=self._training(solver),
            )
        if readout == "auto":
            return fit_auto(problem, self.l2)
        if readout == "sum":
            return fit_sum(problem, 0.0 if self.l2 == "auto" else float(self.l2))
        return fit_linear(problem, self.l2)

    def _to_units(self, module):
        """From standardised targets to y's units, in place."""
        import torch

        with torch.no_grad():
            module.scale_output_(self._y_scale)
            module.offset += torch.as_tensor(self._y_center, dtype=module.offset.dtype, device=module.offset.device)

    def _start_module(self):
        """A copy of the fitted module, for standardised targets."""
        import torch

        module = copy.deepcopy(self._module)
        with torch.no_grad():
            module.offset -= torch.as_tensor(self._y_center, dtype=module.offset.dtype)
            return module.scale_output_(1.0 / self._y_scale)

    def _algorithm1(self, problem):
        from skident._hierarchical_algorithm1 import run_algorithm1

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
        return Y[:, 0] if self._one_dimensional else Y

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class HierarchicalQuadraticNetClassifier(_LayerArgument, ClassifierMixin, _Features):
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
        **_Features._parameter_constraints,
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
        import torch

        from skident._hierarchical_fits import fit_cross_entropy, fit_skorch

        batch_norm = self._batch_norm(solver)
        if solver == "lbfgs":
            return fit_cross_entropy(problem, self.l2)
        return fit_skorch(
            problem, readout="linear", batch_norm=batch_norm, criterion=torch.nn.CrossEntropyLoss,
            training=self._training(solver),
        )

    def _theorem4(self, X, labels, solver, depth, fixed, start):
        """The problem and its fit."""
        from skident._hierarchical_fits import fit_theorem4

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
            import torch

            x0 = torch.as_tensor(X[order][:, [column]], dtype=problem.x.dtype, device=problem.x.device)
        if solver != "algorithm1":
            return problem, self._run(lambda: fit_theorem4(problem, x0, self.l2), problem)
        if x0 is None:
            raise ValueError("solver='algorithm1' for loss='theorem4' needs offset_column, the column x_0 of X.")
        from skident._hierarchical_algorithm1 import run_algorithm1

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


def _center_and_scale(X):
    """Of every column. Where no mean differs from zero by more than chance, the centre is zero: then ``x`` and
    ``x^2 - E x^2`` stay those of a target on centred inputs, whatever the connections."""
    mean, std = X.mean(axis=0), X.std(axis=0)
    scale = np.where(std > 1e-12 * np.maximum(np.abs(X).max(axis=0), np.finfo(float).tiny), std, 1.0)
    by_chance = np.all(np.abs(mean) <= 5.0 * scale / np.sqrt(len(X)))
    return (np.zeros_like(mean) if by_chance else mean), scale


def _array(tensor):
    return tensor.detach().cpu().numpy().astype(np.float64)


def _by_connection(weights, connections, sizes):
    """``{l: {j: W_{l,j}}}`` from the layers' concatenated weights."""
    result = {}
    for layer, (W, J) in enumerate(zip(weights, connections), start=2):
        ends = np.cumsum([sizes[j] for j in J])[:-1]
        result[layer] = dict(zip(J, np.split(_array(W), ends, axis=1)))
    return result
