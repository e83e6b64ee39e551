"""What goes wrong when a black box is asked."""


class BlackBoxError(ValueError):
    """The black box raised, its answers cannot be used, or it would have been asked where it may not be."""
