"""`SpectrumDisplay`: the spectrum of sampled Hessians, and the distance of recovered weights from their subspace."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._plotting import EPS, axes_pair, color_of, with_floor

_SPURIOUS = 0.1  # 1 - phi above which the power method rejects a vector as a spurious maximum


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
