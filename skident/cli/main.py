"""`main`: parse the arguments of the command line, run the command, print its result, return the exit code."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings

__all__ = ["main"]

_EXIT_CODES = (
    "exit codes: 0 the same (audit), identified (identify, labels), smaller (compress) or written (export); 1 not; "
    "2 invalid input: it cannot be "
    "read or queried; 3 undecided (audit): the outputs agree, but they are too imprecise to detect another network. "
    "Results go to stdout, progress and notes to stderr."
)


def main(arguments: list[str] | None = None) -> int:
    r"""Run a command.

    Parameters
    ----------
    arguments : sequence of str, default=None
        None takes those of the process.

    Returns
    -------
    int
        Exit code: 0 the same, identified, smaller or written; 1 not; 2 invalid input; 3 undecided audit.

    Raises
    ------
    SystemExit
        With code 2 for invalid arguments, with code 0 after ``--help`` and ``--version``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skident.cli import main
    >>> from skident.datasets import make_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_network((2, 3, 1), random_state=0).save(Path(folder) / "net.safetensors")
    ...     rows = Path(folder) / "X.csv"
    ...     _ = rows.write_text("0.5,1\n1,0\n-1,1\n")
    ...     files = 2 * [f"{folder}/net.safetensors"]
    ...     code = main(["audit", *files, "--data", str(rows)])
    the same: ...
    >>> print(code)
    0
    """
    options = _parser().parse_args(arguments)
    # Modules are imported when a command runs: help and version need neither NumPy nor an estimator.
    results = importlib.import_module("skident.cli.results")
    command = getattr(importlib.import_module(f"skident.cli.{options.name}"), options.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: sys.stderr.write(f"skident {options.name}: {message}\n")
            result = command(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        text = str(error).replace("response_method=", "--response=")
        sys.stderr.write(f"skident {options.name}: error: {text}\n")
        return results.INVALID_INPUT
    if not options.quiet:
        sys.stderr.writelines(f"{note}\n" for note in result.notes)
    as_json = json.dumps(results.plain({"command": options.name, **result.numbers}), indent=2, allow_nan=False)
    sys.stdout.write(f"{as_json if options.json else result.text}\n")
    return result.code


def _parser():
    """Parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="skident",
        description="Recover, compare and compress neural networks from their inputs and outputs.",
        epilog=_EXIT_CODES,
    )
    version = importlib.import_module("skident").__version__
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_identify(commands)
    _add_audit(commands)
    _add_compress(commands)
    _add_export(commands)
    _add_labels(commands)
    return parser


def _command(commands, name, help_text, data=True):
    """A command with the arguments that all of them take, and those of all that query a model."""
    command = commands.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", epilog=_EXIT_CODES
    )
    command.set_defaults(name=name)  # of its module and function
    command.add_argument(
        "model", metavar="MODEL", help="an .onnx or .nnet file, or .safetensors as FeedforwardNetwork.save writes it"
    )
    if data:
        command.add_argument(
            "--data", metavar="X.csv", required=True, help="typical inputs, one row each; a header is detected"
        )
        command.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--quiet", action="store_true", help="do not print progress and notes")
    return command


def _add_identify(commands):
    command = _command(commands, "identify", "recover the weights of a black box from its outputs")
    add = command.add_argument
    add(
        "--widths",
        type=_widths,
        default="auto",
        help="hidden layers and, last, outputs, such as 8,5,1; auto determines them (default)",
    )
    add(
        "--activation",
        default="auto",
        help="tanh, sigmoid, relu, ... (default: auto, read from the file, or detected)",
    )
    add("--output-activation", default="auto", help="identity, tanh, ... (default: auto, as above)")
    _add_response(command)
    add("--input-range", type=float, nargs=2, metavar=("LOW", "HIGH"), help="bounds of all inputs: no query outside")
    add(
        "--weight-dtype", choices=["float32", "float16", "bfloat16"], help="round weights to such numbers (default: no)"
    )
    _add_fit(add)


def _add_fit(add):
    """Arguments of commands that identify a network."""
    add("--tol", type=float, default=1e-8, help="largest relative error of an exact network (default: 1e-8)")
    add("--max-seconds", type=float, help="time budget")
    add("--max-queries", type=int, help="query budget")
    add("--jobs", type=int, help="number of processes")
    add("--output", metavar="FILE", help="write the network, if identified: .safetensors or .onnx")
    add("--report", metavar="FILE.html", help="write a page with the report and all parameters (needs pandas)")


def _add_labels(commands):
    command = _command(commands, "labels", "recover a classifier from its predicted classes alone")
    _add_fit(command.add_argument)
    command.set_defaults(widths="auto", activation="auto", output_activation="auto", response="labels")
    command.set_defaults(input_range=None, weight_dtype=None)


def _add_export(commands):
    command = _command(commands, "export", "write a network in another format", data=False)
    command.add_argument("--output", metavar="FILE", required=True, help="destination: .safetensors, .onnx, .c or .py")


def _add_audit(commands):
    command = _command(commands, "audit", "compare a model with a known network")
    command.add_argument("reference", metavar="REFERENCE", help="the known network: .safetensors, .onnx or .nnet")
    _add_response(command)
    command.add_argument(
        "--tol", type=float, help="largest difference of equal models, over the outputs' standard deviation"
    )
    command.add_argument("--max-queries", type=int, help="query budget")


def _add_compress(commands):
    command = _command(commands, "compress", "find the smallest network with the same outputs")
    command.add_argument(
        "--tol",
        type=float,
        default=1e-2,
        help="largest root mean square error over held-out rows and outputs, relative to the outputs' standard "
        "deviation, or what --metric says (default: 0.01)",
    )
    metrics = ["auto", "outputs", "probabilities", "labels"]
    command.add_argument(
        "--metric",
        choices=metrics,
        default="auto",
        help="what the error measures: outputs, probabilities, or labels, the share of rows whose class changes "
        "(default: auto)",
    )
    command.add_argument("--max-seconds", type=float, help="time budget; the smallest network until then is written")
    command.add_argument("--output", metavar="FILE", help="write the network: .safetensors or .onnx")


def _add_response(command):
    command.add_argument(
        "--response",
        choices=["auto", "predict", "predict_proba"],
        default="auto",
        help="whether the outputs are values (predict, default) or class probabilities (predict_proba)",
    )


def _widths(text):
    """``auto``, or layer widths such as ``8,5,1``."""
    try:
        return "auto" if text == "auto" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected auto or numbers separated by commas, such as 8,5,1, got {text!r}"
        ) from None
