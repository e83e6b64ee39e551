"""torch.nn.Module classes: no scikit-learn, no skorch."""

from skident.network.torch_activations import Erf, Quadratic, Sin

from .bias_free import BiasFreeMLP, HalfSquaredError
from .completion import CompletionModule
from .hierarchical import DistilledQuadraticNet, QuadraticDenseNet, ScaledLogits, TruncatedSquare

__all__ = [
    "BiasFreeMLP",
    "CompletionModule",
    "DistilledQuadraticNet",
    "Erf",
    "QuadraticDenseNet",
    "HalfSquaredError",
    "Quadratic",
    "ScaledLogits",
    "Sin",
    "TruncatedSquare",
]
