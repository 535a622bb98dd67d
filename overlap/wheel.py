"""Builds the package: the book goes into it as data, so that it works without a checkout."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from setuptools.command.build_py import build_py

#: What the package needs of a checkout: pages, snippets, recordings; the version and the book's own machines.
_PARTS = ("pyproject.toml", "LICENSE", "NOTICE", "docs/*.md", "docs/recordings/**/*.json", "snippets/**/*.py")


class BuildWithBook(build_py):
    """Copies them to `overlap/data/`; an installation that can be edited reads the checkout."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        if not Path("snippets").is_dir():
            sys.exit("no snippets/ here: build the package in a checkout, with `pip wheel .`")
        data = Path(self.build_lib) / "overlap/data"
        shutil.rmtree(data, ignore_errors=True)
        for file in _files():
            (data / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, data / file)


def _files() -> Iterator[Path]:
    for part in _PARTS:
        yield from (file for file in sorted(Path().glob(part)) if file.is_file())
