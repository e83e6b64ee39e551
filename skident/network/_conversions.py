"""Convert networks from and to scikit-learn estimators, torch modules, ONNX models and files."""

from . import _io, _sklearn, _source
from .paths import checked_destination


class Conversions:
    """Part of `FeedforwardNetwork`: conversions from and to other forms."""

    __slots__ = ()

    @classmethod
    def from_sklearn(cls, estimator):
        """Read a fitted MLPRegressor or MLPClassifier, also inside pipelines and transformed targets.

        Parameters
        ----------
        estimator : MLPRegressor, MLPClassifier, Pipeline, TransformedTargetRegressor or FrozenEstimator of these
            Fitted; a regressor with ``loss="squared_error"``. Transformers of inputs and targets must be affine.

        Returns
        -------
        FeedforwardNetwork
            Of a regressor with one output, ``predict(X)`` is ``network(X)[:, 0]``. Of a classifier, the network of its
            logits: one log-odds output for two classes, else one output per class (`center_outputs` gives them zero
            mean).

        Notes
        -----
        Transformers become part of the first and the last layer. A regressor fitted on float32 predicts in float32; the
        network always computes in float64. TypeError if the last step is not an MLP, ValueError if it cannot be read.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.neural_network import MLPRegressor
        >>> from skident.network import FeedforwardNetwork
        >>> X = np.linspace(-1, 1, 20)[:, None]
        >>> mlp = MLPRegressor(hidden_layer_sizes=(3,), solver="lbfgs", random_state=0).fit(
        ...     X, X[:, 0] ** 2
        ... )
        >>> print(
        ...     np.abs(FeedforwardNetwork.from_sklearn(mlp)(X)[:, 0] - mlp.predict(X)).max() < 1e-14
        ... )
        True
        """
        return cls(*_sklearn.from_sklearn(estimator))

    def to_sklearn(self):
        """A fitted :class:`~sklearn.neural_network.MLPRegressor` that predicts the network's outputs.

        Returns
        -------
        MLPRegressor
            Its solver never ran: ``n_iter_`` is 0, ``loss_`` is nan. ``fit`` refits it, with ``warm_start=True`` from
            these weights. ValueError unless the hidden activation is tanh, sigmoid, relu or identity, and the output
            linear.

        Examples
        --------
        >>> import numpy as np
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> print(round(float(net.to_sklearn().predict([[1.0]])[0]), 4))
        2.0232
        """
        return _sklearn.to_sklearn(self)

    @classmethod
    def from_torch(cls, module, input_shape=None):
        """Read a torch module of linear layers or convolutions and activations, as dense layers.

        Parameters
        ----------
        module : torch.nn.Module
            ``Linear`` layers or convolutions of any dtype and device, alternating with one kind of activation; the last
            one may differ. A module with a forward of its own is traced by torch.fx, and must be a chain of these.
        input_shape : tuple of int, default=None
            Axes of one input, such as (channels, height, width), if the module begins with a convolution or pooling.
            None: it takes rows, or begins with ``Unflatten(1, ...)``.

        Returns
        -------
        FeedforwardNetwork

        Notes
        -----
        Activations: Tanh, Sigmoid, ReLU, LeakyReLU, PReLU (one slope), Softplus, GELU (``approximate="none"``), SiLU,
        ELU (``alpha=1``), Hardtanh, and those of :mod:`skident.network.torch_activations`; none between two linear
        layers is the identity. Sequentials may be nested. Identity, ``Flatten(1)`` and Dropout in eval mode are
        skipped. torch's Softplus is linear above its threshold (20), a difference of up to 2e-9. Convolutions,
        average pooling, zero padding and BatchNorm in eval mode become dense matrices, joined with the layer before or
        behind them; inputs are rows of ``(channels, height, width)`` in C order. Of traced modules, arithmetic with
        constants, matrices, ``view`` and the functions of these layers are read. A ValueError names a submodule that
        cannot be read, or whose control flow depends on its inputs.

        Examples
        --------
        >>> import torch
        >>> from skident.network import FeedforwardNetwork
        >>> module = torch.nn.Sequential(
        ...     torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
        ... )
        >>> print(FeedforwardNetwork.from_torch(module).n_parameters)
        19
        """
        from ._torch import from_torch

        return cls(*from_torch(module, input_shape))

    def to_torch(self, dtype=None):
        """This network as a :class:`torch.nn.Sequential`; torch's random stream is not used.

        Parameters
        ----------
        dtype : torch.dtype, default=None
            None means ``torch.float64``.

        Returns
        -------
        torch.nn.Sequential
            Trainable, on the CPU; linear activations add no module.

        Examples
        --------
        >>> import torch
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> print(round(net.to_torch()(torch.ones(1, 1, dtype=torch.float64)).item(), 4))
        2.0232
        """
        from ._torch import to_torch

        return to_torch(self, dtype)

    @classmethod
    def from_onnx(cls, source):
        """Read an ONNX model that is a chain of matrices and activations. Nothing in it is run.

        Parameters
        ----------
        source : str, path-like or onnx.ModelProto
            A model with one input ``(n, D)`` or ``(D,)``, or one input ``(n, 1)`` per column, and one output of real
            numbers. Its matrices alternate with one activation; what is linear may pass layers by, to a Concat.

        Returns
        -------
        FeedforwardNetwork
            Of a model that ends in Softmax, or in the probabilities of two classes, the network of its logits.

        Notes
        -----
        Matrices: Gemm, or MatMul and Add; Conv, AveragePool and GlobalAveragePool become dense ones. Activations: Tanh,
        Sigmoid, Relu, LeakyRelu, PRelu (one slope), Softplus, Erf, Sin, Gelu, SiLU (also composed of other operators),
        Mish, HardSwish, Selu, Elu (alpha = 1), a square; Max and Clip if they are one of these. Sub, Mul, Div, Scaler,
        BatchNormalization and products of matrices are folded into the adjacent layer. Identity, Cast, Dropout,
        Flatten, Reshape, Slice, Gather, Transpose, Pad of zeros and the like may not mix rows; outputs of labels are
        ignored. float32 weights are read as they are. Files keep external data in their own folder, else nothing is
        read. A ValueError names a node that cannot be read, also if it needs a dense matrix of more than 2^25 entries
        (256 MiB).

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> print(FeedforwardNetwork.from_onnx(net.to_onnx()) == net)
        True
        """
        from .onnx_models import read_network

        return _within_memory(cls, read_network, source)

    def to_onnx(self, path=None, *, dtype="float64"):
        """This network as an ONNX model: one Gemm and activation per layer, input ``X`` (n, D), output ``Y`` (n, m_L).

        Parameters
        ----------
        path : str or path-like, default=None
            File to write as well; an existing one is replaced.
        dtype : {"float64", "float32"}, default="float64"
            Of inputs, weights and outputs. onnxruntime does not run softplus, erf, gelu, elu, selu and hardswish in
            float64.

        Returns
        -------
        onnx.ModelProto
            Of operator set 13; with hardswish 14, mish 18, gelu and gelu_tanh 20.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> model = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]]).to_onnx(dtype="float32")
        >>> print([node.op_type for node in model.graph.node])
        ['Gemm', 'Tanh', 'Gemm']
        """
        from .onnx_models import network_model, write_model

        model = network_model(self, dtype)
        if path is not None:
            write_model(model, checked_destination(path))
        return model

    def to_source(self, language):
        """This network as source code without dependencies, with the function ``network`` of one row.

        Parameters
        ----------
        language : {"c", "python"}
            C99: ``void network(const double *x, double *y)``, to be linked with ``-lm``. Python: ``network(x)`` takes
            and returns a list of floats.

        Returns
        -------
        str

        Notes
        -----
        In C the sums run over the inputs in their order, and begin with the bias: compilers that neither reorder nor
        fuse operations (``-ffp-contract=off``) give the same bits, also after ``double`` was replaced by ``float``.
        ValueError if an activation is a table or is not built in.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> names = {}
        >>> exec(net.to_source("python"), names)
        >>> print(round(names["network"]([1.0])[0], 4))
        2.0232
        """
        return _source.to_source(self, language)

    def save(self, path):
        """Write the network to a safetensors file; an existing one is replaced.

        Parameters
        ----------
        path : str or path-like

        Notes
        -----
        ValueError if an activation is not built in, since it could not be read back.

        Examples
        --------
        >>> import os, tempfile
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     net.save(os.path.join(folder, "net.safetensors"))
        ...     print(FeedforwardNetwork.load(os.path.join(folder, "net.safetensors")) == net)
        True
        """
        _io.save(self, path)

    @classmethod
    def load(cls, path):
        """Read a network that :meth:`save` wrote, bit by bit, or a ``.nnet`` file. Nothing in the file is executed.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        FileNotFoundError, IsADirectoryError
            If there is no such file.
        ValueError
            If it is not a safetensors file of :meth:`save`, is of a later format version, or damaged.

        Notes
        -----
        ``.nnet`` is the text format of ACAS Xu: ReLU layers with linear outputs. The network takes inputs and gives
        outputs in their own units, with the normalization of the file in its first and last layer. Evaluators of such
        files first move inputs into the file's ranges, which the network does not.
        """
        return _within_memory(cls, _io.load, path)


def _within_memory(kind, read, source):
    """A network from what `read` makes of a source; ValueError if that does not fit into memory."""
    try:
        return kind(*read(source))
    except MemoryError as error:
        raise ValueError(f"the network does not fit into memory: {error}") from error
