"""Probabilities that were calibrated behind a classifier: steps of isotonic regression, or two levels of a sigmoid."""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from ..constants import DIRECTIONS, SAME, VERY_FAR
from ..query_points import query_block
from .jumps import find_jumps
from .other_models import OtherModel
from .sharp_bends import count_sharp_bends

_PLACES = 400  # at which outputs are compared over a short step (budget)
_STEP = 1e-7  # standard deviations of that step: ReLU and tanh units change by 1e-8 and more
_INSIDE = 1e-3  # distance of a probability from 0 and 1, of one that does not saturate
_FEWEST_LEVELS = 5  # constant probabilities that differ: regions without active units have fewer
_AT_LEVELS = 0.9  # of the directions, that lie on the commonest levels: on others, all units may be inactive
_SAME_BEHIND = 3  # directions whose opposite has an equal level: none with a single sigmoid unit


def recognize_calibration(oracle, U, rng):
    """`OtherModel` if probabilities, the outputs of the oracle, are those of a calibrated classifier; None otherwise.

    U (n, D) are standardized samples. 928 queries, and up to 3,400 more if the probabilities have levels.
    """
    if not oracle.accuracy.exact and oracle.accuracy.kind != "noise":  # decimals and short floats have steps, too
        return None
    return _isotonic(oracle, U, rng) or _sigmoid(oracle, rng)


def declared_calibration(model):
    """`OtherModel` if the model is a scikit-learn calibration, or a method of one; None otherwise."""
    owner = getattr(model, "__self__", model)
    while isinstance(owner, (FrozenEstimator, Pipeline)):
        owner = owner.estimator if isinstance(owner, FrozenEstimator) else owner[-1]
    if not isinstance(owner, CalibratedClassifierCV):
        return None
    return OtherModel(
        f"{owner.method} calibration",
        f"the model is a CalibratedClassifierCV: {owner.method} calibration of a classifier, which is not a network "
        "with one activation in its hidden layers. Query the classifier before its calibration, "
        "model.calibrated_classifiers_[0].estimator.",
        "the class of the model",
    )


def _probabilities(oracle, points):
    return oracle.output_center + oracle.output_scale * query_block(oracle, points)


def _isotonic(oracle, U, rng):
    """Constant at many levels between 0 and 1, without jumps between these levels, which end at sharp bends.

    Saturated tanh units have such levels, too, with smooth steps between them.
    """
    points = oracle.clip_to_range(
        U[rng.randint(len(U), size=_PLACES)] + 0.1 * rng.standard_normal((_PLACES, U.shape[1]))
    )
    beside = oracle.clip_to_range(points + _STEP * rng.standard_normal(points.shape))
    first, second = _probabilities(oracle, np.stack([points, beside]))
    inside = np.any((first > _INSIDE) & (first < 1.0 - _INSIDE), axis=1)
    constant = inside & np.all(first == second, axis=1)
    if len(np.unique(first[constant], axis=0)) < _FEWEST_LEVELS or len(find_jumps(oracle, U, rng, True)):
        return None
    if not count_sharp_bends(oracle, rng):
        return None
    return OtherModel(
        "isotonic calibration",
        "the probabilities are constant at many levels, without jumps between them: isotonic calibration of a "
        "classifier. Query the classifier before its calibration.",
        f"{constant.sum()} of {_PLACES} probabilities do not change over {_STEP:g} standard deviations",
    )


def _sigmoid(oracle, rng):
    """As many levels far out as classes, none of them 0 or 1: a function of probabilities that are 0 or 1 there."""
    E = rng.standard_normal((DIRECTIONS // 2, oracle.n_inputs))
    Y = _probabilities(oracle, np.stack([VERY_FAR * E, -VERY_FAR * E]))
    flat = Y.reshape(-1, Y.shape[2])
    levels, which, counts = np.unique(np.round(flat / SAME), axis=0, return_inverse=True, return_counts=True)
    common = np.argsort(-counts)[: max(2, Y.shape[2])]
    behind = np.sum(which.reshape(2, -1)[0] == which.reshape(2, -1)[1])
    soft = np.all(np.abs(levels[common] * SAME - 0.5) < 0.5 - 1e3 * SAME)
    if len(common) < 2 or counts[common].sum() < _AT_LEVELS * DIRECTIONS or not soft or behind < _SAME_BEHIND:
        return None
    return OtherModel(
        "sigmoid calibration",
        "far out the probabilities take one level per class, and none of 0 and 1: sigmoid calibration (Platt scaling) "
        "of a classifier. Query the classifier before its calibration.",
        f"{len(common)} levels in {counts[common].sum()} of {DIRECTIONS} directions, at {VERY_FAR:g} deviations",
    )
