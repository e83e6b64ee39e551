"""The commands' arguments, what is printed where, and how they end."""

from __future__ import annotations

import argparse
import json
import sys

from .audit import audit
from .compress import compress
from .identify import identify
from .results import REFUSED, plain

__all__ = ["main"]

_ENDS = (
    "exit codes: 0 the same (audit), identified (identify) or smaller (compress); 1 not; 2 what was given cannot be "
    "read or queried; 3 undecided (audit): the outputs agree, but they are too imprecise to detect another network. "
    "Results go to stdout, progress and remarks to stderr."
)


def main(arguments=None):
    r"""Run a command.

    Parameters
    ----------
    arguments : sequence of str, default=None
        None: those of the process.

    Returns
    -------
    int
        The exit code: 0 the same, identified or smaller, 1 not, 2 what was given cannot be read or queried, 3 an
        undecided audit.

    Raises
    ------
    SystemExit
        With code 2 where the arguments are none, with code 0 after ``--help``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skident.cli import main
    >>> from skident.datasets import make_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_network((2, 3, 1), random_state=0).save(Path(folder) / "net.safetensors")
    ...     rows = Path(folder) / "X.csv"
    ...     _ = rows.write_text("0,1\n1,0\n-1,1\n")
    ...     code = main(["audit", f"{folder}/net.safetensors", f"{folder}/net.safetensors", "--data", str(rows)])
    the same: ...
    >>> print(code)
    0
    """
    options = _parser().parse_args(arguments)
    try:
        result = options.command(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        text = str(error).replace("response_method=", "--response=")
        sys.stderr.write(f"skident {options.name}: error: {text}\n")
        return REFUSED
    if not options.quiet:
        sys.stderr.writelines(f"{note}\n" for note in result.notes)
    as_json = json.dumps(plain({"command": options.name, **result.numbers}), indent=2, allow_nan=False)
    sys.stdout.write(f"{as_json if options.json else result.text}\n")
    return result.code


def _parser():
    """All commands."""
    parser = argparse.ArgumentParser(
        prog="skident", description="What a neural network is, from the outside.", epilog=_ENDS
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_identify(commands)
    _add_audit(commands)
    _add_compress(commands)
    return parser


def _command(commands, name, function, help_text):
    """A command with what all of them take."""
    command = commands.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", epilog=_ENDS
    )
    command.set_defaults(command=function, name=name)
    command.add_argument(
        "model", metavar="MODEL", help="an .onnx file, or .safetensors as FeedforwardNetwork.save writes it"
    )
    command.add_argument(
        "--data", metavar="X.csv", required=True, help="rows where the model is used; a header is found"
    )
    command.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--quiet", action="store_true", help="no progress and no remarks")
    return command


def _add_identify(commands):
    command = _command(commands, "identify", identify, "find the weights of a black box from its answers")
    add = command.add_argument
    add(
        "--widths",
        type=_widths,
        default="auto",
        help="8,5,1: hidden layers and, last, outputs; auto finds them (default)",
    )
    add(
        "--activation",
        default="auto",
        help="tanh, sigmoid, relu, ... (default: auto, read off the file, or looked for)",
    )
    add("--output-activation", default="auto", help="identity, tanh, ... (default: auto, as above)")
    _add_response(command)
    add("--input-range", type=float, nargs=2, metavar=("LOW", "HIGH"), help="never ask outside, in any input")
    add("--tol", type=float, default=1e-8, help="relative error of an exact network (default: 1e-8)")
    add("--max-seconds", type=float, help="at most")
    add("--max-queries", type=int, help="rows asked at most")
    add("--jobs", type=int, help="processes")
    add("--output", metavar="FILE", help="write the network, if identified: .safetensors or .onnx")
    add("--report", metavar="FILE.html", help="write a page with the report and all parameters (needs pandas)")


def _add_audit(commands):
    command = _command(commands, "audit", audit, "compare a model with a network that is known")
    command.add_argument("reference", metavar="REFERENCE", help="the network as it should be: .safetensors or .onnx")
    _add_response(command)
    command.add_argument("--tol", type=float, help="difference that counts as the same, over the answers' deviation")
    command.add_argument("--max-queries", type=int, help="rows asked at most")


def _add_compress(commands):
    command = _command(commands, "compress", compress, "find the smallest network that answers alike")
    command.add_argument("--tol", type=float, default=1e-2, help="largest error (default: 0.01)")
    metrics = ["auto", "answers", "probabilities", "labels"]
    command.add_argument(
        "--metric", choices=metrics, default="auto", help="what the error is of (default: auto, answers)"
    )
    command.add_argument("--output", metavar="FILE", help="write the network: .safetensors or .onnx")


def _add_response(command):
    command.add_argument(
        "--response",
        choices=["auto", "predict", "predict_proba"],
        default="auto",
        help="whether the model answers with values (predict, default) or with probabilities of classes",
    )


def _widths(text):
    """``auto``, or widths."""
    try:
        return "auto" if text == "auto" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"auto, or numbers with commas between them, are needed, got {text!r}"
        ) from None
