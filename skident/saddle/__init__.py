"""How does training leave the saddle at the origin? Escape directions, their speed and rank, and training beyond."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "analyzer": ["SaddleEscapeAnalyzer"],
        "estimators": ["SaddleToSaddleClassifier", "SaddleToSaddleRegressor"],
        "module": ["BiasFreeMLP"],
        "planar_escape": ["fastest_planar_escape"],
        "plateaus": ["detect_escapes"],
        "shallow_escape": ["deep_escape_bound", "fastest_shallow_escape"],
    },
)
