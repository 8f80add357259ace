"""The SQLite libraries by name. A library is imported on first use, as apsw may not be installed."""

from ...core.errors import BadInput, StoreError
from .connection import DEFAULT_DRIVER, Driver


def driver_named(name: str) -> Driver:
    """The driver that a URL or an argument names; `StoreError` if its library is not installed."""
    if name == DEFAULT_DRIVER:
        from .driver_stdlib import StdlibDriver

        return StdlibDriver()
    if name != "apsw":
        raise BadInput("driver", name, needed="stdlib or apsw")
    try:
        from .driver_apsw import ApswDriver
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "apsw":
            raise
        raise StoreError("driver=apsw needs apsw: pip install apsw") from None
    return ApswDriver()
