"""The command line: ``skident identify``, ``audit``, ``compress``, ``export``, ``labels``; also ``python -m skident``.

- `main`: arguments of the commands, printing, exit codes.
- `identify`, `audit`, `compress`, `export`, `labels`: one command each.
- `models`: networks and black boxes from files; `tables`: CSV files; `pages`: HTML reports; `results`: results.
"""

from .main import main

__all__ = ["main"]
