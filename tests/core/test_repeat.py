"""The documents' repeats and retry_after: what they mean, and what is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import bounds
from holdfast.core.errors import BadInput
from holdfast.core.repeat import (
    Repeat,
    after_ms,
    check_retry_after,
    next_run_ms,
    parse_modifier,
    parse_repeat,
)
from tests.core.moments import following, ms, text_of


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("SCHEDULED, +1 HOUR", "2026-11-15 14:00:00"),
        ("STARTED, +1 HOUR", "2026-11-15 14:15:00"),
        ("FINISHED, +1 HOUR", "2026-11-15 14:45:00"),
    ],
)
def test_the_worked_example_of_the_document_comes_out_as_printed(repeat, expected):
    found = next_run_ms(
        parse_repeat(repeat),
        scheduled_ms=ms("2026-11-15 13:00"),
        started_ms=ms("2026-11-15 13:15"),
        finished_ms=ms("2026-11-15 13:45"),
    )

    assert text_of(found) == expected


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("FINISHED, +1 HOUR", "2026-11-15 14:45:30"),
        ("SCHEDULED, +1 HOUR", "2026-11-15 14:45:30"),
        ("FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2026-11-16 04:00:00"),
        ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-16 06:00:00"),
        ("HOURLY", "2026-11-15 14:45:30"),
        ("DAILY", "2026-11-16 13:45:30"),
        ("WEEKLY", "2026-11-22 13:45:30"),
    ],
)
def test_every_example_and_canned_form_of_the_document_does_what_it_says(repeat, expected):
    assert following(repeat, "2026-11-15 13:45:30") == expected


def test_a_monday_job_that_finishes_on_monday_waits_for_the_next_one():
    assert (
        following("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-16 06:10")
        == "2026-11-23 06:00:00"
    )


def test_a_missed_scheduled_run_is_kept_and_caught_up_run_by_run():
    late = next_run_ms(
        parse_repeat("SCHEDULED, +1 HOUR"),
        scheduled_ms=ms("2026-11-15 01:00"),
        started_ms=ms("2026-11-15 09:00"),
        finished_ms=ms("2026-11-15 09:30"),
    )

    assert text_of(late) == "2026-11-15 02:00:00"


def test_canned_forms_count_from_the_finish():
    hourly = parse_repeat("hourly")

    assert (hourly.base, hourly.modifiers) == ("FINISHED", ("+1 HOUR",))


# ── the grammar ──────────────────────────────────────────────────────────────────────────────────

LEGAL = [
    ("hourly", "HOURLY"),
    ("Daily", "DAILY"),
    ("WEEKLY", "WEEKLY"),
    ("finished, +1 hour", "FINISHED, +1 HOUR"),
    ("FINISHED,+1 HOUR", "FINISHED, +1 HOUR"),
    ("   FINISHED,   +1 HOUR", "FINISHED, +1 HOUR"),
    ("Scheduled, +99999999 seconds", "SCHEDULED, +99999999 SECONDS"),
    ("SCHEDULED, -5 SECOND, +1 DAY", "SCHEDULED, -5 SECOND, +1 DAY"),
    ("STARTED, +999 MINUTES", "STARTED, +999 MINUTES"),
    ("STARTED, +001 MINUTE", "STARTED, +001 MINUTE"),
    ("STARTED, +1 HOURS", "STARTED, +1 HOURS"),
    ("STARTED, +2 HOUR", "STARTED, +2 HOUR"),
    ("STARTED, -3 MONTHS, +1 YEAR", "STARTED, -3 MONTHS, +1 YEAR"),
    ("FINISHED, start of hour, +1 hour", "FINISHED, START OF HOUR, +1 HOUR"),
    ("FINISHED, START OF DAY, START OF MONTH, START OF YEAR", None),
    ("FINISHED, WEEKDAY 0", None),
    ("FINISHED, WEEKDAY 6", None),
]


@pytest.mark.parametrize(("text", "canonical"), LEGAL)
def test_a_legal_repeat_is_kept_upper_cased_and_reads_back_as_the_same(text, canonical):
    repeat = parse_repeat(text)

    assert str(repeat) == (canonical or text)
    assert parse_repeat(str(repeat)) == repeat
    assert msgspec.json.decode(msgspec.json.encode(repeat), type=Repeat) == repeat


MALFORMED_MODIFIERS = [
    "",
    " ",
    "1 HOUR",
    "+1HOUR",
    "+1  HOUR",
    "+ 1 HOUR",
    "+1 HOUR ",
    "+1\tHOUR",
    "+1 HOUR\n",
    "\t+1 HOUR",
    "+1",
    "+ HOUR",
    "HOUR",
    "+-1 HOUR",
    "++1 HOUR",
    "+1.5 HOURS",
    "+1 WEEK",
    "+7 WEEKS",
    "+1 HOURSS",
    "+1 FORTNIGHT",
    "+1000 MINUTES",
    "+1000 HOURS",
    "-1000 DAYS",
    "+1000 MONTHS",
    "+1000 YEARS",
    "+0001 DAY",
    "+123456789 SECONDS",
    "+٣ HOURS",
    "+1 DAYſ",
    "+1 HOUR; DROP TABLE jobs",
    "START OF WEEK",
    "START OF MINUTE",
    "START OF SECOND",
    "START OF DAYS",
    "START  OF DAY",
    "STARTOF DAY",
    "START OF",
    "WEEKDAY",
    "WEEKDAY 7",
    "WEEKDAY -1",
    "WEEKDAY 10",
    "WEEKDAY  1",
    "WEEKDAY1",
    "WEEKDAY MONDAY",
    "LOCALTIME",
    "UTC",
    "UNIXEPOCH",
    "NOW",
    "FINISHED",
    "HOURLY",
    "2026-11-15",
]


@pytest.mark.parametrize("modifier", MALFORMED_MODIFIERS)
def test_a_malformed_modifier_is_refused_wherever_it_stands(modifier):
    for form in ("FINISHED,{}", "FINISHED, {}", "FINISHED, +1 DAY, {}", "FINISHED,{}, +1 DAY"):
        with pytest.raises(BadInput, match="repeat"):
            parse_repeat(form.format(modifier))
    with pytest.raises(BadInput, match="retry_after"):
        check_retry_after(modifier)
    with pytest.raises(BadInput, match="modifier"):
        after_ms(modifier, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "FINISHED",
        "FINISHED,",
        "FINISHED, ",
        "FINISHED,, +1 HOUR",
        "FINISHED, +1 HOUR,",
        "FINISHED , +1 HOUR",
        "FINISHED, +1 HOUR , +1 DAY",
        "FINISHED +1 HOUR",
        "FINISHED; +1 HOUR",
        "\tFINISHED, +1 HOUR",
        "+1 HOUR",
        "+1 HOUR, FINISHED",
        "FINISHED, FINISHED, +1 HOUR",
        "CREATED, +1 HOUR",
        "HOURLY ",
        "HOURLY, +1 HOUR",
        "HOURLY, DAILY",
        "MONTHLY",
        "YEARLY",
        "0 4 * * *",
        "FINISHED" + ", +1 HOUR" * 200,
        None,
        5,
        ["FINISHED", "+1 HOUR"],
        b"HOURLY",
    ],
)
def test_a_malformed_repeat_is_refused_by_name(text):
    with pytest.raises(BadInput) as refused:
        parse_repeat(text)

    assert refused.value.name == "repeat"


@given(st.text(alphabet="FINSHED+-01 ,OURTAYWK\t9", max_size=40))
def test_no_text_makes_the_parser_fail_otherwise_than_by_refusing(text):
    try:
        parse_repeat(text)
    except BadInput:
        return
    assert parse_repeat(text) == parse_repeat(str(parse_repeat(text)))


# ── retry_after ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["+0 SECOND", "+5 minutes", "+1 Month", "weekday 3", " +1 HOUR"])
def test_a_retry_after_that_can_lie_ahead_is_kept_exactly_as_given(text):
    assert check_retry_after(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "START OF HOUR",
        "HOURLY",
        "SCHEDULED",
        "FINISHED, +1 HOUR",
        "+1 HOUR, +1 DAY",
        "-1 SECOND",
        "-0 SECONDS",
        "START OF DAY",
        "START OF YEAR",
        None,
        60,
    ],
)
def test_lists_bases_start_of_hour_and_steps_back_are_no_retry_after(text):
    with pytest.raises(BadInput) as refused:
        check_retry_after(text)

    assert refused.value.name == "retry_after"


def test_a_single_modifier_may_lead_back_but_is_never_start_of_hour():
    assert parse_modifier("-2 days").amount == -2
    assert parse_modifier("start of month").unit == "START OF MONTH"
    with pytest.raises(BadInput, match="modifier"):
        parse_modifier("START OF HOUR")


def test_a_wait_is_never_shorter_than_it_says():
    """Repeats are whole seconds; a wait keeps its milliseconds, or one second could be one millisecond."""
    assert after_ms("+1 SECOND", 1_999) == 2_999
    assert after_ms("+0 SECOND", 1_999) == 1_999


@pytest.mark.parametrize("text", ["+999 YEARS", "-999 YEARS", "-60 YEARS", "+300 YEARS"])
def test_an_outcome_outside_the_years_that_a_rank_can_hold_is_refused(text):
    with pytest.raises(BadInput, match="1970 to 2248"):
        after_ms(text, ms("2026-11-15"))
    with pytest.raises(BadInput, match="1970 to 2248"):
        following(f"FINISHED, {text}", "2026-11-15")


def test_the_last_moment_that_a_rank_can_hold_is_still_given():
    assert after_ms("+1 SECOND", bounds.MAX_TIME_MS - 1_000) == bounds.MAX_TIME_MS
    with pytest.raises(BadInput):
        after_ms("+1 SECOND", bounds.MAX_TIME_MS - 999)
