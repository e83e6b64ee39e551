from .passive.identifier import PassiveNetworkIdentifier as PassiveNetworkIdentifier
from .regressor import TensorReLURegressor as TensorReLURegressor

__all__ = ["PassiveNetworkIdentifier", "TensorReLURegressor"]
