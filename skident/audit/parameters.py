"""Effect of every weight and bias on the outputs of a network, to first order."""

import numpy as np

from skident.network import calculus

from .links import VALUES

_ROUNDED = 2.0**-25 / np.sqrt(3.0)  # standard deviation of the relative rounding of a number to float32, at least
_CHUNK_BYTES = 2**26  # of a block of derivatives (memory)


class ParameterEffects:
    """Derivatives of what is compared by the parameters, never all at once.

    A parameter is named ``(layer, row, unit)``, where the row after the last weight of a unit is its bias. Effects are
    those on outputs divided by their tolerance.

    Attributes
    ----------
    network : FeedforwardNetwork
    layers : list of ndarray
        ``layers[l]`` (m_l + 1, m_{l+1}): weights and, in the last row, biases.
    outputs : ndarray of shape (n, m)
        What is compared: outputs, centered logits or probabilities.
    link : object
        From `links`: how it depends on the network's outputs.

    Holds ``8 n (1 + m_L) sum(m_l)`` bytes.
    """

    def __init__(self, network, X, tolerance, link=VALUES):
        self.network, self.link, self._X, self._tolerance = network, link, X, tolerance
        self.layers = [np.vstack([W, b]) for W, b in zip(network.weights, network.biases, strict=True)]
        inputs, jets = calculus.forward_jets(network.weights, network.biases, network.activations, X, order=1)
        self._inputs = [np.hstack([H, np.ones((len(H), 1))]) for H in inputs]
        by_pre, _ = calculus.output_sensitivities(network.weights, jets)
        Z = jets[-1][0]
        self._by_pre = [link.slopes(Z, S) / tolerance[:, :, None] for S in by_pre]
        self.outputs = link.values(Z)

    def at(self, rows):
        """The effects on some of the outputs."""
        return ParameterEffects(self.network, self._X[rows], self._tolerance[rows], self.link)

    def of(self, network):
        """Effects of another network's parameters at the same inputs."""
        return ParameterEffects(network, self._X, self._tolerance, self.link)

    def outputs_of(self, network):
        """What is compared, of another network at the same inputs.

        Returns (n, m).
        """
        return self.link.values(network(self._X))

    def correlations(self, R):
        """``J^T r`` by layers.

        R (n, m_L).
        """
        return [H.T @ np.einsum("npj,np->nj", S, R) for H, S in zip(self._inputs, self._by_pre, strict=True)]

    def norms(self):
        """Length of every parameter's effect, as `layers`."""
        pairs = zip(self._inputs, self._by_pre, strict=True)
        return [np.sqrt((H**2).T @ np.einsum("npj,npj->nj", S, S)) for H, S in pairs]

    def of_rounded_parameters(self):
        """Standard deviation of the effects of all parameters together, if each is rounded to float32, (n, m)."""
        variance = np.zeros(self.outputs.shape)
        for H, S, layer in zip(self._inputs, self._by_pre, self.layers, strict=True):
            variance += np.einsum("nmj,nj->nm", S**2, H**2 @ layer**2)
        return _ROUNDED * np.sqrt(variance)

    def largest(self):
        """Largest effect of every parameter on any output, as `layers`.

        O(n n_parameters) operations, in chunks of 64 MiB.
        """
        found = []
        for H, S in zip(self._inputs, self._by_pre, strict=True):
            strongest, size = np.abs(S).max(axis=1), np.abs(H)
            rows = max(1, _CHUNK_BYTES // (8 * H.shape[1] * S.shape[2]))
            best = np.zeros((H.shape[1], S.shape[2]))
            for i in range(0, len(H), rows):
                part = slice(i, i + rows)
                np.maximum(best, np.max(size[part, :, None] * strongest[part, None, :], axis=0), out=best)
            found.append(best)
        return found

    def columns(self, named):
        """Effects of some parameters.

        Returns (n m_L, k).
        """
        found = np.empty((len(named), *self.outputs.shape))
        for column, (layer, row, unit) in zip(found, named, strict=True):
            np.multiply(self._inputs[layer][:, row, None], self._by_pre[layer][:, :, unit], out=column)
        return found.reshape(len(named), -1).T  # a column after the other in memory, as LAPACK wants them

    def strength(self, layer):
        """Largest effect of the pre-activations of a layer's units on any output, (n, m_{l+1})."""
        return np.abs(self._by_pre[layer]).max(axis=1)

    def removals(self, layer):
        """Effects, to first order, of taking away each of a hidden layer's units: of their outgoing weights set to 0.

        Returns (m_{l+1}, n m_L).
        """
        W, H, S = self.network.weights[layer + 1], self._inputs[layer + 1], self._by_pre[layer + 1]
        gone = -H[:, None, :-1] * (S @ W.T)
        return gone.reshape(-1, W.shape[0]).T
