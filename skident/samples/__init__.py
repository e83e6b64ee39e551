"""Recovering a network from samples."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "missing_unit": ["MissingUnitTest"],
        "passive.identifier": ["PassiveNetworkIdentifier"],
        "regressor": ["TensorReLURegressor"],
    },
)
