"""Counts with their nouns, singular or plural."""


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 job`, `2,000 jobs`; `many` is the plural if it is not formed with s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
