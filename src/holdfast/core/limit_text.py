"""Limits as text, in the same words on the command line and on the dashboard."""

from .limits import Limit


def limit_text(limit: Limit) -> str:
    """A limit as text."""
    texts = []
    if limit.rate is not None:
        texts.append(rate_text(limit.rate) + (f" in bursts of {limit.burst:,}" if limit.burst > 1 else ""))
    if limit.concurrency is not None:
        texts.append(f"{limit.concurrency:,} at once")
    return ", ".join(texts)


def rate_text(per_s: float) -> str:
    """A rate in the unit in which it was probably given: the first one in which it has few digits."""
    for seconds, unit in ((1, "s"), (60, "m"), (3600, "h"), (86400, "d")):
        count = per_s * seconds
        if count >= 1 and abs(count - round(count, 2)) < 1e-9 * count:
            return f"{count:,.2f}".rstrip("0").rstrip(".") + f"/{unit}"
    return f"{per_s:.6g}/s" if per_s >= 1 else f"{per_s * 86400:.6g}/d"
