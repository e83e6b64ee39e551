"""What a network can be read from and turned into: scikit-learn estimators, torch modules, files."""

from __future__ import annotations

from . import _io, _sklearn


class Conversions:
    """Ways to and from other forms of a `FeedforwardNetwork`, whose part this is."""

    __slots__ = ()

    @classmethod
    def from_sklearn(cls, estimator):
        """Read a fitted MLPRegressor or MLPClassifier, also behind scalers.

        Parameters
        ----------
        estimator : MLPRegressor, MLPClassifier, Pipeline, TransformedTargetRegressor or FrozenEstimator of these
            Fitted. A regressor must have ``loss="squared_error"``; ``predict`` of a one-output regressor is
            ``network(X)[:, 0]``. Of a classifier the network of its logits is read: one log-odds output for two
            classes, else as many outputs as classes (`center_outputs` gives them zero mean). Transformers in front,
            and those of the targets, must be affine; they become part of the first and the last layer. A regressor
            fitted on float32 predicts in float32, the network always computes in float64.

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        TypeError
            If the last step is anything else.
        NotFittedError
            If it is not fitted.
        ValueError
            If its output is not linear, its classes are not exclusive, or a transformer is not affine.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.neural_network import MLPRegressor
        >>> from skident.network import FeedforwardNetwork
        >>> X = np.linspace(-1, 1, 20)[:, None]
        >>> mlp = MLPRegressor(hidden_layer_sizes=(3,), solver="lbfgs", random_state=0).fit(X, X[:, 0] ** 2)
        >>> print(np.abs(FeedforwardNetwork.from_sklearn(mlp)(X)[:, 0] - mlp.predict(X)).max() < 1e-14)
        True
        """
        return cls(*_sklearn.from_sklearn(estimator))

    def to_sklearn(self):
        """A fitted :class:`~sklearn.neural_network.MLPRegressor` that predicts what this network computes.

        Returns
        -------
        MLPRegressor
            ``predict`` gives (n,) for one output, else (n, m_L). Its solver never ran: ``n_iter_`` is 0, ``loss_`` is
            nan. ``fit`` refits it, with ``warm_start=True`` from these weights.

        Raises
        ------
        ValueError
            If the hidden activation is none of tanh, sigmoid, relu, identity or the output is not linear.

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
    def from_torch(cls, module):
        """Read a :class:`torch.nn.Sequential` of linear layers and activations.

        Parameters
        ----------
        module : torch.nn.Sequential or torch.nn.Linear
            ``Linear`` (with or without bias, any dtype and device) alternating with one kind of activation: Tanh,
            Sigmoid, ReLU, LeakyReLU, PReLU (one slope), Softplus, GELU (``approximate="none"``), SiLU, ELU
            (``alpha=1``), or ``Sin``, ``Erf``, ``Quadratic`` of :mod:`skident.network.torch_activations`; no activation
            between two linear layers is the identity. Sequentials may be nested; Identity, ``Flatten(1)`` and Dropout
            in eval mode are skipped. The last activation, if any, becomes the output activation. torch's Softplus is
            linear past its threshold (20), which differs by up to 2e-9.

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        TypeError
            If it is not a torch module.
        ValueError
            If the module contains anything else or mixes hidden activations; the message names the submodule.

        Examples
        --------
        >>> import torch
        >>> from skident.network import FeedforwardNetwork
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        >>> print(FeedforwardNetwork.from_torch(module).n_parameters)
        19
        """
        from ._torch import from_torch

        return cls(*from_torch(module))

    def to_torch(self, dtype=None):
        """This network as a :class:`torch.nn.Sequential`; torch's random stream is left untouched.

        Parameters
        ----------
        dtype : torch.dtype, default=None
            None means ``torch.float64``.

        Returns
        -------
        torch.nn.Sequential
            Trainable, on the CPU; linear activations add no module.

        Raises
        ------
        ValueError
            If an activation is not one of the library's own.

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
            One input ``(n, D)``, or with more axes and a Flatten or Reshape, and one output of real numbers. Gemm, or
            MatMul and Add, alternate with one kind of activation: Tanh, Sigmoid, Relu, LeakyRelu, PRelu (one slope),
            Softplus, Erf, Sin, Gelu (also spelt out by Erf), a SiLU spelt out, Elu (alpha = 1), a square; Max and
            Clip where they are one of these. Sub, Mul, Div, Scaler, BatchNormalization and matrices in a row are folded
            into the layer that they precede or follow; Identity, Cast, Dropout, Flatten, Reshape and the like must
            leave every row as it is. Of a model that ends in Softmax, or in the probabilities of two classes, the
            network of its logits is read, as from a classifier by `from_sklearn`; outputs of labels are left aside.
            What the file says in single precision (float32 weights, and the slope of a LeakyRelu always) is taken as
            it is there.

        Returns
        -------
        FeedforwardNetwork

        Raises
        ------
        ImportError
            If onnx is not installed.
        TypeError
            If `source` is neither a path nor a model.
        FileNotFoundError
            If there is no such file, or one is missing that it keeps numbers in.
        IsADirectoryError
            If the path is a folder.
        ValueError
            If the file is no ONNX model, truncated, or keeps numbers outside of its folder (nothing of these is read);
            if the model holds any other operator, a custom one, branches, or different hidden activations, or its input
            has no batch axis. The message names the node.

        Examples
        --------
        >>> from skident.network import FeedforwardNetwork
        >>> net = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
        >>> print(FeedforwardNetwork.from_onnx(net.to_onnx()) == net)
        True
        """
        from .onnx_models import read_network

        return cls(*read_network(source))

    def to_onnx(self, path=None, *, dtype="float64"):
        """This network as an ONNX model: a Gemm and its activation a layer, input ``X`` (n, D), output ``Y`` (n, m_L).

        Parameters
        ----------
        path : str or path-like, default=None
            Where the model is written to, too (an existing file is replaced).
        dtype : {"float64", "float32"}, default="float64"
            Of inputs, weights and answers. onnxruntime has no softplus, erf, gelu, elu in float64; it runs the others.

        Returns
        -------
        onnx.ModelProto
            Of operator set 13, with gelu 20.

        Raises
        ------
        ImportError
            If onnx is not installed.
        ValueError
            If an activation is not one of the library's own, or a weight is too large for float32.
        FileNotFoundError
            If there is no such folder.
        IsADirectoryError
            If the path is a folder.
        OSError
            If the file cannot be written.

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
            write_model(model, _io.checked_path(path))
        return model

    def save(self, path):
        """Write the network to a safetensors file (an existing one is replaced).

        Parameters
        ----------
        path : str or path-like

        Raises
        ------
        ValueError
            If an activation is not one of the library's own and so could not be read back.
        FileNotFoundError
            If there is no such folder.
        IsADirectoryError
            If the path is a folder.
        OSError
            If the file cannot be written.

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
        """Read a network that :meth:`save` wrote. Nothing in the file is executed.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        FeedforwardNetwork
            Equal to the one saved, bit by bit.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        IsADirectoryError
            If the path is a folder.
        ValueError
            If it is not a safetensors file, not one that ``save`` wrote, of a later format version, or damaged.
        """
        return cls(*_io.load(path))
