"""``skident audit``: does the model in a file have the outputs of a known network?"""

from __future__ import annotations

from skident.audit import verify_same
from skident.oracle.black_box import n_inputs_of, same_onnx_model

from .models import black_box_from, network_from
from .results import FOUND, NOT_FOUND, UNDECIDED, Result
from .tables import read_table

__all__ = ["audit"]


def audit(options):
    """Compare the model in a file with a known network; undecided if agreement proves nothing."""
    box, network, n_inputs = black_box_from(options.model), options.reference, n_inputs_of(options.model)
    if not same_onnx_model(options.model, options.reference):
        network = network_from(options.reference)
        n_inputs = network.n_inputs
    X, _ = read_table(options.data, n_inputs)
    report = verify_same(
        box,
        network,
        X,
        tol=options.tol,
        max_queries=options.max_queries,
        response_method=options.response,
        random_state=options.seed,
    )
    code = {True: FOUND, False: NOT_FOUND, None: UNDECIDED}[report.same]
    return Result(code, str(report).replace("set tol=", "set --tol "), report.to_dict())
