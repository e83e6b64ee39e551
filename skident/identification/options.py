"""Options of `NetworkIdentifier` that few people change."""

import difflib
from numbers import Integral

from skident.base.estimator import Estimator
from skident.base.parameters import AT_LEAST_ONE, Interval, StrOptions

from .completion import NetworkCompletion
from .extractor import EntangledWeightExtractor


class IdentifierOptions(Estimator):
    """Options of `NetworkIdentifier` that few people change.

    Passed as ``NetworkIdentifier(model, options=IdentifierOptions(...))``; in a grid search, tuned as
    ``options__n_starts``.

    Parameters
    ----------
    strategy : {"auto", "saturation", "hessian"}, default="auto"
        Method. ``auto`` chooses by activation, widths and precision. ``saturation`` starts at large inputs;
        ``hessian`` is the pipeline of `EntangledWeightExtractor` and `NetworkCompletion`.
    extractor : EntangledWeightExtractor, default=None
        Replaces the default extractor of the Hessian pipeline. Its model, widths, activations, random state, jobs and
        verbosity are set by the identifier.
    completion : NetworkCompletion, default=None
        Replaces the default completion of the Hessian pipeline, likewise.
    polish : bool, default=True
        Whether a least squares fit of all parameters ends the recovery.
    n_check : int, default=200
        Held-out samples for the choice of a network, at least 20; one more per ten queries validates it. A local
        deviation that covers a share p of the inputs is missed by n samples with probability ``(1 - p)^n``. Raise it
        to lower `undetected_share`.
    n_attempts : int, default=4
        Steps of a method at most: other centers for Hessians, other fits after saturation.
    max_neurons : int, default=None
        Hidden units at most that ``layer_widths="auto"`` recovers. None is 200, or twice as many as are counted in the
        first layer.
    n_starts : int, default=None
        Random starts per fit at most. None is between 24 and 40, more for smaller networks.
    emulate : {"torch"} or callable, default=None
        With ``weight_dtype="float32"``, how bits are searched for in outputs in float32, with up to 10^6 queries:
        ``emulate(network, X)`` returns the outputs (n, m) of a candidate, or of its first layers alone, as the model
        computes them; ``"torch"`` is a torch module on this machine. None: bits need outputs of double precision.
    batch_size : int, default=None
        Rows per call of the model. The last batch is filled up with copies of its last row, which count as no query.
        None is any number. Set it for models with a fixed batch, and for services that limit it.
    vectorized : bool, default=True
        False calls the model with one row of shape (D,), which returns a number or m_L of them. Set it for functions
        of one sample.

    Examples
    --------
    >>> from skident import IdentifierOptions, NetworkIdentifier
    >>> identifier = NetworkIdentifier(options=IdentifierOptions(n_starts=100))
    >>> print(identifier.set_params(options__n_check=500).options.n_check)
    500
    """

    _parameter_constraints = {
        "strategy": [StrOptions({"auto", "saturation", "hessian"})],
        "extractor": [EntangledWeightExtractor, None],
        "completion": [NetworkCompletion, None],
        "polish": ["boolean"],
        "n_check": [Interval(Integral, 20, None, closed="left")],
        "n_attempts": [AT_LEAST_ONE],
        "max_neurons": [AT_LEAST_ONE, None],
        "n_starts": [AT_LEAST_ONE, None],
        "emulate": [StrOptions({"torch"}), callable, None],
        "batch_size": [AT_LEAST_ONE, None],
        "vectorized": ["boolean"],
    }

    def __init__(
        self,
        *,
        strategy="auto",
        extractor=None,
        completion=None,
        polish=True,
        n_check=200,
        n_attempts=4,
        max_neurons=None,
        n_starts=None,
        emulate=None,
        batch_size=None,
        vectorized=True,
    ):
        self.strategy = strategy
        self.extractor = extractor
        self.completion = completion
        self.polish = polish
        self.n_check = n_check
        self.n_attempts = n_attempts
        self.max_neurons = max_neurons
        self.n_starts = n_starts
        self.emulate = emulate
        self.batch_size = batch_size
        self.vectorized = vectorized

    def set_params(self, **params):
        """Set options.

        Parameters
        ----------
        **params
            Options by name; those of the extractor and the completion as ``extractor__radius``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an option does not exist; the message names the closest one.
        """
        known = self._get_param_names()
        for name in params:
            option = name.partition("__")[0]
            if option not in known:
                raise ValueError(f"IdentifierOptions has no option {option!r}{did_you_mean(option, known)}")
        return super().set_params(**params)


def did_you_mean(name, known):
    """The end of a message about an unknown name: the closest known one, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; options are {', '.join(sorted(known))}."
