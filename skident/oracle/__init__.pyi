from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

__all__ = [
    "DERIVATIVES",
    "MAX_NOISE",
    "Accuracy",
    "BlackBoxError",
    "Budget",
    "Extremes",
    "Plateau",
    "NoiseLevel",
    "NotIdentified",
    "Oracle",
    "OutOfBudgetError",
    "Precision",
    "above_rounding",
    "logits_from_probabilities",
    "measure_accuracy",
    "measure_noise",
    "precision_of",
    "probabilities_from_logits",
    "probability_error",
]

DERIVATIVES: tuple[str, ...]
MAX_NOISE: float

class BlackBoxError(ValueError): ...

class NotIdentified(ValueError):
    stage: str
    reason: str
    n_seen: int | None
    final: bool
    def __init__(
        self, stage: str, reason: str, message: str, *, n_seen: int | None = None, final: bool = False
    ) -> None: ...

class OutOfBudgetError(Exception):
    progress: str

class Plateau(NamedTuple):
    output: int
    side: int
    value: float
    inputs: Floats

class Extremes:
    def update(self, X: Floats, Y: Floats) -> None: ...
    def plateaus(self) -> list[Plateau]: ...

class NoiseLevel(NamedTuple):
    std: Floats
    repeatable: bool

class Precision(NamedTuple):
    kind: str
    decimals: int | None
    @property
    def eps(self) -> float: ...
    @property
    def is_rounded(self) -> bool: ...
    @property
    def is_coarse_binary(self) -> bool: ...

class Accuracy:
    std: Floats
    output_std: Floats
    eps: float
    removed_offset: Floats
    kind: str
    decimals: int | None
    repeatable: bool
    def __init__(
        self,
        std: Floats,
        output_std: Floats,
        eps: float,
        removed_offset: Floats,
        kind: str = "float64",
        decimals: int | None = None,
        repeatable: bool = True,
    ) -> None: ...
    @property
    def exact(self) -> bool: ...
    @property
    def noise_std(self) -> Floats | None: ...
    @property
    def relative_error(self) -> float: ...
    @property
    def is_plausible(self) -> bool: ...
    def as_exact(self) -> Accuracy: ...
    @property
    def grows(self) -> bool: ...
    def std_at(self, Y: Floats) -> Floats: ...
    def std_of(self, U: Floats, Y: Floats) -> Floats: ...
    def difference_step(self, order: int, min_step: float) -> float: ...

class Budget:
    max_seconds: float | None
    max_queries: int | None
    began: float
    n_queries: int
    def __init__(
        self, max_seconds: float | None = None, max_queries: int | None = None, began: float | None = None
    ) -> None: ...
    def copy(self, n_queries: int = 0) -> Budget: ...
    def spend(self, n_queries: int) -> None: ...
    @property
    def queries_left(self) -> float: ...
    @property
    def deadline(self) -> float: ...
    @property
    def out_of_time(self) -> bool: ...
    def share(self, fraction: float) -> float: ...
    def limit(self, grace: float = 0.0) -> AbstractContextManager[None]: ...
    def exhausted_by(self, n_queries: int) -> str | None: ...

class Oracle:
    response: str
    exact: bool
    step_size: float
    chunk_rows: int
    n_queries: int
    n_derivatives: int
    n_inputs: int
    n_outputs: int | None
    one_dimensional: bool
    budget: Budget
    exhausted: str | None
    center: Floats
    scale: Floats
    input_range: Any
    output_center: Floats
    output_scale: Floats
    constant_outputs: NDArray[np.bool_]
    output_bounds: tuple[Floats, Floats] | None
    precision: Precision
    accuracy: Accuracy
    extremes: Extremes
    def __init__(
        self,
        black_box: Any,
        n_inputs: int,
        *,
        center: ArrayLike | None = None,
        scale: ArrayLike = 1.0,
        derivatives: str = "auto",
        step_size: float = 1e-3,
        chunk_rows: int = 65536,
        response: str = "predict",
        input_range: tuple[ArrayLike, ArrayLike] | None = None,
        budget: Budget | None = None,
    ) -> None: ...
    def __call__(self, U: Floats) -> Floats: ...
    def query(self, U: Floats) -> Any: ...
    def query_inputs(self, X: Floats) -> Any: ...
    def query_precise(self, draw: Callable[[int], Floats], n: int) -> Any: ...
    def query_twice(self, U: Floats) -> Any: ...
    def jacobian(self, U: Floats) -> Floats: ...
    def hessian(self, U: Floats) -> Floats: ...
    def derivatives_at_inputs(self, what: str, X: Floats) -> Floats: ...
    def raw_outputs(self, X: Floats) -> Any: ...
    def zoomed_out(self, factor: float) -> Oracle: ...
    def as_black_box(self) -> Any: ...
    def with_response(self, response: str) -> Oracle: ...
    @property
    def restricted(self) -> bool: ...
    def n_independent_outputs(self, n_outputs: int) -> int: ...
    def is_precise(self, error: Any) -> Any: ...
    def values_or_logits(self, X: Floats, Y: Floats) -> Any: ...
    def standardize_outputs(self, Y: Floats, output_activation: str = "identity") -> Any: ...
    def measure_accuracy(self, U: Floats, Y: Floats, rng: np.random.RandomState) -> Any: ...
    def representable(self, U: Floats) -> Floats: ...
    @property
    def jacobian_step(self) -> Any: ...
    @property
    def hessian_step(self) -> Any: ...
    @property
    def reach(self) -> Any: ...
    def to_inputs(self, U: Floats) -> Floats: ...
    def from_inputs(self, X: Floats) -> Floats: ...
    def clip_to_range(self, U: Floats, margin: float = 0.0) -> Any: ...
    def query_in_parallel(
        self, function: Any, pieces: Sequence[Any], n_jobs: int | None = None, *, queries_per_row: int = 0
    ) -> Any: ...

def above_rounding(noise: Floats | float | None, Y: Floats) -> Floats | None: ...
def logits_from_probabilities(P: Floats, precision: Precision | None = None) -> tuple[Floats, Floats]: ...
def measure_accuracy(oracle: Oracle, U: Floats, Y: Floats, rng: np.random.RandomState) -> Accuracy: ...
def measure_noise(oracle: Oracle, U: Floats, rng: np.random.RandomState, *, n_lines: int = 4) -> NoiseLevel: ...
def precision_of(Y: Floats) -> Precision: ...
def probabilities_from_logits(Z: Floats) -> Floats: ...
def probability_error(Z: Floats, error: Floats, found: Floats, precision: Precision | None = None) -> float: ...
