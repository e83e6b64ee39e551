"""Settings of the site, built by `python -m sphinx -W docs build/docs`; `-D plot_gallery=0` runs no example."""

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
os.environ.setdefault("MPLBACKEND", "Agg")

import skident  # noqa: E402

project = "skident"
author = "skident developers"
copyright = "skident developers"
version = release = skident.__version__

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "extension.links",
    "extension.mathml",
    "extension.pages",
]
exclude_patterns = ["extension", "**/README*"]
default_role = "literal"  # single backticks in docstrings are code
suppress_warnings = ["config.cache"]  # the scraper is a function

autodoc_typehints = "none"  # docstrings say more
numpydoc_show_class_members = False
numpydoc_validation_checks = set()

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "image_scrapers": ("extension.pictures.scraper",),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "capture_repr": (),
    "write_computation_times": False,  # pages of seconds that nobody searches for
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "copyfile_regex": r".*\.safetensors",
}
# Warnings of examples do not fail the build: scikit-learn's optimizers may stop early.
warnings.filterwarnings("ignore", message="Stochastic Optimizer: Maximum iterations")

html_theme = "pydata_sphinx_theme"
html_title = "skident"
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_css_files = ["skident.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "getting_started": [], "generated/reproduction": []}  # pages that stand alone
