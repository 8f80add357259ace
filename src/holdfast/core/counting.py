"""Numbers of things, in words: the one place that knows about plurals."""


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 job`, `2,000 jobs`; `many` is for what does not end in s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
