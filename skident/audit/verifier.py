"""The estimator of an audit."""

from numbers import Integral

from sklearn.utils import check_random_state

from skident.base.checked_data import checked_model_data
from skident.base.estimator import Estimator
from skident.base.parameters import POSITIVE, Interval, StrOptions, forgotten_on_error
from skident.optim import one_thread
from skident.oracle.black_box import named_rows, resolve_black_box

from .verify import verify_same


class NetworkVerifier(Estimator):
    """Is a black box the network that is known, and if not, which weights differ?

    The estimator of `verify_same`: outputs are compared at inputs chosen within the range of X, and where they differ
    the fewest changed weights or units are searched for that explain it.

    Parameters
    ----------
    estimator : callable, estimator, torch.nn.Module or FeedforwardNetwork, default=None
        The black box. Without y it is queried as it is. With y an estimator is cloned and fitted on (X, y) first, a
        fitted one with a warning, unless it is inside `FrozenEstimator`. None is a small tanh `MLPRegressor`.
    network : FeedforwardNetwork, torch.nn.Module or fitted estimator, default=None
        The known one. None: the one whose weights the estimator itself shows.
    tol : float, default=None
        Largest difference, over the deviation of that output, that still counts as the same; None: rounding, or noise.
    max_queries : int, default=None
        Queries at most. None is ``2 P / m_L``.
    response_method : {"auto", "predict", "predict_proba"}, default="auto"
        Queried method; ``auto`` compares a classifier's logits.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    same_ : bool or None
        As `AuditReport.same`: None if undecided, so that ``if verifier.same_`` is safe.
    differences_ : list of Difference
    report_ : AuditReport
        ``print(report_)`` prints all of it.
    n_queries_ : int
    estimator_ : object
        The black box, fitted.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from skident import NetworkVerifier
    >>> from skident.datasets import make_network
    >>> network = make_network((6, 8, 2), random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((100, 6))
    >>> verifier = NetworkVerifier(
    ...     lambda X: network(X).astype(np.float32), network=network, random_state=0
    ... ).fit(X)
    >>> print(verifier.same_, verifier.report_.kind)
    True float32
    """

    _parameter_constraints = {
        "estimator": "no_validation",
        "network": "no_validation",
        "tol": [POSITIVE, None],
        "max_queries": [Interval(Integral, 16, None, closed="left"), None],
        "response_method": [StrOptions({"auto", "predict", "predict_proba"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self, estimator=None, *, network=None, tol=None, max_queries=None, response_method="auto", random_state=None
    ):
        self.estimator = estimator
        self.network = network
        self.tol = tol
        self.max_queries = max_queries
        self.response_method = response_method
        self.random_state = random_state

    def fit(self, X, y=None):
        """Audit the black box.

        Parameters
        ----------
        X : array-like of shape (n_samples, D)
            Where it is used. See `verify_same` for the columns of a DataFrame.
        y : array-like of shape (n_samples,) or (n_samples, m_L), default=None
            Only for an estimator that must be fitted first.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As `verify_same`, of which `BlackBoxError` is one.
        TypeError
            If the network has no known weights.
        """
        with forgotten_on_error(self), one_thread():
            self._validate_params()
            rng, frame = check_random_state(self.random_state), X
            X, y, _ = checked_model_data(self, X, y)
            rows = named_rows(X, frame)
            box = self._model(rows, y, rng)
            report = verify_same(
                box,
                box if self.network is None else self.network,
                rows,
                tol=self.tol,
                max_queries=self.max_queries,
                response_method=self.response_method,
                random_state=rng,
            )
            self.estimator_, self.report_ = box, report
            self.same_, self.differences_, self.n_queries_ = report.same, report.differences, report.n_queries
        return self

    def _model(self, X, y, rng):
        """The black box, fitted if it must be; a method of its own, as the stack level of its warning assumes."""
        return resolve_black_box(self.estimator, X, y, rng.randint(2**31 - 1), classifiers=True)
