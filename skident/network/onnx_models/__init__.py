"""Read networks from ONNX models and write them; the only package that imports onnx, when needed."""

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise ImportError("ONNX models need onnx, which is not installed; try pip install 'skident[onnx]'.") from error

from .files import read_model
from .quantized import dequantized
from .reading import gives_probabilities, read_network
from .sizes import check_sizes
from .writing import network_model, write_model

__all__ = ["check_sizes", "dequantized", "gives_probabilities", "network_model"]
__all__ += ["read_model", "read_network", "write_model"]
