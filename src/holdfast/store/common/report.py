"""What the reports of several stores have in common."""

from .clock import system_clock

MEGABYTE = 1024 * 1024
# A larger clock skew is reported.
SKEW_MS = 1_000


def clock_complaints(server_ms: int) -> list[str]:
    """Whether the clock of this machine differs from the server's."""
    skew_ms = system_clock() - server_ms
    if abs(skew_ms) <= SKEW_MS:
        return []
    return [f"this machine's clock differs from the server's by {skew_ms:+,} ms; set one of them"]
