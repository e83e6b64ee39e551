"""A torch module as a black box; imported when one is queried."""

import copy
import functools
import threading
import warnings

import numpy as np
import torch

from skident.budget import rows_at_once

# torch keeps the level of forward-mode differentiation in one global variable: one thread at a time.
_FORWARD_MODE = threading.Lock()


@functools.cache
def _load_forward_mode():
    """Use forward mode once without torch's warning: it scripts its own decompositions at first use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit.script` is")
        torch.func.jacfwd(torch.func.jacrev(torch.tanh))(torch.zeros(1))


class TorchBox:
    """A torch module: derivatives by automatic differentiation."""

    differentiable = True

    def __init__(self, module):
        self._module = copy.deepcopy(module).double().eval().requires_grad_(False)
        tensors = [*self._module.parameters(), *self._module.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")

    def _tensor(self, X):
        return torch.as_tensor(np.ascontiguousarray(X), dtype=torch.float64, device=self._device)

    def values(self, X):
        """Outputs (n, m_L) or (n,) in double precision."""
        with torch.no_grad():
            return self._module(self._tensor(X)).cpu().numpy()

    def _row(self, x):
        return self._module(x[None])[0].reshape(-1)

    def _batched(self, function, X, doubles_per_row):
        chunk = rows_at_once(8 * doubles_per_row)
        return torch.func.vmap(function, chunk_size=chunk)(self._tensor(X)).cpu().numpy()

    def _row_by_row(self, function, X):
        return torch.stack([function(x) for x in self._tensor(X)]).cpu().numpy()

    def _jacobian_of_row(self, x):
        # Strictly: a module that leaves torch on its way has no derivatives, which would be taken as zero.
        return torch.autograd.functional.jacobian(self._row, x, strict=True)

    def _hessian_of_row(self, x):
        self._jacobian_of_row(x)
        jacobian = torch.autograd.functional.jacobian
        return jacobian(lambda x: jacobian(self._row, x, create_graph=True), x)

    def jacobian(self, X):
        """Jacobians (n, m_L, D) by reverse mode; row by row if the module cannot be batched, as an RNNCell."""
        try:
            return self._batched(torch.func.jacrev(self._row), X, 16 * X.shape[1])
        except RuntimeError:
            return self._row_by_row(self._jacobian_of_row, X)

    def hessian(self, X):
        """Hessians (n, m_L, D, D), forward over reverse, batched over rows.

        Row by row, reverse over reverse, if the module cannot be batched.
        """
        function = torch.func.jacfwd(torch.func.jacrev(self._row))
        try:
            with _FORWARD_MODE:
                _load_forward_mode()
                return self._batched(function, X, 16 * X.shape[1] ** 2)
        except RuntimeError:
            return self._row_by_row(self._hessian_of_row, X)
