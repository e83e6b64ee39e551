"""Compressing a network: a smaller one with the same outputs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "compressor": ["NetworkCompressor"],
        "smaller_network": ["compress_network"],
    },
)
