"""What do deep layers learn that shallow ones cannot? Quadratic DenseNets and backward feature correction."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "backward_correction": ["BackwardCorrection", "backward_feature_correction"],
        "classifier": ["HierarchicalQuadraticNetClassifier"],
        "regressor": ["HierarchicalQuadraticNet"],
    },
)
