"""Displays of saddle-to-saddle training: singular values, losses with their saddles, escape speeds."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._plotting import color_of, require_pyplot


def _training_record(estimator, caller):
    """`history_` and `saddles_` of a fitted estimator."""
    if not (hasattr(estimator, "fit") and hasattr(estimator, "record_every")):
        raise TypeError(
            f"{caller} draws the record of a SaddleToSaddleClassifier or SaddleToSaddleRegressor, got "
            f"{type(estimator).__name__}; of a pipeline or a search pass the fitted step."
        )
    check_is_fitted(estimator)
    return estimator.history_, estimator.saddles_


def _axes(ax, caller, n):
    """The n axes given, or of a new figure with rows of three."""
    plt = require_pyplot(caller)
    if ax is None:
        columns = min(3, n)
        rows = -(-n // columns)
        size = {"figsize": (3.2 * columns, 2.6 * rows), "layout": "constrained"}
        _, grid = plt.subplots(rows, columns, sharex=True, squeeze=False, **size)
        for spare in grid.ravel()[n:]:
            spare.set_axis_off()
        return list(grid.ravel()[:n])
    given = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(given) != n or not all(isinstance(one, plt.Axes) for one in given):
        raise ValueError(f"ax must be None or {n} matplotlib Axes, got {ax!r}.")
    return given


class SingularSpectrumDisplay:
    """The largest singular values of every layer over training, one axes per layer.

    The plot of Figure 3 of Bantzis, Simon, Jacot (2025): on a plateau few singular values are large, and more after
    every saddle that training leaves. Dashed lines are the escapes. Create it by :meth:`from_estimator`.

    Parameters
    ----------
    steps : ndarray of shape (T,)
    singular_values : list of L ndarrays of shape (T, k)
        Descending.
    escapes : list of float
        Steps at which training left a saddle.

    Attributes
    ----------
    axes_ : list of matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skident.inspection import SingularSpectrumDisplay
    >>> display = SingularSpectrumDisplay(
    ...     steps=np.arange(5), singular_values=[np.ones((5, 2))], escapes=[3.0]
    ... )
    >>> print(display.n_layers)
    1
    """

    def __init__(self, *, steps, singular_values, escapes):
        self.steps = steps
        self.singular_values = singular_values
        self.escapes = escapes

    @property
    def n_layers(self):
        """L."""
        return len(self.singular_values)

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
        """Plot the record of a fitted SaddleToSaddleClassifier or SaddleToSaddleRegressor.

        Parameters
        ----------
        estimator : object
            With `history_` and `saddles_`.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        SingularSpectrumDisplay
        """
        history, saddles = _training_record(estimator, cls.__name__)
        escapes = [s.escape_step for s in saddles if s.escape_step is not None]
        display = cls(steps=history["steps"], singular_values=history["singular_values"], escapes=escapes)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, n_singular_values=10, line_kwargs=None):
        """Plot the singular values of all layers.

        Parameters
        ----------
        ax : list of L matplotlib Axes, default=None
            None creates a figure.
        n_singular_values : int, default=10
            Maximum number of lines per axes.
        line_kwargs : dict, default=None
            For ``Axes.plot``.

        Returns
        -------
        SingularSpectrumDisplay
            Itself, with `axes_` and `figure_`.
        """
        plt = require_pyplot("SingularSpectrumDisplay")
        axes = _axes(ax, "SingularSpectrumDisplay", self.n_layers)
        colors = plt.get_cmap("viridis")
        for layer, (one, values) in enumerate(zip(axes, self.singular_values)):
            shown = values[:, :n_singular_values]
            for i in range(shown.shape[1] - 1, -1, -1):
                style = {"color": colors(0.9 * i / max(1, shown.shape[1] - 1)), "linewidth": 1.2}
                one.plot(self.steps, shown[:, i], **{**style, **(line_kwargs or {})})
            for step in self.escapes:
                one.axvline(step, color="0.6", linewidth=1, linestyle="--", zorder=0)
            one.set_title(f"layer {layer + 1}", fontsize="medium")
            one.set_ylim(bottom=0)
        for one in axes[-3:]:
            one.set_xlabel("step")
        axes[0].set_ylabel("singular values")
        self.axes_, self.figure_ = axes, axes[0].figure
        return self


class EscapeDisplay:
    """The loss of a training with its saddles, or the escape speeds of many restarts.

    Of a training: the loss, its plateaus as dots with the ranks of the layers, the escapes as dashed lines. Of an
    analysis: the speeds of the restarts in descending order, with the fastest escape of depth two, which has rank one,
    as a dashed line; restarts above it escape faster than any shallow network. Create it by :meth:`from_estimator`.

    Parameters
    ----------
    steps, losses : ndarray of shape (T,), default=None
    saddles : list of Saddle, default=()
    speeds : ndarray of shape (n_starts,), default=None
        NaN for dead restarts, which are not drawn.
    shallow_speed : float, default=None

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from skident import SaddleEscapeAnalyzer
    >>> from skident.datasets import make_alternating_circle
    >>> from skident.inspection import EscapeDisplay
    >>> analyzer = SaddleEscapeAnalyzer(
    ...     "gradient", width=8, n_starts=4, max_iter=50, random_state=0
    ... )
    >>> display = EscapeDisplay.from_estimator(analyzer.fit(*make_alternating_circle(8)))
    >>> print(len(display.speeds))
    4
    """

    def __init__(self, *, steps=None, losses=None, saddles=(), speeds=None, shallow_speed=None):
        self.steps = steps
        self.losses = losses
        self.saddles = saddles
        self.speeds = speeds
        self.shallow_speed = shallow_speed

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
        """Plot the record of a training, or the escape speeds of an analysis.

        Parameters
        ----------
        estimator : object
            A fitted SaddleToSaddleClassifier, SaddleToSaddleRegressor or SaddleEscapeAnalyzer.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        EscapeDisplay
        """
        if hasattr(estimator, "fit") and hasattr(estimator, "n_starts"):
            check_is_fitted(estimator)
            display = cls(speeds=estimator.restart_speeds_, shallow_speed=estimator.shallow_speed_)
        else:
            history, saddles = _training_record(estimator, cls.__name__)
            display = cls(steps=history["steps"], losses=history["losses"], saddles=saddles)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, *, line_kwargs=None):
        """Plot the loss or the speeds.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a figure.
        line_kwargs : dict, default=None
            For ``Axes.plot`` of the loss or of the speeds.

        Returns
        -------
        EscapeDisplay
            Itself, with `ax_` and `figure_`.
        """
        plt = require_pyplot("EscapeDisplay")
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
        (ax,) = _axes(ax, "EscapeDisplay", 1)
        draw = self._plot_loss if self.speeds is None else self._plot_speeds
        draw(ax, line_kwargs or {})
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_loss(self, ax, kwargs):
        ax.plot(self.steps, self.losses, **{"color": color_of(0), "linewidth": 1.4, **kwargs})
        for number, saddle in enumerate(self.saddles):
            ax.plot(saddle.step, saddle.loss, "o", color=color_of(1), markersize=6, markeredgewidth=0)
            ranks = "origin" if number == 0 else "ranks " + ",".join(map(str, saddle.ranks)) if saddle.ranks else ""
            # The origin's dot is at the left border, the others may be near the right one.
            side = "left" if number == 0 or saddle.step < 0.6 * self.steps[-1] else "right"
            shift = (6, 6) if side == "left" else (-6, 8)
            ax.annotate(
                ranks, (saddle.step, saddle.loss), xytext=shift, textcoords="offset points", ha=side, fontsize="small"
            )
            if saddle.escape_step is not None:
                ax.axvline(saddle.escape_step, color="0.6", linewidth=1, linestyle="--", zorder=0)
        ax.margins(y=0.12)
        ax.set(xlabel="step", ylabel="loss")

    def _plot_speeds(self, ax, kwargs):
        speeds = np.sort(self.speeds[~np.isnan(self.speeds)])[::-1]
        style = {"marker": "o", "markersize": 4, "markeredgewidth": 0, "linestyle": "none", "color": color_of(0)}
        style |= {"label": "restarts"}
        ax.plot(np.arange(1, len(speeds) + 1), speeds, **{**style, **kwargs})
        if self.shallow_speed is not None:
            line = {"color": color_of(1), "linewidth": 1.2, "linestyle": "--"}
            ax.axhline(self.shallow_speed, label="depth two (rank one)", **line)
        ax.set(xlabel="restart, fastest first", ylabel="escape speed")
        ax.legend(loc="best", frameon=False)
