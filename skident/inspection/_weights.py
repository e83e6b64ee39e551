"""`WeightRecoveryDisplay`: true against recovered weights and biases."""

import numpy as np

from skident.network import FeedforwardNetwork

from ._plotting import EPS, axes_pair, color_of, with_floor


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
