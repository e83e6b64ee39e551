"""What goes wrong when a model is queried, and when its network cannot be identified."""


class BlackBoxError(ValueError):
    """The model raised, its outputs cannot be used, or it would have been queried where it may not be."""


class NotIdentified(ValueError):
    """A stage could not identify the network, although the queries and the code worked.

    It ends the plan, except for a fallback step. Any other exception is a programming error and surfaces.

    Parameters
    ----------
    stage : str
        The stage that gave up.
    reason : str
        One word for the cause, such as "smooth", "crowded", "rank" or "budget".
    message : str
        For the user.
    n_seen : int, default=None
        Number of units that the stage counted, if it counted another one than it was given.
    final : bool, default=False
        Whether another try of the same stage would fail as well. Always true with `n_seen`.

    Examples
    --------
    >>> from skident.oracle import NotIdentified
    >>> error = NotIdentified(
    ...     "second layer",
    ...     "rank",
    ...     "the coefficients are no sum of 11 powers, but of 10",
    ...     n_seen=10,
    ... )
    >>> print(error.stage, error.reason, error.final)
    second layer rank True
    """

    def __init__(self, stage, reason, message, *, n_seen=None, final=False):
        super().__init__(message)
        self.stage, self.reason, self.n_seen, self.final = stage, reason, n_seen, final or n_seen is not None

    def __reduce__(self):
        """Pickled with its fields: worker processes hand their exceptions back."""
        return _rebuilt, (self.stage, self.reason, str(self), self.n_seen, self.final)


def _rebuilt(stage, reason, message, n_seen, final):
    return NotIdentified(stage, reason, message, n_seen=n_seen, final=final)
