"""The best of several starts."""

import math


def best_of(attempts, cost, enough=None):
    """The attempt of least cost, of as many as it takes.

    Parameters
    ----------
    attempts : iterable
        A generator makes no more of them than needed.
    cost : callable
        ``cost(attempt)`` gives a number; NaN counts as infinite.
    enough : callable, default=None
        ``enough(costs)`` with the costs so far, the last one included; True ends the search.

    Returns
    -------
    best : object
        Of equals the first.
    costs : list of float
        Of every attempt made.

    Raises
    ------
    ValueError
        If there is no attempt at all.

    Examples
    --------
    >>> from skident.optim import best_of
    >>> print(best_of([3, -2, 1, 0], abs, enough=lambda costs: costs[-1] <= 1))
    (1, [3.0, 2.0, 1.0])
    """
    best, lowest, costs = None, math.inf, []
    for attempt in attempts:
        value = float(cost(attempt))
        costs.append(math.inf if math.isnan(value) else value)
        if len(costs) == 1 or costs[-1] < lowest:
            best, lowest = attempt, costs[-1]
        if enough is not None and enough(costs):
            break
    if not costs:
        raise ValueError("best_of needs at least one attempt.")
    return best, costs
