"""skident recovers the weights of a neural network from its inputs and outputs."""

import difflib
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout on the path of an older Python, which no installer refuses
    raise ImportError(f"skident needs Python 3.11 or newer, got {sys.version.split()[0]}: run it with a newer Python.")

import lazy_loader

# Packages and estimators are loaded when they are first used: `import skident` loads neither torch nor scikit-learn.
_load, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "audit",
        "compression",
        "datasets",
        "hierarchical",
        "identification",
        "inspection",
        "landscape",
        "linalg",
        "metrics",
        "network",
        "optim",
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
        "landscape": ["QuadraticNetClassifier", "QuadraticNetRegressor", "landscape_certificate", "phase_transition"],
        "network": ["FeedforwardNetwork", "align_modules"],
        "saddle": ["SaddleEscapeAnalyzer", "SaddleToSaddleClassifier", "SaddleToSaddleRegressor"],
        "samples": ["PassiveNetworkIdentifier", "TensorReLURegressor"],
    },
)


def __getattr__(name):
    """Load a package or an estimator, or name the closest one."""
    try:
        return _load(name)
    except AttributeError as error:
        close = difflib.get_close_matches(name, __all__, n=1)
        if name.startswith("_") or not close:
            raise
        raise AttributeError(f"{error}. Did you mean: {close[0]!r}?", name=name, obj=None) from None


__version__ = "0.1.0"
