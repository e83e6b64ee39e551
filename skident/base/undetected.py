"""The share of inputs on which a model may differ although no held-out sample does."""

import numpy as np

CONFIDENCE = 0.999  # probability that a stated share holds (statistics: one wrong statement in 1,000 fits)


def undetected_share(n_samples, of=np.inf):
    """Upper bound of the share of a distribution on which a model differs, if none of n independent samples does.

    A share p is missed by all samples with probability ``(1 - p)^n``; the bound solves ``(1 - p)^n = 1 - CONFIDENCE``,
    which is about ``6.9 / n``. 1 without samples, and 0 if the samples are all there are (`of`).

    >>> print(undetected_share(0), round(undetected_share(1000), 4), undetected_share(200, of=200))
    1.0 0.0069 0.0
    """
    if n_samples >= of:
        return 0.0
    return float(1.0 - (1.0 - CONFIDENCE) ** (1.0 / n_samples)) if n_samples else 1.0
