"""Write the address of the repository into what a release shows: links of the README, `project.urls`, CITATION.cff.

    python .ci/name_repository.py https://github.com/OWNER/NAME v0.2.0

PyPI shows the README without the files beside it, so its links lead to the tag. Run on a checkout that is thrown away.
"""

import re
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]


def absolute(readme, address, tag):
    """A README whose links and pictures lead to the files of a tag."""

    def replaced(match):
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({address}/{kind}/{tag}/{match[3]})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", replaced, readme)


def with_urls(project, address, tag):
    """A pyproject.toml with the addresses that PyPI shows beside a package."""
    urls = {
        "Source": address,
        "Documentation": f"{address}/blob/{tag}/docs/index.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return project.replace("[project.scripts]\n", f"[project.urls]\n{lines}\n[project.scripts]\n", 1)


def cited(citation, address):
    """A CITATION.cff with the repository."""
    return re.sub(r"(?m)^(license: .*\n)", rf'\1repository-code: "{address}"\n', citation, count=1)


if __name__ == "__main__":
    address, tag = sys.argv[1:]
    for name, change in {
        "README.md": lambda text: absolute(text, address, tag),
        "pyproject.toml": lambda text: with_urls(text, address, tag),
        "CITATION.cff": lambda text: cited(text, address),
    }.items():
        path = TOP / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
