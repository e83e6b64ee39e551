"""``skident audit``: is the model in this file the network in that one?"""

from __future__ import annotations

from skident.audit import verify_same

from .models import black_box_from, network_from
from .results import FOUND, NOT_FOUND, Result
from .tables import read_table

__all__ = ["audit"]


def audit(options):
    """Compare the model in a file with a network that is known.

    Parameters
    ----------
    options : argparse.Namespace
        As `skident.cli.main` makes it.

    Returns
    -------
    Result
        Found where they are the same; different ones and undecided ones are not.

    Raises
    ------
    ValueError, OSError, ImportError
        If a file cannot be read, the data do not fit, or the black box cannot be asked.
    """
    box, network = black_box_from(options.model), network_from(options.reference)
    X, _ = read_table(options.data, network.n_inputs)
    report = verify_same(
        box,
        network,
        X,
        tol=options.tol,
        max_queries=options.max_queries,
        response_method=options.response,
        random_state=options.seed,
    )
    return Result(FOUND if report.same else NOT_FOUND, str(report), report.to_dict())
