"""Levenberg-Marquardt and L-BFGS on a quadratic DenseNet: both share the module and its flattened parameters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch

from skident.optim import DenseNormalEquations, LeastSquaresResult, give_up_when_slow, levenberg_marquardt

__all__ = [
    "LEAST_SQUARES",
    "WeightedRows",
    "fit_lbfgs",
    "fit_least_squares",
    "fit_least_squares_by_lbfgs",
    "jacobian",
    "set_trainable",
    "warm_start_readout",
]

_CHUNK_ENTRIES = 4_000_000  # of the Jacobian that are held at once
# What l2 is multiplied by. The direct part hardly: it is the linear model's share, and must not shrink.
_PENALISED = {"weights": 1.0, "readouts": 1.0, "direct": 0.01}
_LBFGS_STEPS = 8  # for one of Levenberg-Marquardt


@dataclass(frozen=True)
class WeightedRows:
    """Samples to fit, and what their errors count.

    Attributes
    ----------
    x : Tensor (n, d)
    y : Tensor (n, o)
    w : Tensor (n, 1) or None
        Factors of the errors; None is one.
    """

    x: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor | None = None

    @property
    def factors(self):
        """w as a tensor (n, 1)."""
        return torch.ones_like(self.x[:, :1]) if self.w is None else self.w

    def first(self, n):
        """The first rows.

        Parameters
        ----------
        n : int

        Returns
        -------
        WeightedRows
        """
        return WeightedRows(self.x[:n], self.y[:n], None if self.w is None else self.w[:n])

    def squared_errors(self, module):
        """What a module leaves to explain.

        Parameters
        ----------
        module : nn.Module

        Returns
        -------
        Tensor (n, o)
            ``(w (F(x) - y))^2``, entry by entry.
        """
        errors = module(self.x) - self.y
        return (errors if self.w is None else self.w * errors) ** 2


def set_trainable(module, *, kinds=None, fixed=()):
    """Let only some blocks of a `QuadraticDenseNet` be trained.

    Parameters
    ----------
    module : QuadraticDenseNet
    kinds : collection of str, default=None
        Among weights, biases, readouts, direct, offset; None is all.
    fixed : collection of int
        Layers whose weights and biases stay; readouts are the output's.
    """
    for (kind, layer), parameter in module.blocks():
        stays = layer in fixed and kind in ("weights", "biases")
        parameter.requires_grad_((kinds is None or kind in kinds) and not stays)


def _trained(module):
    """``((kind, layer), parameter)`` of those that require a gradient."""
    return [(name, p) for name, p in module.blocks() if p.requires_grad]


def _get(blocks):
    """The parameters of all blocks in one vector, (P,)."""
    return torch.cat([p.detach().reshape(-1) for _, p in blocks])


@torch.no_grad()
def _set(blocks, theta):
    """Give the blocks the entries of one vector, (P,)."""
    start = 0
    for _, p in blocks:
        p.copy_(theta[start : start + p.numel()].reshape(p.shape))
        start += p.numel()


def _penalties(blocks, l2, like):
    """The factor of every parameter's square, (P,)."""
    options = {"dtype": like.dtype, "device": like.device}
    return torch.cat([torch.full((p.numel(),), l2 * _PENALISED.get(kind, 0.0), **options) for (kind, _), p in blocks])


def jacobian(module, blocks, x):
    """Derivatives of the outputs by the trained parameters.

    One backward pass an output gives ``dF/dS_l`` of every row; a layer's derivatives are its outer products with what
    the layer sees.

    Parameters
    ----------
    module : QuadraticDenseNet
        Without batch norm.
    blocks : list of ((kind, layer), parameter)
        The trained ones.
    x : Tensor (n, d)

    Returns
    -------
    outputs : Tensor (n, o)
    J : Tensor (o, n, P)
    """
    layers = sorted({layer for (kind, layer), _ in blocks if kind in ("weights", "biases")})
    with torch.enable_grad():
        S, outputs, seen = module.hidden(x)
        F = module.combine(outputs, seen)
        deltas = [
            dict(zip(layers, torch.autograd.grad(F[:, o].sum(), [S[k] for k in layers], retain_graph=True)))
            for o in range(F.shape[1] if layers else 0)
        ]
    inputs = {layer: module.gather(outputs, layer).detach() for layer in layers}
    n, n_outputs = F.shape
    J = torch.empty(n_outputs, n, sum(p.numel() for _, p in blocks), dtype=x.dtype, device=x.device)
    for o in range(n_outputs):
        start = 0
        for (kind, layer), p in blocks:
            part = J[o, :, start : start + p.numel()]
            if kind == "weights":
                shape = (n, *p.shape)
                torch.mul(deltas[o][layer][:, :, None], inputs[layer][:, None, :], out=part.view(shape))
            elif kind == "biases":
                part.copy_(deltas[o][layer])
            else:
                _readout_columns(part.view(n, *p.shape), kind, layer, o, module, outputs, seen)
            start += p.numel()
    return F.detach(), J


def _readout_columns(part, kind, layer, o, module, outputs, seen):
    """Derivatives of output o by readouts (k, o), direct (2 d, o) or offset (o)."""
    part.zero_()
    if kind == "offset":
        part[:, o] = 1.0
    elif kind == "direct":
        part[:, :, o] = torch.cat([outputs[0], outputs[1]], dim=1).detach()
    else:
        part[:, :, o] = (module.alphas[layer - 2] * seen[layer]).detach()


class _NormalEquations:
    """``sum w^2 ||F(x) - y||^2 + n l2 Reg`` and its linearisation, at any values of the trained parameters.

    On the CPU values are numpy arrays, since the solver's small systems are faster there; elsewhere tensors.
    """

    def __init__(self, module, rows, l2):
        self.module, self.rows, self.blocks = module, rows, _trained(module)
        self.start = _get(self.blocks)
        self.on_cpu = self.start.device.type == "cpu"
        self.penalties = len(rows.x) * _penalties(self.blocks, l2, self.start)
        self.w = rows.factors
        self.chunk = max(1, _CHUNK_ENTRIES // max(1, len(self.start) * rows.y.shape[1]))

    def outside(self, values):
        """A tensor as the solver wants it."""
        return values.numpy() if self.on_cpu else values

    @torch.no_grad()
    def set(self, values):
        """Give the module these values; they as a tensor."""
        values = torch.as_tensor(values, device=self.start.device)
        _set(self.blocks, values)
        return values

    @torch.no_grad()
    def cost(self, values):
        """The sum of squares and its penalties."""
        values = self.set(values)
        return float(self.rows.squared_errors(self.module).sum() + (self.penalties * values**2).sum())

    def linearise(self, values):
        """``J^T J`` and ``J^T r``, in chunks of rows."""
        values, (x, y) = self.set(values), (self.rows.x, self.rows.y)
        matrix, gradient = torch.diag(self.penalties), self.penalties * values
        for start in range(0, len(x), self.chunk):
            part = slice(start, start + self.chunk)
            F, J = jacobian(self.module, self.blocks, x[part])
            J = (J * self.w[part]).reshape(-1, J.shape[-1])
            matrix += J.T @ J
            gradient = gradient + J.T @ (self.w[part] * (F - y[part])).T.reshape(-1)
        return DenseNormalEquations(self.outside(matrix), self.outside(gradient))


def fit_least_squares(module, rows, *, l2=0.0, max_iter=200, target=0.0, patience=None):
    """Minimise ``sum w^2 ||F(x) - y||^2 + n l2 Reg`` by Levenberg-Marquardt.

    Parameters
    ----------
    module : QuadraticDenseNet
        Without batch norm. Those of its parameters that require a gradient are changed.
    rows : WeightedRows
    l2 : float, default=0
        ``Reg = ||W||^2 + ||U||^2 + ||D||^2 / 100`` with weights, readouts and the direct part.
    max_iter : int, default=200
        Steps at most.
    target : float, default=0
        Of the whole cost, at which to stop.
    patience : int, default=None
        Steps within which the cost must halve; None is as long as it takes.

    Returns
    -------
    LeastSquaresResult
        A cost that did not halve in time ends as ``stationary``.

    Notes
    -----
    Cost of a step: ``O(n o P^2 + P^3)`` for P parameters.
    """
    equations = _NormalEquations(module, rows, l2)
    result = levenberg_marquardt(
        equations.cost,
        equations.linearise,
        equations.outside(equations.start),
        max_iter=max_iter,
        target=target,
        callback=None if patience is None else give_up_when_slow(patience, 0.0),
    )
    equations.set(result.x)
    slow = result.status == "max_iter" and result.n_iter < max_iter
    return dataclasses.replace(result, status="stationary") if slow else result


def fit_least_squares_by_lbfgs(module, rows, *, l2=0.0, max_iter=200, target=0.0, patience=None):
    """The same as `fit_least_squares`, with less memory and more steps.

    Parameters
    ----------
    module, rows, l2
        As for `fit_least_squares`.
    max_iter : int, default=200
        Eight steps of L-BFGS stand for one of Levenberg-Marquardt.
    target, patience
        Not used: L-BFGS stops by its gradient.

    Returns
    -------
    LeastSquaresResult
    """
    n_entries, n_outputs = rows.y.numel(), rows.y.shape[1]
    result = fit_lbfgs(
        module, lambda: rows.squared_errors(module).mean(), l2=l2 / n_outputs, max_iter=_LBFGS_STEPS * max_iter
    )
    history = [n_entries * value for value in result.history]
    return dataclasses.replace(result, cost=n_entries * result.cost, history=history)


LEAST_SQUARES = {"lm": fit_least_squares, "lbfgs": fit_least_squares_by_lbfgs}


def fit_lbfgs(module, loss, *, l2=0.0, max_iter=800, tol=1e-10):
    """Minimise ``loss() + l2 Reg`` by L-BFGS.

    Parameters
    ----------
    module : QuadraticDenseNet
        Those of its parameters that require a gradient are changed.
    loss : callable
        ``() -> scalar tensor``, at the module's present parameters.
    l2 : float, default=0
        Reg as in `fit_least_squares`.
    max_iter : int, default=800
    tol : float, default=1e-10
        scipy's ``gtol``: the largest entry of the gradient at which to stop.

    Returns
    -------
    LeastSquaresResult
        ``cost`` is the objective; a start that is not finite ends as ``stalled``.
    """
    blocks = _trained(module)
    theta = _get(blocks)
    penalties = _penalties(blocks, l2, theta)
    history = []

    def objective(values):
        values = torch.as_tensor(values, dtype=theta.dtype, device=theta.device)
        _set(blocks, values)
        for _, p in blocks:
            p.grad = None
        value = loss()
        value.backward()
        gradient = torch.cat([p.grad.reshape(-1) for _, p in blocks]) + 2 * penalties * values
        total = float(value.detach() + (penalties * values**2).sum())
        # A line search that steps where the polynomial overflows has to turn back, not to stop.
        if not np.isfinite(total) or not bool(torch.isfinite(gradient).all()):
            return 1e300, np.zeros(len(values))
        history.append(total)
        return total, gradient.cpu().numpy().astype(np.float64)

    found = scipy.optimize.minimize(
        objective,
        theta.cpu().numpy().astype(np.float64),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 1e-16, "maxcor": 20},
    )
    values = torch.as_tensor(found.x, dtype=theta.dtype, device=theta.device)
    _set(blocks, values)
    finite = bool(history) and found.fun < 1e299
    tenth = history[max(0, len(history) - 1 - max(1, len(history) // 10))] if history else np.inf
    moving = found.status == 1 and not found.fun > 0.99 * tenth
    status = "stalled" if not finite else "max_iter" if moving else "stationary"
    return LeastSquaresResult(found.x, float(found.fun) if finite else np.inf, int(found.nit), status, history)


@torch.no_grad()
def warm_start_readout(module, x, y, l2=1e-3):
    """Set readouts, direct part and offset to the ridge regression on what they see at the present weights.

    Parameters
    ----------
    module : QuadraticDenseNet
        With linear readouts; they, D and c are changed.
    x : Tensor (n, d)
    y : Tensor (n, o)
    l2 : float, default=1e-3
        Of all but the offset, a row.
    """
    _, outputs, seen = module.hidden(x)
    parts = [outputs[0], outputs[1], *[a * G for a, G in zip(module.alphas, seen.values())]]
    A = torch.cat([*parts, torch.ones_like(x[:, :1])], dim=1)
    gram = A.T @ A
    ridge = len(x) * l2 * torch.ones(len(gram), dtype=x.dtype, device=x.device)
    ridge[-1] = 0.0
    solution = torch.linalg.solve(gram + torch.diag(ridge + 1e-10 * gram.diagonal().max()), A.T @ y)
    d = x.shape[1]
    module.direct.copy_(solution[: 2 * d])
    module.offset.copy_(solution[-1])
    start = 2 * d
    for U in module.readouts:
        U.copy_(solution[start : start + len(U)])
        start += len(U)
