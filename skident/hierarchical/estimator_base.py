"""Base class of the hierarchical quadratic estimators: parameters, fits of all or some layers, hidden features."""

import copy
import dataclasses
import functools
import warnings
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data, merged_samples
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions, forgotten_on_error
from skident.base.progress import StageLog
from skident.base.undetected import undetected_share
from skident.budget.constants import GRADIENT_CLIP
from skident.optim import gram_work, one_thread
from skident.training.net import Training, resolve_device

from .algorithm1 import run_algorithm1
from .architecture import DenseNetArchitecture, check_alphas, check_connections, check_widths
from .distillation import check_options
from .problem import LayerPlan, Problem, SolverOptions, require_finite
from .scaling import input_range, input_scaling
from .stochastic_fits import InputNoise, fit_stochastic
from .sum_fits import EXPLAINED

_CHUNK = 20_000  # samples per forward pass (memory)
# Defaults of the solvers that skorch runs.
_RATES = {"sgd": 0.05, "adam": 0.01, "algorithm1": 0.01}  # largest learning rates
_EPOCHS_OF_ALGORITHM1 = 1500  # in all stages (budget)
_BATCH_SIZE = 64  # samples; usual, not tuned
_WEIGHT_DECAY = 5e-3  # not tuned; of the order that is usual for SGD on some hundred samples
_WEIGHT_DECAY_WITH_NOISE = 2e-3  # less, since noise on the inputs is itself a penalty


def _single_layers_as_arrays(cls):
    """Exempt `transform` of a single layer from `set_output`, which names the columns of all layers."""
    in_container = cls.transform  # wrapped when the class was made

    @functools.wraps(in_container)
    def transform(self, X, layer=None):
        return in_container(self, X) if layer is None else in_container.__wrapped__(self, X, layer)

    cls.transform = transform
    return cls


@_single_layers_as_arrays
class QuadraticDenseNetBase(TransformerMixin, ReportedEstimator):
    """Parameter constraints, hidden features, fits of single layers, and the path from parameters to a `Fit`.

    A subclass checks X and y in `_validated`, gives a `Method` and a `Problem` in `_method_and_problem`, and the
    function that fits the problem in `_strategy`.
    """

    _reported = (
        "widths_",
        "readout_",
        "l2_",
        "exact_",
        "undetected_share_",
        "held_out_score_",
        "linear_score_",
        "n_iter_",
    )

    _parameter_constraints = {
        "widths": ["array-like", AT_LEAST_ONE],
        "connections": [StrOptions({"paper", "full", "chain"}), "array-like", tuple, list, dict],
        "alphas": ["array-like", None],
        "readout": [StrOptions({"auto", "sum", "linear"})],
        "curvature": [POSITIVE, None],
        "l2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "n_starts": [AT_LEAST_ONE],
        "max_iter": [AT_LEAST_ONE, None],
        "learning_rate": [POSITIVE, None],
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit_layers(self, X, y, *, depth, fixed=(), start=None, sample_weight=None):
        """Fit only the layers ``2, ..., depth``, optionally initialized by another fit or held fixed.

        The protocols of `backward_feature_correction`: "train only <= l" is ``depth=l``; "fix <= l, train the rest" is
        ``depth=L, fixed=range(2, l + 1), start=fitted``; "train all" from there is the same without `fixed`.

        Parameters
        ----------
        X, y
            As for `fit`; with `start`, the data that it was fitted on.
        depth : int
            In 2, ..., L: layers above it are left out.
        fixed : collection of int, default=()
            Layers whose weights stay as they are in `start`.
        start : estimator, default=None
            Fitted, of the same kind: initial weights of the layers that it has. Other layers start at random weights.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative; integer weights count as repetitions.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a layer does not exist, or as `fit` does.
        """
        self._validate_params()
        layers = range(2, len(self._given_widths()) + 2)
        if isinstance(depth, bool) or not isinstance(depth, Integral) or depth not in layers:
            raise ValueError(f"depth must be in {list(layers)}, the layers of widths={self.widths!r}; got {depth!r}.")
        known = [] if start is None else range(2, len(start.widths_) + 2)
        if not set(fixed) <= set(known) & set(range(2, depth + 1)):
            raise ValueError(f"fixed layers must be among the layers of start ({list(known)}), got {sorted(fixed)}.")
        if self.solver == "algorithm1":
            raise ValueError("solver='algorithm1' opens its layers by itself; fit_layers needs another solver.")
        return self._fit(X, y, sample_weight, LayerPlan(depth, tuple(sorted(fixed)), start))

    def _fit(self, X, y, sample_weight, plan):
        """`fit` restricted to the layers of a `LayerPlan`."""
        with forgotten_on_error(self), one_thread(gram_work(X, degree=2)):
            class_weight = getattr(self, "class_weight", None)
            X, y, weights = merged_samples(*self._validated(X, y), sample_weight, class_weight)
            method, problem = self._method_and_problem(X, y, weights, plan)
            fit = self._strategy(method, len(X))(problem)
            self._store(require_finite(fit, problem.x), problem)
        return self

    def transform(self, X, layer=None):
        """Hidden features ``S_l(x)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        layer : int, default=None
            In 2, ..., L; None concatenates all layers.

        Returns
        -------
        ndarray of shape (n_samples, k_l)
            For ``readout_="sum"`` scaled such that ``sum_l alpha_l sum_i s_i S_l(x)_i^2`` plus a constant predicts y,
            with the signs s of `layer_signs_`.
            `set_output` applies only if all layers are returned.

        Raises
        ------
        ValueError
            If there is no such layer.
        """
        X = self._checked_inputs(X, layer)
        S = self._in_chunks(X, lambda module, x: module.hidden(x)[0])
        return np.hstack(list(S.values())) if layer is None else S[layer]

    def get_feature_names_out(self, input_features=None):
        """Names ``layer<l>_<i>`` of the columns of `transform`, layer by layer.

        Parameters
        ----------
        input_features : None or array-like of str
            Must be the names given to `fit`.

        Returns
        -------
        ndarray of str

        Raises
        ------
        ValueError
            If `input_features` are not the names given to `fit`.
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

    def feature_gradients(self, X, layer):
        """Gradients of the hidden features with respect to the standardized inputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        layer : int
            In 2, ..., L.

        Returns
        -------
        ndarray of shape (n_samples, k_l, n_inputs)
            At the clipped inputs if inputs are clipped; without the offset column.

        Raises
        ------
        ValueError
            If there is no such layer.
        """
        X = self._checked_inputs(X)
        self._check_layer(layer)
        u = torch.as_tensor(self._input_scaling.inputs(X), dtype=next(self._module.parameters()).dtype).requires_grad_()
        S = self._module.hidden(u)[0][layer]
        columns = [torch.autograd.grad(S[:, i].sum(), u, retain_graph=True)[0] for i in range(S.shape[1])]
        return _array(torch.stack(columns, dim=1))

    def _checked_inputs(self, X, layer=None):
        """X validated against the fitted estimator, in float64."""
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        if layer is not None:
            self._check_layer(layer)
        return X

    def _check_layer(self, layer):
        """Raise ValueError unless `layer` is a hidden layer."""
        layers = list(range(2, len(self.widths_) + 2))
        if layer not in layers:
            raise ValueError(f"layer must be one of {layers}, got {layer!r}.")

    def _in_chunks(self, X, function):
        """``function(module, x)`` in chunks of samples, as an array or a dict of arrays."""
        dtype = next(self._module.parameters()).dtype
        u, parts = self._input_scaling.inputs(X), []
        with torch.no_grad():
            for start in range(0, len(u), _CHUNK):
                parts.append(function(self._module, torch.as_tensor(u[start : start + _CHUNK], dtype=dtype)))
        if isinstance(parts[0], dict):
            return {key: np.concatenate([_array(part[key]) for part in parts]) for key in parts[0]}
        return np.concatenate([_array(part) for part in parts])

    def _architecture(self, n_features, n_outputs, depth):
        """Checked architecture of the layers 2, ..., depth."""
        widths = self._given_widths()
        connections, alphas = check_connections(self.connections, len(widths)), check_alphas(self.alphas, len(widths))
        whole = DenseNetArchitecture(n_features, widths, connections, alphas, n_outputs, self.curvature)
        return whole if depth is None else whole.up_to(depth)

    def _given_widths(self):
        """``(k_2, ..., k_L)`` from the parameter."""
        return check_widths(self.widths)

    def _problem(self, samples, target_scaling, architecture, method, plan, offset_column=None):
        """Standardized samples in random order, as tensors on the device; from X, targets and weights or None."""
        X, targets, weights = samples
        start = plan.start
        scaling = self._scaling_of(samples, offset_column, method) if start is None else start._input_scaling
        rng = check_random_state(self.random_state)
        order = rng.permutation(len(X))
        device = "cpu" if method.solver == "lm" else resolve_device(self.device)
        dtype = getattr(torch, self.dtype if method.by_skorch else "float64")

        def tensor(A):
            kept = A.dtype.kind == "i"  # labels
            return torch.as_tensor(A[order], dtype=None if kept else dtype, device=device)

        return Problem(
            tensor(scaling.inputs(X)),
            tensor(targets),
            architecture,
            scaling,
            target_scaling,
            rng,
            x0=None if offset_column is None else tensor(scaling.offsets(X)),
            weights=None if weights is None else tensor(weights[:, None]),
            start=None if start is None else start._standardized_module(),
            fixed=plan.fixed,
            whole=plan.depth is None,
        )

    def _scaling_of(self, samples, offset_column, method):
        """Mean and standard deviation of each input."""
        return input_scaling(samples[0], offset_column, method.clips, samples[2])

    def _standardized_module(self):
        """A copy of the fitted module, for standardized targets."""
        return self._target_scaling.to_standardized_(copy.deepcopy(self._module))

    def _solver_options(self, solver):
        """Options of Levenberg-Marquardt and L-BFGS."""
        return SolverOptions(solver, self.n_starts, self.max_iter, StageLog(self.verbose, type(self).__name__))

    def _stochastic_fit(self, method, criterion, noise=0.0, rate=None, max_epochs=40):
        """Training by Adam or SGD, as a function of the problem; `rate` and `max_epochs` are defaults."""
        training = Training(
            optimizer=method.solver,
            lr=self.learning_rate or rate or _RATES[method.solver],
            max_epochs=self.max_epochs or max_epochs,
            batch_size=-1 if self.batch_size == "all" else self.batch_size or _BATCH_SIZE,
            weight_decay=_WEIGHT_DECAY if self.l2 == "auto" else float(self.l2),
            clip=GRADIENT_CLIP,
            one_cycle=True,
            device=self.device,
            verbose=self.verbose,
        )
        noise = InputNoise(noise, _WEIGHT_DECAY_WITH_NOISE if self.l2 == "auto" else float(self.l2))
        plan = {"method": method, "criterion": criterion, "training": training, "noise": noise}
        return partial(fit_stochastic, callbacks=self.callbacks, **plan)

    def _algorithm1_fit(self):
        """Algorithm 1, as a function of the problem."""
        training = Training(
            lr=self.learning_rate or _RATES["algorithm1"],
            max_epochs=self.max_epochs or _EPOCHS_OF_ALGORITHM1,
            batch_size=-1 if self.batch_size in ("all", None) else self.batch_size,
            device=self.device,
            verbose=self.verbose,
        )
        options = check_options(self.algorithm1_options)
        return partial(run_algorithm1, options=options, training=training, callbacks=self.callbacks)

    def _store(self, fit, problem):
        """Set the fitted attributes, in y's units; warn if the solver did not converge."""
        self._input_scaling, self._target_scaling = problem.input_scaling, problem.target_scaling
        if fit.margin is not None:
            span = _array(input_range(problem.x, fit.margin))
            self._input_scaling = dataclasses.replace(problem.input_scaling, span=span)
        net = self._module = self._target_scaling.to_original_(fit.module).cpu().eval()
        architecture, n_found = problem.architecture, len(net.widths)
        self._sharpness, self._predictor = fit.sharpness, None if fit.predictor is None else fit.predictor.cpu().eval()
        self.widths_, self.alphas_ = tuple(net.widths), architecture.alphas[:n_found]
        self.connections_ = architecture.connections[:n_found]
        self.layer_weights_, self.initial_layer_weights_ = net.layer_weights(), {}
        if fit.initial is not None:
            self.initial_layer_weights_ = self._target_scaling.to_original_(fit.initial).layer_weights()
        self.readout_, self.l2_, self.exact_ = net.readout, fit.l2, fit.exact
        self.layer_signs_ = dict(enumerate(map(_array, net.signs), start=2)) if net.readout == "sum" else None
        self.undetected_share_ = undetected_share(len(problem.x) if fit.exact else 0)
        self.restart_losses_ = [float(loss) for loss in fit.restart_losses]
        self.history_ = [float(loss) for loss in fit.history]
        self.n_iter_ = max(1, len(self.history_) - (fit.skorch_net is None))
        if fit.distillation is not None:
            self.spectrum_, self.stage_history_ = fit.distillation.spectrum, fit.distillation.stages
        if fit.skorch_net is not None:
            self.net_ = fit.skorch_net
            self.net_.device = "cpu"  # where its module is now
        self._warn_if_unfinished(fit, n_found, n_found if self.widths == "auto" else len(architecture.widths))

    def _warn_if_unfinished(self, fit, n_found, n_layers):
        """Warn if the solver stopped early, with the parameter to raise, or if Algorithm 1 has other widths."""
        given = tuple(self._given_widths())
        if fit.distillation is not None and n_found == n_layers and self.widths_ != given:
            warnings.warn(
                f"{type(self).__name__}: Algorithm 1 determined the widths {self.widths_} by its thresholds, not the "
                f"given {given}. To keep the given widths, leave determine_widths out of algorithm1_options or set "
                "solver='auto'.",
                ConvergenceWarning,
                stacklevel=5,
            )
        if (fit.converged or fit.loss < EXPLAINED) and n_found == n_layers:
            return
        if fit.distillation is None:
            how_far = f"the solver stopped after {self.n_iter_} steps, at a loss of {self.history_[-1]:.1e}"
            advice = "raise max_iter or n_starts"
        else:
            how_far = f"Algorithm 1 stopped after max_epochs={self.n_iter_} epochs with {n_found} of {n_layers} layers"
            how_far, advice = f"{how_far} and an objective of {self.history_[-1]:.1e}", "raise max_epochs"
        warnings.warn(f"{type(self).__name__}: {how_far}; {advice}.", ConvergenceWarning, stacklevel=5)


def _array(tensor):
    """A float64 array from a tensor of any dtype and device."""
    return tensor.detach().cpu().numpy().astype(np.float64)
