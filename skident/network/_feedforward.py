"""`FeedforwardNetwork`: the network of Definition 1 of Fiedler et al. (2021) as an immutable value."""

import numpy as np

from . import _symmetry
from . import calculus as _calculus
from ._conversions import Conversions
from ._parameters import NetworkParameters
from ._summary import Summary
from .activations import alike

# Small blocks stay in cache: at D = 100, widths (200, 150, 10), Hessians in blocks of one row (3 MB) are three times
# as fast as in blocks of 300.
_DEFAULT_MAX_BYTES = 2**22


class FeedforwardNetwork(Conversions, Summary, NetworkParameters):
    """A fully connected network: ``y_0 = x``, ``y_l = g_l(W_l^T y_{l-1} + b_l)``, ``f(x) = y_L``.

    Definition 1 of Fiedler et al. [1]_, with a separate output activation. The network is immutable: its arrays are
    private read-only float64 copies, copying returns the network itself, and networks are equal if their weights,
    biases and activations are.

    Parameters
    ----------
    weights : sequence of L array-likes
        ``weights[l]`` has shape (m_l, m_{l+1}), one column per unit, with ``m_0 = D`` inputs.
    biases : sequence of L array-likes
        ``biases[l]`` has shape (m_{l+1},).
    activation : str or Activation, default="tanh"
        Activation of the hidden layers; :func:`~skident.network.get_activation` lists the names.
    output_activation : str or Activation, default="identity"
        Activation of the last layer.

    Attributes
    ----------
    weights, biases : tuple of ndarray
        Read-only.
    activation, output_activation : str
        Names.
    activations : tuple of Activation
        One per layer.
    n_inputs, n_outputs, n_layers, n_parameters : int
        D, m_L, L, and the number of weights and biases.
    layer_widths : tuple of int
        ``(m_1, ..., m_L)``.

    Raises
    ------
    ValueError
        If the shapes do not match, an array is empty or not finite, or an activation is unknown.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner (2021). Stable Recovery of Entangled Weights: Towards
       Robust Identification of Deep Neural Networks from Minimal Samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork
    >>> net = FeedforwardNetwork(
    ...     [[[1.0, 0.0], [0.0, 2.0]], [[1.0], [1.0]]], [[0.0, 0.0], [0.5]]
    ... )
    >>> net
    FeedforwardNetwork(2 -> 2 -> 1, tanh, output identity)
    >>> print(round(float(net(np.array([[1.0, 0.5]]))[0, 0]), 4))
    2.0232
    """

    __slots__ = ()

    # -- the function and its derivatives ------------------------------------------------------------------------------

    def __call__(self, X):
        """Outputs (n, m_L) at X (n, D); entries that are not finite are passed through. O(n n_parameters)."""
        return _calculus.forward(self.weights, self.biases, self.activations, self._checked_inputs(X))

    def jacobian(self, X, *, max_bytes=_DEFAULT_MAX_BYTES):
        """First derivatives of the outputs, eq. (7) of Fiedler et al. (2021).

        Parameters
        ----------
        X : array-like of shape (n, D)
        max_bytes : int, default=4 MiB
            Bound of temporary memory; at least one row is computed at a time. More is seldom faster.

        Returns
        -------
        J : ndarray of shape (n, m_L, D)
            ``J[n, p, i] = d f_p / d x_i``. On activation boundaries of relu and hard_tanh, the slope is taken as 0.

        Notes
        -----
        O(n m_L n_parameters) operations.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[2.0], [1.0]], [[3.0]]], [[0.0], [0.0]], "sin")
        >>> print(net.jacobian(np.zeros((1, 2)))[0, 0])
        [6. 3.]
        """
        X = self._checked_inputs(X)
        units, width = sum(self.layer_widths), max(self.layer_widths)
        row_bytes = 8 * ((5 + 2 * self.n_outputs) * units + self.n_outputs * (width + self.n_inputs))
        J = np.empty((len(X), self.n_outputs, self.n_inputs))
        return self._in_chunks(_calculus.jacobian, X, J, row_bytes, max_bytes)

    def hessian(self, X, *, max_bytes=_DEFAULT_MAX_BYTES):
        """Second derivatives of the outputs by the closed form of Proposition 2 of Fiedler et al. (2021).

        ``H_p(x) = sum_l V_l(x) S_p^{[l]}(x) V_l(x)^T`` with the entangled weights V_l and diagonal S: batched matrix
        products, no automatic differentiation.

        Parameters
        ----------
        X : array-like of shape (n, D)
        max_bytes : int, default=4 MiB
            Bound of temporary memory; at least one row is computed at a time, which needs about ``8 m_L D (2 D + max
            m_l)`` bytes. More is seldom faster.

        Returns
        -------
        H : ndarray of shape (n, m_L, D, D)
            Symmetric in the last two axes, to rounding.

        Raises
        ------
        ValueError
            If an activation does not have a second derivative everywhere (relu, leaky_relu, hard_tanh, elu).

        Notes
        -----
        O(n m_L D^2 sum(m_l)) operations.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0], [2.0]], [[1.0]]], [[0.0], [0.0]], "quadratic")
        >>> print(net.hessian(np.zeros((1, 2)))[0, 0, 1, 1])
        8.0
        """
        X = self._checked_inputs(X)
        rough = sorted({g.name for g in self.activations if not g.smooth})
        if rough:
            raise ValueError(
                f"hessian needs activations with a second derivative everywhere, got {rough}: between its "
                "activation boundaries a relu network is linear and its Hessian is 0; that of an elu network jumps. "
                "Use jacobian, or a smooth activation such as softplus or gelu."
            )
        D, m_out, units, width = self.n_inputs, self.n_outputs, sum(self.layer_widths), max(self.layer_widths)
        row_bytes = 8 * ((6 + 2 * m_out + D) * units + m_out * (2 * D * D + (D + 2) * width) + D * width)
        H = np.empty((len(X), m_out, D, D))
        return self._in_chunks(_calculus.hessian, X, H, row_bytes, max_bytes)

    def entangled_weights(self, x):
        """Entangled weights of every layer at one point, eq. (6) of Fiedler et al. (2021).

        ``V_l(x) = (prod_{k<l} W_k G_k(x)) W_l``: the transposed Jacobian of layer l's pre-activations.

        Parameters
        ----------
        x : array-like of shape (D,)

        Returns
        -------
        V : list of L ndarrays
            ``V[l]`` has shape (D, m_{l+1}); ``V[0]`` equals ``weights[0]``.

        Raises
        ------
        ValueError
            If x does not have shape (D,).

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([np.eye(2), [[1.0], [1.0]]], [[0.0, 0.0], [0.0]], "sin")
        >>> print(net.entangled_weights([0.0, np.pi])[1].round(4)[:, 0])
        [ 1. -1.]
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != (self.n_inputs,):
            raise ValueError(f"x must be one point of shape ({self.n_inputs},), got shape {x.shape}.")
        _, jets = _calculus.forward_jets(self.weights, self.biases, self.activations, x[None], order=1)
        return [np.array(V[0]) for V in _calculus.entangled_weights(self.weights, jets)]

    # -- symmetries ----------------------------------------------------------------------------------------------------

    def canonical(self):
        r"""The representative of this network among all networks that are equal by symmetry.

        Hidden units get a standard sign, scale and phase, as far as the activation leaves these free, and are sorted by
        their incoming weights. The function does not change, to rounding.

        Returns
        -------
        FeedforwardNetwork

        Notes
        -----
        The rule, layer by layer, for a unit's incoming weights w and bias b:

        - *sign* (tanh, erf, sigmoid, sin, quadratic): the first entry of w whose magnitude is the largest (to 1e-6) is
          positive; if w = 0, the bias is. For sigmoid, the next layer's biases absorb ``g(z) = 1 - g(-z)``.
        - *scale* (relu, quadratic): w has norm 1 (if w = 0, \|b\| = 1); the outgoing weights take the scale.
        - *phase* (sin): b lies in (-pi/2, pi/2]; values within 1e-6 of the lower end count as the upper end.
        - *order*: lexicographic in the entries of w, then b; entries closer than 1e-9 times the largest of their row
          count as equal. Units with equal weights and biases keep their relative order.

        Output units are neither permuted nor scaled; sign and phase are resolved if a quadratic or sin output leaves
        them free. softplus, gelu, elu and the like have permutations only. A linear (identity) hidden layer is
        determined up to an invertible mixing of its units, of which only the permutation is resolved. Cost O(sum_l
        m_{l-1} m_l log m_l).

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[3.0, -1.0]], [[1.0], [2.0]]], [[0.1, 0.2], [0.0]])
        >>> print(net.canonical().weights[0])
        [[1. 3.]]
        """
        return self._with_parameters(*_symmetry.canonical(self.weights, self.biases, self.activations))

    def align_to(self, other):
        """This network with its hidden units permuted, flipped and rescaled to match another network's.

        Layer by layer from the inputs on, a linear assignment of units minimizes the sum of squared distances of
        incoming weights and biases. Each distance is minimized over the activation's signs, scales and phases (relu and
        quadratic: it is that of directions). Outgoing weights follow, so the function does not change, to rounding.

        Parameters
        ----------
        other : FeedforwardNetwork
            Same inputs, widths and activations.

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        TypeError
            If `other` is not a FeedforwardNetwork.
        ValueError
            If inputs, widths or activations differ.

        Notes
        -----
        Cost O(sum_l m_{l-1} m_l^2 + m_l^3). Output units are not permuted. Later layers are matched given the earlier
        ones: if the networks differ and a layer is matched wrongly, so are the layers after it. Linear hidden layers
        are only permuted.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[3.0, -1.0]], [[1.0], [2.0]]], [[0.1, 0.2], [0.0]])
        >>> swapped = FeedforwardNetwork([[[1.0, 3.0]], [[-2.0], [1.0]]], [[-0.2, 0.1], [0.0]])
        >>> print(np.abs(swapped.align_to(net).weights[0] - net.weights[0]).max())
        0.0
        """
        if not isinstance(other, FeedforwardNetwork):
            raise TypeError(f"other must be a FeedforwardNetwork, got {type(other).__name__}.")
        mine, theirs = ((n.n_inputs, n.layer_widths) for n in (self, other))
        if mine != theirs or not all(map(alike, self.activations, other.activations)):
            raise ValueError(f"only networks of one architecture can be aligned, got {self!r} and {other!r}.")
        moved = _symmetry.align(self.weights, self.biases, self.activations, other.weights, other.biases)
        return self._with_parameters(*moved)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _with_parameters(self, weights, biases):
        return type(self)(weights, biases, self._hidden, self.activations[-1])

    def _checked_inputs(self, X):
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            hint = " For one point use x.reshape(1, -1)." if X.ndim == 1 else ""
            raise ValueError(f"X must have shape (n, {self.n_inputs}), got {X.shape}.{hint}")
        return X

    def _in_chunks(self, function, X, out, row_bytes, max_bytes):
        rows = max(1, int(max_bytes // row_bytes))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            out[part] = function(self.weights, self.biases, self.activations, X[part])
        return out
