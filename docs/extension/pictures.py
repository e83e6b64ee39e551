"""Pictures of the gallery: an example writes its picture into its folder; it is moved into the gallery's."""

import shutil
from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import figure_rst


def scraper(block, block_vars, gallery_conf):
    """Move what a block of an example has drawn; gives the lines that show it."""
    plt.close("all")
    moved = []
    for picture in sorted(Path(block_vars["src_file"]).parent.glob("*.png")):
        target = next(block_vars["image_path_iterator"])
        shutil.move(picture, target)
        moved.append(target)
    return figure_rst(moved, gallery_conf["src_dir"])
