"""``skident labels``: recover the classifier in a file from its labels alone."""

from __future__ import annotations

import numpy as np

from skident.oracle import Oracle
from skident.oracle.black_box import n_inputs_of

from .identify import identify
from .models import black_box_from
from .tables import read_table

__all__ = ["labels"]


def labels(options):
    """Identify the classifier in a file from the class that it predicts: the largest output, or the sign of one."""
    box = black_box_from(options.model)
    X, _ = read_table(options.data, n_inputs_of(box))
    return identify(options, box=_LabelsOnly(box, X.shape[1]))


class _LabelsOnly:
    """A model of which nothing but the predicted class is passed on."""

    def __init__(self, box, n_inputs):
        response = "predict_proba" if isinstance(box, str) else "predict"
        self.n_inputs, self._oracle = n_inputs, Oracle(box, n_inputs, response=response)

    def __call__(self, X):
        outputs = np.asarray(self._oracle.query_inputs(X)).reshape(len(X), -1)
        return (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
