"""What the Displays share: axes in pairs, colours, logarithmic axes that can show a zero."""

from __future__ import annotations

import numpy as np

__all__ = ["EPS", "axes_pair", "color_of", "require_pyplot", "with_floor"]

EPS = float(np.finfo(np.float64).eps)

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; layers take them in this order.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def color_of(layer):
    """Colour of a layer.

    Parameters
    ----------
    layer : int
        0 the first, -1 one that is not known.

    Returns
    -------
    str
        Grey for -1; colours repeat after six layers.
    """
    return "0.4" if layer < 0 else _COLORS[layer % len(_COLORS)]


def with_floor(errors):
    """Errors as a logarithmic axis can show them.

    Parameters
    ----------
    errors : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,)
        Those below machine epsilon, zero too, moved up to it.
    """
    return np.maximum(errors, EPS)


def require_pyplot(caller):
    """``matplotlib.pyplot``, imported when something is drawn.

    Parameters
    ----------
    caller : str
        For the error text.

    Returns
    -------
    module

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} needs matplotlib, which is not installed; try pip install 'skident[examples]'."
        ) from error
    return plt


def axes_pair(ax, caller, *, rows, figsize, ratios=(1, 1), sharex=False):
    """Two axes to draw in.

    Parameters
    ----------
    ax : None, Axes or pair of Axes
        None makes a figure; one Axes gives its place to two new ones; two are taken as they are.
    caller : str
        For the error texts.
    rows : bool
        Whether the two stand above each other rather than side by side.
    figsize, ratios, sharex
        Of a new figure; relative sizes and shared x axis of new axes.

    Returns
    -------
    first, second : Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If `ax` is neither of these.
    """
    plt = require_pyplot(caller)
    if ax is not None and not isinstance(ax, plt.Axes):
        pair = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(pair) != 2 or not all(isinstance(one, plt.Axes) for one in pair):
            raise ValueError(f"ax must be None, a matplotlib Axes or a pair of them, got {ax!r}.")
        return tuple(pair)
    shape, sizes = ((2, 1), "height_ratios") if rows else ((1, 2), "width_ratios")
    if ax is None:
        figure = plt.figure(figsize=figsize, layout="constrained")
        grid = figure.add_gridspec(*shape, **{sizes: ratios})
    else:
        figure, place = ax.figure, ax.get_subplotspec()
        if place is None:
            raise ValueError(
                f"{caller} splits ax in two and needs one made by plt.subplots; pass a pair of Axes instead."
            )
        ax.set_axis_off()
        grid = place.subgridspec(*shape, **{sizes: ratios})
    first = figure.add_subplot(grid[0])
    second = figure.add_subplot(grid[1], sharex=first if sharex else None)
    return first, second
