"""Keys of a log's items: how they are stored, and which ids the items' jobs have.

    appended          stored key                id of the job
    without a key     none                      #7        # and its index
    key="order-7"     UTF-8                     order-7   the key
    key="#7"          UTF-8                     ##7       a # in front where the key begins with one
    key=b"a"          0xFF and the bytes        #x61      #x and the bytes in hexadecimal

Both are injective. UTF-8 never contains 0xFF, so no text key is stored as a bytes key is. An id that begins
with `##` is that of a text key, with `#x` that of a bytes key, with `#` and a digit that of an index; any
other is the text key itself.
"""

from ..core.bounds import UNIQUE_KEY_BYTES
from ..core.checks import check_key
from ..core.errors import StoreCorrupt
from ..queue.options import Key, key_bytes

_BYTES_MARK = b"\xff"


def stored_key(key: Key) -> bytes:
    """A key as the log keeps it."""
    raw = key_bytes("key", key)
    check_key("key", raw, UNIQUE_KEY_BYTES)
    return _BYTES_MARK + raw if isinstance(key, bytes) else raw


def job_id_of(index: int, stored: bytes | None) -> str:
    """The id of the job that the item at an index is, by its stored key."""
    if stored is None:
        return f"#{index}"
    if stored.startswith(_BYTES_MARK):
        return f"#x{stored.removeprefix(_BYTES_MARK).hex()}"
    try:
        text = stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise StoreCorrupt(
            f"the key of the log's item at {index:,} is neither text nor marked bytes"
        ) from None
    return f"#{text}" if text.startswith("#") else text
