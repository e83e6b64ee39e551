from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from skident.network import Activation, FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "HierarchicalTarget",
    "make_alternating_circle",
    "make_hierarchical_target",
    "make_network",
    "make_planted_shallow",
    "make_pyramidal_network",
    "make_relu_network",
    "pyramidal_widths",
]

class HierarchicalTarget:
    """A hierarchical target with its inputs' distribution; made by `make_hierarchical_target`."""

    weights: list[Any]
    alphas: tuple[float, ...]
    roots: Array
    signs: list[Array] | None
    n_features: int
    widths: tuple[int, ...]
    connections: tuple[tuple[int, ...], ...]
    def __init__(
        self, weights: list[Any], alphas: tuple[float, ...], roots: Array, signs: list[Array] | None = ...
    ) -> None: ...
    def features(self, X: ArrayLike, layer: int) -> Array:
        """The true features ``S*_l`` of one layer."""
    def sample(self, n_samples: int, random_state: int | RandomState | None = ...) -> Array:
        """Inputs drawn from the target's distribution."""
    def sample_signs(self, n_samples: int, random_state: int | RandomState | None = ...) -> tuple[Array, Any]:
        """The classification task of Section 3.2."""
    def __call__(self, X: Any) -> Any:
        """``G*`` of inputs (n, d), as (n,)."""

def make_alternating_circle(n_samples: int = ...) -> tuple[Array, Array]:
    """Points evenly spaced on the unit circle, with signs that alternate from one to the next."""

def make_hierarchical_target(
    n_features: int = ...,
    widths: Sequence[int] = ...,
    *,
    alphas: Sequence[float] | None = ...,
    connections: Literal["paper"] | Sequence[Sequence[int]] = ...,
    kappa: float = ...,
    distribution: Literal["gaussian", "mixture"] = ...,
    n_components: int = ...,
    signed: bool = ...,
    random_state: int | RandomState | None = ...,
) -> HierarchicalTarget:
    """A target ``G*(x) = sum_l alpha_l Sum(G*_l(x))`` and the distribution of its inputs."""

def make_network(
    layer_sizes: Sequence[int],
    *,
    bias_scale: float = ...,
    activation: str = ...,
    output_activation: str | None = ...,
    random_state: int | RandomState | None = ...,
) -> FeedforwardNetwork:
    """Random network of given layer sizes with unit-norm weights."""

def make_planted_shallow(
    n_samples: int,
    n_features: int,
    n_hidden: int,
    *,
    activation: str | Activation = ...,
    sharpness: float = ...,
    output_signs: Literal["positive", "negative", "mixed"] | ArrayLike = ...,
    labels: Literal["planted", "random"] = ...,
    noise: float = ...,
    coef: bool = ...,
    random_state: int | RandomState | None = ...,
) -> tuple[Array, Array, Array, Array]:
    """Gaussian inputs, labelled by a random network with one hidden layer: the data of [1]_, Section 3."""

def make_pyramidal_network(
    n_inputs: int,
    n_layers: int,
    n_outputs: int,
    n_neurons: int,
    *,
    contraction: float = ...,
    bias_scale: float = ...,
    activation: str = ...,
    random_state: int | RandomState | None = ...,
) -> FeedforwardNetwork:
    """Random pyramidal network, as in the experiments of the entangled-weights paper."""

def make_relu_network(
    n_samples: int = ...,
    n_features: int = ...,
    n_units: int = ...,
    *,
    noise: float = ...,
    bias_range: float = ...,
    perturbation: float | None = ...,
    base_weights: ArrayLike | None = ...,
    random_state: int | RandomState | None = ...,
) -> tuple[Array, Array, FeedforwardNetwork]:
    """Gaussian inputs, the outputs of a random network ``sum_i a_i relu(w_i . x + b_i)``, and the network."""

def pyramidal_widths(n_layers: int, n_outputs: int, n_neurons: int, contraction: float = ...) -> tuple[int, ...]:
    """Widths of a network whose layers shrink by a constant factor, except for the last one."""
