"""What the Displays share: the import of matplotlib, pairs of axes, colors, logarithmic axes that show zeros."""

import numpy as np

EPS = float(np.finfo(np.float64).eps)  # smaller errors are rounding, and are drawn as this

# Okabe and Ito's colors, which are distinct for all kinds of color vision, in the order of the layers.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def color_of(layer):
    """Color of a layer from 0 on, repeating after six; gray for -1, an unknown layer."""
    return "0.4" if layer < 0 else _COLORS[layer % len(_COLORS)]


def with_floor(errors):
    """Errors (n,), with those below machine epsilon raised to it, so that a logarithmic axis shows them."""
    return np.maximum(errors, EPS)


def require_pyplot(caller):
    """Import ``matplotlib.pyplot``; the ImportError names the caller and the extra to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} needs matplotlib, which is not installed; try pip install 'skident[examples]'."
        ) from error
    return plt


def axes_pair(ax, caller, *, rows, figsize, ratios=(1, 1), sharex=False):
    """Two axes to plot in: of a new figure for None, in place of one Axes, or the two given.

    `rows` puts new axes above each other. `figsize`, `ratios` and `sharex` are those of a new figure.
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
