"""`Architecture`: widths and activations of a network whose weights are unknown."""

from dataclasses import dataclass, replace

from .activations import get_activation


@dataclass(frozen=True)
class Architecture:
    """Widths and activations of a feedforward network.

    Attributes
    ----------
    widths : tuple of int
        ``(m_1, ..., m_L)``, the last one the number of outputs.
    activation, output_activation : str
        Of the hidden layers, and of the last one.

    Examples
    --------
    >>> from skident.network import Architecture
    >>> print(Architecture((8, 5, 1)).n_parameters(10))
    139
    """

    widths: tuple
    activation: str = "tanh"
    output_activation: str = "identity"

    def __post_init__(self):
        object.__setattr__(self, "widths", tuple(int(m) for m in self.widths))

    @classmethod
    def of(cls, network):
        """Architecture of a network.

        Parameters
        ----------
        network : FeedforwardNetwork

        Returns
        -------
        Architecture
        """
        return cls(network.layer_widths, network.activation, network.output_activation)

    @property
    def names(self):
        """Names of the two activations, in the order of `FeedforwardNetwork`'s arguments."""
        return self.activation, self.output_activation

    @property
    def activations(self):
        """One `Activation` per layer."""
        hidden = [get_activation(self.activation)] * (len(self.widths) - 1)
        return (*hidden, get_activation(self.output_activation))

    @property
    def n_outputs(self):
        """m_L."""
        return self.widths[-1]

    @property
    def n_hidden(self):
        """Units of all hidden layers."""
        return sum(self.widths[:-1])

    def n_parameters(self, n_inputs):
        """Number of weights and biases for this many inputs.

        Parameters
        ----------
        n_inputs : int

        Returns
        -------
        int
        """
        return sum((a + 1) * c for a, c in self.shapes(n_inputs))

    def shapes(self, n_inputs):
        """Shapes (m_{l-1}, m_l) of the weights for this many inputs.

        Parameters
        ----------
        n_inputs : int

        Returns
        -------
        list of tuple of int
        """
        return list(zip((n_inputs, *self.widths[:-1]), self.widths, strict=True))

    def with_widths(self, widths):
        """The same activations with other widths.

        Parameters
        ----------
        widths : sequence of int

        Returns
        -------
        Architecture
        """
        return replace(self, widths=tuple(widths))

    def after_first_layer(self):
        """All layers after the first, as an architecture of its own.

        Returns
        -------
        Architecture
        """
        return self.with_widths(self.widths[1:])
