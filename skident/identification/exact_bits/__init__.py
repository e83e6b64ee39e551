"""Weights that are numbers of a coarse binary format (float32, float16, bfloat16), recovered to the last bit."""

from .bits import Bits
from .grid import FORMAT_DIGITS
from .summary import round_to_format, round_validated

__all__ = ["FORMAT_DIGITS", "Bits", "round_to_format", "round_validated"]
