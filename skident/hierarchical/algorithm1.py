"""Algorithm 1 of Allen-Zhu and Li (2020): layers opened and distilled stage by stage while the target error halves."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from skident.training.net import Training, fit_module

from .modules import DistilledQuadraticNet, TruncatedSquare
from .problem import Fit

__all__ = ["Algorithm1Options", "make_settings", "run_algorithm1"]

_STALL = 15  # epochs without a decrease by 2 % that count as a stall
_STAGE_RATE = 0.3  # of the first rate, at which a stall ends a stage
_LAST_RATE = 1e-3  # of the first rate, at which a stall ends the training
_SHARPEST = 16.0


@dataclass
class Algorithm1Options:
    """What Algorithm 1 leaves to its user.

    Attributes
    ----------
    n_units : int
        m, the units of W_l.
    epsilon : float
        Target error: the objective, relative to y's variance, is to fall below ``epsilon^2 / 4``.
    kappa : float
        Condition number of the target: singular values of ``W_{l,<}^T W_{l,l-1}`` above ``1 / (10 kappa^2)`` of the
        largest count for k_l, and lambda_6 depends on it.
    gap : float
        Factor of the thresholds of eq. (4.1), which are meant for dimensions so large that ``d^(1 / C^l)`` is large.
    exponent : float
        C of eq. (4.1).
    distillation : float
        Factor of lambda_3, lambda_4, lambda_5 of eq. (4.1).
    truncation : float
        B' of the truncated square.
    noise : float
        Standard deviation of the noise on W_l after a batch, relative to the rate.
    optimizer : {"adam", "sgd"}
    polish : int
        Epochs of 20 full-batch L-BFGS steps at most, on the same objective and without noise, once the last stage
        stalls; 0 is the paper's algorithm to its end.
    """

    n_units: int = 30
    epsilon: float = 1e-3
    kappa: float = 1.0
    gap: float = 0.01
    exponent: float = 2.0
    distillation: float = 1.0
    truncation: float = 16.0
    noise: float = 1e-3
    optimizer: str = "adam"
    polish: int = 60


def make_settings(options, **training):
    """Options from a dict of some of them, with the arguments of `fit_module`.

    Raises
    ------
    ValueError
        If a name is unknown or a value out of range.
    """
    known = [f.name for f in fields(Algorithm1Options)]
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        raise ValueError(f"algorithm1_options has unknown keys {unknown}; the keys are {known}.")
    settings = Algorithm1Options(**(options or {}))
    for name, value in asdict(settings).items():
        if name == "optimizer":
            good = value in ("adam", "sgd")
        else:
            zero = name in ("noise", "distillation", "polish")
            good = isinstance(value, (int, float)) and (value >= 0 if zero else value > 0)
        if not good:
            raise ValueError(f"algorithm1_options: {name}={value!r} is out of range; see Algorithm1Options.")
    return settings, training


class _Penalised(nn.Module):
    """``mean (F - y)^2 + Reg``, or ``mean log(1 + exp(-y v (x_0 + F))) + v Reg`` where the inputs begin with x_0."""

    def forward(self, output, y):
        F, penalty = output
        return ((F - y) ** 2).mean() + penalty


class _PenalisedLogistic(nn.Module):
    def forward(self, output, y):
        z, penalty = output
        return nn.functional.softplus(-y * z).mean() + penalty


class _Sharpened(nn.Module):
    """``(v (x_0 + F(x)), v Reg)`` for inputs ``(x_0, x)``."""

    def __init__(self, net):
        super().__init__()
        self.net, self.sharpness = net, 1.0

    def forward(self, x):
        F, penalty = self.net(x[:, 1:])
        return self.sharpness * (x[:, :1] + F), self.sharpness * penalty

    def predict(self, x):
        return self.net.predict(x)


@dataclass
class _State:
    """Where Algorithm 1 stands."""

    net: DistilledQuadraticNet
    module: nn.Module
    criterion: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    options: Algorithm1Options
    rate: float
    first_rate: float
    epochs_left: int
    target: float = math.inf  # epsilon_0
    objective: float = math.inf
    lowest: float = math.inf
    quiet: int = 0
    epoch: int = 0
    history: list = field(default_factory=list)
    stages: list = field(default_factory=list)
    spectrum: dict = field(default_factory=dict)
    trained: Any = None
    polishing: bool = False

    @property
    def n_layers(self):
        return len(self.net.connections)

    def note(self, event, **more):
        self.stages.append({"epoch": self.epoch, "objective": self.objective, "event": event, **more})

    @torch.no_grad()
    def measure(self):
        self.objective = float(self.criterion(self.module(self.x), self.y))
        return self.objective


def thresholds(alphas, d, options):
    """``(Thres_{l,open}, Thres_{l,distil})`` and ``(lambda_3, lambda_4, lambda_5)`` by l, eq. (4.1).

    In units of the variance: the alphas are divided by their Euclidean norm, so that they are those of a target of
    variance about one. W_2 is open from the beginning.
    """
    size = math.sqrt(sum(a * a for a in alphas))
    C, g = options.exponent, options.gap
    result = {}
    for layer, alpha in enumerate(alphas, start=2):
        a2 = (alpha / size) ** 2
        before = (alphas[layer - 3] / size) ** 2 if layer > 2 else math.inf
        opens, distils = g * before / d ** (1 / (3 * C ** (layer - 1))), g * a2 / d ** (1 / (6 * C**layer))
        weights = [options.distillation * a2 / d ** (1 / (q * C**layer)) for q in (6, 3, 2)]
        result[layer] = opens, distils, weights
    return result


def initial_distill(W, previous, kappa):
    """INITIAL-DISTILL, lines 21 to 23: k_l and K_l from the singular values of ``W_{l,<}^T W_{l,l-1}``.

    Line 21 counts singular values above ``1 / (10 kappa^2)``. That they are well above it or well below holds where
    alpha_{l+1} is tiny; for those of practice the layers above leave a tail near it, so that among the values counted,
    the cut is where the ratio to the next one is largest.

    Parameters
    ----------
    W : Tensor (m, q)
    previous : Tensor of bool (q,)
        The inputs that come from layer l - 1; where there are no others, the spectrum is of ``W^T W`` itself.
    kappa : float
        Singular values above ``1 / (10 kappa^2)`` of the largest count.

    Returns
    -------
    K : Tensor (k, q)
    singular_values : ndarray
        Descending, not more than m.
    """
    rest = ~previous
    cross = W[:, rest].T @ W[:, previous] if bool(rest.any()) else W.T @ W
    U, s, Vt = torch.linalg.svd(cross, full_matrices=False)
    count = int((s >= s[0] / (10 * kappa**2)).sum())
    following = torch.cat([s[1:], s.new_zeros(1)])[:count].clamp(min=1e-12 * float(s[0]) + 1e-300)
    k = 1 + int(torch.argmax(s[:count] / following))
    root = s[:k].sqrt()[:, None]
    K = torch.zeros(k, W.shape[1], dtype=W.dtype, device=W.device)
    if bool(rest.any()):
        K[:, rest] = root * U[:, :k].T
    K[:, previous] = root * Vt[:k]
    return K, s[: len(W)].cpu().numpy().astype(np.float64)


def run_algorithm1(problem, settings, x0=None):
    """Algorithm 1 whole, on squares or, with x_0, on the cross-entropy of Theorem 4.

    Stages follow the objective: below Thres_{l,open} (or where it stalls with all open layers distilled) W_l becomes
    trainable; below Thres_{l,distil} (or where it stalls) K_l starts from the leading singular vectors and joins. The
    target error epsilon_0 halves, with lambda_6 quartered, whenever the objective falls below ``epsilon_0^2 / 4``. A
    stall with nothing left to open or distil halves the rate; for Theorem 4 it first multiplies v by four, up to 16.

    Parameters
    ----------
    problem : Problem
        One output.
    settings : tuple
        What `make_settings` gives.
    x0 : Tensor (n, 1), default=None

    Returns
    -------
    Fit
        ``module`` is the `DistilledQuadraticNet` with plain squares; ``extra`` holds spectrum and stages.

    Raises
    ------
    FloatingPointError
        If the objective is not finite.
    """
    options, training = settings
    state = _begin(problem, options, training, x0)
    rules = thresholds(problem.alphas, problem.x.shape[1], options)
    _advance(state, rules)
    while state.epochs_left > 0 and state.target > options.epsilon and state.rate > _LAST_RATE * state.first_rate:
        state.trained = _train(state, rules, training["skorch"], seed=int(problem.rng.randint(2**31 - 1)))
    return _end(state)


def _train(state, rules, skorch, seed):
    """The innermost loop, until something changes."""
    options, polishing = state.options, state.polishing
    if polishing:
        own = {"optimizer": "lbfgs", "lr": 1.0, "batch_size": -1, "max_epochs": min(options.polish, state.epochs_left)}
    else:
        own = {"optimizer": options.optimizer, "lr": state.rate, "max_epochs": state.epochs_left, "clip": 5.0}
        own |= {"noise": options.noise * state.rate, "noisy": _wide_weights}
    callbacks = skorch["callbacks"]
    training = Training(seed=seed, **{**{k: v for k, v in skorch.items() if k != "callbacks"}, **own})
    x, y = state.x.cpu().numpy(), state.y.cpu().numpy()
    net = fit_module(
        state.module,
        x,
        y,
        type(state.criterion),
        training,
        callbacks=callbacks,
        epoch_end=lambda _: _epoch(state, rules),
    )
    if polishing:
        state.rate = 0.0  # the end
    return net


def _wide_weights(module):
    return getattr(module, "net", module).W


def _begin(problem, options, training, x0):
    generator = torch.Generator().manual_seed(int(problem.rng.randint(2**31 - 1)))
    net = DistilledQuadraticNet(
        problem.x.shape[1],
        problem.connections,
        alphas=problem.alphas,
        n_units=options.n_units,
        truncation=options.truncation,
        moments=(problem.x**2).mean(dim=0).cpu(),
        dtype=problem.x.dtype,
        generator=generator,
    ).to(problem.x.device)
    squares = x0 is None
    state = _State(
        net,
        net if squares else _Sharpened(net),
        _Penalised() if squares else _PenalisedLogistic(),
        problem.x if squares else torch.cat([x0, problem.x], dim=1),
        problem.y,
        options,
        training["lr"],
        training["lr"],
        training["max_epochs"],
    )
    state.objective = float((problem.y**2).mean()) if squares else math.log(2.0)
    state.target = 2.0 * math.sqrt(state.objective) if squares else 2.0 * state.objective
    return state


def _epoch(state, rules):
    """After an epoch: measure, halve, and say whether parameters or rates have changed."""
    state.epoch += 1
    state.epochs_left -= 1
    state.history.append(state.measure())
    if not math.isfinite(state.objective):
        raise FloatingPointError
    if state.objective < 0.98 * state.lowest:
        state.lowest, state.quiet = state.objective, 0
    else:
        state.quiet += 1
    _halve(state)
    return state.target <= state.options.epsilon or _advance(state, rules) or _slow_down(state)


def _halve(state):
    """Line 18: epsilon_0 halves while the objective is below ``epsilon_0^2 / 4`` (cross-entropy: ``epsilon_0 / 2``)."""
    squares = isinstance(state.criterion, _Penalised)
    while state.objective < (state.target**2 / 4 if squares else state.target / 2) and state.target > 1e-12:
        state.target /= 2
        state.net.weights6 = [value / 4 for value in state.net.weights6]
        state.note("target error halved", target=state.target)


def _advance(state, rules):
    """Lines 5 to 11: open or distil the next layer where its threshold is met, or the stage has stalled."""
    net, changed = state.net, False
    if state.quiet >= _STALL and state.rate > _STAGE_RATE * state.first_rate and len(net.W) > 0:
        return False  # a slower rate first
    stalled = state.quiet >= _STALL
    n_open, n_distilled = len(net.W), len(net.K)
    if n_open == n_distilled and n_open < state.n_layers:
        layer = n_open + 2
        if layer == 2 or stalled or state.objective <= rules[layer][0]:
            net.open_layer(0.1 / math.sqrt(sum(net.sizes(layer))))
            width = max([1, *[net.widths[j - 2] for j in net.connections[layer - 2] if j >= 2]])
            net.weights6[layer - 2] = state.target**2 / (width * (state.n_layers + 1) * state.options.kappa) ** 8
            state.note(f"layer {layer} opened")
            changed = True
    elif n_distilled < n_open:
        layer = n_distilled + 2
        if stalled or state.objective <= rules[layer][1]:
            W = net.W[n_distilled].detach()
            K, state.spectrum[layer] = initial_distill(W, net.previous(layer), state.options.kappa)
            net.distill(layer, K)
            for weights, value in zip((net.weights3, net.weights4, net.weights5), rules[layer][2]):
                weights[n_distilled] = value
            state.note(f"layer {layer} distilled", width=len(K))
            changed = True
    if changed:
        state.quiet, state.lowest, state.rate = 0, math.inf, state.first_rate
    return changed


def _slow_down(state):
    """Whether a stall with nothing left to open has sharpened v or halved the rate."""
    if state.quiet < _STALL:
        return False
    state.quiet = 0
    if state.polishing:
        return True
    if isinstance(state.module, _Sharpened) and state.module.sharpness < _SHARPEST:
        state.module.sharpness *= 4.0
        state.lowest = math.inf
        state.note("sharpened", sharpness=state.module.sharpness)
    elif state.options.polish and len(state.net.K) == state.n_layers and state.rate < _STAGE_RATE * state.first_rate:
        state.polishing, state.lowest = True, math.inf
        state.note("polished by L-BFGS")
    else:
        state.rate /= 2
        state.note("rate halved", rate=state.rate)
    return True


def _end(state):
    state.note("end", target=state.target)
    while len(state.net.K) < len(state.net.W):  # the epochs ended before the last distillation
        layer = len(state.net.K) + 2
        K, state.spectrum[layer] = initial_distill(
            state.net.W[layer - 2].detach(), state.net.previous(layer), state.options.kappa
        )
        state.net.distill(layer, K)
    state.net.truncated = TruncatedSquare()
    state.net.generator = None
    converged = state.epochs_left > 0
    extra = {"spectrum": state.spectrum, "stages": state.stages, "sharpness": getattr(state.module, "sharpness", None)}
    return Fit(state.net, [state.objective], state.history, None, converged, net=state.trained, extra=extra)
