from .completion import NetworkCompletion as NetworkCompletion
from .extractor import EntangledWeightExtractor as EntangledWeightExtractor
from .identifier import NetworkIdentifier as NetworkIdentifier
from .options import IdentifierOptions as IdentifierOptions
from .report import IdentificationReport as IdentificationReport

__all__ = [
    "EntangledWeightExtractor",
    "IdentificationReport",
    "IdentifierOptions",
    "NetworkCompletion",
    "NetworkIdentifier",
]
