"""Random networks with unit-norm weights, the test networks of the entangled-weights paper."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from skident.network import FeedforwardNetwork

from ._checks import check_count, check_real

__all__ = ["make_network", "make_pyramidal_network", "pyramidal_widths"]


def pyramidal_widths(n_layers, n_outputs, n_neurons, contraction=0.6):
    """Widths of a network whose layers shrink by a constant factor, except for the last one.

    The last layer has `n_outputs` units. The other ``n_layers - 1`` layers share the remaining
    ``n_neurons - n_outputs`` units so that each is about `contraction` times as wide as the one before it: all but the
    first are rounded down, and the first takes what is left, so the sum is exact.

    Parameters
    ----------
    n_layers : int
        Number of layers L, the output layer included.
    n_outputs : int
        Width m_L of the last layer.
    n_neurons : int
        Number of all neurons, m = m_1 + ... + m_L. This is how [1]_ defines m in words; the widths it lists in Section
        4.2, such as (125, 75, 10) for m = 200, sum to m + m_L, that is, they leave the output layer out of the count.
        Pass ``n_neurons = m + m_L`` to get those.
    contraction : float, default=0.6
        The ratio c of consecutive widths, in (0, 1].

    Returns
    -------
    tuple of int
        The widths (m_1, ..., m_L).

    Raises
    ------
    ValueError
        If an argument is out of range, or if the neurons do not suffice for one unit in every layer.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.

    Examples
    --------
    >>> from skident.datasets import pyramidal_widths
    >>> widths = pyramidal_widths(n_layers=3, n_outputs=10, n_neurons=200, contraction=0.6)
    >>> widths
    (119, 71, 10)
    >>> print(sum(widths))
    200
    """
    n_layers = check_count("n_layers", n_layers)
    n_outputs = check_count("n_outputs", n_outputs)
    n_neurons = check_count("n_neurons", n_neurons)
    contraction = check_real("contraction", contraction, lambda c: 0 < c <= 1, "a number in (0, 1]")
    n_hidden = n_neurons - n_outputs
    if n_layers == 1 and n_hidden != 0:
        raise ValueError(
            f"n_layers=1 leaves only the output layer, but n_neurons={n_neurons} differs from n_outputs={n_outputs}; "
            "make them equal or take n_layers >= 2."
        )
    if n_layers == 1:
        return (n_outputs,)
    shares = contraction ** np.arange(n_layers - 1)
    # The small addition keeps a share that is a whole number in exact arithmetic, like 200 * 0.6 / 1.6, whole.
    inner = [int(np.floor(n_hidden * share + 1e-9)) for share in shares[1:] / shares.sum()]
    widths = (n_hidden - sum(inner), *inner, n_outputs)
    if min(widths) < 1:
        raise ValueError(
            f"n_neurons={n_neurons} with n_layers={n_layers}, n_outputs={n_outputs}, contraction={contraction} gives "
            f"the widths {widths}, but every layer needs at least one unit; "
            "try more neurons, fewer layers or a larger contraction."
        )
    return widths


def make_network(layer_sizes, *, bias_scale=0.05, activation="tanh", output_activation=None, random_state=None):
    """Random network of given layer sizes with unit-norm weights.

    Layer l maps the activations y of the layer below to ``g(W_l^T y + tau_l)``. The columns of W_l are independent and
    uniform on the unit sphere of R^{m_{l-1}}, the biases tau_l are independent N(0, `bias_scale` ** 2).

    Parameters
    ----------
    layer_sizes : sequence of int
        The sizes (D, m_1, ..., m_L): inputs first, outputs last.
    bias_scale : float, default=0.05
        Standard deviation of the biases; 0 gives a network without biases.
    activation : str, default="tanh"
        Activation of the hidden layers, see :func:`skident.network.get_activation`.
    output_activation : str, default=None
        Activation of the last layer; None means `activation`.
    random_state : int, RandomState instance or None, default=None
        Source of the random numbers; an int gives the same network every time.

    Returns
    -------
    FeedforwardNetwork
        ``weights[l]`` has shape (m_{l-1}, m_l), ``biases[l]`` has shape (m_l,).

    Raises
    ------
    ValueError
        If there are fewer than two sizes, if one is not a positive integer, if `bias_scale` is negative or not finite,
        or if an activation is unknown.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> network = make_network((5, 4, 2), random_state=0)
    >>> [W.shape for W in network.weights]
    [(5, 4), (4, 2)]
    >>> print(round(float(np.linalg.norm(network.weights[0][:, 0])), 6))
    1.0
    """
    sizes = [check_count(f"layer_sizes[{i}]", size) for i, size in enumerate(layer_sizes)]
    if len(sizes) < 2:
        raise ValueError(
            f"layer_sizes must hold the number of inputs and at least one layer width, got {tuple(sizes)}; try (20, 5)."
        )
    bias_scale = check_real("bias_scale", bias_scale, lambda s: 0 <= s < np.inf, "a finite number >= 0")
    rng = check_random_state(random_state)
    weights, biases = [], []
    for fan_in, width in zip(sizes[:-1], sizes[1:]):
        directions = rng.standard_normal((fan_in, width))
        weights.append(directions / np.linalg.norm(directions, axis=0))
        biases.append(bias_scale * rng.standard_normal(width))
    output_activation = activation if output_activation is None else output_activation
    return FeedforwardNetwork(weights, biases, activation, output_activation)


def make_pyramidal_network(
    n_inputs,
    n_layers,
    n_outputs,
    n_neurons,
    *,
    contraction=0.6,
    bias_scale=0.05,
    activation="tanh",
    random_state=None,
):
    """Random pyramidal network, as in the experiments of the entangled-weights paper.

    The widths come from :func:`pyramidal_widths`, weights and biases from :func:`make_network`: unit-norm weights with
    uniform directions, biases N(0, `bias_scale` ** 2).

    Parameters
    ----------
    n_inputs : int
        Number of inputs D.
    n_layers : int
        Number of layers L, the output layer included.
    n_outputs : int
        Width m_L of the last layer.
    n_neurons : int
        Number of all neurons, m = m_1 + ... + m_L; the output layer counts.
    contraction : float, default=0.6
        The ratio c of consecutive widths, in (0, 1]; the last layer is exempt.
    bias_scale : float, default=0.05
        Standard deviation of the biases. [1]_ writes N(0, 0.05); only with 0.05 as the standard deviation, not as the
        variance, do such networks show the errors that it reports.
    activation : str, default="tanh"
        Activation of all layers, see :func:`skident.network.get_activation`. Another one in the last layer is for
        ``make_network((n_inputs, *pyramidal_widths(...)), output_activation=...)``.
    random_state : int, RandomState instance or None, default=None
        Source of the random numbers; an int gives the same network every time.

    Returns
    -------
    FeedforwardNetwork
        ``weights[l]`` has shape (m_{l-1}, m_l), ``biases[l]`` has shape (m_l,).

    Raises
    ------
    ValueError
        If an argument is out of range or the neurons do not suffice for the layers.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.

    Examples
    --------
    >>> from skident.datasets import make_pyramidal_network
    >>> network = make_pyramidal_network(50, 3, 10, 200, contraction=0.6, random_state=0)
    >>> print([W.shape[1] for W in network.weights])
    [119, 71, 10]
    """
    widths = pyramidal_widths(n_layers, n_outputs, n_neurons, contraction)
    return make_network(
        (check_count("n_inputs", n_inputs), *widths),
        bias_scale=bias_scale,
        activation=activation,
        random_state=random_state,
    )
