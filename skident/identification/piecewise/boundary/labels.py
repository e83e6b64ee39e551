"""A model queried for labels: labels become integers, inputs are standardized, queries are counted."""

import time

import numpy as np

from skident.oracle import NotIdentified, OutOfBudgetError

_MAX_CLASSES = 200  # distinct labels from which outputs are values instead of labels
_MAX_SHARE = 0.25  # distinct real values over queries, above which outputs are values instead of labels
_N_PROBES = 400  # first queries, which find the classes (budget)
_RECORD_BYTES = 2**27  # of queried inputs that are kept to compare them with the network (memory)
_N_REPEATED = 40  # of them, queried again in another batch


class Labels:
    """Query a model at standardized inputs U: labels of ``center + scale * U`` as indices into `classes`.

    A class that appears later gets the next index, so that a rare class does not disturb those before.
    """

    def __init__(self, model, center, scale, budget, input_range=None):
        self._query = model.predict if hasattr(model, "predict") else model
        self.center, self.scale, self.budget = center, scale, budget
        self.input_range = None if input_range is None else [np.broadcast_to(b, center.shape) for b in input_range]
        self.classes, self._index, self.rounds, self.n_units = [], {}, 0, 0
        self._recorded, self._record_bytes = [], 0

    @property
    def n_features(self):
        """Number of inputs."""
        return len(self.center)

    @property
    def n_queries(self):
        """Queries so far."""
        return self.budget.n_queries

    @property
    def root(self):
        """The labels of inputs: these."""
        return self

    def outward(self, U):
        """Inputs (n, D) of coordinates U (n, D)."""
        return np.reshape(U, (-1, self.n_features))

    def inward(self, X, pairs, U, rng):
        """Boundary points (x, pair, u) in these coordinates, of points X (n, D) in inputs and directions U."""
        return list(zip(X, pairs, U, strict=True))

    def composed(self, logits):
        """Logits of inputs from those of coordinates."""
        return logits

    def note(self, n_units):
        """Note how many units a search has recovered, for the message if the budget ends."""
        self.n_units = n_units

    def inside(self, U):
        """Whether standardized inputs (n, D) are within the input range."""
        if self.input_range is None:
            return np.ones(len(U), dtype=bool)
        X = self.center + self.scale * U
        return np.all((X >= self.input_range[0]) & (X <= self.input_range[1]), axis=1)

    def room(self, u, d):
        """Length of the ray u + t d (D,) within the input range."""
        if self.input_range is None:
            return np.inf
        low, high = ((b - self.center) / self.scale for b in self.input_range)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(d > 0, high - u, low - u) / d
        return max(np.min(ends[d != 0], initial=np.inf), 0.0)

    def draw(self, n, rng, radii):
        """Standardized inputs (n, D): Gaussian with log-uniform radii, moved into the input range."""
        ends = np.exp(rng.uniform(*np.log(radii), (n, 1))) * rng.standard_normal((n, self.n_features))
        if self.input_range is None:
            return ends
        low, high = self.input_range
        return (np.clip(self.center + self.scale * ends, low, high) - self.center) / self.scale

    def __call__(self, U):
        """Indices of the labels (n,); -1 outside the input range, which no model is queried for."""
        seen, inside = np.full(len(U), -1), self.inside(U)
        if not np.any(inside):
            return seen
        self._spend(int(inside.sum()))
        seen[inside] = self.indices(self._raw(U[inside]))
        if self._record_bytes < _RECORD_BYTES:
            self._recorded.append((U[inside].copy(), seen[inside]))
            self._record_bytes += U[inside].nbytes
        return seen

    def recorded(self):
        """Queried inputs (n, D) and their labels (n,), the first 128 MiB."""
        inputs, seen = zip(*self._recorded, strict=True)
        return np.concatenate(inputs), np.concatenate(seen)

    def _spend(self, n):
        if (limit := self.budget.exhausted_by(n)) is not None:
            raise OutOfBudgetError(limit)
        if time.perf_counter() > self.budget.deadline:
            raise OutOfBudgetError(f"max_seconds={self.budget.max_seconds} have passed")
        self.budget.spend(n)
        self.rounds += 1

    def _raw(self, U):
        Y = np.asarray(self._query(self.center + self.scale * U))
        Y = Y[:, 0] if Y.ndim == 2 and Y.shape[1] == 1 else Y
        if Y.shape != (len(U),):
            raise ValueError(
                f"response_method='labels' needs one label per input, got outputs of shape {Y.shape}: probabilities or "
                "logits? Use response_method='predict_proba' or 'predict'."
            )
        return Y

    def indices(self, Y):
        """Indices into `classes` of labels Y (n,)."""
        values, inverse = np.unique(Y, return_inverse=True)
        for value in values:
            if value.item() not in self._index if hasattr(value, "item") else value not in self._index:
                self._add(value)
        keys = [v.item() if hasattr(v, "item") else v for v in values]
        return np.array([self._index[k] for k in keys])[inverse]

    def _add(self, value):
        if isinstance(value, float | np.floating) and not np.isfinite(value):
            raise ValueError("the model returned NaN or infinite labels.")
        self._index[value.item() if hasattr(value, "item") else value] = len(self.classes)
        self.classes.append(value)
        if len(self.classes) > _MAX_CLASSES:
            raise _no_labels(len(self.classes))

    def probe(self, U, rng):
        """Query samples U (n, D) and inputs around them; ValueError unless the outputs are repeatable labels."""
        around = np.vstack([U[:_N_PROBES], self.draw(_N_PROBES, rng, (0.3, 4.0))])
        inside = around[self.inside(around)]
        self._spend(len(inside) + _N_REPEATED)
        Y = self._raw(inside)
        distinct = len(np.unique(Y))
        if Y.dtype.kind == "f" and np.any(Y != np.round(Y)) and distinct > _MAX_SHARE * len(Y):
            raise _no_labels(distinct)
        seen = self.indices(Y)
        again = rng.permutation(len(inside))[:_N_REPEATED]
        if np.any(np.concatenate([self.indices(self._raw(inside[i : i + 1])) for i in again]) != seen[again]):
            raise ValueError(
                "the labels depend on the batch or change between queries: the same inputs, queried alone, gave other "
                "labels. Switch the model to evaluation mode."
            )
        if len(np.unique(seen)) < 2:
            raise NotIdentified(
                "boundary",
                "constant",
                f"the label is {self.classes[0]} at all {len(inside)} inputs around X: no "
                "decision boundary is within reach. "
                "Pass X with samples of at least two classes, or a wider input_range.",
            )
        return seen


def _no_labels(n):
    return ValueError(
        f"the outputs take {n} distinct values: they are no class labels but values or probabilities. Use "
        "response_method='predict' for values and 'predict_proba' for probabilities."
    )
