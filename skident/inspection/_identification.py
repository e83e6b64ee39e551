"""Displays of identifications: cost and residual of each stage, spectra of subspaces, errors of recovered weights."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skident.network import FeedforwardNetwork

from ._plotting import EPS, axes_pair, color_of, with_floor

_SPURIOUS = 0.1  # 1 - phi above which the power method rejects a vector as a spurious maximum


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


class SpectrumDisplay:
    """Singular values of the Hessians, and every component's distance from their leading subspace.

    Left: the singular values, which should drop after the m-th if the Hessians span m weights. Right: ``1 - phi``, the
    squared distance of ``v v^T`` from the subspace, small for a weight and above 0.1 (dashed) for a spurious vector.
    Distances below machine epsilon are drawn at machine epsilon, singular values below it are omitted. Create it by
    :meth:`from_estimator`.

    Parameters
    ----------
    singular_values : ndarray of shape (n,)
        Descending.
    n_weights : int
        Dimension m of the subspace.
    phi : ndarray of shape (m_components,)
        ``||P_W(v v^T)||_F^2`` of every component; NaN (not drawn) for those that do not appear in the Hessians.
    layers : ndarray of int, shape (m_components,)
        Layer of every component from 0 on, -1 unknown.

    Attributes
    ----------
    ax_, phi_ax_ : matplotlib Axes
        Of the singular values and of the components.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skident import EntangledWeightExtractor
    >>> from skident.datasets import make_network
    >>> from skident.inspection import SpectrumDisplay
    >>> network = make_network((10, 8, 3), random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> extractor = EntangledWeightExtractor(
    ...     network, layer_widths=(8, 3), first_layer="hessian", random_state=0).fit(X)
    >>> display = SpectrumDisplay.from_estimator(extractor)
    >>> print(display.n_weights)
    11
    """

    def __init__(self, *, singular_values, n_weights, phi, layers):
        self.singular_values = singular_values
        self.n_weights = n_weights
        self.phi = phi
        self.layers = layers

    @classmethod
    def from_estimator(cls, extractor, *, ax=None, **kwargs):
        """Plot the spectrum of a fitted extractor.

        Parameters
        ----------
        extractor : EntangledWeightExtractor
            Fitted, with sampled Hessians.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        SpectrumDisplay

        Raises
        ------
        TypeError
            If it is not an extractor.
        ValueError
            If it did not sample Hessians.
        """
        if not (hasattr(extractor, "fit") and hasattr(extractor, "n_hessians")):
            raise TypeError(
                f"extractor must be an EntangledWeightExtractor, got {type(extractor).__name__}; in a Pipeline it is a "
                "step, pipeline[0] for example, and in a NetworkIdentifier the attribute extractor_."
            )
        check_is_fitted(extractor)
        if extractor.subspace_ is None:
            raise ValueError(
                "the extractor sampled no Hessians, so there is no spectrum: all weights came from saturation and the "
                "Jacobian. Fit it with first_layer='hessian', or with n_hessians > 0."
            )
        display = cls(
            singular_values=extractor.singular_values_,
            n_weights=extractor.subspace_.shape[1],
            phi=extractor.phi_,
            layers=extractor.layer_assignment_,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, spectrum_kwargs=None, phi_kwargs=None):
        """Plot the singular values and the distances.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (singular values, components), or one that is split in two. None creates a figure.
        spectrum_kwargs, phi_kwargs : dict, default=None
            For ``Axes.plot`` of the singular values and of the components.

        Returns
        -------
        SpectrumDisplay
            Itself, with `ax_`, `phi_ax_` and `figure_`.
        """
        left, right = axes_pair(ax, "SpectrumDisplay", rows=False, figsize=(9, 3.6))
        self._plot_spectrum(left, spectrum_kwargs or {})
        self._plot_phi(right, phi_kwargs or {})
        self.ax_, self.phi_ax_, self.figure_ = left, right, left.figure
        return self

    def _plot_spectrum(self, ax, kwargs):
        s, m = self.singular_values / self.singular_values[0], self.n_weights
        drawn, kept = s > EPS, np.arange(len(s)) < m
        for part, color, label in ((kept, color_of(0), f"first m = {m}"), (~kept, "0.6", "left out")):
            style = {"marker": "o", "markersize": 4, "markeredgewidth": 0, "linestyle": "none", "color": color}
            ax.plot(np.flatnonzero(part & drawn) + 1, s[part & drawn], label=label, **{**style, **kwargs})
        ax.axvline(m + 0.5, color="0.5", linewidth=1, linestyle="--", zorder=0)
        ax.set(xlabel="number", ylabel="singular value / largest", yscale="log")
        ax.set_title("Singular values of the Hessians", fontsize="medium")
        ax.legend(loc="best", frameon=False)

    def _plot_phi(self, ax, kwargs):
        numbers = np.arange(1, len(self.phi) + 1)
        for layer in dict.fromkeys(int(k) for k in self.layers):
            part = (self.layers == layer) & ~np.isnan(self.phi)
            label = f"layer {layer + 1}" if layer >= 0 else "inner layers"
            style = {"marker": "o", "markersize": 4, "markeredgewidth": 0, "linestyle": "none"}
            style |= {"color": color_of(layer), "label": label}
            if part.any():
                ax.plot(numbers[part], with_floor(1.0 - self.phi[part]), **{**style, **kwargs})
        ax.axhline(_SPURIOUS, color="0.5", linewidth=1, linestyle="--", zorder=0)
        place = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "bottom"}
        ax.text(0.99, 1.2 * _SPURIOUS, "above: no weights", color="0.4", fontsize="small", **place)
        ax.set(xlabel="component", ylabel=r"$1 - \phi$", yscale="log")
        bottom = max(EPS, np.nanmin(with_floor(1.0 - self.phi)))
        ax.set_ylim(bottom / 5, 2)
        ax.set_title("Squared distance from their span", fontsize="medium")
        ax.legend(loc="best", frameon=False)


class WeightRecoveryDisplay:
    """True against recovered weights and biases of a network, and their errors.

    Above: the recovered over the true value, with the identity line. Below: the absolute error on a logarithmic scale;
    errors below machine epsilon are drawn at machine epsilon. One color per layer, dots for weights, triangles for
    biases. Create it by :meth:`from_networks`.

    Parameters
    ----------
    true_weights, recovered_weights : list of L ndarrays
        Weights per layer (m_{l-1} m_l,), the recovered ones aligned with the true ones.
    true_biases, recovered_biases : list of L ndarrays
        Biases per layer (m_l,).

    Attributes
    ----------
    ax_, error_ax_ : matplotlib Axes
        Of the values and of the errors.
    figure_ : matplotlib Figure

    See Also
    --------
    skident.metrics.parameter_error : The largest of these errors as one number.

    Examples
    --------
    >>> from skident.datasets import make_network
    >>> from skident.inspection import WeightRecoveryDisplay
    >>> truth = make_network((6, 4, 2), random_state=0)
    >>> display = WeightRecoveryDisplay.from_networks(truth, truth.canonical())
    >>> print(display.max_error)
    0.0
    """

    def __init__(self, *, true_weights, recovered_weights, true_biases, recovered_biases):
        self.true_weights = true_weights
        self.recovered_weights = recovered_weights
        self.true_biases = true_biases
        self.recovered_biases = recovered_biases

    @classmethod
    def from_networks(cls, truth, network, *, ax=None, **kwargs):
        """Align `network` with `truth` and plot both.

        Parameters
        ----------
        truth, network : FeedforwardNetwork
            The true and the recovered network, of equal sizes and activations; ``network.align_to(truth)`` is plotted.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        WeightRecoveryDisplay

        Raises
        ------
        TypeError
            If one of the two is not a FeedforwardNetwork.
        """
        for name, value in (("truth", truth), ("network", network)):
            if not isinstance(value, FeedforwardNetwork):
                raise TypeError(
                    f"{name} must be a FeedforwardNetwork, got {type(value).__name__}; try "
                    "FeedforwardNetwork.from_sklearn or FeedforwardNetwork.from_torch."
                )
        aligned = network.align_to(truth)
        display = cls(
            true_weights=[W.ravel() for W in truth.weights],
            recovered_weights=[W.ravel() for W in aligned.weights],
            true_biases=list(truth.biases),
            recovered_biases=list(aligned.biases),
        )
        return display.plot(ax=ax, **kwargs)

    @property
    def max_error(self):
        """Largest absolute error of a weight or bias."""
        pairs = (*zip(self.true_weights, self.recovered_weights), *zip(self.true_biases, self.recovered_biases))
        return max(float(np.abs(recovered - true).max()) for true, recovered in pairs)

    def plot(self, ax=None, *, scatter_kwargs=None, line_kwargs=None):
        """Plot the values and the errors.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (values, errors), or one that is split in two. None creates a figure.
        scatter_kwargs, line_kwargs : dict, default=None
            For ``Axes.plot`` of all points, such as ``{"markersize": 3}``, and for ``Axes.axline`` of the identity
            line.

        Returns
        -------
        WeightRecoveryDisplay
            Itself, with `ax_`, `error_ax_` and `figure_`.
        """
        top, bottom = axes_pair(ax, "WeightRecoveryDisplay", rows=True, figsize=(6, 6.5), ratios=(3, 2), sharex=True)
        top.axline((0, 0), slope=1, **{"color": "0.7", "linewidth": 1, "zorder": 0, **(line_kwargs or {})})
        for label, layer, marker, true, found in self._series():
            style = {"marker": marker, "color": color_of(layer), "markersize": 5, "alpha": 0.75, "markeredgewidth": 0}
            style |= {"linestyle": "none", **(scatter_kwargs or {})}
            top.plot(true, found, label=label, **style)
            bottom.plot(true, with_floor(np.abs(found - true)), **style)
        top.set(ylabel="recovered value")
        top.tick_params(labelbottom=False)
        top.legend(loc="best", frameon=False)
        bottom.set(xlabel="true value", ylabel="absolute error", yscale="log")
        bottom.axhline(EPS, color="0.7", linewidth=1, linestyle="--", zorder=0)
        bottom.text(
            0.99,
            EPS / 1.6,
            "machine epsilon and below",
            transform=bottom.get_yaxis_transform(),
            ha="right",
            va="top",
            color="0.4",
            fontsize="small",
        )
        bottom.set_ylim(EPS / 10, max(10 * self.max_error, 1e3 * EPS))
        self.ax_, self.error_ax_, self.figure_ = top, bottom, top.figure
        return self

    def _series(self):
        """(label, layer, marker, true, recovered) of every cloud of points."""
        for layer, (true, found) in enumerate(zip(self.true_weights, self.recovered_weights)):
            yield f"layer {layer + 1}, weights", layer, "o", true, found
            yield f"layer {layer + 1}, biases", layer, "^", self.true_biases[layer], self.recovered_biases[layer]
