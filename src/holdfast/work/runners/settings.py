"""Settings of runners, from a TOML file of the operator.

isolation = "auto"            # required: do not start without bubblewrap; none: do not use it
network = false               # whether contexts may reach the network
cgroup = "/sys/fs/cgroup/…"   # a group below which each context has its own; without it, a delegated one
folders = ["/opt/php"]        # more folders that contexts may read
hosts = ["*.example.com"]     # hosts that http handlers may name; none: all that have public addresses
private_hosts = false         # whether, without `hosts`, they may be in private networks too
[interpreters]
php = ["/opt/php/bin/php"]    # a language, and its command
[limits]
memory_mb = 512               # the most that a handler may ask for
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ...core.errors import BadInput
from ...core.handler import HTTP as HTTP
from ...core.handler import RunnerOptions, check_options
from ...queue.handlers import runner_options
from .records import MOST_OPTIONS

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# Languages with a bootstrap, or without a process, and so with a meaning of their own.
PYTHON, NODE, SHELL = "python", "node", "shell"
# What a handler may set for itself, and so what the operator may limit.
LIMITS = (
    *("timeout", "cpu", "memory_mb", "output_kb", "open_files"),
    *("context_jobs", "context_age", "batch_size"),
)
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What contexts may use, and how they are walled off."""

    isolation: Literal["auto", "required", "none"] = "auto"
    network: bool = False
    cgroup: str = ""
    folders: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    private_hosts: bool = False
    # A language and its command; those of `python`, `node` and `shell` replace the ones that are found.
    interpreters: dict[str, tuple[str, ...]] = {}
    limits: RunnerOptions = MOST_OPTIONS
    # Processes of a context, and the size of its folder, of each file there, and how many these may be.
    processes: AtLeastOne = 32
    folder_mb: AtLeastOne = 64
    folder_files: AtLeastOne = 10_000
    # Contexts that are kept while no job runs in them, and how long.
    idle_contexts: Annotated[int, msgspec.Meta(ge=0)] = 16
    idle_s: Annotated[float, msgspec.Meta(ge=0)] = 300.0


def read_settings(path: str, *, private_hosts: bool = False) -> RunnerSettings:
    """The settings of a file, or the defaults for ""; raises `BadInput` if it cannot be used.

    `private_hosts` is the default of that setting.
    """
    import tomllib

    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        found = {"private_hosts": private_hosts} | found
        limits = msgspec.convert(found.pop("limits", {}), dict[str, str | int | float])
        settings = msgspec.convert(found, RunnerSettings)
    except OSError as error:
        raise BadInput("runners", path, needed=f"a file that can be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadInput("runners", path, needed=f"TOML with the settings of runners ({error})") from None
    return msgspec.structs.replace(settings, limits=_read_limits(path, limits))


def _read_limits(path: str, given: dict[str, Any]) -> RunnerOptions:
    """The most that handlers may ask for; what is not given, or 0, is the default."""
    if unknown := given.keys() - set(LIMITS):
        raise BadInput(f"limit in {path}", min(unknown), needed=f"one of {', '.join(LIMITS)}")
    options = runner_options(given)
    check_options(options)
    chosen = {name: value for name, value in msgspec.structs.asdict(options).items() if value}
    return msgspec.structs.replace(MOST_OPTIONS, **chosen)


def find_interpreters(settings: RunnerSettings, *, readable: bool) -> dict[str, tuple[str, ...]]:
    """The commands of all languages that run in processes here, by their absolute paths.

    `readable`: other users than this one must be able to read them.
    """
    own = Path(sys.executable).resolve()
    python = str(own) if not readable or _is_public(own) else shutil.which("python3", path=SYSTEM_PATH)
    found = {PYTHON: python, NODE: shutil.which("node"), SHELL: shutil.which("sh", path=SYSTEM_PATH)}
    commands: dict[str, tuple[str, ...]] = {lang: (path,) for lang, path in found.items() if path}
    for lang, command in settings.interpreters.items():
        path = shutil.which(command[0]) if command else None
        if path is None:
            raise BadInput(f"interpreter of {lang}", " ".join(command), needed="a program on this machine")
        commands[lang] = (path, *command[1:])
    return commands


def _is_public(path: Path) -> bool:
    """Whether every user can read a file."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)
