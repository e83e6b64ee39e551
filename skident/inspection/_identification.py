"""`IdentificationDisplay`: seconds, queries and residual of each stage of an identification."""

import numpy as np

from ._plotting import axes_pair, color_of, with_floor


class IdentificationDisplay:
    """Seconds, queries and residual of the stages of an identification.

    Left: a bar per stage with its seconds and number of queries. Right: the residual of each stage that has one, on a
    logarithmic scale. The dashed line is the final error on held-out samples, the gray band the noise of the outputs.
    Create it by `from_report` or `from_estimator`.

    Parameters
    ----------
    names : list of str
        Names of the stages in order.
    seconds, queries : ndarray of shape (n_stages,)
    residuals : ndarray of shape (n_stages,)
        NaN for a stage without residual.
    error, noise : float
        Error of the network on held-out samples, and noise of the outputs.

    Attributes
    ----------
    ax_, residual_ax_ : matplotlib Axes
        Of the seconds and of the residuals.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skident import NetworkIdentifier
    >>> from skident.datasets import make_network
    >>> from skident.inspection import IdentificationDisplay
    >>> network = make_network((4, 3, 2), output_activation="identity", random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((100, 4))
    >>> identifier = NetworkIdentifier(network, layer_widths=(3, 2), random_state=0).fit(X)
    >>> display = IdentificationDisplay.from_estimator(identifier)
    >>> print(len(display.names) == len(identifier.report_.stages))
    True
    """

    def __init__(self, *, names, seconds, queries, residuals, error, noise):
        self.names = names
        self.seconds = seconds
        self.queries = queries
        self.residuals = residuals
        self.error = error
        self.noise = noise

    @classmethod
    def from_report(cls, report, *, ax=None, **kwargs):
        """Plot the report of a fitted identifier.

        Parameters
        ----------
        report : IdentificationReport
            ``report_`` of a `NetworkIdentifier`.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        IdentificationDisplay

        Raises
        ------
        TypeError
            If it is not such a report.
        """
        if not hasattr(report, "relative_max_error"):
            raise TypeError(f"report must be report_ of a fitted NetworkIdentifier, got {type(report).__name__}.")
        display = cls(
            names=[stage.name for stage in report.stages],
            seconds=np.array([stage.seconds for stage in report.stages]),
            queries=np.array([stage.queries for stage in report.stages]),
            residuals=np.array([np.nan if s.residual is None else s.residual for s in report.stages], dtype=float),
            error=report.relative_max_error,
            noise=report.noise,
        )
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
        """Plot the report of a fitted identifier.

        Parameters
        ----------
        estimator : NetworkIdentifier
            Fitted.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        IdentificationDisplay
        """
        return cls.from_report(getattr(estimator, "report_", None), ax=ax, **kwargs)

    def plot(self, ax=None, *, bar_kwargs=None, scatter_kwargs=None):
        """Plot seconds, queries and residuals.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (seconds, residuals), or one that is split in two. None creates a figure.
        bar_kwargs, scatter_kwargs : dict, default=None
            For ``Axes.barh`` of the seconds and for ``Axes.plot`` of the residuals, such as ``{"markersize": 3}``.

        Returns
        -------
        IdentificationDisplay
            Itself, with `ax_`, `residual_ax_` and `figure_`.
        """
        size = (10, 2.0 + 0.35 * len(self.names))
        left, right = axes_pair(ax, "IdentificationDisplay", rows=False, figsize=size, ratios=(3, 2))
        self.ax_, self.residual_ax_, self.figure_ = left, right, left.figure
        places = np.arange(len(self.names))
        bars = left.barh(places, self.seconds, **{"color": color_of(0), "height": 0.6, **(bar_kwargs or {})})
        left.bar_label(bars, [f"{count:,} queries".replace(",", "\u202f") for count in self.queries], padding=4)
        left.set(xlabel="seconds", yticks=places, yticklabels=self.names)
        left.margins(x=0.35)
        self._plot_residuals(right, places, {"marker": "o", "linestyle": "none", **(scatter_kwargs or {})})
        for one in (left, right):
            one.set_ylim(len(self.names) - 0.4, -0.6)
        return self

    def _plot_residuals(self, right, places, style):
        """Residuals of the stages, the error on held-out samples, and the noise."""
        has_residual = np.isfinite(self.residuals)
        residuals, error = with_floor(self.residuals[has_residual]), float(with_floor(self.error))
        right.plot(residuals, places[has_residual], label="after the stage", **{"color": color_of(1), **style})
        right.axvline(error, color="0.4", linestyle="--", label="held-out samples")
        shown = [*residuals, error, *([self.noise] if self.noise > 0 else [])]
        limits = (min(shown) / 100.0, max(shown) * 30.0)  # a decade or more for ticks, and space for the legend
        right.set(xlabel="relative error", xscale="log", xlim=limits, yticks=places)
        right.tick_params(labelleft=False)
        if self.noise > 0:
            right.axvspan(limits[0], self.noise, color="0.9", zorder=0, label="noise")
        right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="x-small")
