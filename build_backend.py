"""The build backend of the project: setuptools, with editable installs that put the checkout on the import path.

By default setuptools installs an import hook instead. Type checkers do not follow it, and a folder named ``skident`` in
the current directory, such as that of the checkout itself, hides the package.
"""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build an editable wheel with a path entry, unless another mode is set."""
    settings = {"editable_mode": "compat", **(config_settings or {})}
    return build_meta.build_editable(wheel_directory, settings, metadata_directory)
