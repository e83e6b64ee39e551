"""How a network is asked: black boxes, their derivatives, their noise, and the count of queries."""

from ._noise import NoiseLevel, measure_noise
from ._oracle import DERIVATIVES, BlackBoxError, Oracle

__all__ = ["DERIVATIVES", "BlackBoxError", "NoiseLevel", "Oracle", "measure_noise"]
