"""How does training leave the saddle at the origin? Escape directions, their speed and rank, and the way on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "analyzer": ["SaddleEscapeAnalyzer"],
        "module": ["BiasFreeMLP"],
        "planar": ["fastest_planar_escape"],
        "plateaus": ["detect_escapes"],
        "training": ["SaddleToSaddleClassifier", "SaddleToSaddleRegressor"],
    },
)
