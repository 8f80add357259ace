"""Hooks of MkDocs: pages that are kept elsewhere, and links to files that are no pages."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# They stay at the root of the repository, where people look for them.
OUTSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every decision to the navigation."""
    decisions = sorted(
        path.relative_to(config.docs_dir).as_posix()
        for path in Path(config.docs_dir, "decisions").glob("0*.md")
    )
    (internals,) = (pages for part in config.nav for name, pages in part.items() if name == "Internals")
    internals[-1]["Decisions"] = ["decisions/README.md", *decisions]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Lead links to where a page is on the site; those to other files of the repository become text."""
    folder = Path("docs", page.file.src_uri).parent if page.file.src_uri not in OUTSIDE else Path()

    def replaced(link: re.Match[str]) -> str:
        path = _resolved(folder / link["target"])
        if not (ROOT / path).exists():
            return link[0]  # MkDocs complains
        uri = path.removeprefix("docs/")
        if files.get_file_from_path(uri) is None:
            return f"{link['text']} (`{path}` in the repository)"
        up = "../" * page.file.src_uri.count("/")
        return f"[{link['text']}]({up}{uri}{link['anchor'] or ''})"

    return LINK.sub(replaced, markdown)


def _resolved(path: Path) -> str:
    return Path("/", path).resolve().relative_to("/").as_posix()
