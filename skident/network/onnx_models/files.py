"""Read ONNX files with their external data; data outside of their folder is refused before it is opened."""

import math
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper

from ..paths import checked_source

_MAX_BYTES = 2**31  # of the numbers in other files: as many as a file of its own may hold


class MissingDataError(FileNotFoundError, ValueError):
    """Numbers of an ONNX model lie in another file, and there is no such file."""


def read_model(source):
    """An ONNX model with all its numbers inside, from a path or a ModelProto.

    TypeError if `source` is neither, FileNotFoundError or IsADirectoryError if there is no such file, ValueError if it
    is not an ONNX model, is truncated, or keeps numbers outside of its folder (nothing of these is read), and
    MissingDataError, a ValueError, if there is no file with its numbers.
    """
    if isinstance(source, ModelProto):
        _check_complete(source, "the model")
        if any(_is_external(tensor) for tensor in messages_of(source, TensorProto)):
            raise ValueError(
                "the model keeps numbers in other files (external data), whose folder an onnx.ModelProto does not "
                "know; give the path of its file, or load them with onnx.load first."
            )
        return source
    try:
        path = Path(os.fspath(source))
    except TypeError:
        raise TypeError(
            f"an ONNX model is read from a path or an onnx.ModelProto, got {type(source).__name__}."
        ) from None
    model, content = ModelProto(), checked_source(path).read_bytes()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise ValueError(f"{path} is no ONNX model, or truncated: {error}.") from error
    _check_complete(model, path)
    pieces = [_piece(path, tensor) for tensor in messages_of(model, TensorProto) if _is_external(tensor)]
    if sum(piece.length for piece in pieces) > _MAX_BYTES:
        raise ValueError(f"{path} keeps more than 2 GiB of numbers in other files.")
    for piece in pieces:
        piece.fill()
    return model


def _check_complete(model, name):
    """Refuse a model without outputs or operator set, such as a file cut between two of its fields."""
    if not model.opset_import or not model.graph.output:
        raise ValueError(f"{name} is no ONNX model, or truncated: it has no outputs or no operator set.")


def messages_of(message, kind):
    """All messages of a kind in a message, including those in attributes, subgraphs and functions.

    Parameters
    ----------
    message : onnx.ModelProto
    kind : type

    Yields
    ------
    message of this type
    """
    stack = [message]
    while stack:
        current = stack.pop()
        if isinstance(current, kind):
            yield current
        if isinstance(current, TensorProto):
            continue
        for field, value in current.ListFields():
            if field.message_type is not None:
                stack += value if hasattr(value, "__len__") else [value]


def _is_external(tensor):
    return tensor.data_location == TensorProto.EXTERNAL


@dataclass(frozen=True)
class _Piece:
    """A part of a file that holds a tensor's numbers."""

    tensor: TensorProto
    path: Path
    offset: int
    length: int

    def fill(self):
        """Read the numbers into the tensor."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            self.tensor.raw_data = file.read(self.length)
        self.tensor.ClearField("external_data")
        self.tensor.data_location = TensorProto.DEFAULT


def _piece(model_path, tensor):
    """File, offset and length of an external tensor's numbers, all checked."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    what = f"{model_path}: tensor {tensor.name!r}"
    location = entries.get("location", "")
    path = _inside(model_path.parent, location)
    if path is None:
        raise ValueError(
            f"{what} has its numbers in {location[:80]!r}, outside of the model's folder; refused, and nothing of it "
            "read."
        )
    if not _is_file(path):
        raise MissingDataError(f"{what} has its numbers in {location[:80]!r}, and there is no such file.")
    size = path.stat().st_size
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size - offset))
        expected = math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (ValueError, KeyError) as error:
        raise ValueError(f"{what} says wrongly where its numbers are: {error}") from error
    if min(offset, length) < 0 or offset + length > size or length != expected:
        raise ValueError(
            f"{what} needs {expected} bytes, but {location!r} holds {size} and it was to have {length} from {offset} "
            "on; the file is truncated or another one."
        )
    return _Piece(tensor, path, offset, length)


def _is_file(path):
    """Whether a path is that of a file; False, too, if it is too long for one."""
    try:
        return path.is_file()
    except OSError:
        return False


def _inside(folder, location):
    """The file at a location, if it lies in the folder after following links; else None."""
    written = (PurePosixPath(location), PureWindowsPath(location))
    if not location or any(path.is_absolute() or path.drive or ".." in path.parts for path in written):
        return None
    try:
        path, folder = (folder / location).resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):  # a link to itself, or what cannot be a name
        return None
    return path if folder in path.parents else None
