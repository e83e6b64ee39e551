"""Black boxes that lie: what each of them does, and what an identification must make of it.

One line a box. All are asked by default, with rows of X from N(0, I) in four dimensions, unless options say otherwise.
"""

import time
from collections import namedtuple

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from skident.datasets import make_network

# `ends`: "exact"; "noisy", with a warning that the network is not exact; "refuse", with a ValueError; or two of them
# where both are true. `says`: what the error or the warning says. `seconds`: of processor time, at most.
Lie = namedtuple("Lie", "name make ends says options seconds", defaults=("", {}, 3.0))

ROWS = np.random.RandomState(0).standard_normal((60, 4))
ONE = make_network((4, 3, 1), bias_scale=0.5, output_activation="identity", random_state=1)
TWO = make_network((4, 3, 2), bias_scale=0.5, output_activation="identity", random_state=1)
DEEP = make_network((4, 4, 2, 2), bias_scale=0.5, output_activation="identity", random_state=1)
RELU = make_network((4, 3, 1), bias_scale=0.5, activation="relu", output_activation="identity", random_state=1)
SIGMOID = make_network((4, 3, 1), bias_scale=0.5, activation="sigmoid", output_activation="identity", random_state=1)
W = np.random.RandomState(3).standard_normal((4, 3))


# -- kinds of boxes: each gives a fresh one ----------------------------------------------------------------------------


def of(function):
    """A function of the inputs."""
    return lambda: function


def after(change, net=TWO):
    """The answers of a network, changed."""
    return lambda: lambda X: change(net(X))


def before(change, net=TWO):
    """A network of changed inputs."""
    return lambda: lambda X: net(change(X))


def plus(extra, net=ONE):
    """A network with something of its inputs added to all answers."""
    return lambda: lambda X: net(X) + extra(X)[:, None]


def noisy(change, net=TWO):
    """The answers of a network, changed by chance: ``change(Y, rng)``."""

    def make():
        rng = np.random.RandomState(0)
        return lambda X: change(net(X), rng)

    return make


def counting(change, net=TWO):
    """A network that counts: ``change(Y, rows, calls)`` with the number of each row (n, 1) and of the call."""

    def make():
        seen = np.zeros(2, dtype=int)

        def box(X):
            rows, calls = seen[0] + np.arange(len(X))[:, None], seen[1]
            seen[:] += len(X), 1
            return change(net(X), rows, calls)

        return box

    return make


def raising(error, n_rows):
    """A network that fails once so many rows were asked."""

    def change(Y, rows, calls):
        if rows[-1, 0] >= n_rows:
            raise error
        return Y

    return counting(change)


def learned(estimator):
    """A model learned from a network's answers."""
    X = np.random.RandomState(5).standard_normal((200, 4))
    return of(estimator.fit(X, ONE(X)[:, 0]).predict)


# -- what they do ------------------------------------------------------------------------------------------------------


def writes_into_its_argument():
    def box(X):
        Y = TWO(X)
        X[:] = 7.0
        return Y

    return box


def writes_later():
    kept = []

    def box(X):
        for earlier in kept:
            earlier[:] = np.nan
        kept[:] = [X]
        return TWO(X)

    return box


def returns_one_buffer():
    buffer = np.empty((100_000, 2))

    def box(X):
        buffer[:] = 1e3
        buffer[: len(X)] = TWO(X)
        return buffer[: len(X)]

    return box


def changes_answers_later():
    given = []

    def box(X):
        for earlier in given:
            earlier[:] = np.nan
        given[:] = [TWO(X)]
        return given[0]

    return box


def remembers():
    cache = {}

    def box(X):
        return np.array([cache.setdefault(x.tobytes(), y) for x, y in zip(X, TWO(X))])

    return box


def remembers_what_is_near():
    cache = {}

    def box(X):
        return np.array([cache.setdefault(tuple(x.round(2)), y) for x, y in zip(X, TWO(X))])

    return box


def normalises_the_batch():
    return lambda X: TWO((X - X.mean(axis=0)) / X.std(axis=0).clip(1e-3))


def adds_the_row_before():
    return lambda X: TWO(X) + 0.1 * TWO(np.roll(X, 1, axis=0))


def changes_its_mind():
    return counting(lambda Y, rows, calls: Y if calls < 30 else -Y)()


def sleeps():
    def box(X):
        time.sleep(0.05)
        return TWO(X)

    return box


def masked(Y):
    return np.ma.masked_array(Y, mask=np.arange(len(Y))[:, None] % 7 == 3 + 0 * Y)


def at(i, value):
    """The table with another value in row i, if there is one."""

    def change(Y):
        Y[i : i + 1, 0] = value
        return Y

    return change


def where(X, condition, value):
    Y = TWO(X)
    Y[condition(X)] = value
    return Y


def pooled(X):
    return np.maximum.reduce([X @ W[:, k] for k in range(3)])


def bump(X, center, width, height):
    return height * np.exp(-((X - center) ** 2).sum(axis=1) / (2 * width**2))


def probabilities(X, dtype=float):
    return softmax(TWO(X) * [1, -2], axis=1).astype(dtype)


NOT_NUMBERS = "cannot be read as real numbers"
SHAPE = "returned shape"
TWICE = "returned different outputs when queried twice"
COMPANY = "depends on the other rows of the call"
FINITE = "not finite"
NOISE = "noise or rounding of"
GIVEN_ONE = {"layer_widths": (3, 1)}
DEEP_GIVEN = {"layer_widths": (4, 2, 2)}
AUTO = {"layer_widths": "auto"}
PROBA = {"response_method": "predict_proba"}
SHORT = {"max_seconds": 1.0}

LIES = [
    # They raise.
    Lie("raises at once", raising(KeyError("weights"), 0), "refuse", "raised KeyError on a batch of .* after 0 rows"),
    Lie("raises after 10 rows", raising(ValueError("no more"), 10), "refuse", "raised ValueError .*: no more"),
    Lie("raises after 300 rows", raising(KeyError("quota"), 300), "refuse", "raised KeyError .*after [1-9]"),
    Lie("raises after 700 rows", raising(RuntimeError("quota"), 700), "refuse", "raised RuntimeError .*after [1-9]"),
    Lie("runs out of memory", raising(MemoryError("too many"), 400), "refuse", "raised MemoryError on a batch of"),
    Lie("ends an iteration", raising(StopIteration(), 100), "refuse", "raised StopIteration on a batch of"),
    Lie("asserts", raising(AssertionError("shape"), 5), "refuse", "raised AssertionError .*: shape"),
    Lie("divides by zero", raising(ZeroDivisionError("division"), 50), "refuse", "raised ZeroDivisionError"),
    Lie("refuses large inputs", before(lambda X: X if np.abs(X).max() < 10 else X + np.nan), "refuse", "input_range"),
    # Not finite.
    Lie("always NaN", after(lambda Y: Y * np.nan), "refuse", FINITE),
    Lie("NaN at one row", after(at(5, np.nan)), "refuse", FINITE),
    Lie("inf at one row", after(at(17, np.inf)), "refuse", FINITE),
    Lie("NaN in a large batch", after(at(150, np.nan)), "refuse", FINITE),
    Lie("NaN sometimes", noisy(lambda Y, rng: np.where(rng.rand(*Y.shape) < 1e-3, np.nan, Y)), "refuse", FINITE),
    Lie("NaN far out", of(lambda X: where(X, lambda X: np.abs(X).max(axis=1) > 50, np.nan)), "refuse", "input_range"),
    Lie("inf far out", of(lambda X: where(X, lambda X: X[:, 0] > 1e3, np.inf)), "refuse", "input_range"),
    # Other shapes.
    Lie("one row too few", after(lambda Y: Y[:-1]), "refuse", SHAPE),
    Lie("one row too many", after(lambda Y: np.vstack([Y, Y[:1]])), "refuse", SHAPE),
    Lie("transposed", after(lambda Y: Y.T), "refuse", SHAPE),
    Lie("three axes", after(lambda Y: Y[:, :, None]), "refuse", SHAPE),
    Lie("one number", after(lambda Y: Y.sum()), "refuse", SHAPE),
    Lie("nothing", after(lambda Y: None), "refuse", "It returned None"),
    Lie("no columns", after(lambda Y: Y[:, :0]), "refuse", SHAPE),
    Lie("one output less later", counting(lambda Y, rows, calls: Y[:, : 2 - calls // 3]), "refuse", SHAPE),
    Lie("one axis less later", counting(lambda Y, rows, calls: Y[:, 0] if calls > 2 else Y), "refuse", SHAPE),
    Lie("a column for small batches", after(lambda Y: Y[:, 0] if len(Y) > 25 else Y[:, :1], ONE), "exact"),
    # Other types.
    Lie("a list", after(lambda Y: Y.tolist()), "exact"),
    Lie("a tuple of rows", after(lambda Y: tuple(map(tuple, Y))), "exact"),
    Lie("a frame", after(lambda Y: pd.DataFrame(Y, index=np.arange(len(Y))[::-1], columns=["b", "a"])), "exact"),
    Lie("a series", after(lambda Y: pd.Series(Y[:, 0], index=np.arange(len(Y))[::-1]), ONE), "exact"),
    Lie("nullable numbers", after(lambda Y: pd.Series(Y[:, 0], dtype="Float64"), ONE), "exact"),
    Lie("missing numbers", after(lambda Y: pd.Series(Y[:, 0], dtype="Float64").mask(Y[:, 0] > 0.5), ONE), "refuse"),
    Lie("objects", after(lambda Y: Y.astype(object)), "exact"),
    Lie("a masked array, nothing masked", after(np.ma.masked_array), "exact"),
    Lie("a masked array", after(masked), "refuse", "of them are masked"),
    Lie("text", after(lambda Y: Y.astype(str)), "exact"),
    Lie("words", after(lambda Y: np.where(Y > 0, "yes", "no")), "refuse", NOT_NUMBERS),
    Lie("complex numbers", after(lambda Y: Y + 0j), "refuse", "they are complex"),
    Lie("dates", after(lambda Y: (Y * 1e9).astype("datetime64[s]")), "refuse", "they are dates"),
    Lie("a dictionary", after(lambda Y: {"y": Y}), "refuse", NOT_NUMBERS),
    Lie("ragged rows", after(lambda Y: [y[: 1 + i % 2].tolist() for i, y in enumerate(Y)]), "refuse", NOT_NUMBERS),
    Lie("whole numbers", after(np.rint), "refuse"),
    Lie("integers", after(lambda Y: (100 * Y).astype(int)), "noisy", NOISE),
    Lie("true or false", after(lambda Y: Y > 0), "refuse"),
    Lie("extended precision", after(lambda Y: Y.astype(np.longdouble)), "exact"),
    # Quantised.
    Lie("float16", after(lambda Y: Y.astype(np.float16)), "noisy", NOISE),
    Lie("float32", after(lambda Y: Y.astype(np.float32)), "noisy", NOISE),
    *(Lie(f"{d} decimals", after(lambda Y, d=d: Y.round(d)), "noisy", NOISE) for d in (6, 5, 4, 3, 2)),
    Lie("1 decimal", after(lambda Y: Y.round(1)), "noisy|refuse"),
    Lie("steps of 0.0037", after(lambda Y: 0.0037 * np.rint(Y / 0.0037)), "noisy"),
    Lie("inputs in float32", before(lambda X: X.astype(np.float32).astype(float)), "noisy|refuse"),
    Lie("inputs rounded", before(lambda X: X.round(1)), "noisy|refuse"),
    Lie("inputs are integers", before(np.rint), "noisy|refuse"),
    # Drifting.
    Lie("drifts slowly", counting(lambda Y, rows, calls: Y + 1e-6 * calls), "noisy|refuse"),
    Lie("drifts by call", counting(lambda Y, rows, calls: Y + 0.1 * calls), "refuse"),
    Lie("drifts by row", counting(lambda Y, rows, calls: Y + 1e-4 * rows), "noisy|refuse"),
    Lie("gain drifts", counting(lambda Y, rows, calls: Y * (1 + 1e-5 * calls)), "noisy|refuse"),
    Lie("drifts within a batch", after(lambda Y: Y + 1e-3 * np.arange(len(Y))[:, None]), "noisy|refuse"),
    Lie("scaled by the batch", after(lambda Y: Y * (1 + 1e-6 * len(Y))), "noisy|refuse"),
    Lie("another sign after 30 calls", changes_its_mind, "noisy|refuse"),
    # Clipping.
    Lie("clips one input", before(lambda X: np.c_[X[:, :1].clip(-1, 1), X[:, 1:]]), "noisy|refuse"),
    Lie("clips all inputs near", before(lambda X: X.clip(-1, 1)), "noisy|refuse"),
    Lie("clips all inputs at 4", before(lambda X: X.clip(-4, 4)), "noisy|refuse", "clip its inputs"),
    Lie("clips all inputs at 1000", before(lambda X: X.clip(-1e3, 1e3)), "noisy|refuse"),
    Lie("clips its answers", after(lambda Y: Y.clip(-0.3, 0.3)), "exact|noisy|refuse"),
    Lie("clips large answers", after(lambda Y: Y.clip(None, 0.9 * TWO(ROWS).max())), "exact|noisy|refuse"),
    # Memory.
    Lie("writes into its argument", writes_into_its_argument, "exact"),
    Lie("writes into it later", writes_later, "exact"),
    Lie("returns the same buffer", returns_one_buffer, "exact"),
    Lie("changes its answers later", changes_answers_later, "exact"),
    Lie("remembers", remembers, "exact"),
    Lie("remembers what is near", remembers_what_is_near, "exact|noisy|refuse"),
    Lie("sleeps", sleeps, "refuse", "max_seconds=0.3", {"max_seconds": 0.3}),
    # Answers that depend on the company.
    Lie("normalises the batch", normalises_the_batch, "noisy|refuse"),
    Lie("adds the row before", of(lambda X: TWO(X) + 0.1 * TWO(np.roll(X, 1, axis=0))), "refuse", COMPANY),
    Lie("sorts its answers", after(lambda Y: np.sort(Y, axis=0)), "refuse", COMPANY),
    Lie("another answer to one row", of(lambda X: TWO(X) * (1 + (len(X) == 1))), "noisy|exact"),
    # By chance.
    Lie("noise of 1e-12", noisy(lambda Y, rng: Y + 1e-12 * rng.standard_normal(Y.shape)), "noisy", NOISE),
    Lie("noise of 1e-10", noisy(lambda Y, rng: Y + 1e-10 * rng.standard_normal(Y.shape)), "noisy", NOISE),
    Lie("noise of 1e-6", noisy(lambda Y, rng: Y + 1e-6 * rng.standard_normal(Y.shape)), "noisy", NOISE),
    Lie("noise of 1e-3", noisy(lambda Y, rng: Y + 1e-3 * rng.standard_normal(Y.shape)), "noisy", NOISE),
    Lie("noise of 0.3", noisy(lambda Y, rng: Y + 0.3 * rng.standard_normal(Y.shape)), "refuse", TWICE),
    Lie("dropout", noisy(lambda Y, rng: Y * (rng.rand(*Y.shape) > 0.1)), "refuse", TWICE),
    Lie("rare dropout", noisy(lambda Y, rng: Y * (rng.rand(*Y.shape) > 0.02)), "noisy|refuse"),
    Lie("outliers", noisy(lambda Y, rng: Y + 100 * (rng.rand(*Y.shape) < 1e-2)), "refuse"),
    Lie("noise in proportion", noisy(lambda Y, rng: Y * (1 + 1e-4 * rng.standard_normal(Y.shape))), "noisy"),
    Lie("chance alone", noisy(lambda Y, rng: rng.standard_normal(Y.shape)), "refuse", TWICE),
    # No networks.
    Lie("constant", of(lambda X: np.full(len(X), 3.7)), "refuse", "is constant"),
    Lie("linear", of(lambda X: X @ W), "exact"),
    Lie("linear, widths given", of(lambda X: X @ W[:, :1]), "exact", "", GIVEN_ONE),
    Lie("quadratic", of(lambda X: X[:, 0] ** 2 - X[:, 1] * X[:, 2]), "refuse"),
    Lie("quadratic, widths given", of(lambda X: (X[:, :1] + X[:, 1:2]) ** 2), "noisy|refuse", "", GIVEN_ONE),
    Lie("cubic", of(lambda X: (X @ W) ** 3), "refuse"),
    Lie("product", of(lambda X: X.prod(axis=1)), "refuse"),
    # Clipped indeed: a network is fitted between the plateaus.
    Lie("exponential", of(lambda X: np.exp(np.minimum(X @ W[:, 0], 300.0))), "noisy|refuse", seconds=20.0),
    Lie("sine", of(lambda X: np.sin(X @ W)), "refuse"),
    Lie("sine, widths given", of(lambda X: np.sin(X @ W)), "exact", "", {"layer_widths": (3, 3)}),
    Lie("step", of(lambda X: (X @ W > 0).astype(float)), "refuse"),
    Lie("sign", of(lambda X: np.sign(X[:, 0])), "refuse"),
    Lie("absolute value", of(lambda X: np.abs(X @ W)), "exact"),
    Lie("largest input", of(lambda X: X.max(axis=1)), "exact|refuse"),
    Lie("pooled maximum", of(pooled), "exact|noisy|refuse"),
    Lie("norm", of(lambda X: np.linalg.norm(X, axis=1)), "refuse"),
    Lie("radial", of(lambda X: bump(X, 0.3, 1.0, 1.0)), "refuse"),
    Lie("softsign", of(lambda X: (X @ W / (1 + np.abs(X @ W))).sum(axis=1)), "noisy|refuse"),
    Lie("arctangent", of(lambda X: np.arctan(X @ W)), "noisy|refuse"),
    Lie("hard tanh", of(lambda X: (X @ W).clip(-1, 1)), "exact"),
    Lie("sigmoids, which are tanhs", of(SIGMOID), "exact", "", {"activation": "tanh"}),
    Lie("relu told as tanh", of(RELU), "refuse", "", {"activation": "tanh"}),
    Lie("tanh told as relu", of(ONE), "refuse", "", {"activation": "relu"}),
    Lie("tanh told as erf", of(ONE), "noisy|refuse", "", {"activation": "erf"}),
    Lie("two layers told as one", of(DEEP), "noisy|refuse", "", {"layer_widths": (4, 2)}),
    Lie("one layer told as two", of(TWO), "noisy|refuse", "", {"layer_widths": (3, 2, 2), **SHORT}),
    Lie("tree", learned(DecisionTreeRegressor(random_state=0)), "refuse", "a tree"),
    Lie("forest", learned(RandomForestRegressor(5, random_state=0)), "refuse", "a tree"),
    Lie(
        "forest, widths given",
        learned(RandomForestRegressor(5, random_state=0)),
        "noisy|refuse",
        "",
        {**GIVEN_ONE, **SHORT},
    ),
    Lie("forest, auto", learned(RandomForestRegressor(5, random_state=0)), "refuse", "", {**AUTO, **SHORT}),
    Lie("nearest neighbour", learned(KNeighborsRegressor(1)), "refuse"),
    Lie("weighted neighbours", learned(KNeighborsRegressor(5, weights="distance")), "refuse"),
    Lie("kernel", learned(SVR()), "noisy|refuse"),
    Lie("kernel, widths given", learned(SVR()), "noisy|refuse", "", GIVEN_ONE),
    # Networks, almost.
    Lie("a wide bump", plus(lambda X: bump(X, 0.5, 0.6, 1e-3)), "noisy|refuse"),
    Lie("a bump far out", plus(lambda X: bump(X, 30.0, 1.0, 1.0)), "exact|refuse"),
    Lie("a linear skip", plus(lambda X: 1e-3 * X[:, 0]), "exact", seconds=6.0),
    Lie("a tiny linear skip", plus(lambda X: 1e-6 * X[:, 0]), "noisy|refuse", seconds=6.0),
    Lie("a square", plus(lambda X: 1e-6 * X[:, 0] ** 2), "noisy|refuse"),
    Lie("a fast sine", plus(lambda X: 1e-5 * np.sin(300 * X[:, 0])), "noisy|refuse"),
    Lie("a faulty region", plus(lambda X: 0.1 * (X[:, 0] > 1.5)), "noisy|refuse"),
    Lie("a faulty corner", plus(lambda X: 0.1 * (X[:, :2] > 1.0).all(axis=1)), "noisy|refuse"),
    Lie("noise that repeats", plus(lambda X: 1e-10 * np.sin(1e6 * X @ W[:, 0])), "exact|noisy"),
    Lie("a product of outputs", after(lambda Y: np.c_[Y[:, 0], Y[:, 0] * Y[:, 1]]), "noisy|refuse"),
    # Probabilities.
    Lie("probabilities as numbers", of(probabilities), "exact"),
    Lie("probabilities of one class as numbers", of(lambda X: expit(ONE(X))), "exact"),
    Lie("probabilities", of(probabilities), "exact", "", PROBA),
    Lie("probabilities in float32", of(lambda X: probabilities(X, np.float32)), "noisy", "", PROBA),
    Lie("probabilities in float16", of(lambda X: probabilities(X, np.float16)), "noisy|refuse", "", PROBA),
    Lie("probabilities, 3 decimals", of(lambda X: probabilities(X).round(3)), "noisy|refuse", "", PROBA),
    Lie("that sum to 2", of(lambda X: 2 * probabilities(X)), "refuse", "expects probabilities", PROBA),
    Lie(
        "that sum to 1.001",
        of(lambda X: 1.001 * probabilities(X)),
        "refuse",
        r"sum to 1.001 instead of 1: off by \+1.0e-03",
        PROBA,
    ),
    Lie(
        "that sum to 0.9998",
        of(lambda X: 0.9998 * probabilities(X)),
        "refuse",
        "sum to 0.9998 instead of 1: off by -2.0e-04, they are rounded too coarsely",
        PROBA,
    ),
    Lie("logits", of(TWO), "refuse", "expects probabilities", PROBA),
    Lie("labels", of(lambda X: np.eye(2)[TWO(X).argmax(axis=1)]), "refuse", "", PROBA),
    Lie("labels as numbers", of(lambda X: TWO(X).argmax(axis=1)), "refuse"),
    Lie("negative probabilities", of(lambda X: probabilities(X) - 0.5), "refuse", "expects probabilities", PROBA),
    # Odd outputs.
    Lie("a dead output", after(lambda Y: Y * [1, 0]), "exact"),
    Lie("a constant output", after(lambda Y: np.c_[Y, np.full(len(Y), 4.2)]), "exact"),
    Lie("a constant output in float32", after(lambda Y: np.c_[Y, 0 * Y + 4.2].astype(np.float32)), "noisy", NOISE),
    Lie("a constant output, 3 decimals", after(lambda Y: np.c_[Y, 0 * Y + 4.2].round(3)), "noisy", NOISE),
    Lie("a constant output of two layers", after(lambda Y: Y * [1, 0] + 3, DEEP), "exact", "", DEEP_GIVEN),
    Lie("an output twice", after(lambda Y: Y[:, [0, 0, 1]]), "exact"),
    Lie("opposite outputs", after(lambda Y: np.c_[Y, -Y[:, 0]]), "exact"),
    Lie("outputs of 1e12 and 1e-12", after(lambda Y: Y * [1e12, 1e-12]), "exact"),
    Lie("outputs of 1e-300", after(lambda Y: Y * 1e-300), "exact"),
    Lie("outputs of 1e300", after(lambda Y: Y * 1e300), "refuse", "squares overflow"),
    Lie("an offset of 1e6", after(lambda Y: Y + 1e6), "noisy|exact"),
    Lie("an offset of 1e12", after(lambda Y: Y + 1e12), "noisy"),
    Lie("an offset of 1e15", after(lambda Y: Y + 1e15), "noisy|refuse"),
    Lie("a saturated output", after(lambda Y: np.tanh(50 * Y)), "noisy|refuse"),
    Lie("a hundred outputs", after(lambda Y: np.tile(Y, 50)), "exact"),
    # Networks with something odd inside.
    Lie("a unit twice", of(lambda X: np.tanh(X @ W[:, [0, 0, 1]]) @ [1.0, 1.0, 1.0]), "exact"),
    Lie("units that cancel", of(lambda X: np.tanh(X @ W[:, [0, 0]]) @ [1.0, -1.0]), "refuse", "is constant"),
    Lie("units almost parallel", of(lambda X: np.tanh(X @ W[:, 0]) - np.tanh(X @ (W[:, 0] + 1e-6))), "noisy|refuse"),
    Lie("a unit of weight 1e-9", of(lambda X: np.tanh(X @ W) @ [1.0, 1.0, 1e-9]), "exact|noisy"),
    Lie("a unit that never moves", of(lambda X: np.tanh(X @ W + [0, 0, 50]).sum(axis=1)), "exact|noisy|refuse"),
    Lie("a steep unit", of(lambda X: np.tanh(X @ W * [1, 1, 1e5]).sum(axis=1)), "noisy|refuse"),
    Lie("an input without effect", before(lambda X: X * [1, 1, 1, 0]), "exact"),
    Lie(
        "one input has an effect",
        before(lambda X: X * [1, 0, 0, 0]),
        "noisy",
        "set layer_widths='auto'",
    ),
    Lie("all told, but two hidden layers", of(DEEP), "exact", "", DEEP_GIVEN),
    Lie("two hidden layers in float32", after(lambda Y: Y.astype(np.float32), DEEP), "noisy", NOISE, DEEP_GIVEN),
    Lie("two hidden layers of 3 decimals", after(lambda Y: Y.round(3), DEEP), "noisy", "", DEEP_GIVEN),
]
