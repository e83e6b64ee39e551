"""torch.nn.Module classes: no scikit-learn, no skorch."""

from skident.identification.hessians.module import CompletionModule
from skident.network.torch_activations import Erf, Quadratic, Sin
from skident.saddle.module import BiasFreeMLP, HalfSquaredError

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
