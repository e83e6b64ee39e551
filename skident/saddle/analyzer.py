"""SaddleEscapeAnalyzer: the fastest escape directions from the saddle at the origin, as estimator and transformer."""

import functools
import math
import warnings
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skident.base.checked_data import checked_data, checked_weights, merged_samples
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import AT_LEAST_ONE, Interval, StrOptions, check_magnitudes, forgotten_on_error
from skident.base.progress import StageLog
from skident.linalg import svd
from skident.optim import gram_work, one_thread
from skident.training.net import resolve_device

from .escape_direction import EscapeDirectionMixin
from .escape_search import AscentOptions, search_escape, successive_escapes
from .gradient_at_zero import gradient_at_zero, resolve_loss
from .localized_loss import activations, criticality

_WORK = 1e10  # multiplications in all steps by default: some seconds
_STEPS = (100, 500)  # bounds on the default number of steps (budget); 400 reach the optimum of Example 1
_RANK_TOLERANCE = 1e-2  # singular values below this share of the largest do not count as rank


class SaddleEscapeAnalyzer(EscapeDirectionMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ReportedEstimator):
    """How fast, and in which direction, training from small weights escapes the saddle at the origin.

    Near zero weights the loss of a bias-free ReLU network f with L layers is, up to a constant, its localized loss

        ``L_0(theta) = <G, f_theta(X)>``, ``G`` the gradient of the loss with respect to the outputs at zero.

    Gradient flow turns towards a minimizer of L_0 on ``||theta||^2 = L`` and then grows along it. This estimator
    maximizes the escape speed ``s = -L_0(theta)``, all restarts in one batch of torch tensors. The deep layers of the
    maximizer have low rank.

    Parameters
    ----------
    loss : {"auto", "squared_error", "squared", "log_loss", "gradient"} or callable, default="auto"
        Mean over samples; see Notes. "auto" is ``log_loss`` for labels and ``squared_error`` for floating-point
        numbers. A callable ``loss(outputs, targets)`` of torch tensors returns a number.
    depth : int, default=3
        L, at least 2: the number of weight matrices.
    width : int, default=32
        Units of each hidden layer. Raise it if `restart_speeds_` scatter.
    n_starts : int, default=8
        Random starts. Raise it if `restart_speeds_` scatter.
    max_iter : int, default=None
        Ascent steps; half as many follow to polish. None is ``1e10`` over ``n_starts n`` times the number of
        weights of one network, between 100 and 500.
    n_components : int, default=1
        Number of escape directions. The first is the fastest; each further one is the fastest for the remainder of G
        after projecting out the features of those before it.
    layer : int, default=-1
        Hidden layer whose activations `transform` returns, 1 to L - 1, or counted from the last, -1.
    fit_intercept : bool, default=True
        Whether ``squared_error`` centers y first. A network without biases cannot fit a mean.
    device : str, default="cpu"
        ``cpu``, ``cuda``, ..., ``auto``.
    dtype : {"float64", "float32"}, default="float64"
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 prints one line per component.

    Attributes
    ----------
    escape_direction_ : list of L ndarrays of shape (m_{l-1}, m_l)
        ``f(X) = relu(... relu(X W_1) ...) W_L``; each layer has Frobenius norm 1. The last hidden layer uses one unit,
        its first, at no loss of speed.
    escape_speed_ : float
        s, in the units of the loss.
    escape_directions_, escape_speeds_ : list of such lists, ndarray of shape (n_components,)
        For each component; the first are the two above, later speeds are for the projected G.
    restart_speeds_ : ndarray of shape (n_starts,)
        Final speed of each restart; NaN for dead ones.
    n_dead_ : int
        Restarts without a unit that reduces the loss.
    shallow_speed_ : float
        The largest speed at depth two, from single units; `escape_speed_` is at least that.
    residual_ : float
        ``||grad L_0(rho) + s rho|| / (s ||rho||)``. Not small if the optimum lies on activation boundaries, where the
        gradient is discontinuous; frequent with few samples.
    layer_singular_values_ : list of L ndarrays
    rank_ratio_ : ndarray of shape (L,)
        ``sum_{i >= 2} s_i^2 / sum_i s_i^2`` of each layer's weights, 0 for rank one.
    activation_rank_ratio_, nonlinearity_ratio_ : ndarray of shape (L - 1,)
        The same for the activations on X, and ``||relu(Z) - Z||^2 / ||Z||^2``, for each hidden layer.
    bottleneck_rank_ : int
        Smallest numerical rank of a hidden layer's activations (singular values above 1 % of the largest): 1, since the
        last hidden layer uses one unit; `activation_rank_ratio_` shows from which layer on.
    theorem_bound_ : ndarray of shape (L,)
        Theorem 3.1's bound on all three ratios; inf if it is 1 or more and hence vacuous.
    near_rank_one_bound_ : float
        Proposition 3.3's bound on all three ratios, for inputs near rank one; inf if vacuous.
    layer_count_bound_ : ndarray of shape (L,)
        Proposition 3.4's bounds: of the inputs and the hidden layers, at least ``L - j`` have an activation rank ratio
        up to its entry ``j - 1``, which is ``2 log(||X|| ||G|| / s) / j``.
    log_rank_budget_ : tuple of two float
        ``sum_{l < L} log(||A_l||_F^2 / ||A_l||_op^2)``, the inputs included, and its upper bound
        ``2 log(||X|| ||G|| / s)``. Each layer above rank one uses some of it: this bound is rarely vacuous.
    classes_ : ndarray
        If y holds labels.
    layer_ : int
        Hidden layer that `transform` returns, counted from 1.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    **Losses.** ``squared_error`` or ``squared``: half the mean over samples of ``||f(x) - y||^2``. ``log_loss``:
    cross-entropy of a softmax, or with two classes of a sigmoid of one output. ``gradient``: y is G itself (for sums
    over samples, as in Example 1 of [1]). Targets of a callable are class numbers (n,) if y holds labels, else numbers
    (n, k).

    **Algorithm.** Projected ascent with decreasing steps on the product of the layers' spheres, with the last layer
    always optimal; then each network is truncated above its best unit, which is exact (Proposition 3.2), and polished.
    The result is a local optimum: 400 steps reach the rank-two optimum of Example 1 in four of five restarts of width
    32. Cost: ``O(n_starts * max_iter * n * sum_l m_{l-1} m_l)``; restarts are processed in batches of 1 GB.

    **Errata** of [1] corrected here: speeds of Example 1 are sums over the data, and its W_3 must be -1; the time of
    Proposition 2.2 is ``(a_0^(2-L) - r^(2-L)) / ((L-2) s)`` with ``a = ||theta|| / sqrt(L)``.

    References
    ----------
    .. [1] I. Bantzis, J. B. Simon, A. Jacot, "Saddle-to-saddle dynamics in deep ReLU networks: low-rank bias in the
       first saddle escape", 2025.

    Examples
    --------
    >>> from skident.datasets import make_alternating_circle
    >>> from skident import SaddleEscapeAnalyzer
    >>> X, y = make_alternating_circle(8)
    >>> analyzer = SaddleEscapeAnalyzer(
    ...     loss="gradient", depth=3, n_starts=20, max_iter=400, random_state=0
    ... )
    >>> print(round(analyzer.fit(X, y).escape_speed_, 3))
    0.5
    """

    _reported = (
        "escape_speed_",
        "rank_ratio_",
        "bottleneck_rank_",
        "shallow_speed_",
        "residual_",
        "n_dead_",
        "n_iter_",
    )

    _parameter_constraints = {
        "loss": [StrOptions({"auto", "squared_error", "squared", "log_loss", "gradient"}), callable],
        "depth": [Interval(Integral, 2, None, closed="left")],
        "width": [AT_LEAST_ONE],
        "n_starts": [AT_LEAST_ONE],
        "max_iter": [AT_LEAST_ONE, None],
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
        n_starts=8,
        max_iter=None,
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
        self.n_starts = n_starts
        self.max_iter = max_iter
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

    def fit(self, X, y, sample_weight=None):
        """Compute the fastest escape direction.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Scaled as for training: speeds are proportional to it, and the network has no biases.
        y : array-like of shape (n_samples,) or (n_samples, k)
            Labels, numbers, or G itself with ``loss="gradient"``.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative; integer weights count as repetitions. They are factors of the losses of samples, and of the
            rows of G.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite, or so large or small that squares overflow or underflow; X is zero; y has one class
            or is constant, or the gradient vanishes (the origin is then not a saddle); `layer` does not exist; `device`
            is not available; or all restarts died.

        Warns
        -----
        ConvergenceWarning
            If fewer than `n_components` directions exist, because the first ones explain all of G.
        """
        with forgotten_on_error(self), one_thread(gram_work(X)):
            self._validate_params()
            X, y = checked_data(self, X, y, dtype=np.float64, multi_output=True, ensure_min_samples=2)
            layer = self._hidden_layer()
            total = len(X) if sample_weight is None else checked_weights(sample_weight, X).sum()
            X, y, weights = merged_samples(X, y, sample_weight)
            G, classes = self._gradient(X, y, weights)
            # The network is homogeneous: rows sqrt(w) (x, g) have the sums w g f(x).
            roots = np.sqrt(np.ones((len(X), 1)) if weights is None else weights[:, None])
            roots = roots * np.sqrt(total / len(X)) if self.loss == "gradient" else roots
            X, G = roots * X, roots * G
            if not np.any(X):
                raise ValueError("X is zero: a network without biases cannot leave the origin. Check X.")
            # Speeds are linear in both; normalized, they neither under- nor overflow in single precision.
            X_scale, G_scale = np.abs(X).max(), np.abs(G).max()
            ascent = self._ascent(X)
            searches = self._searches(X / X_scale, G / G_scale, X_scale * G_scale, ascent)
            if len(searches) < self.n_components:
                warnings.warn(
                    f"{len(searches)} escape directions explain all of G; there are no n_components="
                    f"{self.n_components}.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            self._store_speeds(searches, X_scale * G_scale)
            self._store_measures(X, G)
            self.layer_, self.n_iter_ = layer, ascent.max_iter
            if classes is not None:
                self.classes_ = classes
        return self

    def _gradient(self, X, y, weights=None):
        """The loss's gradient at zero outputs (n, k), and the classes of labels."""
        if np.asarray(y).dtype.kind == "f":
            check_magnitudes(X=X, y=y)
        G, classes = gradient_at_zero(resolve_loss(self.loss, y), y, weights=weights, fit_intercept=self.fit_intercept)
        check_magnitudes(X=X, **{"the gradient at zero outputs": G})
        return G, classes

    def _hidden_layer(self):
        """The hidden layer that `transform` returns, counted from 1."""
        layer = self.layer if self.layer > 0 else self.depth + self.layer
        if not 1 <= layer <= self.depth - 1:
            raise ValueError(
                f"layer={self.layer} does not exist: depth={self.depth} has the hidden layers 1 to {self.depth - 1}, "
                "or -1 for the last."
            )
        return layer

    def _ascent(self, X):
        """Budget of the ascent, with the default number of steps."""
        n_starts, max_iter = self.n_starts, self.max_iter
        if max_iter is None:
            n_weights = X.shape[1] * self.width + (self.depth - 2) * self.width**2
            max_iter = int(np.clip(_WORK / (n_starts * len(X) * n_weights), *_STEPS))
        return AscentOptions(n_starts, max_iter)

    def _searches(self, X, G, scale, ascent):
        """One `EscapeResult` per component, in torch tensors; speeds are relative to `scale`."""
        rng, log = check_random_state(self.random_state), StageLog(self.verbose, type(self).__name__)
        as_tensor = functools.partial(
            torch.as_tensor, dtype=getattr(torch, self.dtype), device=resolve_device(self.device)
        )

        def search(X, G):
            return search_escape(X, G, depth=self.depth, width=self.width, ascent=ascent, rng=rng)

        escapes, tensors = [], (as_tensor(X), as_tensor(G))
        with torch.no_grad():
            for escape in successive_escapes(*tensors, self.n_components, search):
                escapes.append(escape)
                log.say(f"component {len(escapes)}: speed {escape.speed * scale:.6g}")
        return escapes

    def _store_speeds(self, searches, scale):
        """Directions and speeds of all components, in the units of the data."""
        self.escape_directions_ = [[W.cpu().numpy().astype(np.float64) for W in s.weights] for s in searches]
        self.escape_speeds_ = np.array([s.speed for s in searches]) * scale
        self.escape_direction_, self.escape_speed_ = self.escape_directions_[0], float(self.escape_speeds_[0])
        self.restart_speeds_ = searches[0].restart_speeds * scale
        self.n_dead_ = int(np.isnan(self.restart_speeds_).sum())
        self.shallow_speed_ = searches[0].shallow_speed * scale

    def _store_measures(self, X, G):
        """Residual and rank measures of the fastest direction, and their theoretical bounds."""
        weights, speed = self.escape_direction_, self.escape_speed_
        self.residual_ = criticality(weights, X, G, speed)
        self.theorem_bound_ = rank_theorem_bound(self.depth, np.linalg.norm(X) * np.linalg.norm(G), speed)
        measured = low_rank_measures(weights, X, G, speed)
        self.layer_singular_values_ = measured.layer_singular_values
        self.rank_ratio_, self.activation_rank_ratio_ = measured.rank_ratio, measured.activation_rank_ratio
        self.nonlinearity_ratio_, self.bottleneck_rank_ = measured.nonlinearity_ratio, measured.bottleneck_rank
        self.log_rank_budget_ = measured.log_rank_budget
        self.near_rank_one_bound_ = near_rank_one_bound(X, G, speed)
        self.layer_count_bound_ = measured.log_rank_budget[1] / np.arange(1, self.depth + 1)

    @property
    def _n_features_out(self):
        return len(self.escape_directions_) * self._n_units()

    def _n_units(self):
        """Units in the layer that `transform` returns: the last hidden layer uses one only."""
        weights = self.escape_direction_
        return 1 if self.layer_ == len(weights) - 1 else weights[self.layer_ - 1].shape[1]

    def transform(self, X):
        """Hidden activations of the escape networks, to inspect what reduces the loss first.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            For the last hidden layer one unit per component; for an earlier layer all `width` units of each component,
            one component after the other; unused units are zero.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or has another number of columns.
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        n_units = self._n_units()
        blocks = [activations(weights[: self.layer_], X)[-1][:, :n_units] for weights in self.escape_directions_]
        return np.hstack(blocks)


@dataclass(frozen=True)
class LowRankMeasures:
    """The quantities that Theorem 3.1 and Proposition 3.4 bound, for L layers of weights."""

    layer_singular_values: list  # L arrays
    rank_ratio: np.ndarray  # (L,), of the weights
    activation_rank_ratio: np.ndarray  # (L - 1,), of the hidden activations
    nonlinearity_ratio: np.ndarray  # (L - 1,), ||relu(Z) - Z||^2 / ||Z||^2
    bottleneck_rank: int  # smallest numerical rank of hidden activations
    # sum_{l < L} log(||A_l||_F^2 / ||A_l||_op^2), inputs included, and its bound 2 log(||X|| ||G|| / s)
    log_rank_budget: tuple


def rank_ratio(singular_values):
    """``sum_{i >= 2} s_i^2 / sum_i s_i^2`` of descending singular values: 0 for rank one, NaN for zeros."""
    squares = np.asarray(singular_values, dtype=np.float64) ** 2
    return float(squares[1:].sum() / squares.sum()) if squares.sum() > 0 else float("nan")


def low_rank_measures(weights, X, G, escape_speed):
    """`LowRankMeasures` of an escape direction of speed s with layers of norm one."""
    spectra, nonlinear, A = [svd(X, compute_uv=False)], [], X
    for W in weights[:-1]:
        Z = A @ W
        A = np.maximum(Z, 0.0)
        spectra.append(svd(A, compute_uv=False))
        nonlinear.append(float(np.sum((A - Z) ** 2) / max(np.sum(Z**2), np.finfo(float).tiny)))
    used = sum(math.log(max(np.sum((s / s[0]) ** 2), 1.0)) for s in spectra if s[0] > 0)
    values = [svd(W, compute_uv=False) for W in weights]
    return LowRankMeasures(
        layer_singular_values=values,
        rank_ratio=np.array([rank_ratio(s) for s in values]),
        activation_rank_ratio=np.array([rank_ratio(s) for s in spectra[1:]]),
        nonlinearity_ratio=np.array(nonlinear),
        bottleneck_rank=min(int(np.sum(s > _RANK_TOLERANCE * s[0])) for s in spectra[1:]),
        log_rank_budget=(used, 2.0 * math.log(np.linalg.norm(X) * np.linalg.norm(G) / escape_speed)),
    )


def rank_theorem_bound(n_layers, product, escape_speed):
    """Theorem 3.1's bound ``8 c / (1 - c l^(-1/2)) l^(-1/2)`` for l = 1, ..., L, with ``c = p sqrt(2 log p)``.

    ``p = ||X||_F ||G||_F / s``; inf if the bound is vacuous (1 or more), so for ``l <= 81 c^2``.
    """
    p = max(product / escape_speed, 1.0)
    c = p * math.sqrt(2.0 * math.log(p))
    root = np.sqrt(np.arange(1.0, n_layers + 1))
    bound = np.full(n_layers, np.inf)
    told = root > 9.0 * c
    bound[told] = 8.0 * c / (root[told] - c)
    return bound


def near_rank_one_bound(X, G, escape_speed):
    """Proposition 3.3's bound ``8 |G| e / (s - |G| e)`` for inputs X (n, D) within e of rank one; inf if vacuous.

    e is the Frobenius distance to ``v u^T`` with v >= 0, from the main singular vector of X.
    """
    v = svd(X, full_matrices=False)[0][:, 0]
    v = np.maximum(v * np.sign(v.sum()), 0.0)
    v /= max(np.linalg.norm(v), np.finfo(float).tiny)
    lost = np.linalg.norm(G) * np.linalg.norm(X - np.outer(v, v @ X))
    return 8.0 * lost / (escape_speed - lost) if 9.0 * lost < escape_speed else np.inf
