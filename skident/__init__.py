"""skident recovers the weights of a neural network from its inputs and outputs."""

import lazy_loader

# Packages and estimators are loaded when they are first used: `import skident` loads neither torch nor scikit-learn.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "audit",
        "compression",
        "datasets",
        "hierarchical",
        "identification",
        "inspection",
        "landscape",
        "metrics",
        "network",
        "oracle",
        "saddle",
        "samples",
    ],
    submod_attrs={
        "audit": ["NetworkVerifier", "verify_same"],
        "budget": ["config_context", "get_config", "set_config"],
        "compression": ["NetworkCompressor"],
        "hierarchical": ["HierarchicalQuadraticNet", "HierarchicalQuadraticNetClassifier"],
        "identification": [
            "EntangledWeightExtractor",
            "IdentifierOptions",
            "NetworkCompletion",
            "NetworkIdentifier",
        ],
        "landscape": ["QuadraticNetRegressor", "landscape_certificate", "phase_transition"],
        "saddle": ["SaddleEscapeAnalyzer", "SaddleToSaddleClassifier", "SaddleToSaddleRegressor"],
        "samples": ["PassiveNetworkIdentifier", "TensorReLURegressor"],
    },
)

__version__ = "0.1.0"
