"""The parameters of a feedforward network as an immutable value: checks, sizes, equality, copies, pickles."""

import numpy as np

from .activations import Bounded, Clip, clip, get_activation, is_built_in
from .calculus import layer_activations
from .partly_linear import PartlyLinear


class NetworkParameters:
    """Part of `FeedforwardNetwork`: weights, biases and activations, checked once and never changed."""

    __slots__ = ("weights", "biases", "activations", "_hidden", "__weakref__")

    def __init__(self, weights, biases, activation="tanh", output_activation="identity"):
        weights, biases = _checked_arrays(weights, biases)
        fields = {
            "weights": weights,
            "biases": biases,
            "activations": tuple(layer_activations(len(weights), activation, output_activation)),
            "_hidden": get_activation(activation),
        }
        _check_bounds(fields["_hidden"], fields["activations"][-1], weights[-1].shape[1])
        for layer, (g, b) in enumerate(zip(fields["activations"], biases)):
            _check_linear_units(g, layer, len(b))
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(
            f"{type(self).__name__} is immutable, cannot set {name!r}; build a new one from its weights and biases."
        )

    def __delattr__(self, name):
        raise AttributeError(f"{type(self).__name__} is immutable, cannot delete {name!r}.")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        # By name where possible: a pickle then holds no reference to private functions.
        names = (g.name if is_built_in(g) else g for g in (self._hidden, self.activations[-1]))
        return type(self), (self.weights, self.biases, *names)

    def __eq__(self, other):
        if not isinstance(other, NetworkParameters):
            return NotImplemented
        arrays, others = self.weights + self.biases, other.weights + other.biases
        return (
            self.activations == other.activations
            and len(arrays) == len(others)
            and all(np.array_equal(a, b) for a, b in zip(arrays, others))
        )

    def __hash__(self):
        # Sums, not bytes: 0.0 and -0.0 are equal and so must hash alike.
        sums = tuple(float(a.sum()) for a in self.weights + self.biases)
        return hash((self.n_inputs, self.layer_widths, sums))

    def __repr__(self):
        widths = " -> ".join(str(m) for m in (self.n_inputs, *self.layer_widths))
        return f"{type(self).__name__}({widths}, {self.activation}, output {self.output_activation})"

    def with_parameters(self, weights, biases):
        """The network with other weights and biases, and the same activations.

        Parameters
        ----------
        weights, biases : sequence of L array-likes

        Returns
        -------
        FeedforwardNetwork

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork, leaky_relu
        >>> network = FeedforwardNetwork([[[1.0]], [[1.0]]], [[0.0], [0.0]], leaky_relu(0.5))
        >>> print(network.with_parameters([[[2.0]], [[1.0]]], [[0.0], [0.0]])([[-3.0]])[0, 0])
        -3.0
        """
        return type(self)(weights, biases, self._hidden, self.activations[-1])

    @property
    def output_range(self):
        """Bounds ``(low, high)`` of a clipped output, (m_L,) each; None if the output activation is no `clip`."""
        output = self.activations[-1]
        if not isinstance(output, Clip):
            return None
        return tuple(np.array(np.broadcast_to(bound, self.n_outputs)) for bound in (output.low, output.high))

    def with_clip(self, low, high):
        """The network with clipped outputs.

        Parameters
        ----------
        low, high : float or array-like of shape (m_L,)
            See `clip`; they replace the network's own bounds.

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        ValueError
            If the output is neither linear nor clipped, or a lower bound is not below its upper bound.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> network = FeedforwardNetwork([[[1.0]], [[3.0]]], [[0.0], [0.0]]).with_clip(-1.0, 1.0)
        >>> print(network, network([[0.1], [2.0]]).round(3).ravel())
        FeedforwardNetwork(1 -> 1 -> 1, tanh, output clip(-1, 1)) [0.299 1.   ]
        """
        if self.output_range is None and self.activations[-1].symmetry != "linear":
            raise ValueError(f"only linear outputs can be clipped, got output_activation={self.output_activation!r}.")
        return type(self)(self.weights, self.biases, self._hidden, clip(low, high))

    def without_clip(self):
        """The network before its outputs are clipped; itself if the output activation is no `clip`.

        Returns
        -------
        FeedforwardNetwork
        """
        if self.output_range is None:
            return self
        return type(self)(self.weights, self.biases, self._hidden)

    @property
    def activation(self) -> str:
        """Name of the hidden layers' activation."""
        return self._hidden.name

    @property
    def output_activation(self) -> str:
        """Name of the last layer's activation."""
        return self.activations[-1].name

    @property
    def n_inputs(self) -> int:
        """D."""
        return self.weights[0].shape[0]

    @property
    def n_outputs(self) -> int:
        """m_L."""
        return self.weights[-1].shape[1]

    @property
    def n_layers(self) -> int:
        """L."""
        return len(self.weights)

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """``(m_1, ..., m_L)``."""
        return tuple(W.shape[1] for W in self.weights)

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(a.size for a in self.weights + self.biases)


def _check_bounds(hidden, output, n_outputs):
    """Refuse bounds per unit of a hidden layer, and a number of bounds that does not match the outputs."""
    if isinstance(hidden, Bounded) and len(hidden.low) > 1:
        raise ValueError(f"activation={hidden.name!r}: a hidden layer has one low and one high for all units.")
    if isinstance(output, Bounded) and len(output.low) not in (1, n_outputs):
        raise ValueError(f"{output.name} has bounds for {len(output.low)} outputs, but the network has {n_outputs}.")


def _check_linear_units(activation, layer, width):
    """Refuse more linear units than a layer has units."""
    n_linear = 0
    while isinstance(activation, PartlyLinear):
        n_linear, activation = n_linear + activation.n_linear, activation.base
    if n_linear > width:
        raise ValueError(f"layer {layer} has {width} units, and its activation {n_linear} linear ones.")
    if n_linear and isinstance(activation, Bounded) and len(activation.low) > 1:
        raise ValueError(f"layer {layer} has linear units, and so one low and one high for all others.")


def _checked_arrays(weights, biases):
    """Read-only copies of the layers' arrays, whose shapes fit together; a ValueError names the layer."""
    weights = tuple(_frozen(W, f"weights[{layer}]", 2) for layer, W in enumerate(weights))
    biases = tuple(_frozen(b, f"biases[{layer}]", 1) for layer, b in enumerate(biases))
    if not weights or len(weights) != len(biases):
        raise ValueError(
            f"a network needs one weight matrix and one bias vector for each layer, got {len(weights)} weights and "
            f"{len(biases)} biases."
        )
    for layer, (W, b) in enumerate(zip(weights, biases)):
        if b.shape != W.shape[1:]:
            raise ValueError(
                f"biases[{layer}] must have one entry for each of the {W.shape[1]} columns of weights[{layer}], got "
                f"shapes {b.shape} and {W.shape}. Weights are (inputs, units): transpose them if yours are (units, "
                "inputs)."
            )
        if layer and W.shape[0] != weights[layer - 1].shape[1]:
            raise ValueError(
                f"weights[{layer}] must have {weights[layer - 1].shape[1]} rows, one for each unit of the layer "
                f"before, got shapes {weights[layer - 1].shape} and {W.shape}."
            )
    return weights, biases


def _frozen(array, name, ndim):
    """A read-only C-contiguous float64 copy; ValueError unless it is real, finite, not empty and has `ndim` axes."""
    try:
        is_complex = np.iscomplexobj(array)
        array = None if is_complex else np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be read as an array of numbers: {error}") from error
    if is_complex:
        raise ValueError(f"{name} must be real, got complex numbers.")
    if array.ndim != ndim or array.size == 0:
        expected = "(inputs, units)" if ndim == 2 else "(units,)"
        raise ValueError(f"{name} must be a non-empty array of shape {expected}, got shape {array.shape}.")
    n_bad = np.count_nonzero(~np.isfinite(array))
    if n_bad:
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {n_bad} nan or infinite entries, the first at {first}.")
    array.setflags(write=False)
    return array
