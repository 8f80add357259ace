"""The file of --runners: what it sets, and what it is refused for."""

import pytest

from holdfast import BadInput
from holdfast.work.runners.records import MOST_OPTIONS
from holdfast.work.runners.settings import read_settings


def test_limits_have_the_names_of_the_options_of_handlers(tmp_path):
    """With durations as users write them; what is not named has its default."""
    path = tmp_path / "runners.toml"
    path.write_text('[limits]\ntimeout = "10 min"\ncpu = 2.5\ncontext_age = "1h"\nmemory_mb = 64\n')

    limits = read_settings(str(path)).limits

    assert (limits.timeout_ms, limits.cpu_ms, limits.context_age_ms) == (600_000, 2_500, 3_600_000)
    assert (limits.memory_mb, limits.open_files) == (64, MOST_OPTIONS.open_files)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[limits]\nmemory = 64", "'memory', and must be one of timeout, cpu, memory_mb"),
        ("[limits]\nmemory_mb = -1", "memory_mb is -1"),
        ('[limits]\ntimeout = "soon"', "timeout is 'soon'"),
        ("[limits]\nbatch = true", "got `bool`"),
        ("idle_contexts = -1", "at `$.idle_contexts`"),
        ("processes = 0", "at `$.processes`"),
        ('isolaton = "required"', "`isolaton`"),
    ],
)
def test_what_would_not_take_effect_is_refused(tmp_path, text, found):
    """A limit that an operator has set must hold, or be refused by its name."""
    path = tmp_path / "runners.toml"
    path.write_text(text)

    with pytest.raises(BadInput) as refused:
        read_settings(str(path))

    assert found in str(refused.value)
