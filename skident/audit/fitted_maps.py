"""Scales and offsets of inputs and outputs, and slopes of a leaky ReLU, that explain how outputs differ."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from skident.budget.constants import FEW_STEPS
from skident.network import calculus, leaky_relu
from skident.optim import DenseJacobian, levenberg_marquardt

from .changes import Change
from .links import VALUES

_OUTPUTS_PER_NUMBER = 4  # that is fitted, of which half decide
_FEWEST_OUTPUTS = 400  # on which a map is fitted (budget)
_STARTS = 4  # of a fit, the best of those tried (budget)
_LM_STEPS = 300  # of a fit (budget)
_UNITS = 2.0 ** np.arange(-10, 11)  # factors between units of one column from which a fit starts
_COMMON = (255.0, 1.0 / 255.0, 100.0, 0.01, 1000.0, 0.001, 10.0, 0.1, 2.0, 0.5)  # factors of all columns
_MOST_COLUMNS = 100  # of which each may have a factor of its own (budget)
_UNCHANGED = 1e-6  # relative change of a scale, or of an offset over the column's range, that counts as none
_SLOPE_STEP = 1e-6  # of the difference quotient by a slope
_STANDARD = 0.2  # relative difference of a scale from the column's deviation that counts as it: another sample


@dataclass(frozen=True)
class Maps:
    """Inputs ``a x + c`` and outputs ``s f + o`` of a network: a, c (D,), s, o (m_L,)."""

    a: np.ndarray
    c: np.ndarray
    s: np.ndarray
    o: np.ndarray

    @classmethod
    def none(cls, n_inputs, n_outputs):
        """Maps that change nothing."""
        return cls(np.ones(n_inputs), np.zeros(n_inputs), np.ones(n_outputs), np.zeros(n_outputs))

    def of(self, layers):
        """The network between these maps."""
        W, b, last = layers.weights[0], layers.biases[0], len(layers.weights) - 1
        layers = layers.with_layer(0, W=self.a[:, None] * W, b=b + self.c @ W)
        if np.all(self.s == 1.0) and not self.o.any():
            return layers
        return layers.with_layer(last, W=layers.weights[last] * self.s, b=layers.biases[last] * self.s + self.o)


class _Fit:
    """Least squares of the numbers in which `free` (of "a", "c", "s", "o") Maps differ from none; of some columns."""

    def __init__(self, layers, link, X, Y, free, columns):
        self.layers, self.link, self.X, self.Y, self.free = layers, link, X, Y, free
        self.places = {name: columns if name in "ac" else np.arange(len(layers.biases[-1])) for name in free}
        self.unit = np.where(Y.std(axis=0) > 0.0, Y.std(axis=0), 1.0)

    def maps(self, start, numbers):
        """`start` with its free numbers replaced."""
        parts, at = {}, 0
        for name, places in self.places.items():
            parts[name] = getattr(start, name).copy()
            parts[name][places], at = numbers[at : at + len(places)], at + len(places)
        return replace(start, **parts)

    def numbers(self, maps):
        return np.concatenate([getattr(maps, name)[places] for name, places in self.places.items()])

    def residual(self, maps):
        return (self.link.values(maps.of(self.layers)(self.X)) - self.Y) / self.unit

    def best(self, starts, n):
        """The n of some maps that fit best."""
        with np.errstate(over="ignore", invalid="ignore"):
            costs = [float(np.sum(np.square(self.residual(start)))) for start in starts]
        return [starts[k] for k in np.argsort(costs, kind="stable")[:n]]

    def _slopes(self, maps):
        """Derivatives (n c, P) of the residuals by the free numbers."""
        mapped, plain = maps.of(self.layers), self.X * maps.a + maps.c
        Z = mapped(self.X)
        m = Z.shape[1]
        blocks = []
        if "a" in self.free:
            J = calculus.jacobian(self.layers.weights, self.layers.biases, self.layers.activations, plain)
            J = (J * maps.s[:, None])[:, :, self.places["a"]]
            blocks += [J * self.X[:, None, self.places["a"]], J]
        if "s" in self.free:
            raw = self.layers(plain)
            blocks += [raw[:, :, None] * np.eye(m), np.broadcast_to(np.eye(m), (len(Z), m, m))]
        S = self.link.slopes(Z, np.concatenate(blocks, axis=2)) / self.unit[:, None]
        return S.reshape(-1, S.shape[2])

    def fitted(self, start):
        """The best maps that steps from `start` lead to."""
        cost = lambda x: float(np.sum(self.residual(self.maps(start, x)) ** 2))  # noqa: E731

        def linearize(x):
            maps = self.maps(start, x)
            return DenseJacobian(self._slopes(maps), self.residual(maps).ravel())

        with np.errstate(over="ignore", invalid="ignore"):
            found = levenberg_marquardt(cost, linearize, self.numbers(start), max_iter=_LM_STEPS)
        return self.maps(start, found.x), found.cost


def mapped(layers, link, X, Y, rows, explains):
    """Changes by maps of the outputs, of one input, of all, and of both; X (n, D), Y (n, c), all rows.

    rows (n,) : an order of the rows, of which the first are fitted. ``explains(layers)`` is whether nothing is left.
    """
    D, m = X.shape[1], len(layers.biases[-1])
    every, few = np.arange(D), rows[: -(-_FEWEST_OUTPUTS // Y.shape[1])]
    scales = ["so"] if layers.activations[-1].name == "identity" else []
    one = _Fit(layers, link, X[few], Y[few], "ac", every).best(_other_units(D, m), _STARTS)
    fits = [(free, every, None) for free in scales]
    fits += [("ac", np.flatnonzero(start.a != 1.0), [start]) for start in one]
    fits += [(free, every, None) for free in ("ac", *("ac" + s for s in scales)) if D <= _MOST_COLUMNS]
    for free, columns, starts in fits:
        n_numbers = 2 * (len(columns) * ("a" in free) + m * ("s" in free))
        used = rows[: -(-max(_FEWEST_OUTPUTS, _OUTPUTS_PER_NUMBER * n_numbers) // Y.shape[1])]
        if Y[used].size < _OUTPUTS_PER_NUMBER // 2 * n_numbers:
            continue
        fit = _Fit(layers, link, X[used], Y[used], free, columns)
        if starts is None:
            starts = fit.best(_starts(fit, m, X), _STARTS)
        maps = min((fit.fitted(start) for start in starts), key=lambda pair: pair[1])[0]
        maps = _simplest(maps, layers, X, Y, explains)
        yield _named(maps, layers, link, X, n_numbers)
        if explains(maps.of(layers)):
            return


def _other_units(D, m):
    """Maps of one column to other units."""
    none = Maps.none(D, m)
    columns = np.arange(D if D <= _MOST_COLUMNS else 0)
    return [replace(none, a=np.where(np.arange(D) == j, k, 1.0)) for j in columns for k in _UNITS if k != 1.0]


def _starts(fit, m, X):
    """Maps from which fits start: none, those that libraries make, other units of one column or of all."""
    D = X.shape[1]
    none = Maps.none(D, m)
    if "a" not in fit.free:
        return [none]
    low, width = X.min(axis=0), np.where(np.ptp(X, axis=0) > 0.0, np.ptp(X, axis=0), 1.0)
    mean, deviation = X.mean(axis=0), np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    maps = [(np.ones(D), np.zeros(D))]
    for scale, offset in ((deviation, mean), (width, low), (width / 2.0, low + width / 2.0)):
        maps += [(scale, offset), (1.0 / scale, -offset / scale)]
    maps += [(np.full(D, k), np.zeros(D)) for k in _COMMON]
    starts = [replace(none, a=a, c=c) for a, c in maps] + _other_units(D, m)
    return [_with_outputs(fit, start) for start in starts] if "s" in fit.free else starts


def _with_outputs(fit, start):
    """The start with the scales and offsets of outputs that fit best; only where these are compared as they are."""
    if fit.link is not VALUES:
        return start
    Z = start.of(fit.layers)(fit.X)
    centered = Z - Z.mean(axis=0)
    squares = np.sum(centered**2, axis=0)
    s = np.sum(centered * (fit.Y - fit.Y.mean(axis=0)), axis=0) / np.where(squares > 0.0, squares, 1.0)
    s = np.where(s == 0.0, 1.0, s)
    return replace(start, s=s, o=fit.Y.mean(axis=0) - s * Z.mean(axis=0))


def _simplest(maps, layers, X, Y, explains):
    """The same with numbers that hardly differ from none put to none, where it explains as much."""
    none = Maps.none(X.shape[1], len(maps.s))
    reach, spread = np.abs(X).max(axis=0), np.abs(Y).max()
    unchanged = {
        "a": np.abs(maps.a - 1.0) <= _UNCHANGED,
        "c": np.abs(maps.c) <= _UNCHANGED * np.where(reach > 0, reach, 1.0) * np.maximum(np.abs(maps.a), 1.0),
        "s": np.abs(maps.s - 1.0) <= _UNCHANGED,
        "o": np.abs(maps.o) <= _UNCHANGED * spread,
    }
    simpler = replace(maps, **{k: np.where(put, getattr(none, k), getattr(maps, k)) for k, put in unchanged.items()})
    return simpler if explains(simpler.of(layers)) or not explains(maps.of(layers)) else maps


def _named(maps, layers, link, X, n_fitted):
    """The change, in words."""
    columns = np.flatnonzero((maps.a != 1.0) | (maps.c != 0.0))
    outputs = np.flatnonzero((maps.s != 1.0) | (maps.o != 0.0))
    texts, kinds = [], []
    if len(columns):
        kinds.append("input maps" if len(columns) > 1 else "one input map")
        texts.append(_inputs_in_words(maps, columns, X))
    if len(outputs):
        kinds.append("output maps")
        texts.append(_outputs_in_words(maps, outputs))
    parameters = {"input_scale": maps.a, "input_offset": maps.c, "output_scale": maps.s, "output_offset": maps.o}
    text = "; ".join(texts) or "inputs and outputs are as they are"
    return Change(" and ".join(kinds), text, maps.of(layers), link, parameters, n_fitted)


def _inputs_in_words(maps, columns, X):
    a, c = maps.a[columns], maps.c[columns]
    if len(columns) == 1:
        return f"column {columns[0]} is read as {a[0]:.6g} x" + (f" {c[0]:+.6g}" if c[0] else "")
    if len(columns) == len(maps.a) and np.ptp(a) <= _UNCHANGED * np.abs(a).max() and not c.any():
        return f"all columns are multiplied by {a[0]:.6g}" + (f" (1/{1 / a[0]:.6g})" if 0.0 < a[0] < 1.0 else "")
    deviation = X.std(axis=0)[columns]
    if np.all(np.abs(a * deviation - 1.0) <= _STANDARD):
        return "columns are standardized once more: read as (x - mean) / deviation"
    if np.all(np.abs(a / np.where(deviation > 0.0, deviation, 1.0) - 1.0) <= _STANDARD):
        return "columns are not standardized: read as deviation x + mean"
    some = ", ".join(f"{k}: {s:.4g} x {t:+.4g}" for k, s, t in zip(columns[:4], a[:4], c[:4], strict=True))
    return f"{len(columns)} columns are read as a x + c ({some}{', ...' if len(columns) > 4 else ''})"


def _outputs_in_words(maps, outputs):
    s, o = maps.s[outputs], maps.o[outputs]
    some = ", ".join(f"{k}: {a:.6g} f {c:+.6g}" for k, a, c in zip(outputs[:4], s[:4], o[:4], strict=True))
    return f"outputs are scaled and moved ({some}{', ...' if len(outputs) > 4 else ''})"


def leaky_slopes(layers, link, differences):
    """A ReLU of one layer, or of all hidden ones, that is leaky; ``differences(layers)`` is what is left of outputs."""
    last = len(layers.weights) - 1
    places = [(k,) for k, g in enumerate(layers.activations) if g.name == "relu"]
    if len(places) > 1 and len(places) == last:
        places.append(tuple(range(last)))
    for where in places:

        def with_slope(slope, where=where):
            new = tuple(leaky_relu(slope) if k in where else g for k, g in enumerate(layers.activations))
            return replace(layers, activations=new)

        cost = lambda slope: float(np.sum(differences(with_slope(slope)) ** 2))  # noqa: E731
        slope = float(minimize_scalar(cost, bounds=(0.0, 1.0), method="bounded").x)
        for _ in range(FEW_STEPS):
            high, low = differences(with_slope(slope + _SLOPE_STEP)), differences(with_slope(slope - _SLOPE_STEP))
            change, left = (high - low) / (2.0 * _SLOPE_STEP), differences(with_slope(slope))
            slope -= float(np.sum(change * left) / max(np.sum(change**2), np.finfo(float).tiny))
        if slope != 0.0:
            text = f"the ReLU{'' if len(where) > 1 else f' of layer {where[0] + 1}'} is leaky, with slope {slope:.6g}"
            parameters = {"layer": where[0] if len(where) == 1 else None, "slope": slope}
            yield Change("activation", text, with_slope(slope), link, parameters, 1)
