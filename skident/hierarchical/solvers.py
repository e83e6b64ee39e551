"""Levenberg-Marquardt and L-BFGS on the flattened parameters of a quadratic DenseNet."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch

from skident.budget.constants import LBFGS_MEMORY
from skident.optim import DenseNormalEquations, LeastSquaresResult, give_up_when_slow, levenberg_marquardt

from .array_networks import ArrayNetworks

# Factors of l2 per kind of block. Almost none for the direct part: it is the linear model, and should not shrink.
_PENALTY_FACTORS = {"weights": 1.0, "readouts": 1.0, "direct": 0.01}
_LBFGS_STEPS = 8  # steps of L-BFGS per step of Levenberg-Marquardt (budget)
_OVERFLOW = 1e300  # objective value where the loss overflows: the line search turns back
_STILL_FALLING = 0.99  # relative fall over the last tenth of the steps that counts as unconverged


@dataclass(frozen=True)
class WeightedSamples:
    """Samples to fit, and the factors of their residuals."""

    x: torch.Tensor  # (n, d)
    y: torch.Tensor  # (n, o)
    w: torch.Tensor | None = None  # factors of the residuals, (n, 1); None is one

    @property
    def factors(self):
        """w as a tensor (n, 1)."""
        return torch.ones_like(self.x[:, :1]) if self.w is None else self.w

    def first(self, n):
        """The first n samples."""
        return self.part(slice(n))

    def part(self, indices, x=None):
        """Samples with these indices; with inputs x if given."""
        x, w = self.x[indices] if x is None else x, None if self.w is None else self.w[indices]
        return WeightedSamples(x, self.y[indices], w)

    def squared_errors(self, module):
        """``(w (F(x) - y))^2``, (n, o)."""
        errors = module(self.x) - self.y
        return (errors if self.w is None else self.w * errors) ** 2


def set_trainable(module, *, kinds=None, fixed=()):
    """Train only blocks of these kinds (None: all), without the weights and biases of `fixed` layers."""
    for (kind, layer), parameter in module.blocks():
        stays = layer in fixed and kind in ("weights", "biases")
        parameter.requires_grad_((kinds is None or kind in kinds) and not stays)


def _trained(module):
    """``((kind, layer), parameter)`` of the parameters that require a gradient."""
    return [(name, p) for name, p in module.blocks() if p.requires_grad]


def _flatten(blocks):
    """The parameters of all blocks in one vector, (P,)."""
    return torch.cat([p.detach().reshape(-1) for _, p in blocks])


@torch.no_grad()
def _unflatten(blocks, params):
    """Assign one vector (P,) to the parameters of all blocks."""
    start = 0
    for _, p in blocks:
        p.copy_(params[start : start + p.numel()].reshape(p.shape))
        start += p.numel()


def _penalties(blocks, l2, like):
    """The factor of each parameter's square, (P,)."""
    options = {"dtype": like.dtype, "device": like.device}
    return torch.cat(
        [torch.full((p.numel(),), l2 * _PENALTY_FACTORS.get(kind, 0.0), **options) for (kind, _), p in blocks]
    )


def jacobian(module, blocks, x):
    """Outputs (n, o) and their derivatives (o, n, P) by the parameters of `blocks`, without batch norm."""
    net = ArrayNetworks(module, x.detach().cpu())
    F, J = net.jacobian(net.params_of(module), slice(None), [name for name, _ in blocks])
    return torch.as_tensor(F.T).to(x), torch.as_tensor(J.transpose(0, 2, 1)).to(x)


class _Equations:
    """``sum w^2 ||F(x) - y||^2 + n l2 Reg`` and its linearization in NumPy, as a function of the trained parameters."""

    def __init__(self, module, samples, l2):
        self.blocks = _trained(module)
        self.names, values = [name for name, _ in self.blocks], _flatten(self.blocks)
        # A tensor has the factor of each parameter's square.
        each = l2 if isinstance(l2, torch.Tensor) else len(samples.x) * _penalties(self.blocks, l2, values)
        self.penalties, self.start = each.numpy(), values.numpy()
        self.net = ArrayNetworks(module, samples.x)
        self.y, self.w = samples.y.numpy(), None if samples.w is None else samples.w[:, 0].numpy()
        self.params = self.net.params_of(module)
        places = [np.arange(self.net.size)[self.net.places[name]] for name in self.names]
        self.trained = np.concatenate(places)

    def assign(self, values):
        """Assign values to the module."""
        _unflatten(self.blocks, torch.as_tensor(values))

    def cost(self, values):
        """The penalized sum of squares."""
        self.params[self.trained] = values
        with np.errstate(over="ignore", invalid="ignore"):
            errors = self.net.features(self.params[None])[2][0].T - self.y
            errors = errors if self.w is None else self.w[:, None] * errors
            return float(np.vdot(errors, errors) + self.penalties @ values**2)

    def linearize(self, values):
        """``J^T J`` and ``J^T r``."""
        self.params[self.trained] = values
        matrix, gradient = self.net.normal_equations(self.params, self.y, self.w, self.names)
        matrix.flat[:: len(matrix) + 1] += self.penalties
        return DenseNormalEquations(matrix, gradient + self.penalties * values)


def fit_least_squares(module, samples, *, l2=0.0, max_iter=200, target=0.0, patience=None):
    """Minimize ``sum w^2 ||F(x) - y||^2 + n l2 Reg`` by Levenberg-Marquardt over the trainable parameters.

    ``Reg = ||W||^2 + ||U||^2 + ||D||^2 / 100`` with weights, readouts and direct part. Stops at a cost of `target`; a
    cost that does not halve within `patience` steps ends as ``stationary``. A step costs ``O(n o P^2 + P^3)``. A tensor
    `l2` (P,) has the factor of each trained parameter's square instead of ``n l2``.
    """
    equations = _Equations(module, samples, l2)
    result = levenberg_marquardt(
        equations.cost,
        equations.linearize,
        equations.start,
        max_iter=max_iter,
        target=target,
        callback=None if patience is None else give_up_when_slow(patience, 0.0),
    )
    equations.assign(result.x)
    slow = result.status == "max_iter" and result.n_iter < max_iter
    return dataclasses.replace(result, status="stationary") if slow else result


def fit_least_squares_by_lbfgs(module, samples, *, l2=0.0, max_iter=200, target=0.0, patience=None):
    """`fit_least_squares` by L-BFGS, with less memory; `target` and `patience` are ignored."""
    n_entries, n_outputs = samples.y.numel(), samples.y.shape[1]
    result = fit_lbfgs(
        module, lambda: samples.squared_errors(module).mean(), l2=l2 / n_outputs, max_iter=_LBFGS_STEPS * max_iter
    )
    history = [n_entries * value for value in result.history]
    return dataclasses.replace(result, cost=n_entries * result.cost, history=history)


LEAST_SQUARES = {"lm": fit_least_squares, "lbfgs": fit_least_squares_by_lbfgs}


def fit_lbfgs(module, loss, *, l2=0.0, max_iter=800, tol=1e-10):
    """Minimize ``loss() + l2 Reg`` by L-BFGS; `tol` bounds the largest entry of the gradient (scipy's ``gtol``).

    `loss` returns a scalar tensor at the module's current parameters. A start that is not finite ends as ``stalled``.
    """
    blocks = _trained(module)
    params = _flatten(blocks)
    penalties = _penalties(blocks, l2, params)
    history = []

    def objective(values):
        values = torch.as_tensor(values, dtype=params.dtype, device=params.device)
        _unflatten(blocks, values)
        for _, p in blocks:
            p.grad = None
        value = loss()
        value.backward()
        gradient = torch.cat([p.grad.reshape(-1) for _, p in blocks]) + 2 * penalties * values
        total = float(value.detach() + (penalties * values**2).sum())
        # A line search that steps to where the polynomial overflows must turn back, not stop.
        if not np.isfinite(total) or not bool(torch.isfinite(gradient).all()):
            return _OVERFLOW, np.zeros(len(values))
        history.append(total)
        return total, gradient.cpu().numpy().astype(np.float64)

    result = scipy.optimize.minimize(
        objective,
        params.cpu().numpy().astype(np.float64),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 1e-16, "maxcor": LBFGS_MEMORY},
    )
    values = torch.as_tensor(result.x, dtype=params.dtype, device=params.device)
    _unflatten(blocks, values)
    status = _lbfgs_status(result, history)
    cost = np.inf if status == "stalled" else float(result.fun)
    return LeastSquaresResult(result.x, cost, int(result.nit), status, history)


def _lbfgs_status(result, history):
    """Status of a run of L-BFGS: "stalled" if not finite, "max_iter" if the loss was still falling at the last step."""
    if not history or not result.fun < _OVERFLOW:
        return "stalled"
    tenth = history[max(0, len(history) - 1 - max(1, len(history) // 10))]
    still_falling = result.status == 1 and not result.fun > _STILL_FALLING * tenth
    return "max_iter" if still_falling else "stationary"


@torch.no_grad()
def warm_start_readout(module, samples, l2=1e-3):
    """Set readouts, direct part and offset by ridge regression of y on the current features; `l2` per sample."""
    x, w = samples.x, samples.factors
    _, outputs = module.hidden(x)
    parts = [outputs[0], outputs[1], *[a * outputs[layer] for layer, a in enumerate(module.alphas, start=2)]]
    A = w * torch.cat([*parts, torch.ones_like(x[:, :1])], dim=1)
    gram = A.T @ A
    ridge = len(x) * l2 * torch.ones(len(gram), dtype=x.dtype, device=x.device)
    ridge[-1] = 0.0
    solution = torch.linalg.solve(gram + torch.diag(ridge + 1e-10 * gram.diagonal().max()), A.T @ (w * samples.y))
    d = x.shape[1]
    module.direct.copy_(solution[: 2 * d])
    module.offset.copy_(solution[-1])
    start = 2 * d
    for U in module.readouts:
        U.copy_(solution[start : start + len(U)])
        start += len(U)
