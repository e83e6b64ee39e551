"""How training leaves the saddle at the origin: the fastest escape directions, as estimator and transformer."""

from __future__ import annotations

import warnings
from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions, check_magnitudes, forgotten_on_error
from skident.base.progress import StageLog
from skident.optim import gram_work, one_thread
from skident.training.net import resolve_device

from .direction import EscapeDirectionMixin
from .gradient_at_zero import gradient_at_zero, resolve_loss
from .localised_loss import activations, criticality
from .low_rank import low_rank_measures, rank_theorem_bound
from .search import Ascent, search_escape, successive_escapes

__all__ = ["SaddleEscapeAnalyzer"]

_WORK, _STEPS = 1e10, (100, 500)  # products of numbers in all steps, and how many steps where none is given


class SaddleEscapeAnalyzer(EscapeDirectionMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """How fast, and in which direction, training from small weights leaves the saddle at the origin.

    Near zero weights the loss of a bias-free ReLU network f with L layers is, up to a constant, its localised loss

        ``L_0(theta) = <G, f_theta(X)>``, ``G`` the gradient of the loss with respect to the outputs at zero.

    Gradient flow turns towards a minimiser of L_0 on ``||theta||^2 = L`` and then grows along it. This looks for the
    fastest: it maximises the escape speed ``s = -L_0(theta)``, all restarts in one batch of torch tensors. Its deep
    layers are of low rank.

    Parameters
    ----------
    loss : {"auto", "squared_error", "squared", "log_loss", "gradient"} or callable, default="auto"
        Losses are **means over rows**, and speeds are in their units. ``squared_error`` or ``squared``: half the
        squared norm of ``f(x) - y``. ``log_loss``: cross-entropy of a softmax, or with two classes of a sigmoid of one
        output. ``gradient``: y is G itself (for sums over rows, as in Example 1 of [1]). A callable
        ``loss(outputs, targets)`` of torch tensors returns a number, as those of `torch.nn.functional` do; targets are
        class numbers (n,) where y holds labels (strings, integers), else numbers (n, k). ``auto``: log loss of labels,
        squared error of floating-point numbers.
    depth : int, default=3
        L, at least 2: the number of weight matrices.
    width : int, default=32
        Units of every hidden layer.
    n_restarts : int, default=8
    max_iter : int, default=None
        Steps of the ascent; half as many follow to polish. None takes 100 to 500, more where they are cheap: ``1e10``
        over ``n_restarts n`` times the number of weights of one network.
    step_size : float, default=0.1
        First step, relative to a layer's norm; steps shrink to 1e-4.
    n_components : int, default=1
        Escape directions to find. The first is the fastest. Every further one is the fastest for what is left of G
        after projection off the features of those before it, which for the squared error is the gradient at the
        least-squares fit of these features.
    layer : int, default=-1
        Hidden layer whose activations `transform` gives, 1 to L - 1, or counted from the last, -1.
    fit_intercept : bool, default=True
        Of ``squared_error``: whether y is centred first. A network without biases cannot fit a mean.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``.
    dtype : {"float64", "float32"}, default="float64"
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 prints a line a component.

    Attributes
    ----------
    escape_direction_ : list of L ndarrays of shape (m_{l-1}, m_l)
        ``f(X) = relu(... relu(X W_1) ...) W_L``; every layer of Frobenius norm 1. The last hidden layer uses one unit,
        its first, which costs no speed.
    escape_speed_ : float
        s.
    escape_directions_, escape_speeds_ : list of such lists, ndarray of shape (n_components,)
        Of every component; the first are the two above, later speeds are for the projected G.
    restart_speeds_ : ndarray of shape (n_restarts,)
        What every restart came to; NaN where it died.
    n_dead_ : int
        Restarts in which no unit is left that reduces the loss.
    shallow_speed_ : float
        The fastest escape found at depth two, found from single units; `escape_speed_` is at least that.
    residual_ : float
        ``||grad L_0(rho) + s rho|| / (s ||rho||)``. Not small where the optimum lies on kinks of the network, as it
        often does with few rows: the gradient jumps there.
    layer_singular_values_ : list of L ndarrays
    rank_ratio_ : ndarray of shape (L,)
        ``sum_{i >= 2} s_i^2 / sum_i s_i^2`` of every layer's weights, 0 for rank one.
    activation_rank_ratio_, nonlinearity_ratio_ : ndarray of shape (L - 1,)
        The same of the activations on X, and ``||relu(Z) - Z||^2 / ||Z||^2``, of every hidden layer.
    bottleneck_rank_ : int
        Smallest numerical rank of a hidden layer's activations (singular values above 1 % of the largest): 1, since the
        last hidden layer uses one unit; `activation_rank_ratio_` tells from which layer on.
    theorem_bound_ : ndarray of shape (L,)
        Theorem 3.1's bound on all three ratios; inf where it is 1 or more and says nothing.
    log_rank_budget_ : tuple of two float
        ``sum_{l < L} log(||A_l||_F^2 / ||A_l||_op^2)``, the inputs included, and ``2 log(||X|| ||G|| / s)``, which it
        cannot exceed. Every layer above rank one uses some of it: this is the bound that says something.
    classes_ : ndarray
        Where y holds labels.
    layer_ : int
        Hidden layer that `transform` gives, counted from 1.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    Projected ascent with steps that shrink, on the product of the layers' spheres, with the last layer always the best
    one; then every network is cut off above its best unit, which is exact (Proposition 3.2), and polished. The result
    is a local optimum. Raise `n_restarts` and `width` where `restart_speeds_` scatter; 400 steps find the rank-two
    optimum of Example 1 in four of five restarts of width 32. Cost: ``O(n_restarts * max_iter * n * sum_l m_{l-1}
    m_l)``; restarts are cut into batches of 1 GB.

    Errata of [1] that are corrected here: speeds of Example 1 are sums over the data, and its W_3 must be -1; the time
    of Proposition 2.2 is ``(a_0^(2-L) - r^(2-L)) / ((L-2) s)`` with ``a = ||theta|| / sqrt(L)``.

    References
    ----------
    .. [1] I. Bantzis, J. B. Simon, A. Jacot, "Saddle-to-saddle dynamics in deep ReLU networks: low-rank bias in the
       first saddle escape", 2025.

    Examples
    --------
    >>> from skident.datasets import make_alternating_circle
    >>> from skident import SaddleEscapeAnalyzer
    >>> X, y = make_alternating_circle(8)
    >>> analyzer = SaddleEscapeAnalyzer(loss="gradient", depth=3, n_restarts=20, max_iter=400, random_state=0)
    >>> print(round(analyzer.fit(X, y).escape_speed_, 3))
    0.5
    """

    _parameter_constraints = {
        "loss": [StrOptions({"auto", "squared_error", "squared", "log_loss", "gradient"}), callable],
        "depth": [Interval(Integral, 2, None, closed="left")],
        "width": [AT_LEAST_ONE],
        "n_restarts": [AT_LEAST_ONE],
        "max_iter": [AT_LEAST_ONE, None],
        "step_size": [POSITIVE],
        "n_components": [AT_LEAST_ONE],
        "layer": [Integral],
        "fit_intercept": ["boolean"],
        "device": [str],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        loss="auto",
        *,
        depth=3,
        width=32,
        n_restarts=8,
        max_iter=None,
        step_size=0.1,
        n_components=1,
        layer=-1,
        fit_intercept=True,
        device="cpu",
        dtype="float64",
        random_state=None,
        verbose=0,
    ):
        self.loss = loss
        self.depth = depth
        self.width = width
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.step_size = step_size
        self.n_components = n_components
        self.layer = layer
        self.fit_intercept = fit_intercept
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_is_fitted__(self):
        return hasattr(self, "escape_direction_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y):
        """Find the fastest escape direction.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Scale it as for training: speeds are proportional to it, and biases there are none.
        y : array-like of shape (n_samples,) or (n_samples, k)
            Labels, numbers, or G itself with ``loss="gradient"``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite or so large or small that squares overflow or vanish, X is zero, y has one class or
            is constant or the gradient vanishes (the origin is then no saddle), `layer` does not exist, `device` cannot
            be used here, or all restarts died.

        Warns
        -----
        ConvergenceWarning
            If fewer than `n_components` directions exist, because the first ones leave nothing of G.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            self._validate_params()
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, ensure_min_samples=2)
            layer = self._hidden_layer()
            G, classes = self._gradient(X, y)
            if not np.any(X):
                raise ValueError("X is zero: no network without biases can leave the origin on it. Check X.")
            # Speeds are linear in both: units of their own keep single precision from under- and overflow.
            units = np.abs(X).max(), np.abs(G).max()
            searches = self._searches(X / units[0], G / units[1], units[0] * units[1])
            if len(searches) < self.n_components:
                warnings.warn(
                    f"{len(searches)} escape directions explain all of G; there are no n_components="
                    f"{self.n_components}.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            self._store_speeds(searches, units[0] * units[1])
            self._store_measures(X, G)
            self.layer_, self.n_iter_ = layer, self._steps(X)
            if classes is not None:
                self.classes_ = classes
        return self

    def _gradient(self, X, y):
        """The loss's gradient at zero outputs (n, k), and the classes of labels."""
        if np.asarray(y).dtype.kind == "f":
            check_magnitudes(X=X, y=y)
        G, classes = gradient_at_zero(resolve_loss(self.loss, y), y, fit_intercept=self.fit_intercept)
        check_magnitudes(X=X, **{"the gradient at zero outputs": G})
        return G, classes

    def _hidden_layer(self):
        """The hidden layer that `transform` gives, counted from 1."""
        layer = self.layer if self.layer > 0 else self.depth + self.layer
        if not 1 <= layer <= self.depth - 1:
            raise ValueError(
                f"layer={self.layer} does not exist: depth={self.depth} has the hidden layers 1 to {self.depth - 1}, "
                "or -1 for the last."
            )
        return layer

    def _steps(self, X):
        """Steps of a restart."""
        if self.max_iter is not None:
            return self.max_iter
        n_weights = X.shape[1] * self.width + (self.depth - 2) * self.width**2
        return int(np.clip(_WORK / (self.n_restarts * len(X) * n_weights), *_STEPS))

    def _searches(self, X, G, unit):
        """One `EscapeSearch` a component, in torch tensors; their speeds are in units of `unit`."""
        rng, log = check_random_state(self.random_state), StageLog(self.verbose, type(self).__name__)
        options = {"dtype": getattr(torch, self.dtype), "device": resolve_device(self.device)}
        ascent = Ascent(self.n_restarts, self._steps(X), self.step_size)

        def search(X, G):
            return search_escape(X, G, depth=self.depth, width=self.width, ascent=ascent, rng=rng)

        found, tensors = [], (torch.as_tensor(X, **options), torch.as_tensor(G, **options))
        with torch.no_grad():
            for escape in successive_escapes(*tensors, self.n_components, search):
                found.append(escape)
                log.say(f"component {len(found)}: speed {escape.speed * unit:.6g}")
        return found

    def _store_speeds(self, searches, unit):
        """Directions and speeds of all components, back in the units of the data."""
        self.escape_directions_ = [[W.cpu().numpy().astype(np.float64) for W in s.weights] for s in searches]
        self.escape_speeds_ = np.array([s.speed for s in searches]) * unit
        self.escape_direction_, self.escape_speed_ = self.escape_directions_[0], float(self.escape_speeds_[0])
        self.restart_speeds_ = searches[0].restart_speeds * unit
        self.n_dead_ = int(np.isnan(self.restart_speeds_).sum())
        self.shallow_speed_ = searches[0].shallow_speed * unit

    def _store_measures(self, X, G):
        """How critical and of how low rank the fastest direction is, and what theory says."""
        weights, speed = self.escape_direction_, self.escape_speed_
        self.residual_ = criticality(weights, X, G, speed)
        self.theorem_bound_ = rank_theorem_bound(self.depth, np.linalg.norm(X) * np.linalg.norm(G), speed)
        measured = low_rank_measures(weights, X, G, speed)
        self.layer_singular_values_ = measured.layer_singular_values
        self.rank_ratio_, self.activation_rank_ratio_ = measured.rank_ratio, measured.activation_rank_ratio
        self.nonlinearity_ratio_, self.bottleneck_rank_ = measured.nonlinearity_ratio, measured.bottleneck_rank
        self.log_rank_budget_ = measured.log_rank_budget

    @property
    def _n_features_out(self):
        return len(self.escape_directions_) * self._n_units()

    def _n_units(self):
        """Units of the layer that `transform` gives: of the last hidden one only the first is in use."""
        weights = self.escape_direction_
        return 1 if self.layer_ == len(weights) - 1 else weights[self.layer_ - 1].shape[1]

    def transform(self, X):
        """Hidden activations of the escape networks.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Of the last hidden layer the one unit in use, for every component; of an earlier layer all `width` units of
            every component, one component after the other; units that are not in use are zero.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or of another width.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        n_units = self._n_units()
        blocks = [activations(weights[: self.layer_], X)[-1][:, :n_units] for weights in self.escape_directions_]
        return np.hstack(blocks)
