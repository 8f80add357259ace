"""`holdfast jobs`, `show`, `why` and `counts`: what is there."""

import contextlib
import json
from datetime import datetime

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.store.common.clock import system_clock


def test_jobs_are_listed_for_people(shell):
    """One a row, oldest first, ids whole."""
    first, second = shell.add("resize"), shell.add("mail", "--delay", "1h", "--priority", 900)

    header, *rows = shell.ok("jobs").lines

    assert header.split() == ["ID", "TASK", "STATE", "WHEN", "PRIORITY", "TRIES", "NOTE"]
    assert [row.split()[:3] for row in rows] == [
        [str(first), "resize", "QUEUED"],
        [str(second), "mail", "QUEUED"],
    ]
    assert "due in 59m" in rows[1]
    assert "900" in rows[1]


def test_jobs_are_listed_for_programs(shell):
    """One object a line; ids are text, times ISO, and every field is there."""
    parent = shell.add("mail", "--domain", "cdn", "--unique", "k")

    record = shell.ok("jobs", "--json").record

    assert record["id"] == str(parent)
    assert (record["domain"], record["unique"], record["parent_id"]) == ("cdn", "k", None)
    assert datetime.fromisoformat(record["created_at"]).utcoffset() is not None
    assert record["started_at"] is None
    assert set(record) == set(shell.ok("jobs", "--json").record)


def test_keys_that_are_no_text_are_shown_all_the_same(shell):
    """Escaped for people, in base64 for programs."""
    with shell.queue() as queue:
        queue.limit(b"\xff\x00", concurrency=0)
        queue.add("mail", domain=b"\xff\x00")
        queue.add("mail", b"\x00\x01")

    assert r"held by domain \xff\x00" in shell.ok("jobs").lines[1]
    first, second = shell.ok("jobs", "--json").records
    assert first["domain"] == {"base64": "/wA="}
    assert shell.ok("show", second["id"], "--json").record["data"] == {"base64": "AAE="}


def test_jobs_are_chosen_by_every_filter(shell):
    """Alone or together."""
    with shell.queue() as queue:
        a = queue.add("a", domain="d").id
        b = queue.add("b").id
        queue.schedule("s", "c", every="1h")
    shell.fail(a)
    chosen = {
        (): [a, b],
        ("--task", "a"): [a],
        ("--state", "FAILED"): [a],
        ("--state", "failed"): [a],
        ("--state", "queued"): [b],
        ("--domain", "d"): [a],
        ("--task", "b", "--state", "FAILED"): [],
        ("--schedule", "s"): [],
        ("--parent", "5"): [],
        ("--after", a): [b],
        ("--limit", 1): [a],
        ("--archived",): [],
        ("--stuck",): [],
    }

    found = {words: [int(r["id"]) for r in shell.ok("jobs", *words, "--json").records] for words in chosen}

    assert found == chosen


def test_ended_jobs_are_found_in_the_archive(shell):
    """By --archived, and by the states that only archived jobs have."""
    done, waiting = shell.add("a"), shell.add("a")
    shell.finish(done)

    for words in (["--archived"], ["--state", "FINISHED"]):
        assert [r["id"] for r in shell.ok("jobs", *words, "--json").records] == [str(done)]
    assert [r["id"] for r in shell.ok("jobs", "--json").records] == [str(waiting)]


def test_more_jobs_than_asked_for_are_mentioned(shell):
    """With the words that show them; pages of a thousand are walked through."""
    shell.ok("add", "a", "--file", "-", stdin="1\n" * 2500)

    said = shell.ok("jobs", "--limit", 2400)

    assert len(said.lines) == 2401
    assert said.err == f"there are more: --after {said.lines[-1].split()[0]}, or a larger --limit\n"
    assert len(shell.ok("jobs", "--limit", 2500, "--json").records) == 2500


def test_stuck_jobs_are_found(shell):
    """Those whose lease has ended, and that nobody has claimed since."""
    with shell.queue(clock=lambda: system_clock() - 600_000) as earlier:
        fine, stuck = earlier.add("a").id, earlier.add("a").id
        for lease in ("1h", "1m"):
            earlier.claim(lease=lease, renew=False)

    assert shell.ok("jobs", "--stuck", "--json").record["id"] == str(stuck)
    assert shell.ok("jobs", "--stuck").lines[1].endswith("past its lease")
    assert len(shell.ok("jobs", "--state", "running", "--json").records) == len([fine, stuck])


def test_a_job_that_a_worker_has_not_started_yet_is_told_to_be_claimed(shell):
    """Its run has no beginning, which is no moment in 1970."""
    shell.add("a")
    with shell.queue() as queue:
        queue.connection.ask(c.Claim(limit=1, lease_ms=60_000, start=False))

        listed = shell.ok("jobs").lines[1].split()
        frame = shell.ok("top", "--once", "--interval", "50ms").lines

    assert listed[2:5] == ["RUNNING", "claimed", "500"]
    assert frame[-1].split()[1:4] == ["a", "–", "1"]


def test_no_jobs_are_said_to_be_none(shell):
    """Programs get no line at all."""
    shell.ok("cancel", shell.add("a"))

    assert shell.ok("jobs").out == "no jobs\n"
    assert shell.ok("jobs", "--task", "b").out == "no jobs match\n"
    assert shell.ok("jobs", "--json").out == ""


def test_show_tells_everything(shell):
    """The record, why it stands where it does, the data, the errors with their tracebacks."""
    job_id = shell.add("resize", '{"path": "a.png"}', "--domain", "cdn")
    with shell.queue() as queue:
        (job,) = queue.claim(renew=False)
        try:
            raise FileNotFoundError("a.png")
        except FileNotFoundError as error:
            job.done(error=error)

    said = shell.ok("show", job_id)
    record = shell.ok("show", job_id, "--json").record

    for text in (
        str(job_id),
        "resize",
        "cdn",
        '"path": "a.png"',
        "FileNotFoundError: a.png",
        "Traceback",
        "not due",
    ):
        assert text in said.out
    assert record["data"] == {"path": "a.png"}
    assert record["errors"][0]["error"] == "FileNotFoundError: a.png"
    assert "test_show_tells_everything" in record["errors"][0]["traceback"]
    assert record["result"] is None


def test_show_tells_where_an_option_comes_from(shell):
    """What was given, what the task says (also before it runs), and what nobody has said."""
    with shell.queue() as queue:

        @queue.task(timeout="15s", attempts=3)
        def hang() -> None: ...

        queue.claim()
    first, second = shell.add("hang", "--attempts", 10), shell.add("other")

    shown = shell.ok("show", first).out
    assert "0 of 10  (given when it was added)" in shown
    assert "15s  (from its task)" in shown
    assert "0 of 10  (default)" in shell.ok("show", second).out
    record = shell.ok("show", first, "--json").record
    assert (record["max_attempts"], record["timeout_s"]) == (10, 15)
    sources = record["option_sources"]
    assert (sources["attempts"], sources["timeout"], sources["losses"]) == ("given", "task", "default")


def test_show_tells_the_result(shell):
    """Of archived jobs too."""
    job_id = shell.add("sum")
    shell.finish(job_id, result=[1, 2])

    assert "result:" in shell.ok("show", job_id).out
    assert shell.ok("show", job_id, "--json").record["result"] == [1, 2]


def test_show_cuts_what_no_screen_can_hold(shell):
    """Programs get it whole."""
    job_id = shell.ok("add", "sum", "-", stdin=json.dumps("x" * 100_000)).out.strip()

    assert "more characters; --json shows all" in shell.ok("show", job_id).out
    assert len(shell.ok("show", job_id).out) < 10_000
    assert len(shell.ok("show", job_id, "--json").record["data"]) == 100_000


def test_show_tells_of_the_children(shell):
    """How many there are of each kind, and the first of them."""
    with shell.queue() as queue:
        parent = queue.add("parent").id
        (claimed,) = queue.claim(renew=False)
        child = claimed.add("child").id
        claimed.done()

    out = shell.ok("show", parent).out

    assert "children: 1 pending, 0 failed, 0 finished or cancelled" in out
    assert str(child) in out
    assert shell.ok("jobs", "--parent", parent, "--json").record["parent_id"] == str(parent)


def test_show_counts_the_children_that_are_archived(shell):
    """As finished, though they are not listed."""
    with shell.queue() as queue:
        parent = queue.add("parent").id
        (claimed,) = queue.claim(renew=False)
        ok, bad = claimed.add("child"), claimed.add("child")
        claimed.done()
        for child in queue.claim(["child"], limit=2, renew=False):
            child.done() if child.id == ok.id else child.fail("no")
        queue.claim(["parent"], renew=False)[0].done()

    out = shell.ok("show", parent).out

    assert "children: 0 pending, 1 failed, 1 finished or cancelled" in out
    assert str(bad.id) in out
    assert f"archived: 1; holdfast jobs --archived --parent {parent}" in out


def test_a_signal_with_another_name_is_seen(shell):
    """The answer says that the job does not wait for it, `why` has its name, and `jobs` what it waits for."""
    with shell.queue() as queue:

        @queue.task
        def order(ctx: holdfast.Context) -> str:
            ctx.sleep("1ms")
            ctx.gather(child.call(), child.call())
            return str(ctx.wait_for("approval"))

        @queue.task
        def child() -> None: ...

        job = order.add().id
        queue.next().run()
        assert " sleeps" in shell.ok("jobs").out
        queue.next(wait=5).run()
        assert "waits for 2 jobs" in shell.ok("jobs", "--task", "order").out
        for _ in range(3):
            queue.next(wait=5).run()

    kept = shell.ok("signal", job, "aproval", "true").out
    assert (
        f"kept the signal aproval for job {job} until it waits for that; now it waits for 'approval'" in kept
    )
    assert "Signals not read yet: 'aproval'." in shell.ok("why", job).out
    assert "Signals not read yet: 'aproval'." in shell.ok("show", job).out
    assert shell.ok("jobs").lines[-1].endswith("waits for 'approval'")
    assert shell.ok("signal", job, "aproval", "--json").record["kept"] is True

    assert f"sent the signal approval to job {job}" in shell.ok("signal", job, "approval", "true").out


def test_nothing_that_is_shown_acts_on_the_terminal(shell):
    """Escape sequences are shown, and marks of our own tables are text."""
    with shell.queue() as queue:
        queue.add("[red]bold[/red]", {"a": "\x1b[2J"}, domain=b"\x1b[2J")
        (job,) = queue.claim(renew=False)
        job.fail("\x1b]0;title\x07 went wrong")
        shown = [shell.ok(*words).out for words in (["jobs"], ["show", job.id], ["why", job.id], ["counts"])]

    assert "[red]bold[/red]" in shown[0]
    assert r"\x1b]0;title\x07 went wrong" in shown[0]
    assert not any("\x1b" in text or "\x07" in text for text in shown)


def test_why_says_it_in_a_sentence(shell):
    """Programs get it beside the id."""
    job_id = shell.add("a", "--delay", "1h")

    assert shell.ok("why", job_id).out.startswith("It is not due until ")
    assert shell.ok("why", job_id, "--json").record["id"] == str(job_id)


def test_counts_are_told_by_task_and_state(shell):
    """With totals, the oldest that waits, and what is paused."""
    oldest, failed = shell.add("b"), shell.add("a")
    shell.fail(failed)
    shell.ok("pause", "--task", "b")

    said = shell.ok("counts")
    record = shell.ok("counts", "--json").record

    assert [line.split() for line in said.lines[:4]] == [
        ["TASK", "QUEUED", "FAILED"],
        ["a", "–", "1"],
        ["b", "1", "–"],
        ["TOTAL", "1", "1"],
    ]
    assert f"oldest queued: {oldest}, b, added" in said.out
    assert "paused: task b" in said.out
    assert record["tasks"] == {"a": {"FAILED": 1}, "b": {"QUEUED": 1}}
    assert record["totals"] == {"QUEUED": 1, "FAILED": 1}
    assert (record["oldest_queued"]["id"], record["paused"]) == (str(oldest), ["task b"])


def test_an_empty_store_counts_nothing(shell):
    """And says so."""
    shell.ok("delete", shell.add("a"))

    assert shell.ok("counts").out == "no jobs\n"
    assert shell.ok("counts", "--json").record["totals"] == {}


@pytest.mark.parametrize("command", ["show", "why"])
def test_a_job_that_is_not_there_is_not_found(shell, command):
    """Which is another code than a word that is no id."""
    shell.add("a")

    assert shell.refused(command, 12, code=3) == "holdfast: there is no job 12\n"
    assert "job id is 'abc'" in shell.refused(command, "abc", code=2)
    for word in ("1.5", "9" * 20, "9" * 5000, "٣", "0x10", ""):
        assert "job id is" in shell.refused(command, word, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["--state", "DONE"],
        ["--limit", "0"],
        ["--limit", "1000001"],
        ["--limit", "many"],
        ["--after", "x"],
        ["--parent", "x"],
        ["resize"],
        ["resize", "mail"],
    ],
)
def test_a_list_that_makes_no_sense_is_refused(shell, words):
    """By click's words or ours."""
    shell.add("a")

    shell.refused("jobs", *words, code=2)


def test_the_version_is_ours(shell):
    """As the package says it."""
    assert shell.ok("version").out == shell.ok("--version").out == f"holdfast {holdfast.__version__}\n"
    assert shell.ok("version", "--json").record["holdfast"] == holdfast.__version__


def test_a_job_is_shown_with_its_steps_and_its_log(shell):
    """The last lines for people, all that are kept for programs."""
    with shell.queue() as queue:

        @queue.task
        def talks(ctx: holdfast.Context) -> None:
            ctx.step("paid", lambda: {"receipt": 7})
            for n in range(60):
                ctx.log(f"line {n}")
            raise holdfast.Retry("1h")

        job = talks.add()
        queue.next().run()

    shown = shell.ok("show", job.id).out
    record = shell.ok("show", job.id, "--json").record

    assert '"receipt":7' in shown
    assert "log, 60 lines:" in shown
    assert "claim 1  line 59" in shown
    assert "… 10 lines before" in shown
    assert "line 9\n" not in shown
    assert "line 59\n" in shown
    assert [(step["name"], step["result"]) for step in record["steps"]] == [("paid", {"receipt": 7})]
    assert [line["text"] for line in record["log"]] == [f"line {n}" for n in range(60)]
    assert (record["steps_done"], record["log_lines"]) == (1, 60)


def test_what_a_function_waits_for_and_has_undone_is_told_to_people(shell):
    """In the list, and on its own page, where errors are no JSON and end at the user's code."""
    with shell.queue() as queue:

        @queue.task
        def order(ctx: holdfast.Context, *, wait: bool) -> None:
            ctx.compensate("pay", str)
            if wait:
                ctx.wait_for("approval", timeout="1d")
            with contextlib.suppress(ValueError):
                ctx.step("refused", int, "x")
            ctx.wait_for("go", timeout=0)

        waits, failed = order.add(wait=True), order.add(wait=False)
        for _ in range(2):
            queue.next().run()
        queue.next(wait=1).run()

    rows = shell.ok("jobs").lines[1:]
    assert (
        [row.split()[0] for row in rows] == shell.ok("jobs", "--ids").lines == [str(waits.id), str(failed.id)]
    )
    assert shell.ok("jobs", "--ids", "--limit", 1, "--state", "failed").lines == [str(failed.id)]
    assert rows[0].endswith("waits for 'approval'")
    shown = shell.ok("show", failed.id).out
    assert "Z  failed: refused  ValueError: invalid literal" in shown
    assert "Z  undo  Timeout: " in shown
    assert 'Z  undo pay  ""' in shown
    assert "{" not in shown.partition("steps,")[2]
    assert 'ctx.wait_for("go", timeout=0)' in shown
    assert "context.py" not in shown
