"""True against recovered weights and shifts."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork

from ._plotting import EPS, axes_pair, color_of, with_floor

__all__ = ["WeightRecoveryDisplay"]


class WeightRecoveryDisplay:
    """True against recovered weights and shifts of a network, and their errors.

    Two axes that share the true value as x: the recovered value, with the line on which both are equal, and the
    absolute error on a logarithmic scale, where agreement to rounding shows. One colour a layer, dots for weights,
    triangles for shifts. Errors below machine epsilon are drawn at machine epsilon.

    Make one by :meth:`from_networks`.

    Parameters
    ----------
    true_weights, recovered_weights : list of L ndarrays
        Weights layer by layer, as (m_{l-1} m_l,), the recovered ones aligned with the true ones.
    true_shifts, recovered_shifts : list of L ndarrays
        Shifts layer by layer, as (m_l,).

    Attributes
    ----------
    ax_, error_ax_ : matplotlib Axes
        Of the values and of the errors.
    figure_ : matplotlib Figure

    See Also
    --------
    skident.metrics.parameter_error : The worst of these errors as one number.

    Examples
    --------
    >>> from skident.datasets import make_network
    >>> from skident.inspection import WeightRecoveryDisplay
    >>> truth = make_network((6, 4, 2), random_state=0)
    >>> display = WeightRecoveryDisplay.from_networks(truth, truth.canonical())
    >>> print(display.max_error)
    0.0
    """

    def __init__(self, *, true_weights, recovered_weights, true_shifts, recovered_shifts):
        self.true_weights = true_weights
        self.recovered_weights = recovered_weights
        self.true_shifts = true_shifts
        self.recovered_shifts = recovered_shifts

    @classmethod
    def from_networks(cls, truth, network, *, ax=None, **kwargs):
        """Align `network` with `truth` and draw both.

        Parameters
        ----------
        truth : FeedforwardNetwork
            The true network.
        network : FeedforwardNetwork
            The recovered one, of the same sizes and activations; aligned with ``network.align_to(truth)`` first.
        ax : Axes or pair of Axes, default=None
            See :meth:`plot`.
        **kwargs
            Further arguments of :meth:`plot`.

        Returns
        -------
        WeightRecoveryDisplay

        Raises
        ------
        TypeError
            If one of the two is not a FeedforwardNetwork.
        ValueError
            If their sizes or activations differ.
        ImportError
            If matplotlib is not installed.
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
            true_shifts=list(truth.biases),
            recovered_shifts=list(aligned.biases),
        )
        return display.plot(ax=ax, **kwargs)

    @property
    def max_error(self):
        """Largest absolute error of a weight or shift."""
        pairs = (*zip(self.true_weights, self.recovered_weights), *zip(self.true_shifts, self.recovered_shifts))
        return max(float(np.abs(found - true).max()) for true, found in pairs)

    def plot(self, ax=None, *, scatter_kwargs=None, line_kwargs=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Where to draw: two Axes (values, errors), or one whose place is split in two; None makes a figure.
        scatter_kwargs : dict, default=None
            For ``Axes.plot`` of all points, such as ``{"markersize": 3}``.
        line_kwargs : dict, default=None
            For ``Axes.axline`` of the identity line.

        Returns
        -------
        WeightRecoveryDisplay
            Itself, with `ax_`, `error_ax_` and `figure_`.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `ax` is neither an Axes nor a pair.
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
            yield f"layer {layer + 1}, shifts", layer, "^", self.true_shifts[layer], self.recovered_shifts[layer]
