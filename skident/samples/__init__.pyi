from .regressor import TensorReLURegressor as TensorReLURegressor

__all__ = ["TensorReLURegressor"]
