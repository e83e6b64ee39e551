"""`AuditDisplay`: differences of an audit over their tolerance, and the weight changes that it would detect."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._plotting import axes_pair, color_of

_MIN_EXCESS = 1e-3  # smaller differences over their tolerance are drawn as this, on the logarithmic axis


class AuditDisplay:
    """Differences of the outputs in an audit, and how small a change of each weight it would detect.

    Left: every output's difference over its tolerance, in ascending order; above the dashed line the models differ.
    Right: per layer, the share of the weights whose relative change of a given size is detectable; crosses mark the
    changes detected. Create it by :meth:`from_estimator` or :meth:`from_report`.

    Parameters
    ----------
    report : AuditReport

    Attributes
    ----------
    ax_, weights_ax_ : matplotlib Axes
        Of the outputs and of the weights.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skident import NetworkVerifier
    >>> from skident.datasets import make_network
    >>> from skident.inspection import AuditDisplay
    >>> network = make_network((6, 8, 2), random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((100, 6))
    >>> verifier = NetworkVerifier(network, network=network, random_state=0).fit(X)
    >>> print(len(AuditDisplay.from_estimator(verifier).ax_.lines))
    2
    """

    def __init__(self, report):
        self.report = report

    @classmethod
    def from_estimator(cls, verifier, *, ax=None, **kwargs):
        """Plot the report of a fitted `NetworkVerifier`.

        Parameters
        ----------
        verifier : NetworkVerifier
            Fitted.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        AuditDisplay

        Raises
        ------
        TypeError
            If it is not a verifier.
        """
        if not (hasattr(verifier, "fit") and hasattr(verifier, "max_queries") and hasattr(verifier, "network")):
            raise TypeError(f"verifier must be a NetworkVerifier, got {type(verifier).__name__}.")
        check_is_fitted(verifier)
        return cls.from_report(verifier.report_, ax=ax, **kwargs)

    @classmethod
    def from_report(cls, report, *, ax=None, **kwargs):
        """Plot the report of `skident.audit.verify_same`.

        Parameters
        ----------
        report : AuditReport
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        AuditDisplay
        """
        return cls(report).plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, outputs_kwargs=None, weights_kwargs=None):
        """Plot the differences and the detectable changes.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (outputs, weights), or one that is split in two. None creates a figure.
        outputs_kwargs, weights_kwargs : dict, default=None
            For ``Axes.plot`` of the outputs and of the layers' weights.

        Returns
        -------
        AuditDisplay
            Itself, with `ax_`, `weights_ax_` and `figure_`.
        """
        left, right = axes_pair(ax, "AuditDisplay", rows=False, figsize=(9, 3.6))
        self._plot_outputs(left, outputs_kwargs or {})
        self._plot_weights(right, weights_kwargs or {})
        self.ax_, self.weights_ax_, self.figure_ = left, right, left.figure
        return self

    def _plot_outputs(self, ax, kwargs):
        excess = np.maximum(np.sort(self.report.excesses.ravel()), _MIN_EXCESS)
        share = np.arange(1, len(excess) + 1) / len(excess)
        ax.plot(share, excess, **{"color": color_of(0), "linewidth": 2, **kwargs})
        ax.axhline(1.0, color="0.5", linewidth=1, linestyle="--", zorder=0)
        ax.set(xlabel="share of the outputs", ylabel="difference / tolerance", yscale="log")
        ax.set_ylim(0.5 * _MIN_EXCESS, max(10.0, 5.0 * excess.max(initial=0.0)))
        ax.set_title(f"{self.report.n_inputs} inputs: {self.report.verdict}", fontsize="medium")

    def _plot_weights(self, ax, kwargs):
        for layer, sizes in enumerate(self.report.visible):
            sizes = np.sort(sizes[~np.isnan(sizes)])
            detectable = sizes[np.isfinite(sizes)]
            if len(detectable):
                style = {"color": color_of(layer), "label": f"layer {layer + 1}", "linewidth": 2}
                ax.plot(detectable, np.arange(1, len(detectable) + 1) / len(sizes), **{**style, **kwargs})
        changes = [d for d in self.report.differences if d.known != 0.0 and np.isfinite([d.known, d.found]).all()]
        for k, d in enumerate(changes):
            style = {"color": color_of(d.layer), "marker": "x", "linestyle": "none", "markersize": 7}
            ax.plot(abs(d.found / d.known - 1.0), 0.5, **style, label="found" if k == 0 else None)
        ax.set(xlabel="relative change of one weight", ylabel="share that is detectable", xscale="log", ylim=(0, 1.05))
        ax.set_title("Detectable changes of the weights", fontsize="medium")
        if self.report.visible:  # none where files are identical
            ax.legend(loc="lower right", frameon=False)
