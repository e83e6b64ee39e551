"""Reductions: each makes a problem simpler and has an inverse for what is recovered; a chain applies them in turn."""
