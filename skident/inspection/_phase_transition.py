"""`PhaseTransitionDisplay`: success rates against a swept size, with a logistic fit."""

import numpy as np
from scipy.special import expit

from ._plotting import color_of, require_pyplot


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
