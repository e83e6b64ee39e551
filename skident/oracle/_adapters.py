"""Black boxes of different kinds behind one face: values, and exact derivatives where they exist."""

from __future__ import annotations

import copy
import functools
import sys
import threading
import warnings

import numpy as np

from skident.network import FeedforwardNetwork
from skident.network._maps import named_method

_DERIVATIVE_CHUNK_BYTES = 2**27
# torch keeps the level of forward-mode differentiation in one global variable: one thread at a time.
_FORWARD_MODE = threading.Lock()


def adapt(black_box, method="predict"):
    """Wrap a black box by its kind; of an estimator the method of that name is asked.

    Raises
    ------
    ValueError
        If it is neither callable nor an estimator with that method.
    """
    if isinstance(black_box, SharedBox):
        return black_box
    if isinstance(black_box, FeedforwardNetwork):
        return _NetworkBox(black_box)
    if _is_torch_module(black_box):
        return _TorchBox(black_box)
    if hasattr(black_box, method):
        return _ValueBox(named_method(black_box, method))
    if callable(black_box):
        return _ValueBox(black_box)
    if hasattr(black_box, "predict"):
        raise ValueError(
            f"{type(black_box).__name__} has no {method}; use response_method='predict', or an estimator that has it."
        )
    raise ValueError(
        "the black box must be a callable, a scikit-learn regressor, a torch.nn.Module or a FeedforwardNetwork, "
        f"got {type(black_box).__name__}."
    )


def _is_torch_module(black_box):
    """Whether it is a torch module; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(black_box, torch.nn.Module)


class SharedBox:
    """The black box of an `Oracle`, for another oracle that asks through it: same answers, range and count.

    Derivatives are exact where the first oracle's are.
    """

    def __init__(self, oracle):
        self.oracle, self.input_range = oracle, oracle.input_range
        self.differentiable = oracle.exact
        self.values = oracle.at_inputs
        self.jacobian = lambda X: oracle.exact_at_inputs("Jacobian", X)
        self.hessian = lambda X: oracle.exact_at_inputs("Hessian", X)


class _ValueBox:
    """Function values only."""

    differentiable = False

    def __init__(self, function):
        self.values = function


class _NetworkBox:
    """A known network: derivatives by Proposition 2's closed form."""

    differentiable = True

    def __init__(self, network):
        self.values, self.jacobian, self.hessian = network, network.jacobian, network.hessian


@functools.cache
def _load_forward_mode():
    """Forward-mode differentiation scripts torch's own decompositions when first used, and torch warns of that."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit.script` is", category=DeprecationWarning)
        torch.func.jacfwd(torch.func.jacrev(torch.tanh))(torch.zeros(1))


class _TorchBox:
    """A torch module: derivatives by automatic differentiation."""

    differentiable = True

    def __init__(self, module):
        import torch

        self._module = copy.deepcopy(module).double().eval().requires_grad_(False)
        tensors = [*self._module.parameters(), *self._module.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")

    def _tensor(self, X):
        import torch

        return torch.as_tensor(np.ascontiguousarray(X), dtype=torch.float64, device=self._device)

    def values(self, X):
        import torch

        with torch.no_grad():
            return self._module(self._tensor(X)).cpu().numpy()

    def _row(self, x):
        return self._module(x[None])[0].reshape(-1)

    def _batched(self, function, X, doubles_per_row):
        import torch

        chunk = max(1, _DERIVATIVE_CHUNK_BYTES // (8 * doubles_per_row))
        return torch.func.vmap(function, chunk_size=chunk)(self._tensor(X)).cpu().numpy()

    def jacobian(self, X):
        import torch

        return self._batched(torch.func.jacrev(self._row), X, 16 * X.shape[1])

    def hessian(self, X):
        import torch

        # Forward over reverse: D forward passes of the m_L gradients, batched over rows.
        function = torch.func.jacfwd(torch.func.jacrev(self._row))
        with _FORWARD_MODE:
            _load_forward_mode()
            return self._batched(function, X, 16 * X.shape[1] ** 2)
