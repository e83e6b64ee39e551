"""Run the command line by ``python -m skident``."""

import sys

from skident.cli import main

sys.exit(main())
