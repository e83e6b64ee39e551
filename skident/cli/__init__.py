"""What is asked from a shell: identify, audit, compress. ``skident --help``, or ``python -m skident.cli``.

- `main`: the commands' arguments, what is printed where, and how they end.
- `tables`: rows of numbers from CSV files.
- `models`: networks and black boxes from files.
- `identify`, `audit`, `compress`: a command each.
- `pages`: reports as HTML pages.
"""

from .main import main

__all__ = ["main"]
