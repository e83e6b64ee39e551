"""Displays of hierarchical learning: backward feature correction, and the image features of hidden units."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._plotting import axes_pair, color_of, require_pyplot

_MIN_ERROR = 1e-16  # smaller errors are drawn as this, on the logarithmic axis


class BackwardCorrectionDisplay:
    """Test errors of the protocols of backward feature correction, and how far neurons moved.

    Upper axes: one line per protocol, one point per layer l. Lower axes: mean cosine between the neurons of layers <= l
    and their start, and before and after correction.

    Parameters
    ----------
    result : BackwardCorrection
        From `skident.hierarchical.backward_feature_correction`.

    Attributes
    ----------
    ax_, correlation_ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from skident.hierarchical import BackwardCorrection
    >>> from skident.inspection import BackwardCorrectionDisplay
    >>> row = {
    ...     "protocol": "all",
    ...     "layer": 2,
    ...     "fixed": 1,
    ...     "error": 0.25,
    ...     "score": 0.75,
    ...     "feature_errors": {},
    ... }
    >>> display = BackwardCorrectionDisplay(
    ...     BackwardCorrection([row], n_layers=3, classifies=True)
    ... )
    >>> print(display.result.n_layers)
    3
    """

    def __init__(self, result):
        self.result = result

    def plot(self, ax=None):
        """Plot the errors and the cosines.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (errors, cosines), or one that is split in two. None creates a figure.

        Returns
        -------
        BackwardCorrectionDisplay
            Itself, with `ax_`, `correlation_ax_` and `figure_`.
        """
        upper, lower = axes_pair(
            ax, "BackwardCorrectionDisplay", rows=True, figsize=(6.4, 6.4), ratios=(2, 1), sharex=True
        )
        layers = sorted({row["layer"] for row in self.result.rows if row["protocol"] == "all"})
        self._plot_errors(upper)
        self._plot_correlations(lower, layers)
        self.ax_, self.correlation_ax_, self.figure_ = upper, lower, upper.figure
        return self

    def _plot_errors(self, ax):
        lines = [("train only $\\leq \\ell$", "only", None)]
        for j in range(self.result.n_layers - 2):
            lines.append((f"fix $\\leq \\ell - {j}$" if j else "fix $\\leq \\ell$", "fixed", j))
        lines.append(("train all", "all", None))
        for number, (label, protocol, j) in enumerate(lines):
            self._line(ax, label, protocol, j, number)
        error = "error rate" if self.result.classifies else "relative squared error"
        ax.set(ylabel=f"{error} on test rows", yscale="linear" if self.result.classifies else "log")
        ax.set_title("Backward feature correction", fontsize="medium")
        ax.legend(frameon=False, fontsize="small")

    def _plot_correlations(self, ax, layers):
        for number, (name, label) in enumerate(
            (("correlation_after", "before and after correction"), ("correlation_start", "with the start"))
        ):
            values = [(self.result.find("only", layer) or {}).get(name) for layer in layers]
            known = [(layer, value) for layer, value in zip(layers, values) if value is not None]
            if known:
                ax.plot(*zip(*known), marker="s", color=color_of(number), label=label)
                ax.legend(frameon=False, fontsize="small")
        ax.set(xlabel="layer $\\ell$", ylabel="cosine of neurons", ylim=(-0.1, 1.1), xticks=layers)

    def _line(self, ax, label, protocol, j, number):
        rows = [row for row in self.result.rows if row["protocol"] == protocol]
        rows = [row for row in rows if j is None or row["fixed"] == row["layer"] - j]
        if rows:
            errors = [max(row["error"], _MIN_ERROR) for row in rows]
            ax.plot([row["layer"] for row in rows], errors, marker="o", label=label, color=color_of(number))


class LayerFeatureDisplay:
    """Image features of hidden units: the input with the largest output of a unit, and its gradient there.

    Parameters
    ----------
    images : ndarray of shape (m, height, width)
        For every unit, the input with the largest ``|S|``.
    gradients : ndarray of shape (m, height, width)
        Gradient of the unit by the standardized inputs at this input, with the sign of S: red pixels increase ``|S|``.
    units : ndarray of int, shape (m,)
    layer : int

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes, shape (2, m)
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skident import HierarchicalQuadraticNetClassifier
    >>> from skident.inspection import LayerFeatureDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> net = HierarchicalQuadraticNetClassifier(
    ...     widths=(8, 4), max_epochs=20, input_noise=0, random_state=0
    ... )
    >>> net = net.fit(X[:500], y[:500])
    >>> display = LayerFeatureDisplay.compute(net, X[:500], layer=2, n_units=3)
    >>> print(display.gradients.shape)
    (3, 8, 8)
    """

    def __init__(self, *, images, gradients, units, layer):
        self.images = images
        self.gradients = gradients
        self.units = units
        self.layer = layer

    @classmethod
    def compute(cls, estimator, X, *, layer=2, n_units=8, image_shape=None):
        """Compute images and gradients without plotting them.

        Parameters
        ----------
        estimator : HierarchicalQuadraticNet or HierarchicalQuadraticNetClassifier
            Fitted, without offset column.
        X : array-like of shape (n_samples, height * width)
        layer : int, default=2
        n_units : int, default=8
            Number of units, the first ones of the layer.
        image_shape : tuple of two int, default=None
            (height, width); None is a square.

        Returns
        -------
        LayerFeatureDisplay

        Raises
        ------
        TypeError
            If the estimator does not have feature gradients.
        ValueError
            If the features do not fill the image.
        """
        if not hasattr(estimator, "feature_gradients"):
            raise TypeError(f"estimator must be a HierarchicalQuadraticNet..., got {type(estimator).__name__}.")
        check_is_fitted(estimator)
        X = np.asarray(X, dtype=float)
        side = int(round(np.sqrt(X.shape[1])))
        shape = (side, side) if image_shape is None else tuple(image_shape)
        if len(shape) != 2 or shape[0] * shape[1] != X.shape[1]:
            raise ValueError(f"image_shape={shape} has {np.prod(shape)} pixels, X has {X.shape[1]} features.")
        S = estimator.transform(X, layer=layer)[:, :n_units]
        rows, units = np.abs(S).argmax(axis=0), np.arange(S.shape[1])
        gradients = estimator.feature_gradients(X[rows], layer)[units, units]
        gradients = gradients * np.sign(S[rows, units])[:, None]
        images, gradients = X[rows].reshape(-1, *shape), gradients.reshape(-1, *shape)
        return cls(images=images, gradients=gradients, units=units, layer=layer)

    @classmethod
    def from_estimator(cls, estimator, X, *, layer=2, n_units=8, image_shape=None, ax=None):
        """Compute images and gradients, and plot them.

        Parameters
        ----------
        estimator, X, layer, n_units, image_shape
            See :meth:`compute`.
        ax : array of Axes of shape (2, m), default=None
            See :meth:`plot`.

        Returns
        -------
        LayerFeatureDisplay
        """
        return cls.compute(estimator, X, layer=layer, n_units=n_units, image_shape=image_shape).plot(ax)

    def plot(self, ax=None):
        """Plot images above, gradients below.

        Parameters
        ----------
        ax : array of Axes of shape (2, m), default=None
            None creates a figure.

        Returns
        -------
        LayerFeatureDisplay
            Itself, with `ax_` and `figure_`.

        Raises
        ------
        ValueError
            If `ax` has another shape.
        """
        plt = require_pyplot("LayerFeatureDisplay")
        m = len(self.images)
        if ax is None:
            _, ax = plt.subplots(2, m, figsize=(1.1 * m + 0.6, 2.8), squeeze=False, layout="constrained")
        ax = np.asarray(ax, dtype=object)
        if ax.shape != (2, m):
            raise ValueError(f"ax must be None or an array of Axes of shape {(2, m)}, got shape {ax.shape}.")
        for i, unit in enumerate(self.units):
            top = np.abs(self.gradients[i]).max() or 1.0
            ax[0, i].imshow(self.images[i], cmap="gray_r")
            ax[1, i].imshow(self.gradients[i], cmap="RdBu_r", vmin=-top, vmax=top)
            ax[0, i].set_title(f"unit {unit}", fontsize="small")
        for one in ax.ravel():
            one.set(xticks=[], yticks=[])
        ax[0, 0].set_ylabel("input", fontsize="small")
        ax[1, 0].set_ylabel("gradient", fontsize="small")
        self.ax_, self.figure_ = ax, ax.ravel()[0].figure
        return self
