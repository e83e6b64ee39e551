"""From a measured rate of success to the fewest successes that pass a test."""

from scipy.stats import binom


def fewest_successes(n_trials, successes, measured_trials, miss=1e-2):
    """How many of `n_trials` must succeed where `successes` of `measured_trials` did.

    The rate counts two successes and two failures more than were measured (Agresti and Coull, 1998), so that a rate of
    one is not believed. Fewer successes than returned have a probability of at most `miss` at that rate.

    Examples
    --------
    >>> fewest_successes(10, 100, 100), fewest_successes(10, 80, 100)
    (8, 5)
    """
    rate = (successes + 2) / (measured_trials + 4)
    return int(binom.ppf(miss, n_trials, rate))
