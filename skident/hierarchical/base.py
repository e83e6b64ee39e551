"""What the regressor and the classifier of hierarchical learning share."""

from __future__ import annotations

import warnings
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions
from skident.linalg import column_units
from skident.training.net import resolve_device

from .algorithm1 import make_settings
from .architecture import check_alphas, check_connections, check_widths, exploding_layer
from .problem import Problem

__all__ = ["HiddenFeatures", "LayerArgument"]

_TRAINED = ("adam", "sgd", "algorithm1")  # by skorch
_LARGEST_INPUT = 3.0  # standard deviations at which trained nets with batch norm see the inputs clipped
_CHUNK = 20_000  # rows a forward pass


class HiddenFeatures(TransformerMixin, BaseEstimator):
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
            widths=widths,
            connections=connections,
            alphas=alphas,
            n_outputs=n_outputs,
            rng=rng,
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


class LayerArgument:
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


def _center_and_scale(X):
    """Of every column, with zero for the centre where no mean differs from it by more than chance.

    Then ``x`` and ``x^2 - E x^2`` stay those of a target on centred inputs, whatever the connections.
    """
    mean, scale = column_units(X)
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
