"""Displays of landscapes: the loss around a certified point and along a descent, and phase transitions."""

import numpy as np
from scipy.special import expit

from skident.landscape.loss_lines import loss_line

from ._plotting import axes_pair, color_of, require_pyplot


class LandscapeDisplay:
    """The loss along a descent direction of a point, and along the descent that starts there.

    Parameters
    ----------
    steps : ndarray of shape (m,)
        Positions along the direction.
    line : ndarray of shape (m,)
        Losses at these positions.
    direction : str
        Name of the direction.
    history : list of float
        Losses of a descent; may be empty.
    lower_bound : float, default=None
        A lower bound of the loss.

    Attributes
    ----------
    ax_, history_ax_ : matplotlib Axes
        Of the line and of the descent.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skident.inspection import LandscapeDisplay
    >>> from skident.landscape import landscape_certificate
    >>> X = np.random.default_rng(0).standard_normal((40, 3))
    >>> W, y = np.zeros((6, 3)), X[:, 0] * X[:, 1]
    >>> certificate = landscape_certificate(W, [1, 1, 1, -1, -1, -1], X, y)
    >>> display = LandscapeDisplay.from_certificate(certificate, W, X, y)
    >>> print(display.direction, bool(display.line.min() < display.line[50]))
    escape direction True
    """

    def __init__(self, *, steps, line, direction, history=(), lower_bound=None):
        self.steps = steps
        self.line = line
        self.direction = direction
        self.history = history
        self.lower_bound = lower_bound

    @classmethod
    def from_certificate(cls, certificate, W, X, y, *, history=(), radius=None, ax=None):
        """Plot the loss of a quadratic network along its escape direction or its gradient, whichever decreases more.

        Parameters
        ----------
        certificate : LandscapeCertificate
            Of the point W on these data, with quadratic units; it holds the output weights and the terms of the loss.
        W, X, y : array-like of shapes (k, d), (n, d) and (n,)
            The point and the data.
        history : sequence of float, default=()
            Losses of a descent from there, such as ``descend(...).history``.
        radius : float, default=None
            Length of the line. None is twice the distance of the lowest point.
        ax : Axes or pair of Axes, default=None
            See :meth:`plot`.

        Returns
        -------
        LandscapeDisplay
        """
        out, bound = loss_line(certificate, W, X, y, radius), certificate.lower_bound
        display = cls(steps=out.steps, line=out.losses, direction=out.direction, history=history, lower_bound=bound)
        return display.plot(ax=ax)

    def plot(self, ax=None, *, line_kwargs=None, history_kwargs=None):
        """Plot the line and the descent.

        Parameters
        ----------
        ax : matplotlib Axes or pair of Axes, default=None
            Two Axes (line, descent), or one that is split in two. None creates a figure.
        line_kwargs, history_kwargs : dict, default=None
            For ``Axes.plot``.

        Returns
        -------
        LandscapeDisplay
            Itself, with `ax_`, `history_ax_` and `figure_`.
        """
        left, right = axes_pair(ax, "LandscapeDisplay", rows=False, figsize=(9, 3.6))
        left.plot(self.steps, self.line, **{"color": color_of(0), **(line_kwargs or {})})
        left.plot(0.0, np.interp(0.0, self.steps, self.line), "o", color=color_of(1), label="this point")
        left.set(xlabel=f"step along the {self.direction}", ylabel="loss")
        left.set_title("Around the point", fontsize="medium")
        excess = np.asarray(self.history, dtype=np.float64)
        floor = 0.0 if self.lower_bound is None else self.lower_bound
        if len(excess):
            shown = np.maximum(excess - floor, 1e-17 * max(excess[0], 1e-300))
            right.semilogy(np.arange(len(excess)), shown, **{"color": color_of(0), **(history_kwargs or {})})
        if self.lower_bound is not None:
            left.axhline(self.lower_bound, color="0.5", linewidth=1, linestyle="--", label="lower bound", zorder=0)
        left.legend(loc="best", frameon=False, fontsize="small")
        right.set(xlabel="step of the descent", ylabel="loss above the lower bound" if floor else "loss")
        right.set_title("Descent from there", fontsize="medium")
        self.ax_, self.history_ax_, self.figure_ = left, right, left.figure
        return self


class PhaseTransitionDisplay:
    """Success rates against the swept size, with the fitted logistic curve.

    Parameters
    ----------
    transition : PhaseTransition
    reference : float, default=None
        A half-point for comparison, drawn as a dotted line.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from skident.inspection import PhaseTransitionDisplay
    >>> from skident.landscape import TrainingTrials, phase_transition
    >>> trials = TrainingTrials(n_trials=4, n_starts=3)
    >>> found = phase_transition(
    ...     20, 8, [1, 2, 4, 6], activation="quadratic", trials=trials, random_state=0
    ... )
    >>> print(PhaseTransitionDisplay(found).transition.n_trials)
    4
    """

    def __init__(self, transition, *, reference=None):
        self.transition = transition
        self.reference = reference

    @classmethod
    def from_transition(cls, transition, *, ax=None, reference=None, **kwargs):
        """Plot a `PhaseTransition`.

        Parameters
        ----------
        transition : PhaseTransition
        reference : float, default=None
            See the class.
        ax, **kwargs
            See :meth:`plot`.

        Returns
        -------
        PhaseTransitionDisplay
        """
        return cls(transition, reference=reference).plot(ax=ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Plot the rates and the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a figure.
        **kwargs
            For ``Axes.plot`` of the dots.

        Returns
        -------
        PhaseTransitionDisplay
            Itself, with `ax_` and `figure_`.
        """
        plt = require_pyplot("PhaseTransitionDisplay")
        t = self.transition
        if ax is None:
            _, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
        style = {"marker": "o", "linestyle": "none", "color": color_of(0), "label": f"all of {t.settings['n_starts']}"}
        ax.plot(t.values, t.start_rates, "x", color="0.55", markersize=5, label="single starts")
        ax.plot(t.values, t.probabilities, **{**style, **kwargs})
        if np.isfinite(t.half_point):
            x = np.linspace(t.values.min(), t.values.max(), 300)
            ax.plot(x, expit(t.slope * (x - t.half_point)), color=color_of(0), linewidth=1.5)
            low, high = np.clip(t.interval, x[0], x[-1])
            ax.axvspan(low, high, color=color_of(0), alpha=0.15, linewidth=0)
            ax.axvline(t.half_point, color=color_of(0), linestyle="--", linewidth=1, label=f"half: {t.half_point:.2f}")
        if self.reference is not None:
            label = f"reference: {self.reference:.2f}"
            ax.axvline(self.reference, color="0.3", linestyle=":", linewidth=1.3, label=label)
        ax.set(xlabel=t.swept, ylabel="share that reaches the optimum", ylim=(-0.04, 1.04))
        ax.legend(loc="best", frameon=False, fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self
