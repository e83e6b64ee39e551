"""Read `FeedforwardNetwork` parameters from fitted scikit-learn MLPs, and write them to one."""

import numpy as np

from ._transformers import affine_function, affine_map
from .activations import ACTIVATIONS, is_built_in

_SKLEARN_NAMES = {"tanh": "tanh", "sigmoid": "logistic", "relu": "relu", "identity": "identity"}


def from_sklearn(estimator):
    """Arguments of `FeedforwardNetwork` from a fitted MLP, also inside pipelines and transformed targets."""
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
    """Refuse regressors whose output is not linear, and multilabel classifiers, which have no logits."""
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
    if not is_built_in(hidden) or hidden.name not in _SKLEARN_NAMES or network.output_activation != "identity":
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
