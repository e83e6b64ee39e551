"""The parametrized network of eq. (18) of Fiedler et al. as a torch module, for gradient descent and Adam."""

import torch
from torch import nn

from skident.network.torch_activations import MODULES
from skident.training.net import Training, fit_module

__all__ = ["CompletionModule", "Training", "descend"]


class CompletionModule(nn.Module):
    """``y_1 = g(T_1 z + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})`` with diagonal T, R.

    `mixings` are the fixed C_l (m_l, m_{l+1}): L - 1 of them, or L - 2 and then the last layer's weights are free.
    `start` has lists "scales" (T), "biases" (tau), "rescales" (R) of arrays, and "readout"; what is missing starts at
    T = R = 1 and zeros. Source: eq. (18) of Fiedler et al. (2021).
    """

    def __init__(self, architecture, mixings, dtype=torch.float64, start=None):
        super().__init__()
        widths, activations = architecture.widths, architecture.activations
        free = len(mixings) == len(widths) - 2
        self.scales = nn.ParameterList(
            nn.Parameter(torch.ones(m, dtype=dtype)) for m in (widths[:-1] if free else widths)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(m, dtype=dtype)) for m in widths)
        self.rescales = nn.ParameterList(nn.Parameter(torch.ones(C.shape[0], dtype=dtype)) for C in mixings)
        if free:
            self.readout = nn.Parameter(torch.zeros(widths[-2], widths[-1], dtype=dtype))
        for layer, C in enumerate(mixings):
            self.register_buffer(f"mixing_{layer}", torch.as_tensor(C, dtype=dtype))
        self.free = free
        self.hidden = MODULES[activations[0].name]()
        self.output = MODULES[activations[-1].name]()
        with torch.no_grad():
            for name, values in (start or {}).items():
                targets = getattr(self, name)
                pairs = [(targets, values)] if name == "readout" else zip(targets, values, strict=True)
                for parameter, value in pairs:
                    parameter.copy_(torch.as_tensor(value, dtype=dtype))

    def forward(self, Z):
        """Outputs (n, m_L) for features Z (n, m_1) of the first block."""
        y = Z * self.scales[0] + self.biases[0]
        for layer, rescale in enumerate(self.rescales):
            y = self.hidden(y) * rescale
            y = (y @ getattr(self, f"mixing_{layer}")) * self.scales[layer + 1] + self.biases[layer + 1]
        if self.free:
            y = self.hidden(y) @ self.readout + self.biases[-1]
        return self.output(y)

    def to_lists(self):
        """The parameters as NumPy arrays, in the form that `start` takes."""
        lists = {
            name: [p.detach().cpu().numpy().astype("float64") for p in getattr(self, name)]
            for name in ("scales", "biases", "rescales")
        }
        return {**lists, **({"readout": self.readout.detach().cpu().numpy().astype("float64")} if self.free else {})}


def descend(problem, params, Z, Y, training, *, dtype="float64", callbacks=None):
    """Full-batch descent on eq. (18), the mean squared error of all outputs: a skorch net with a `CompletionModule`.

    Starts at the parameters `params` (P,) of a `CompletionProblem`; features Z (n, m_1), outputs Y (n, m_L).
    """
    module = CompletionModule(problem.architecture, problem.mixings, getattr(torch, dtype), problem.to_lists(params))
    return fit_module(module, Z.astype(dtype), Y.astype(dtype), torch.nn.MSELoss, training, callbacks=callbacks)
