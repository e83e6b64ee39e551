"""Which network answers like that? Weights and shifts of a black box, from its answers alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "completion": ["NetworkCompletion"],
        "extractor": ["EntangledWeightExtractor"],
        "identifier": ["NetworkIdentifier"],
        "report": ["IdentificationReport"],
    },
)
