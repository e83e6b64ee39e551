from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from torch import dtype as TorchType
from torch import nn

Floats: TypeAlias = NDArray[np.float64]
Path: TypeAlias = str | PathLike[str]

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Convolution",
    "FeedforwardNetwork",
    "ModuleAlignment",
    "NetworkStructure",
    "align_modules",
    "center_outputs",
    "clip",
    "leaky_relu",
    "with_linear_skip",
]

class Activation:
    name: str
    jet: Callable[[Floats, int], tuple[Floats, ...]]
    limits: tuple[float, float] | None
    symmetry: str | None
    smooth: bool
    def __init__(
        self,
        name: str,
        jet: Callable[[Floats, int], tuple[Floats, ...]],
        limits: tuple[float, float] | None = None,
        symmetry: str | None = None,
        smooth: bool = True,
    ) -> None: ...
    def __call__(self, z: Floats) -> Floats: ...
    @property
    def curved(self) -> bool: ...
    @property
    def saturating(self) -> bool: ...

class Clip(Activation):
    low: tuple[float, ...]
    high: tuple[float, ...]
    base: str

class LeakyReLU(Activation):
    negative_slope: float
    def __init__(
        self,
        name: str,
        jet: Callable[[Floats, int], tuple[Floats, ...]],
        limits: tuple[float, float] | None = None,
        symmetry: str | None = None,
        smooth: bool = True,
        negative_slope: float = 0.01,
    ) -> None: ...

ACTIVATIONS: dict[str, Activation]

class FeedforwardNetwork:
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activations: tuple[Activation, ...]
    __hash__: ClassVar[Callable[[Any], int]]  # type: ignore[assignment]
    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        activation: str | Activation = "tanh",
        output_activation: str | Activation = "identity",
    ) -> None: ...
    @property
    def activation(self) -> str: ...
    @property
    def output_activation(self) -> str: ...
    @property
    def n_inputs(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def layer_widths(self) -> tuple[int, ...]: ...
    @property
    def n_parameters(self) -> int: ...
    @property
    def output_range(self) -> tuple[Floats, Floats] | None: ...
    def with_clip(self, low: ArrayLike, high: ArrayLike) -> FeedforwardNetwork: ...
    def without_clip(self) -> FeedforwardNetwork: ...
    def __call__(self, X: ArrayLike) -> Floats: ...
    def jacobian(self, X: ArrayLike, *, max_bytes: int = 4194304) -> Floats: ...
    def hessian(self, X: ArrayLike, *, max_bytes: int = 4194304) -> Floats: ...
    def entangled_weights(self, x: ArrayLike) -> list[Floats]: ...
    def canonical(self) -> FeedforwardNetwork: ...
    def align_to(self, other: FeedforwardNetwork) -> FeedforwardNetwork: ...
    def with_parameters(self, weights: Sequence[ArrayLike], biases: Sequence[ArrayLike]) -> FeedforwardNetwork: ...
    @classmethod
    def from_sklearn(cls, estimator: BaseEstimator) -> FeedforwardNetwork: ...
    def to_sklearn(self) -> BaseEstimator: ...
    @classmethod
    def from_torch(cls, module: nn.Module, input_shape: Any = None) -> FeedforwardNetwork: ...
    def to_torch(self, dtype: TorchType | None = None) -> nn.Module: ...
    @classmethod
    def from_onnx(cls, source: Any) -> FeedforwardNetwork: ...
    def to_source(self, language: str) -> str: ...
    def to_onnx(self, path: Path | None = None, *, dtype: str = "float64") -> Any: ...
    def save(self, path: Path) -> None: ...
    @classmethod
    def load(cls, path: Path) -> FeedforwardNetwork: ...
    def summary(self) -> str: ...
    def structure(self, input_shape: Any = None, *, tol: float = 1e-6) -> NetworkStructure: ...
    def to_frame(self, *, stderr: Any = None, feature_names: Sequence[str] | None = None) -> pandas.DataFrame: ...

class Convolution:
    kernels: Floats
    biases: Floats
    input_shape: tuple[int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    output_shape: tuple[int, int, int]
    pooling: tuple[int, int]
    units: Any
    spread: float
    def __init__(
        self,
        kernels: Floats,
        biases: Floats,
        input_shape: tuple[int, int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        output_shape: tuple[int, int, int],
        pooling: tuple[int, int],
        units: Any,
        spread: float,
    ) -> None: ...
    @property
    def n_units(self) -> int: ...

class NetworkStructure:
    convolution: Convolution | None
    sparsity: tuple[float, ...]
    blocks: tuple[Any, ...]
    network: FeedforwardNetwork
    def __init__(
        self,
        convolution: Convolution | None,
        sparsity: tuple[float, ...],
        blocks: tuple[Any, ...],
        network: FeedforwardNetwork,
    ) -> None: ...
    @property
    def n_networks(self) -> int: ...

class ModuleAlignment:
    module: nn.Module
    distance: float
    distance_before: float
    permutations: dict[str, Any]
    signs: dict[str, Any]
    scales: dict[str, Any]
    layers: dict[str, str | None] | None
    residuals: dict[str, Any] | None
    def __init__(
        self,
        module: nn.Module,
        distance: float,
        distance_before: float,
        permutations: dict[str, Any],
        signs: dict[str, Any],
        scales: dict[str, Any],
        layers: dict[str, str | None] | None = None,
        residuals: dict[str, Any] | None = None,
    ) -> None: ...

def align_modules(
    model_a: nn.Module, model_b: nn.Module, X: Any = None, *, n_starts: int = 6, random_state: Any = None
) -> ModuleAlignment: ...
def center_outputs(network: FeedforwardNetwork) -> FeedforwardNetwork: ...
def with_linear_skip(network: FeedforwardNetwork, matrix: ArrayLike) -> FeedforwardNetwork: ...
def clip(low: ArrayLike = ..., high: ArrayLike = ...) -> Clip: ...
def leaky_relu(negative_slope: float = 0.01) -> LeakyReLU: ...
