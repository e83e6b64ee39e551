from .compressor import NetworkCompressor as NetworkCompressor
from .smaller_network import compress_network as compress_network

__all__ = ["NetworkCompressor", "compress_network"]
