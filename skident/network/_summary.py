"""Summarize a network: a text summary of its layers, and its parameters as a labelled data frame."""

import numpy as np

from ._structure import structure_of


class Summary:
    """Part of `FeedforwardNetwork`: its text summary and its data frame."""

    __slots__ = ()

    def summary(self):
        """A table of the layers, for ``print``.

        Returns
        -------
        str
            One line per layer: inputs, units, activation, number of parameters, and the largest weight and bias by
            magnitude.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> print(
        ...     FeedforwardNetwork([[[3.0, -1.0]], [[1.0], [2.0]]], [[0.1, 0.2], [0.0]]).summary()
        ... )
        FeedforwardNetwork(1 -> 2 -> 1, tanh, output identity)
        layer   inputs  units  activation  parameters  largest weight  largest bias
        1            1      2        tanh           4               3           0.2
        2            2      1    identity           3               2             0
        total                                       7
        """
        rows = [("layer", "inputs", "units", "activation", "parameters", "largest weight", "largest bias")]
        for layer, (W, b, g) in enumerate(zip(self.weights, self.biases, self.activations), 1):
            sizes = (layer, *W.shape, _name(g), W.size + b.size)
            rows.append((*map(str, sizes), *(f"{np.abs(a).max():.3g}" for a in (W, b))))
        rows.append(("total", "", "", "", str(self.n_parameters), "", ""))
        first, *others = (max(map(len, column)) for column in zip(*rows))
        lines = (f"{row[0]:<{first}}  {'  '.join(f'{c:>{w}}' for c, w in zip(row[1:], others))}" for row in rows)
        return "\n".join([repr(self), *(line.rstrip() for line in lines)])

    def structure(self, input_shape=None, *, tol=1e-6):
        """What the weights have in common: a convolution, zeros, networks side by side.

        Parameters
        ----------
        input_shape : tuple of int, default=None
            (channels, height, width), (height, width) or (length,) of one input; several channels of one axis are
            (channels, 1, length). None tries all shapes of up to four channels.
        tol : float, default=1e-6
            Largest difference of equal weights, and largest zero, relative to the largest weight of a unit. Raise it
            for weights with larger errors.

        Returns
        -------
        NetworkStructure
            ``print`` describes it; its `network` has shared kernels and exact zeros.

        Raises
        ------
        ValueError
            If `input_shape` does not fit the number of inputs.

        Notes
        -----
        The first layer is a convolution if 90 % of its units have the weights of a few kernels, each at other places of
        a grid. Only directions of kernels are determined: units may have any scale. Its average pooling shows as blocks
        of equal outgoing weights. O(D m) operations per shape and kernel.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> shifted = np.array([np.roll([1.0, -2.0, 0.5, 0.0, 0.0, 0.0, 0.0], i) for i in range(5)])
        >>> print(
        ...     FeedforwardNetwork(
        ...         [shifted.T, np.ones((5, 1))], [np.full(5, 0.1), [0.0]], "relu"
        ...     ).structure((7,))
        ... )
        layer 1: convolution, 1 kernel 1 x 3 on 1 x 1 x 7, stride 1, padding 0
        """
        return structure_of(self, input_shape, tol)

    def to_frame(self, *, stderr=None, feature_names=None):
        """All weights and biases as a labelled :class:`pandas.DataFrame`, one per row.

        Parameters
        ----------
        stderr : tuple of (list of L ndarrays, list of L ndarrays), default=None
            Standard errors of the weights and of the biases, such as `NetworkIdentifier.stderr_`.
        feature_names : sequence of D str, default=None
            Names of the inputs; ``x0, x1, ...`` by default.

        Returns
        -------
        pandas.DataFrame
            Column ``value``, and ``stderr`` if given. Index ``layer`` (from 1), ``unit`` (from 0, the column of
            ``weights[layer - 1]``) and ``source``: an input, ``unit 0, unit 1, ...`` of the layer before, or ``bias``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If the standard errors have other shapes than the parameters, or the number of names is wrong.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[3.0, -1.0]], [[1.0], [2.0]]], [[0.1, 0.2], [0.0]])
        >>> print(float(net.to_frame().loc[(2, 0, "unit 1"), "value"]))
        2.0
        """
        pandas = _require_pandas()
        labels = _labels(self, feature_names)
        columns = {"value": _in_rows(self.weights, self.biases)}
        if stderr is not None:
            columns["stderr"] = _in_rows(*_checked_errors(self, stderr))
        index = pandas.MultiIndex.from_tuples(labels, names=["layer", "unit", "source"])
        return pandas.DataFrame(columns, index=index)


def _name(activation):
    slope = getattr(activation, "negative_slope", None)
    return activation.name if slope is None else f"{activation.name}({slope:.4g})"


def _require_pandas():
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame needs pandas, which is not installed; try pip install pandas.") from error
    return pandas


def _in_rows(weights, biases):
    """Parameters as one vector, unit by unit: the unit's weights, then its bias."""
    return np.concatenate([np.vstack([W, b]).T.ravel() for W, b in zip(weights, biases)])


def _labels(network, feature_names):
    """(layer, unit, source) of every parameter, in the order of `_in_rows`."""
    sources = [f"x{i}" for i in range(network.n_inputs)] if feature_names is None else [str(n) for n in feature_names]
    if len(sources) != network.n_inputs:
        raise ValueError(f"feature_names must be {network.n_inputs} names, one per input, got {len(sources)}.")
    labels = []
    for layer, width in enumerate(network.layer_widths, 1):
        labels += [(layer, unit, source) for unit in range(width) for source in (*sources, "bias")]
        sources = [f"unit {unit}" for unit in range(width)]
    return labels


def _checked_errors(network, stderr):
    """Standard errors with the shapes of the weights and of the biases."""
    try:
        weights, biases = ([np.asarray(a, dtype=float) for a in part] for part in stderr)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "stderr must be a pair of lists of arrays, of the weights and of the biases, as NetworkIdentifier.stderr_."
        ) from error
    shapes, wanted = ([a.shape for a in (*W, *b)] for W, b in ((weights, biases), (network.weights, network.biases)))
    if shapes != wanted:
        raise ValueError(f"stderr must have the shapes of the weights and biases, {wanted}, got {shapes}.")
    return weights, biases
