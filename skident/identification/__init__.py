"""Recovering the weights of a network from queries (model extraction)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "completion": ["NetworkCompletion"],
        "extractor": ["EntangledWeightExtractor"],
        "identifier": ["NetworkIdentifier"],
        "options": ["IdentifierOptions"],
        "report": ["IdentificationReport"],
    },
)
