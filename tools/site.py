"""Hooks of MkDocs: pages from elsewhere, links to files that are no pages, tables made of the code."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from holdfast.cli.app import app
from holdfast.serve.config import SETTINGS
from holdfast.serve.http.openapi import document

ROOT = Path(__file__).parents[1]
# They stay at the root of the repository, where people look for them.
OUTSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
# In a text, not in code or a link.
PAGE = re.compile(r"(?<![\w/>\"])docs/([\w/-]+\.md)")
GENERATED = re.compile(r"<!-- generated: (\w+) -->")
# What only those read who have the sources of a page.
IN_A_CLONE = re.compile(r"<!-- in a clone -->.*?<!-- on the site -->\n\n", re.DOTALL)
# Variables that are no options of a command.
OTHER_VARIABLES = {
    "HOLDFAST_LOG_FORMAT": "`text` or `json`: the format of log lines of `holdfast worker`",
    "HOLDFAST_LOG_VERBOSITY": "-1 to 2, as by `-q`, `-v` and `-vv`, for workers that a server starts",
    "HOLDFAST_DEBUG": "any text: print the traceback of an unexpected error of the command line",
    "NO_COLOR": "any text: no colours",
}
# What means something in Markdown; code is left as it is.
PLAIN = re.compile(r"`[^`]+`|[\\*_<>|\[\]]")
HELP = "Show this message and exit."
FILE_TYPES = {str: "text", bool: "true or false", int: "a whole number", list: "a list of texts"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every decision to the navigation."""
    found = sorted(path.name for path in Path(config.docs_dir, "decisions").glob("0*.md"))
    internals = next(part["Internals"] for part in config.nav or [] if "Internals" in part)
    internals[-1]["Decisions"] = ["decisions/README.md", *(f"decisions/{name}" for name in found)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Fill in tables, and lead links to where a page is on the site."""
    markdown = GENERATED.sub(lambda mark: TABLES[mark[1]](), IN_A_CLONE.sub("", markdown))
    uri = page.file.src_uri
    folder = Path() if uri in OUTSIDE else Path("docs", uri).parent

    def replaced(link: re.Match[str]) -> str:
        path = Path("/", folder, link["target"]).resolve().relative_to("/").as_posix()
        target = path.removeprefix("docs/")
        if files.get_file_from_path(target) is not None:
            return f"[{link['text']}]({'../' * uri.count('/')}{target}{link['anchor'] or ''})"
        # MkDocs complains of what does not exist.
        return f"{link['text']} (`{path}` in the repository)" if (ROOT / path).exists() else link[0]

    return LINK.sub(replaced, markdown)


def on_page_content(html: str, *, page: Any, files: Files, **_: Any) -> str:
    """Make links of the pages that docstrings and help texts name."""
    up = "../" * page.file.src_uri.count("/")

    def linked(name: re.Match[str]) -> str:
        found = files.get_file_from_path(name[1])
        return name[0] if found is None else f'<a href="{up}{found.url}">{name[0]}</a>'

    return PAGE.sub(linked, html)


def commands() -> str:
    """Every command with its help, its arguments and its options."""
    return "\n".join(_command(context) for context in contexts(app))


def contexts(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The context of a command, and of all commands below it."""
    context = click.Context(command, info_name=command.name if parent else "holdfast", parent=parent)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from contexts(below, context)


def _command(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [param.get_help_record(context) for param in command.get_params(context)]
    rows = [f"| `{one[0]}` | {_text(one[1])} |" for one in records if one and one[1] not in ("", HELP)]
    table = ["| option | |", "|---|---|", *rows] if rows else []
    about = [_paragraph(part) for part in (command.help or "").split("\n\n")]
    return "\n\n".join([f"## {context.command_path}", f"```text\n{usage}\n```", *about, "\n".join(table), ""])


def _paragraph(text: str) -> str:
    """A paragraph of a help text; one that click must not wrap is shown as it is."""
    if text.startswith("\b"):
        return f"```text\n{text.removeprefix(chr(8)).strip()}\n```"
    return _text(text)


def _text(help_text: str) -> str:
    """Help as Markdown: its signs mean themselves, but for code."""
    text = " ".join(help_text.split())
    return PLAIN.sub(lambda sign: sign[0] if sign[0][0] == "`" else f"&#{ord(sign[0])};", text)


def variables() -> str:
    """Every environment variable."""
    found: dict[str, tuple[list[str], str]] = {}
    for context in contexts(app):
        for param in context.command.get_params(context):
            if isinstance(param, click.Option) and isinstance(param.envvar, str):
                places, _ = found.setdefault(param.envvar, ([], param.help or ""))
                places.append(f"`{context.command_path} {param.opts[0]}`")
    rows = [
        f"| `{name}` | {', '.join(places)} | {_text(text)} |"
        for name, (places, text) in sorted(found.items())
    ]
    rows += [f"| `{name}` | | {text} |" for name, text in OTHER_VARIABLES.items() if name not in found]
    return "\n".join(["| variable | option | meaning |", "|---|---|---|", *rows])


def file_settings() -> str:
    """The names in the file of `holdfast serve`."""
    rows = [
        f"| `{name}` | {' or '.join(map(_type_name, kinds if isinstance(kinds, tuple) else (kinds,)))} |"
        for name, kinds in SETTINGS.items()
    ]
    return "\n".join(["| name | value |", "|---|---|", *rows])


def _type_name(kind: type) -> str:
    return FILE_TYPES.get(kind, "a number")


def paths() -> str:
    """Every path of the HTTP API."""
    rows = [
        f"| `{method.upper()} {path}` | {_text(operation.get('summary', ''))} |"
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    ]
    return "\n".join(["| path | |", "|---|---|", *rows])


TABLES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "variables": variables,
    "file": file_settings,
    "paths": paths,
}
