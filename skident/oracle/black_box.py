"""Resolve a user's estimator into a black box: fit it if needed, choose the queried method, read known activations."""

import warnings

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skident.network import FeedforwardNetwork

from ._adapters import (
    adapt,
    ends_in_probabilities,
    is_onnx_file,
    is_onnx_model,
    is_torch_module,
    n_inputs_of,
    same_onnx_model,
)
from ._calls import called_as
from ._columns import as_frame, check_columns, named_rows
from ._errors import BlackBoxError
from ._output_scaling import varying_outputs

__all__ = [
    "adapt",
    "as_frame",
    "called_as",
    "check_columns",
    "gives_probabilities",
    "named_rows",
    "query_where_outputs_vary",
    "refuse_batch_dependence",
    "is_classifying",
    "is_onnx_model",
    "is_torch_module",
    "known_network",
    "n_inputs_of",
    "needs_targets",
    "resolve_activations",
    "resolve_black_box",
    "resolve_response",
    "same_onnx_model",
    "takes_targets",
    "has_known_activations",
]


_MAX_REPEAT_ERROR = 0.05  # difference of two queries over the outputs' deviation, above which a model is refused
_REPEATED = 4  # last rows of a batch that are queried again: one moves by a tenth of the largest deviation or more
_BATCH_ERROR = 0.1  # difference to these, over the outputs' deviation: noise that repeated queries allow stays below
_BATCH_DEPENDENCE = (
    "the output of a row depends on the other rows of the call: batch normalization in training mode, dynamic "
    "quantization, or an engine that is wrong for large batches. Put the model into evaluation mode, or query one row "
    "per call: IdentifierOptions(batch_size=1)."
)
_SPREADS = (1e1, 1e2, 1e3, 1e4)  # standard deviations; a unit that is saturated beyond has no measurable weights
_N_SPREAD_POINTS = 100  # a step of a unit that splits them by 0.1 : 0.9 is missed with probability 1e-5
_SKLEARN_ACTIVATIONS = {"logistic": "sigmoid"}
_SAME_UNITS = {"sigmoid", "tanh"}  # units of one are affine functions of units of the other


def _is_fittable(box):
    """Whether it is a scikit-learn estimator that `fit` must fit first."""
    return hasattr(box, "fit") and hasattr(box, "predict") and not isinstance(box, FrozenEstimator)


def needs_targets(estimator):
    """Whether `fit` needs y because the black box must be trained first; None is the default MLPRegressor."""
    return estimator is None or (takes_targets(estimator) and not _is_fitted(estimator))


def takes_targets(estimator):
    """Whether y, if it is given, trains a clone of the black box."""
    return estimator is None or (not is_torch_module(estimator) and _is_fittable(estimator))


def is_classifying(estimator):
    """Whether it is a scikit-learn classifier, also inside a `FrozenEstimator` or a pipeline."""
    return hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator)


def resolve_response(estimator, response_method):
    """The method to query: for "auto" ``predict_proba`` of classifiers, else ``predict``."""
    if response_method == "auto":
        return "predict_proba" if is_classifying(estimator) else "predict"
    if response_method == "labels":
        return "labels"
    if response_method == "predict" and is_classifying(estimator):
        raise ValueError(
            f"response_method='predict' queries {type(estimator).__name__} for labels, which are constant almost "
            "everywhere; use response_method='predict_proba' (or 'auto'), or 'labels' to identify it from its labels."
        )
    return response_method


def resolve_black_box(estimator, X, y, random_state, *, classifiers=False):
    """The black box to query: with y a clone of an unfrozen estimator, or of None, fitted on (X, y); else as given.

    None is a small MLPRegressor with that `random_state`. X is a DataFrame if its columns have names, see `named_rows`.
    ValueError if it is a classifier and `classifiers` is False, or if it is not fitted and y is None. Warns if a fitted
    estimator is cloned and fitted again.
    """
    if isinstance(estimator, FrozenEstimator):
        check_is_fitted(estimator)
    if is_classifying(estimator) and not classifiers:
        raise ValueError(
            f"{type(estimator).__name__} is a classifier; only regressors and callables with real outputs can be "
            "queried here. NetworkIdentifier identifies classifiers from their probabilities."
        )
    if not takes_targets(estimator) or (y is None and not needs_targets(estimator)):
        return estimator
    _refuse_or_warn(estimator, y)
    with warnings.catch_warnings():
        if estimator is None:
            # A small network that always trains in a moment; its fit does not matter here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator = MLPRegressor(
                hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", max_iter=100, random_state=random_state
            )
        return clone(estimator).fit(X, y)


def _refuse_or_warn(estimator, y):
    """Raise if y is missing for a fit; warn if the fit replaces weights that a user may have meant."""
    kind = "classifier" if is_classifying(estimator) else "regressor"
    name = "the default MLPRegressor" if estimator is None else type(estimator).__name__
    if y is None:
        raise ValueError(
            f"{name} is not fitted and y is None: requires y to be passed, but the target y is None. Pass y, or a "
            f"fitted {kind}; in a search, which clones it, as FrozenEstimator({kind})."
        )
    if estimator is not None and _is_fitted(estimator):
        warnings.warn(
            f"{name} is fitted already, but a clone is fitted again on (X, y): the weights that were given are not "
            f"used. To query it as it is, leave out y, or pass FrozenEstimator({kind}).",
            UserWarning,
            stacklevel=5,  # the caller of `fit`, which resolves its black box in a method
        )


def _is_fitted(estimator):
    """Whether it is fitted; one that scikit-learn cannot check, without tags, counts as fitted."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return True
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def known_network(box):
    """The network of an object with known weights: network, module, ``.onnx`` path, fitted MLP or identifier."""
    if isinstance(box, FeedforwardNetwork):
        return box
    if is_torch_module(box):
        return FeedforwardNetwork.from_torch(box)
    if is_onnx_file(box):
        return FeedforwardNetwork.from_onnx(box)
    if isinstance(getattr(box, "network_", None), FeedforwardNetwork):
        if getattr(box, "_reduced_outputs", None) is not None:
            raise ValueError(
                f"network_ of this {type(box).__name__} is what comes before its outputs ({box._reduced_outputs}), not "
                "the whole model: call predict for the outputs, or pass network_ itself for the part before them."
            )
        return box.network_
    if hasattr(box, "predict"):
        return FeedforwardNetwork.from_sklearn(box)
    raise TypeError(
        "the network must have known weights (MLPRegressor, MLPClassifier, torch Sequential, "
        f"FeedforwardNetwork, fitted NetworkIdentifier), got {type(box).__name__}; NetworkIdentifier recovers the "
        "weights of a callable."
    )


def gives_probabilities(box):
    """Whether a model with known weights returns class probabilities, whose logits `known_network` gives."""
    return ends_in_probabilities(box) if is_onnx_file(box) else is_classifying(box)


def resolve_activations(box, activation, output_activation):
    """Names of the hidden and output activation; "auto" reads them off the black box, or is tanh and identity.

    ValueError if the black box declares a hidden activation that another network than one of `activation` has.
    """
    if activation != "auto":
        _refuse_contradiction(box, _SKLEARN_ACTIVATIONS.get(activation, activation))
    known = _known_activations(box) or ("tanh", "identity")
    names = [k if a == "auto" else a for a, k in zip((activation, output_activation), known, strict=True)]
    return tuple(_SKLEARN_ACTIVATIONS.get(n, n) for n in names)


def has_known_activations(box):
    """Whether the black box's activations can be read, so that they need not be detected."""
    return _known_activations(box) is not None


def _refuse_contradiction(box, activation):
    """Raise if a model declares other hidden activations, and none whose units are the same up to affine maps."""
    inner = _readable(box)
    if isinstance(inner, FeedforwardNetwork):
        declared = {getattr(g, "base", g).name for g in inner.activations[:-1]}
    elif isinstance(inner, (MLPRegressor, MLPClassifier)):
        declared = {_SKLEARN_ACTIVATIONS.get(inner.activation, inner.activation)}
    else:
        return
    same = _SAME_UNITS if activation in _SAME_UNITS else {activation}
    if declared and not declared & same:
        raise ValueError(
            f"activation={activation!r} contradicts the model: {type(box).__name__} declares {' and '.join(declared)}. "
            "Leave out activation: 'auto' reads it from the model."
        )


def _readable(box):
    """What is inside of the black box, as a network if it is a module or file that can be read."""
    inner = _innermost(box)
    if is_torch_module(inner) or is_onnx_file(inner):
        read = FeedforwardNetwork.from_torch if is_torch_module(inner) else FeedforwardNetwork.from_onnx
        try:
            return read(inner)
        except (TypeError, ValueError):
            return None
    return inner


def _known_activations(box):
    """Hidden and output activation of a network, module, MLP or ONNX file, also inside a pipeline; else None."""
    inner = _readable(box)
    if isinstance(inner, FeedforwardNetwork):
        return _activations_of(inner)
    if isinstance(inner, MLPRegressor):
        return inner.activation, inner.out_activation_
    if isinstance(inner, MLPClassifier):  # logits come before its softmax
        return inner.activation, "identity"
    return None


def _activations_of(network):
    """Activations that a method takes as they are; None if they are better detected, as those of a callable."""
    linear_output = network.output_activation == "identity"
    if network.n_layers == 1:
        return ("identity", "identity") if linear_output else None
    smooth = all(g.smooth for g in network.activations[:-1])
    return (network.activation, network.output_activation) if linear_output or smooth else None


def _innermost(box):
    """The estimator inside: last step of a pipeline, regressor of transformed targets, best of a search."""
    while True:
        if isinstance(box, Pipeline) and len(box.steps):
            box = box.steps[-1][1]
        elif isinstance(box, FrozenEstimator):
            box = box.estimator
        elif hasattr(box, "get_params") and hasattr(box, "regressor_"):
            box = box.regressor_
        elif hasattr(box, "get_params") and hasattr(box, "best_estimator_"):
            box = box.best_estimator_
        else:
            return box


def query_where_outputs_vary(oracle, U):
    """Query U (n, D) twice; return outputs (k, m_L) that vary, and the spread of the points that gave them.

    The spread is 1 for U itself. If the outputs are constant on U, it is the first power of ten standard deviations at
    which they vary: raw inputs often saturate every unit of a trained network. ValueError if the outputs differ by more
    than 5 % of their deviation between the queries, or are constant up to 10,000 standard deviations.
    """
    Y, noise = oracle.query_twice(U)
    if noise > _MAX_REPEAT_ERROR:
        if len(U) > 1 and _gap(oracle(U), Y) <= _MAX_REPEAT_ERROR:  # its halves alone gave other outputs
            raise ValueError(_BATCH_DEPENDENCE)
        raise ValueError(
            f"the black box returned different outputs when queried twice: relative difference {noise:.1e}, tolerated "
            f"{_MAX_REPEAT_ERROR:.0e}. Identification needs repeatable outputs: switch dropout and sampling off, or "
            "average."
        )
    if len(U) > 1 and np.ptp(U, axis=0).max() == 0:
        raise ValueError(f"X does not vary: its {len(U)} rows are equal. Give typical inputs.")
    outputs, spread = (Y, 1.0) if varying_outputs(Y).any() else _at_larger_spread(oracle)
    if outputs is None:
        same = "the same probabilities, to rounding" if oracle.response == "predict_proba" else str(Y[0])
        raise ValueError(
            f"the black box is constant: {len(U)} rows around the center all gave {same}. There is nothing to "
            "identify; check that it reads its input, and that X has the right scale."
        )
    return outputs, spread


def refuse_batch_dependence(oracle, U, Y):
    """Raise if the last rows of a batch U (n, D), whose outputs are Y, have other outputs in a call of their own.

    Some engines are wrong from some row of a batch on. 4 queries.
    """
    if _gap(oracle(U[-_REPEATED:]), Y[-_REPEATED:], Y) > _BATCH_ERROR:
        raise ValueError(_BATCH_DEPENDENCE)


def _gap(again, Y, all_outputs=None):
    """Largest difference to outputs Y over the largest deviation of all outputs."""
    all_outputs = Y if all_outputs is None else all_outputs
    deviation = np.abs(all_outputs - all_outputs.mean(axis=0)).max()
    return np.abs(again - Y).max() / max(deviation, np.finfo(float).tiny)


def _at_larger_spread(oracle):
    """Outputs at the first spread of `_SPREADS` at which they vary, and this spread; None, None if there is none."""
    directions = np.random.RandomState(0).standard_normal((_N_SPREAD_POINTS, oracle.n_inputs))
    for spread in _SPREADS:
        try:
            Y = oracle(oracle.clip_to_range(spread * directions))
        except BlackBoxError:  # it cannot be queried there
            return None, None
        if varying_outputs(Y).any():
            return Y, spread
    return None, None
