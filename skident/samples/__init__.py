"""Recovering a network from samples."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "missing_unit": ["MissingUnitTest"],
        "paper.decomposition": ["RecoveredUnits", "units_from_tensors"],
        "paper.scalars": ["population_tensors"],
        "passive.identifier": ["PassiveNetworkIdentifier"],
        "regressor": ["TensorReLURegressor"],
    },
)
