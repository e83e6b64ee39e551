"""Methods of a fitted analyzer: escape times, deeper escape directions, and initial weights along the direction."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data

from .escape_time import aligned_escape_time, flow_escape_time
from .localized_loss import check_layers, deepened


class EscapeDirectionMixin:
    """Methods that need only `escape_direction_` and `escape_speed_` of a fitted analyzer, not the samples."""

    def predict_escape_time(self, init_scale=1e-3, radius=1.0):
        """Time of gradient flow on the localized loss from `init_scale` to `radius` along the escape direction.

        Parameters
        ----------
        init_scale : float, default=1e-3
            ``||theta|| / sqrt(L)`` at the start: the norm of each layer of ``initial_weights(init_scale)``.
        radius : float, default=1.0
            The same at the end. The loss is close to the localized one only while outputs are small.

        Returns
        -------
        float
            ``(init_scale^(2-L) - radius^(2-L)) / ((L-2) s)``, and ``log(radius / init_scale) / s`` for L = 2. A lower
            bound for starts in other directions, if the direction is the fastest there is.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If not ``0 < init_scale <= radius``.
        """
        check_is_fitted(self)
        _check_scales(init_scale, radius)
        return aligned_escape_time(self.escape_speed_, len(self.escape_direction_), init_scale, radius)

    def escape_time_from(self, weights, X, y, radius=1.0):
        """Time of gradient flow on the localized loss from given weights to `radius`, by numerical integration.

        Parameters
        ----------
        weights : list of at least 2 array-like of shape (m_{l-1}, m_l)
            From the inputs of `fit` to as many outputs as the loss has; any depth and widths. For a torch ``Linear``
            use the transpose of its weight.
        X : array-like of shape (n_samples, D)
        y : array-like of shape (n_samples,) or (n_samples, k)
            The data of the loss: those of `fit`, which are not stored. All samples have the same weight.
        radius : float, default=1.0
            Final value of ``||theta|| / sqrt(L)``.

        Returns
        -------
        float
            inf if the flow does not leave the origin.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If the weights do not match each other or the data, the data are not valid for `fit`, or `radius` is not
            positive.
        RuntimeError
            If the flow takes more than 20,000 steps.

        Notes
        -----
        About 400 gradients if the loss is smooth along the path. With few samples the flow slides along activation
        boundaries: then thousands of gradients, and an error of 1 %.
        """
        check_is_fitted(self)
        X, y = checked_data(self, X, y, dtype=np.float64, multi_output=True, ensure_min_samples=2, reset=False)
        G, _ = self._gradient(X, y)
        weights = check_layers(weights, X.shape[1], G.shape[1])
        _check_scales(radius, radius)
        return flow_escape_time(weights, X, G, radius)

    def extend(self, n_layers):
        """The escape direction of a network with more layers, at the same speed.

        Parameters
        ----------
        n_layers : int
            Number of layers to add, at least 0.

        Returns
        -------
        list of L + n_layers ndarrays of shape (m_{l-1}, m_l)
            The added layers, before the last, have rank one and norm 1.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If `n_layers` is not an integer, or negative.

        Notes
        -----
        Proposition 3.2 of [1]: ReLU leaves a nonnegative activation unchanged.
        """
        check_is_fitted(self)
        if isinstance(n_layers, bool) or not isinstance(n_layers, Integral) or n_layers < 0:
            raise ValueError(f"n_layers must be an integer >= 0, the number of layers to add; got {n_layers!r}.")
        *hidden, last = self.escape_direction_
        hidden = [*hidden[:-1], hidden[-1][:, :1]]
        return deepened(hidden, last[:1], len(hidden) + int(n_layers), last.shape[0])

    def initial_weights(self, scale=1e-3, *, noise=0.0, random_state=None):
        """Small weights aligned with the fastest escape, to initialize training.

        Parameters
        ----------
        scale : float, default=1e-3
            Norm of each layer.
        noise : float, default=0
            Norm of added Gaussian weights, relative to `scale`. At 0 unused units stay at zero, and training cannot get
            past the first saddle.
        random_state : int, RandomState or None, default=None
            Draws the noise.

        Returns
        -------
        list of L ndarrays of shape (m_{l-1}, m_l)
            For ``SaddleToSaddleClassifier(initial_weights=...)`` and ``skident.saddle.BiasFreeMLP(start=...)``; the
            weight of a torch ``Linear`` is the transpose.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If `scale` is not positive or `noise` is negative.
        """
        check_is_fitted(self)
        _check_scales(scale, scale)
        if isinstance(noise, bool) or not isinstance(noise, Real) or not 0 <= noise < np.inf:
            raise ValueError(f"noise must be a finite number >= 0, got {noise!r}.")
        rng = check_random_state(random_state)
        weights = []
        for W in self.escape_direction_:
            E = rng.standard_normal(W.shape)
            weights.append(scale * (W + noise * E / np.linalg.norm(E)))
        return weights


def _check_scales(init_scale, radius):
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in (init_scale, radius))
    if not (numbers and 0 < init_scale <= radius < np.inf):
        raise ValueError(
            f"norms must be positive finite numbers, the first at most the second; got {init_scale!r} and {radius!r}."
        )
