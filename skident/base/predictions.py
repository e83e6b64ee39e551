"""Predict methods and tags of estimators whose result is a `network_`: values, labels, probabilities."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import ClassifierTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data
from skident.oracle import probabilities_from_logits
from skident.oracle.black_box import needs_targets, resolve_response


def added_constants(F, labels, weights):
    """The constants (k,) to add to logits F (n, k) for the lowest weighted cross-entropy of `labels` (n,) from 0.

    A single column holds the logits of class 1 against class 0.
    """
    single, rows, w = F.shape[1] == 1, np.arange(len(F)), weights / weights.sum()
    F = np.column_stack([np.zeros(len(F)), F]) if single else F

    def loss(c):
        logs = log_softmax(F + c, axis=1)
        slopes = np.exp(logs)
        slopes[rows, labels] -= 1.0
        return -(w @ logs[rows, labels]), w @ slopes

    c = minimize(loss, np.zeros(F.shape[1]), jac=True).x
    return c[1:] - c[0] if single else c


def in_shape_of_targets(Y, one_dimensional):
    """Predictions Y (n, m_L), or their only column (n,) if the targets were one-dimensional."""
    return Y[:, 0] if one_dimensional else Y


def _classifies(identifier):
    """Whether the black box is queried for probabilities or labels: then the estimator is a classifier."""
    return resolve_response(identifier.estimator, identifier.response_method) in ("predict_proba", "labels")


def _gives_probabilities(identifier):
    """Whether the scale of the logits is known, as labels alone do not determine it."""
    return resolve_response(identifier.estimator, identifier.response_method) == "predict_proba"


class NetworkPredictions(RegressorMixin):
    """Prediction methods and tags of `NetworkIdentifier`; a classifier if the black box gives probabilities."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        trained = needs_targets(self.estimator)
        tags.target_tags.required = trained
        # Predictions are those of a given black box, whatever y says.
        tags.regressor_tags.poor_score = not trained
        if self.response_method == "predict" or not _classifies(self):
            tags.target_tags.multi_output = True
            return tags
        tags.estimator_type, tags.regressor_tags = "classifier", None
        tags.classifier_tags = ClassifierTags(poor_score=not trained)
        return tags

    def predict(self, X):
        """Outputs of the identified network, or labels if it is a classifier's.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, m_L)
            In the shape of the black box's outputs; for a classifier the most probable of `classes_`.
        """
        Y = self._outputs(X)
        if self._labels is not None:
            return self._labels[np.argmax(probabilities_from_logits(Y), axis=1)]
        if getattr(self, "_reduced_outputs", None) is not None:  # the network was recovered before them
            Y = self._reduced_outputs.forward(Y)
        elif getattr(self, "_softmax", False):  # a function whose outputs were recognized as probabilities
            return probabilities_from_logits(Y)
        return in_shape_of_targets(Y, self._one_dimensional)

    @available_if(_gives_probabilities)
    def predict_proba(self, X):
        """Probabilities of `classes_` from the identified logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, K)
        """
        return probabilities_from_logits(self._outputs(X))

    @available_if(_classifies)
    def decision_function(self, X):
        """Logits, the outputs of `network_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, K) or (n_samples,)
            With zero mean over the classes; of two classes the log-odds of the second.
        """
        Z = self._outputs(X)
        return Z[:, 0] if Z.shape[1] == 1 else Z

    def score(self, X, y, sample_weight=None):
        """R^2 of `predict`, or accuracy if it gives labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,) or (n_samples, m_L)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if self._labels is None:
            return super().score(X, y, sample_weight)
        return accuracy_score(y, self.predict(X), sample_weight=sample_weight)

    def _outputs(self, X):
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        return self.network_(X)
