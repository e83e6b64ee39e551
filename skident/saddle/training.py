"""Bias-free ReLU networks trained from small weights, from saddle to saddle, with a record of what happened."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from skident.base.parameters import check_magnitudes, forgotten_on_error
from skident.base.predictions import in_shape_of_targets
from skident.linalg import column_units
from skident.optim import gram_work, one_thread

from .base import ATTRIBUTES, PARAMETERS, SaddleToSaddleBase
from .module import HalfSquaredError

__all__ = ["SaddleToSaddleClassifier", "SaddleToSaddleRegressor"]


class SaddleToSaddleClassifier(ClassifierMixin, SaddleToSaddleBase):
    __doc__ = f"""A bias-free ReLU network trained from small weights on the log loss, with its saddles on record.

    Minimises the mean cross-entropy, by gradient descent whose steps adapt to the norm of the weights, so that training
    neither stands still near the saddle at the origin nor explodes when it leaves; from there by Adam, to where rows
    held out from networks beside it ask to stop. With `n_escapes` it is gradient descent throughout: from small weights
    it goes from saddle to saddle, and the deep layers are of low rank in between.

    Parameters
    ----------
    {PARAMETERS}

    Attributes
    ----------
    classes_ : ndarray
    {ATTRIBUTES}

    Notes
    -----
    With two classes there is one output, else one a class. A step costs ``O(n sum_l m_(l-1) m_l)``, a record the
    singular values of all layers, and the three networks beside it three steps each, in single precision on
    standardised inputs, and once more with noise on these. Deeper networks take rank after rank, and reach less on the
    digits. There, in the order of the file, with other writers in every fold, it reaches .958 and SVC .968. Wine sorted
    by its classes is lost to boosting too.

    Source: Appendix B of Bantzis, Simon, Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks", whose rule
    ``c a^(2-L)`` alone does not leave the origin in reasonable time where L = 6.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skident import SaddleToSaddleClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = SaddleToSaddleClassifier(width=20, random_state=0).fit(X[:400], y[:400])
    >>> print(classifier.score(X[400:], y[400:]) > 0.95)
    True
    """

    def fit(self, X, y):
        """Train.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,)
            Labels of at least two classes.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite or so large or small that squares overflow or vanish, y has one class or is continuous,
            `initial_weights` do not fit, or training diverges.

        Warns
        -----
        ConvergenceWarning
            If training did not leave the saddle at the origin, or fewer saddles than asked for: with the loss, and the
            step at which an escape is expected. If it ended far above the origin's loss, or before the held-out loss
            stopped falling; if a linear model is better on held-out rows by more than .03, or the network is hardly
            better than the mean of y.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            self._validate_params()
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
            check_magnitudes(X=X)
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(f"y has one class only ({str(self.classes_[0])!r}); at least two classes are needed.")
            binary = len(self.classes_) == 2
            targets = codes[:, None].astype(np.float64) if binary else codes
            self._train(X, targets, torch.nn.BCEWithLogitsLoss if binary else torch.nn.CrossEntropyLoss)
        return self

    def decision_function(self, X):
        """Logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            With two classes the log-odds of the second.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or of another width.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X):
        """Probabilities of `classes_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or of another width.
        """
        outputs = self._outputs(X)
        if len(self.classes_) == 2:
            return np.hstack([expit(-outputs), expit(outputs)])
        return softmax(outputs, axis=1)

    def predict(self, X):
        """The most probable label of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples,)

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or of another width.
        """
        outputs = self._outputs(X)
        codes = (outputs[:, 0] > 0).astype(int) if len(self.classes_) == 2 else np.argmax(outputs, axis=1)
        return self.classes_[codes]


class SaddleToSaddleRegressor(RegressorMixin, SaddleToSaddleBase):
    __doc__ = f"""A bias-free ReLU network trained from small weights on the squared error, with its saddles on record.

    Minimises half the mean squared norm of ``f(x) - (y - mean) / scale``, mean and standard deviation of every target,
    by gradient descent whose steps adapt to the norm of the weights, and from the first escape by Adam, to where rows
    held out from networks beside it ask to stop; with `n_escapes` by gradient descent throughout. Losses are in these
    units: half the number of targets at the origin.

    Parameters
    ----------
    {PARAMETERS}

    Attributes
    ----------
    intercept_ : ndarray of shape (n_outputs,)
        The mean of y: what a network without biases cannot learn.
    target_scale_ : ndarray of shape (n_outputs,)
        The standard deviations of y; one where a target is constant.
    {ATTRIBUTES}

    See Also
    --------
    SaddleToSaddleClassifier : The same for labels, with notes.

    Notes
    -----
    Squares of squares (hierarchical targets) are not learned from some hundred rows: R^2 about zero, .2 to .4 below
    kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skident import SaddleToSaddleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = SaddleToSaddleRegressor(width=20, random_state=0).fit(X[:300], y[:300])
    >>> print(regressor.score(X[300:], y[300:]) > 0.45)
    True
    """

    def fit(self, X, y):
        """Train.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite or so large or small that squares overflow or vanish, y is constant,
            `initial_weights` do not fit, or training diverges.

        Warns
        -----
        ConvergenceWarning
            If training did not leave the saddle at the origin, or fewer saddles than asked for: with the loss, and the
            step at which an escape is expected. If it ended far above the origin's loss, or before the held-out loss
            stopped falling; if a linear model is better on held-out rows by more than .03, or the network is hardly
            better than the mean of y.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            self._validate_params()
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
            check_magnitudes(X=X, y=y)
            self._one_dimensional = y.ndim == 1
            Y, self.intercept_, self.target_scale_ = _standardised(np.asarray(y, dtype=np.float64).reshape(len(X), -1))
            self._train(X, Y, HalfSquaredError)
        return self

    def predict(self, X):
        """Targets, in the units of y.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            As y had in `fit`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or of another width.
        """
        Y = self._outputs(X) * self.target_scale_ + self.intercept_
        return in_shape_of_targets(Y, self._one_dimensional)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _standardised(Y):
    """Targets (n, k) less their means (k,), over their standard deviations (k,); these means and deviations."""
    mean, scale = column_units(Y)
    if np.all(np.ptp(Y, axis=0) <= 1e-13 * np.abs(Y).max(axis=0)):
        raise ValueError(
            "y is constant: with its mean taken out there is nothing to learn, and the origin is no saddle."
        )
    return (Y - mean) / scale, mean, scale
