"""Which network did these samples come from? ReLU networks of depth two behind a table."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "regressor": ["TensorReLURegressor"],
    },
)
