"""Which SQLite library a store uses. Only that one is imported (`guard.py` looks out for others)."""

from ...core.errors import BadInput, StoreError
from .connection import Driver

DEFAULT = "stdlib"
NAMES = ("stdlib", "apsw")


def driver_named(name: str) -> Driver:
    """The driver that a URL or an argument names; `StoreError` if its library is not installed."""
    if name not in NAMES:
        raise BadInput("driver", name, needed="stdlib or apsw")
    if name == DEFAULT:
        from .library_stdlib import StdlibDriver

        return StdlibDriver()
    try:
        from .library_apsw import ApswDriver
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "apsw":
            raise
        raise StoreError("driver=apsw needs apsw: pip install 'holdfast[apsw]'") from None
    return ApswDriver()
