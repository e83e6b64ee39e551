"""Run the command line by ``python -m skident.cli``."""

import sys

from .main import main

sys.exit(main())
