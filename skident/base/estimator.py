"""The base classes of all estimators, whose pickles name their format."""

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .report import fit_report

_FORMAT = 1  # of pickles; raised when parameters or attributes change their names


class Estimator(BaseEstimator):
    """A `BaseEstimator` that refuses pickles of another format, whose parameters and attributes may differ."""

    def __getstate__(self):
        return {**super().__getstate__(), "_pickle_format": _FORMAT}

    def __setstate__(self, state):
        state = dict(state)
        if state.pop("_pickle_format", None) != _FORMAT:
            raise ValueError(
                f"This {type(self).__name__} was pickled by another version of skident, with other parameters and "
                "attributes. Fit it again; files of `FeedforwardNetwork.save` are read by every version."
            )
        super().__setstate__(state)


class ReportedEstimator(Estimator):
    """An estimator whose report is made of the fitted attributes that its class names."""

    _reported = ()

    @property
    def report_(self):
        """Results of the last fit: a frozen dataclass that prints as a table."""
        check_is_fitted(self)
        return fit_report(self)
