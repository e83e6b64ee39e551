"""What kind of black box was given: whether it must be fitted, what it is asked for, whether its answers tell."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skident.network import FeedforwardNetwork

from ._adapters import is_onnx_file, is_torch_module, same_onnx_model
from ._errors import BlackBoxError
from ._output_scaling import varying_outputs

__all__ = [
    "query_where_outputs_vary",
    "is_classifying",
    "is_torch_module",
    "known_network",
    "needs_targets",
    "resolve_activations",
    "resolve_black_box",
    "resolve_response",
    "same_onnx_model",
    "has_known_activations",
]


_TOO_NOISY = 0.05  # difference of two answers to one question, relative to their deviation, that is refused
_SKLEARN_ACTIVATIONS = {"logistic": "sigmoid"}


def _is_fittable(box):
    """Whether it is a scikit-learn estimator that `fit` must fit first."""
    return hasattr(box, "fit") and hasattr(box, "predict") and not isinstance(box, FrozenEstimator)


def needs_targets(estimator):
    """Whether `fit` needs y, because the black box has to be trained first.

    Parameters
    ----------
    estimator : object
        What was given as black box; None stands for the default MLPRegressor.

    Returns
    -------
    bool
    """
    return estimator is None or (not is_torch_module(estimator) and _is_fittable(estimator))


def is_classifying(estimator):
    """Whether it is a scikit-learn classifier, also inside a `FrozenEstimator` or a pipeline.

    Parameters
    ----------
    estimator : object

    Returns
    -------
    bool
    """
    return estimator is not None and hasattr(estimator, "get_params") and is_classifier(estimator)


def resolve_response(estimator, response_method):
    """The method that is asked of a black box.

    Parameters
    ----------
    estimator : object
    response_method : {"auto", "predict", "predict_proba"}
        ``auto`` asks classifiers for probabilities and everything else for values.

    Returns
    -------
    {"predict", "predict_proba"}

    Raises
    ------
    ValueError
        If labels would be asked of a classifier.
    """
    if response_method == "auto":
        return "predict_proba" if is_classifying(estimator) else "predict"
    if response_method == "predict" and is_classifying(estimator):
        raise ValueError(
            f"response_method='predict' asks {type(estimator).__name__} for labels, which are constant almost "
            "everywhere; use response_method='predict_proba' (or 'auto')."
        )
    return response_method


def resolve_black_box(estimator, X, y, random_state, *, classifiers=False):
    """The black box to ask: given as it is, or an estimator fitted on (X, y).

    Parameters
    ----------
    estimator : object
        Regressors and classifiers are cloned and fitted unless they are frozen; None is a small MLPRegressor; all else
        comes back as it is.
    X : ndarray of shape (n, D)
    y : ndarray of shape (n,) or (n, m_L), or None
    random_state : int
        Of the default MLPRegressor.
    classifiers : bool, default=False
        Whether they are wanted.

    Returns
    -------
    box : object
        What `Oracle` takes. Regressors, and with ``classifiers=True`` classifiers too, come back fitted.

    Raises
    ------
    ValueError
        If the estimator is a classifier and that is not wanted, or must be fitted and y is missing.
    NotFittedError
        If a frozen estimator is not fitted.

    Warns
    -----
    UserWarning
        If the estimator is fitted, and a clone of it is trained again.
    """
    if isinstance(estimator, FrozenEstimator):
        check_is_fitted(estimator)
    if is_classifying(estimator) and not classifiers:
        raise ValueError(
            f"{type(estimator).__name__} is a classifier; only regressors and callables with real outputs can be asked "
            "here. NetworkIdentifier identifies classifiers by their probabilities."
        )
    if not needs_targets(estimator):
        return estimator
    _refuse_or_warn(estimator, y)
    with warnings.catch_warnings():
        if estimator is None:
            # A small network that always trains in a moment; how well it fits is not the question here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator = MLPRegressor(
                hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", max_iter=100, random_state=random_state
            )
        return clone(estimator).fit(X, y)


def _refuse_or_warn(estimator, y):
    """An error if y is missing for a fit, a warning if the fit replaces weights that a user may have meant."""
    fitted = _is_fitted(estimator)
    kind = "classifier" if is_classifying(estimator) else "regressor"
    name = "the default MLPRegressor" if estimator is None else type(estimator).__name__
    other = "" if kind == "classifier" else " (or regressor.predict, if only outputs are needed)"
    remedy = f"To query a fitted {kind} as it is, pass FrozenEstimator({kind}){other}."
    if y is None:
        state = "is fitted, but would be cloned and fitted again: " if fitted else "is not fitted and y is None: "
        raise ValueError(f"{name} {state}requires y to be passed, but the target y is None. {remedy}")
    if fitted:
        warnings.warn(
            f"{name} is fitted already, but a clone is fitted again on (X, y): the weights that were given are not "
            f"used. {remedy}",
            UserWarning,
            stacklevel=5,  # `fit` reads its black box in a method of its own
        )


def _is_fitted(estimator):
    """Whether it is a scikit-learn estimator that `fit` would train a second time."""
    if not hasattr(estimator, "__sklearn_tags__"):  # without tags, scikit-learn cannot tell
        return False
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def known_network(box):
    """The network behind an object whose weights are known.

    Parameters
    ----------
    box : FeedforwardNetwork, torch.nn.Module, fitted estimator, path of an ``.onnx`` file
        An estimator either has ``network_``, as a fitted `NetworkIdentifier`, or is what
        `FeedforwardNetwork.from_sklearn` reads.

    Returns
    -------
    FeedforwardNetwork

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If it is a module or an estimator of the right kind that is no such network.
    """
    if isinstance(box, FeedforwardNetwork):
        return box
    if is_torch_module(box):
        return FeedforwardNetwork.from_torch(box)
    if is_onnx_file(box):
        return FeedforwardNetwork.from_onnx(box)
    if isinstance(getattr(box, "network_", None), FeedforwardNetwork):
        return box.network_
    if hasattr(box, "predict"):
        return FeedforwardNetwork.from_sklearn(box)
    raise TypeError(
        "the network must have known weights (MLPRegressor, MLPClassifier, torch Sequential, "
        f"FeedforwardNetwork, fitted NetworkIdentifier), got {type(box).__name__}; NetworkIdentifier finds the weights "
        "of a callable."
    )


def resolve_activations(box, activation, output_activation):
    """Names of the hidden and the output activation.

    Parameters
    ----------
    box : object
        The black box, fitted where it is an estimator.
    activation, output_activation : str
        ``auto`` reads it off the black box: a network, a torch module, an MLP, also behind other steps, an ONNX file
        that `FeedforwardNetwork.from_onnx` reads. Anything that does not tell is taken as tanh with linear output.

    Returns
    -------
    tuple of two str
    """
    told = _told_activations(box) or ("tanh", "identity")
    names = [t if a == "auto" else a for a, t in zip((activation, output_activation), told, strict=True)]
    return tuple(_SKLEARN_ACTIVATIONS.get(n, n) for n in names)


def has_known_activations(box):
    """Whether a black box tells its activations, so that nobody has to look for them.

    Parameters
    ----------
    box : object

    Returns
    -------
    bool
    """
    return _told_activations(box) is not None


def _told_activations(box):
    inner = _innermost(box)
    if is_torch_module(inner) or is_onnx_file(inner):
        read = FeedforwardNetwork.from_torch if is_torch_module(inner) else FeedforwardNetwork.from_onnx
        try:
            inner = read(inner)
        except (TypeError, ValueError):
            return None
    if isinstance(inner, FeedforwardNetwork):
        return inner.activation, inner.output_activation
    if isinstance(inner, MLPRegressor):
        return inner.activation, inner.out_activation_
    if isinstance(inner, MLPClassifier):  # logits come before its softmax
        return inner.activation, "identity"
    return None


def _innermost(box):
    """What answers in the end: a pipeline's last step, the regressor of transformed targets, the best of a search."""
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
    """Ask twice; refuse a black box that is constant or that answers all too differently the second time.

    Parameters
    ----------
    oracle : Oracle
    U : ndarray of shape (n, D)
        Where it is asked.

    Returns
    -------
    Y : ndarray of shape (n, m_L)
        Answers where they vary.
    spread : float
        1, or where the answers are constant on U the first power of ten standard deviations on which they vary: raw
        inputs often leave every unit of a trained network saturated wherever there are data.

    Raises
    ------
    ValueError
        If the answers differ by more than 5 % of their deviation, U does not vary,
        or the answers do not, up to 10 000 standard deviations out.
    """
    Y, noise = oracle.query_twice(U)
    if noise > _TOO_NOISY:
        raise ValueError(
            f"the black box answered differently when asked twice: relative difference {noise:.1e}, tolerated "
            f"{_TOO_NOISY:.0e}. Identification needs repeatable answers: switch dropout and sampling off, or "
            "average."
        )
    if len(U) > 1 and np.ptp(U, axis=0).max() == 0:
        raise ValueError(f"X does not vary: {len(U)} rows of it are alike. Give rows where the black box is used.")
    seen, spread = (Y, 1.0) if varying_outputs(Y).any() else _spread(oracle)
    if seen is None:
        same = "the same probabilities, to rounding" if oracle.response == "predict_proba" else str(Y[0])
        raise ValueError(
            f"the black box is constant: {len(U)} rows around the centre all gave {same}. There is nothing to "
            "identify; check that it reads its input, and that X has the right scale."
        )
    return seen, spread


def _spread(oracle):
    """Answers on the first power of ten standard deviations on which they vary, and this; None, None up to 1e4."""
    directions = np.random.RandomState(0).standard_normal((100, oracle.n_inputs))
    for spread in (1e1, 1e2, 1e3, 1e4):
        try:
            Y = oracle(oracle.clip_to_range(spread * directions))
        except BlackBoxError:  # not to be asked there
            return None, None
        if varying_outputs(Y).any():
            return Y, spread
    return None, None
