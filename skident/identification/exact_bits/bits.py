"""How many parameters of a network are certain to the last bit."""

from dataclasses import dataclass

LEAST_LOG10_ODDS = -99.0  # smallest reported odds: the distribution of errors is unknown beyond


@dataclass(frozen=True)
class Bits:
    """How many parameters of a network are certain to the last bit of a number format.

    Attributes
    ----------
    format : {"float32", "float16", "bfloat16"}
    certain : int
        Parameters that are certain to the last bit; for ReLU units, up to a power of two per unit.
    total : int
        All parameters.
    log10_odds : float
        Decimal logarithm of the odds that the least certain one of these is wrong; 0 if there is none.
    reasons : tuple of str
        Per layer with undetermined parameters, why they are.
    """

    format: str
    certain: int
    total: int
    log10_odds: float
    reasons: tuple

    @property
    def complete(self):
        """Whether all parameters are certain."""
        return self.certain == self.total

    def __str__(self):
        """One line: parameters, odds, reasons."""
        odds = f", odds against the least certain one 1e{self.log10_odds:.0f}" if self.certain else ""
        reasons = "".join(f"; {reason}" for reason in self.reasons)
        return f"{self.certain:,} of {self.total:,} parameters certain to the last bit of {self.format}{odds}{reasons}"
