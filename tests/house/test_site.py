"""The documentation site: every page is in its navigation, and every link leads to a page and a heading."""

import os
import subprocess
import sys

from tests.house.source import ROOT


def build(folder):
    """Build the site into a folder, as `make docs` does."""
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    settings = folder / "mkdocs.yml"
    settings.write_text(
        config.replace("docs_dir: docs", f"docs_dir: {ROOT / 'docs'}")
        .replace("site_dir: .cache/site", f"site_dir: {folder / 'site'}")
        .replace("tools/site.py", str(ROOT / "tools/site.py"))
    )
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(settings)],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


def test_the_site_is_built_strictly(tmp_path):
    """A page that the navigation lacks, and a dead link or anchor, are complaints, and these are errors."""
    done = build(tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").exists()
