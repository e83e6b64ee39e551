"""How a network is asked: black boxes, their derivatives, and the count of queries."""

from ._oracle import DERIVATIVES, BlackBoxError, Oracle

__all__ = ["DERIVATIVES", "BlackBoxError", "Oracle"]
