"""scikit-learn and torch networks to and from `FeedforwardNetwork` parameters; both libraries are imported lazily."""

from __future__ import annotations

import numpy as np

from ._maps import affine_function, affine_map
from .activations import ACTIVATIONS

_SKLEARN_NAMES = {"tanh": "tanh", "sigmoid": "logistic", "relu": "relu", "identity": "identity"}

# -- scikit-learn ----------------------------------------------------------------------------------------------------


def from_sklearn(estimator):
    """Arguments of `FeedforwardNetwork` read from a fitted MLP, also behind affine steps; errors as its method."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.utils.validation import check_is_fitted

    mlp, before, after = _opened(estimator)
    if not isinstance(mlp, (MLPRegressor, MLPClassifier)):
        raise TypeError(
            f"from_sklearn reads a fitted MLPRegressor or MLPClassifier, also as the last step of a pipeline, got "
            f"{type(mlp).__name__}."
        )
    check_is_fitted(mlp, "coefs_")
    _check_linear_output(mlp)
    weights, biases = list(mlp.coefs_), list(mlp.intercepts_)
    for transformer in reversed(before):
        A, c = affine_map(transformer)
        weights[0], biases[0] = A @ weights[0], biases[0] + c @ weights[0]
    for transformer in after:
        inverse, n = transformer.inverse_transform, len(biases[-1])
        A, c = affine_function(inverse, n, f"inverse_transform of {type(transformer).__name__}")
        weights[-1], biases[-1] = weights[-1] @ A, biases[-1] @ A + c
    return weights, biases, mlp.activation, "identity"


def _opened(estimator):
    """The innermost estimator, the transformers before it in their order, and those of its targets, inner first."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    before, after = [], []
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif isinstance(estimator, Pipeline) and len(estimator.steps):
            check_is_fitted(estimator)
            if len(estimator.steps) > 1:
                before.append(estimator[:-1])
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "regressor_") and hasattr(estimator, "transformer_"):
            after.insert(0, estimator.transformer_)
            estimator = estimator.regressor_
        else:
            return estimator, before, after


def _check_linear_output(mlp):
    """Regressors must have a linear output; classifiers one class a row, so that there are logits."""
    if hasattr(mlp, "classes_"):
        if mlp.out_activation_ == "logistic" and mlp.n_outputs_ > 1:
            raise ValueError(
                f"from_sklearn reads classifiers of exclusive classes, got a multilabel one of {mlp.n_outputs_} labels."
            )
    elif mlp.out_activation_ != "identity":
        raise ValueError(
            f"from_sklearn reads regressors with a linear output, got out_activation_={mlp.out_activation_!r} "
            f"(loss={mlp.loss!r}); fit with loss='squared_error'."
        )


def to_sklearn(network):
    """A fitted MLPRegressor with copies of the network's parameters."""
    from sklearn.neural_network import MLPRegressor

    hidden = network.activations[0] if network.n_layers > 1 else ACTIVATIONS["identity"]
    if not _is_own(hidden) or hidden.name not in _SKLEARN_NAMES or network.output_activation != "identity":
        raise ValueError(
            f"scikit-learn's MLPRegressor knows hidden activations {sorted(_SKLEARN_NAMES)} and a linear output, got "
            f"activation={hidden.name!r}, output_activation={network.output_activation!r}. Try to_torch."
        )
    mlp = MLPRegressor(hidden_layer_sizes=network.layer_widths[:-1], activation=_SKLEARN_NAMES[hidden.name])
    mlp.coefs_ = [W.copy() for W in network.weights]
    mlp.intercepts_ = [b.copy() for b in network.biases]
    mlp.n_features_in_ = network.n_inputs
    mlp.n_outputs_ = network.n_outputs
    mlp.n_layers_ = network.n_layers + 1
    mlp.out_activation_ = "identity"
    mlp.n_iter_ = mlp.t_ = 0
    mlp.loss_, mlp.best_loss_ = np.nan, np.inf
    mlp.loss_curve_ = []
    mlp.validation_scores_ = mlp.best_validation_score_ = None
    return mlp


# -- torch -----------------------------------------------------------------------------------------------------------


def from_torch(module):
    """Arguments of `FeedforwardNetwork` read from a torch module; errors as `FeedforwardNetwork.from_torch`."""
    from torch import nn

    if not isinstance(module, nn.Module):
        raise TypeError(f"from_torch reads a torch.nn.Module, got {type(module).__name__}.")
    weights, biases, names, where = [], [], [], []
    for path, part in _flat_modules(module):
        if isinstance(part, nn.Linear):
            W, b = _linear_arrays(path, part)
            weights.append(W)
            biases.append(b)
            names.append("identity")
            where.append(path)
        elif not _is_skipped(path, part):
            name = _activation_name(path, part)
            if not names or names[-1] != "identity":
                raise _unreadable(path, part, "an activation must follow a Linear")
            names[-1], where[-1] = name, path
    if not weights:
        raise ValueError(f"from_torch found no torch.nn.Linear in {type(module).__name__}.")
    mixed = [i for i, name in enumerate(names[:-1]) if name != names[0]]
    if mixed:
        raise ValueError(
            f"all hidden layers must have the same activation, got {names[0]!r} at {where[0]!r} and "
            f"{names[mixed[0]]!r} at {where[mixed[0]]!r}."
        )
    return weights, biases, names[0], names[-1]


def to_torch(network, dtype=None):
    """A torch.nn.Sequential with copies of the network's parameters, float64 unless said otherwise."""
    import torch
    from torch import nn

    dtype = torch.float64 if dtype is None else dtype
    modules = []
    for W, b, activation in zip(network.weights, network.biases, network.activations):
        # skip_init: no random draw, torch's global stream stays where it is.
        linear = nn.utils.skip_init(nn.Linear, *W.shape, dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(W.T.copy()))
            linear.bias.copy_(torch.from_numpy(b.copy()))
        modules.append(linear)
        if activation.symmetry != "linear":
            modules.append(_torch_activation(activation))
    return nn.Sequential(*modules)


def _torch_activation(activation):
    from torch import nn

    from .torch_activations import Erf, Quadratic, Sin

    makers = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU, "gelu": nn.GELU, "sin": Sin, "erf": Erf}
    makers |= {"quadratic": Quadratic, "softplus": lambda: nn.Softplus(threshold=40.0)}  # exact in double precision
    if not _is_own(activation):
        raise ValueError(f"to_torch knows the activations {sorted(ACTIVATIONS)}, got a custom {activation.name!r}.")
    return makers[activation.name]()


def _flat_modules(module, path=""):
    """Pairs of dotted name and leaf module, Sequentials opened in order."""
    from torch import nn

    if not isinstance(module, nn.Sequential):
        yield path, module
        return
    if type(module).forward is not nn.Sequential.forward:
        raise _unreadable(path, module, "it defines its own forward")
    # Children with repetitions: one activation module may serve several layers, and named_children lists it once.
    for name, child in module.named_modules(remove_duplicate=False):
        if not name or "." in name:
            continue
        yield from _flat_modules(child, f"{path}.{name}" if path else name)


def _linear_arrays(path, linear):
    """Weights (inputs, units) and shifts (units,) of a torch Linear as float64."""
    from torch import nn

    if type(linear).forward is not nn.Linear.forward or nn.parameter.is_lazy(linear.weight):
        raise _unreadable(path, linear, "it is not a plain, initialised Linear")
    W = linear.weight.detach().cpu().double().numpy().T
    b = np.zeros(W.shape[1]) if linear.bias is None else linear.bias.detach().cpu().double().numpy()
    return W, b


def _is_skipped(path, module):
    """Whether the module does nothing to (n, m) arrays; ValueError where it does not but would in another mode."""
    from torch import nn

    if isinstance(module, nn.Dropout):
        if module.training and module.p > 0:
            raise _unreadable(path, module, "it is in training mode and so draws at random; call .eval() first")
        return True
    flatten = isinstance(module, nn.Flatten) and module.start_dim == 1
    return isinstance(module, nn.Identity) or flatten


def _activation_name(path, module):
    """The library's name of a torch activation module, or a ValueError that names the module."""
    from torch import nn

    from .torch_activations import Erf, Quadratic, Sin

    kinds = {nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.ReLU: "relu", nn.Softplus: "softplus", nn.GELU: "gelu"}
    kinds |= {Sin: "sin", Erf: "erf", Quadratic: "quadratic"}
    name = kinds.get(type(module))
    if name is None:
        known = ", ".join(kind.__name__ for kind in kinds)
        raise _unreadable(path, module, f"known are Linear, {known}; Identity, Flatten(1), eval-mode Dropout")
    if name == "gelu" and module.approximate != "none":
        raise _unreadable(path, module, "only approximate='none' is the exact GELU")
    if name == "softplus" and (module.beta != 1 or module.threshold < 20):
        raise _unreadable(path, module, "only beta=1 and threshold >= 20 are supported")
    return name


def _unreadable(path, module, reason):
    return ValueError(f"from_torch cannot read submodule {path!r}, {module}: {reason}.")


def _is_own(activation):
    return ACTIVATIONS.get(activation.name) == activation
