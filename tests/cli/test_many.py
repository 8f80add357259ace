"""`holdfast cancel`, `requeue` and `delete`: one verb on many jobs."""

import pytest

from holdfast.cli import jobs

VERBS = ["cancel", "requeue", "delete"]


def states(shell):
    """Every job's state, archived ones with them."""
    with shell.queue() as queue:
        return {
            job.id: str(job.state) for kept in (False, True) for job in queue.jobs(archived=kept, limit=1000)
        }


def test_jobs_are_cancelled_by_their_ids(shell):
    """Each once, whatever was typed twice."""
    first, second, other = (shell.add("a") for _ in range(3))

    said = shell.ok("cancel", first, second, first)

    assert said.out == "cancelled 2 jobs\n"
    assert states(shell) == {first: "CANCELLED", second: "CANCELLED", other: "QUEUED"}


def test_programs_hear_what_became_of_each(shell):
    """One line a job."""
    first, second = shell.add("a"), shell.add("a")

    assert shell.ok("cancel", first, "--json").record == {"id": str(first), "state": "CANCELLED"}
    assert shell.ok("requeue", second, "--json").record == {"id": str(second), "state": "QUEUED"}
    assert shell.ok("delete", second, "--json").record == {"id": str(second), "state": None}


def test_a_running_job_is_asked_to_stop_and_with_force_stopped(shell):
    """Without force its worker still has it."""
    job_id = shell.add("a")
    with shell.queue() as queue:
        queue.claim(renew=False)

    assert shell.ok("cancel", job_id, "--json").record["state"] == "RUNNING"
    assert shell.ok("jobs").lines[1].endswith("asked to stop")
    assert shell.ok("cancel", job_id, "--force", "--json").record["state"] == "CANCELLED"


def test_people_hear_which_jobs_were_only_asked(shell):
    """They may go on for a while."""
    for _ in range(3):
        shell.add("a")
    with shell.queue() as queue:
        queue.claim(renew=False)

    assert shell.ok("cancel", "--all", "--yes").out == "cancelled 2 jobs, asked 1 job to stop\n"


def test_what_has_finished_can_be_neither_cancelled_nor_requeued(shell):
    """It is in the archive, and is not said to be nowhere."""
    job_id = shell.add("a")
    shell.finish(job_id)

    assert f"cannot cancel job {job_id}: it is FINISHED" in shell.run("cancel", job_id).err
    assert "FINISHED and archived" in shell.refused("requeue", job_id, code=4)
    assert shell.refused("cancel", job_id, code=4)
    assert shell.ok("cancel", "--state", "FINISHED", "--yes").out == "cancelled 0 jobs\n"
    assert "--archived" in shell.refused("requeue", "--archived", code=2)


def test_failed_jobs_are_requeued_by_default(shell):
    """A selection that names no state means those."""
    failed, waiting = shell.add("a"), shell.add("a", "--delay", "1h")
    shell.fail(failed)

    assert shell.ok("requeue", "--task", "a", "--yes").out == "requeued 1 job\n"
    assert states(shell) == {failed: "QUEUED", waiting: "QUEUED"}
    assert shell.ok("show", waiting, "--json").record["place"] == "SCHEDULED"


def test_a_running_job_is_requeued_only_after_a_question(shell):
    """It may run twice at once; other jobs need no question."""
    running, other = shell.add("a"), shell.add("a")
    with shell.queue() as queue:
        queue.claim(renew=False)

    unasked = shell.run("requeue", running, other)
    assert (unasked.code, "standard input is not a terminal; use --yes" in unasked.err) == (2, True)
    refused = shell.run("requeue", running, other, stdin="n\n")
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert states(shell) == {running: "RUNNING", other: "QUEUED"}
    said = shell.ok("requeue", running, other, stdin="y\n")

    assert said.err == "requeue 1 running job, which may then run twice at once? [y/N] "
    assert said.out == "requeued 2 jobs\n"
    assert states(shell) == {running: "QUEUED", other: "QUEUED"}
    with shell.queue() as queue:
        queue.claim(renew=False)
    assert shell.ok("requeue", running, other, "--yes").out == "requeued 2 jobs\n"


def test_a_job_that_starts_during_the_question_is_not_requeued(shell, monkeypatch):
    """The question was not about this one."""
    running, other = shell.add("a"), shell.add("b")
    with shell.queue() as queue:
        queue.claim(["a"], renew=False)

        def confirm(_question):
            queue.claim(["b"], renew=False)
            return True

        monkeypatch.setattr(jobs, "confirm", confirm)
        said = shell.run("requeue", running, other)

    assert (said.code, said.out) == (4, "requeued 1 job\n")
    assert f"cannot requeue job {other}: it is RUNNING" in said.err


def test_a_job_is_requeued_for_a_moment(shell):
    """Not before then."""
    job_id = shell.add("a")

    shell.ok("requeue", job_id, "--run-at", "2027-01-01")

    assert shell.ok("show", job_id, "--json").record["run_at"] == "2027-01-01T00:00:00.000Z"


def test_cancelling_a_selection_leaves_what_has_ended(shell):
    """Unless its state is named."""
    failed, waiting = shell.add("a"), shell.add("a")
    shell.fail(failed)

    assert shell.ok("cancel", "--all", "--yes").out == "cancelled 1 job\n"
    assert states(shell) == {failed: "FAILED", waiting: "CANCELLED"}
    assert shell.ok("cancel", "--state", "FAILED", "--yes").out == "cancelled 1 job\n"


def test_archived_jobs_are_deleted(shell):
    """By id, by their place or by their state."""
    ids = [shell.add("a") for _ in range(3)]
    shell.finish(*ids)

    assert shell.ok("delete", ids[0]).out == "deleted 1 job\n"
    assert shell.ok("delete", "--archived", "--task", "a", "--yes").out == "deleted 2 jobs\n"
    assert states(shell) == {}


def test_a_family_is_cancelled_children_first(shell):
    """A parent cannot be cancelled before them."""
    with shell.queue() as queue:
        queue.add("parent")
        (parent,) = queue.claim(renew=False)
        for _ in range(3):
            parent.add("child")
        parent.done()

    assert shell.ok("cancel", "--all", "--yes").out == "cancelled 4 jobs\n"


@pytest.mark.parametrize("verb", VERBS)
def test_a_selection_is_confirmed(shell, verb):
    """Yes does it, everything else leaves it, and nobody to ask is an error with the way out."""
    job_id = shell.add("a")
    shell.fail(job_id)
    words = [verb, "--state", "FAILED"]

    for answer in ("n\n", "\n", "what?\n"):
        said = shell.run(*words, stdin=answer)
        assert (said.code, said.out) == (1, "")
        assert said.err == f"{verb} 1 job? [y/N] holdfast: nothing was changed\n"
    said = shell.run(*words, stdin="")
    assert (said.code, said.out) == (2, "")
    assert "use --yes to skip the question" in said.err
    assert states(shell) == {job_id: "FAILED"}

    assert shell.ok(*words, stdin="y\n").out.endswith(" 1 job\n")
    assert states(shell).get(job_id) != "FAILED"


@pytest.mark.parametrize("verb", VERBS)
def test_a_selection_that_finds_nothing_asks_nothing(shell, verb):
    """It has done what it was told."""
    shell.add("a")

    said = shell.ok(verb, "--task", "none")

    assert said.out.endswith("ed 0 jobs\n")
    assert said.err == ""


@pytest.mark.parametrize("verb", VERBS)
def test_which_jobs_must_be_said_in_one_way(shell, verb):
    """Ids or a selection, and one of them."""
    job_id = shell.add("a")

    assert "choose the jobs" in shell.refused(verb, code=2)
    assert "not both" in shell.refused(verb, job_id, "--all", code=2)
    assert "not both" in shell.refused(verb, job_id, "--state", "FAILED", code=2)
    assert "job id is 'x'" in shell.refused(verb, job_id, "x", "--yes", code=2)
    assert "--state" in shell.refused(verb, "--state", "x", code=2)


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_is_not_there_stops_nobody_else(shell, verb):
    """It is named on stderr, and the code says that something was not found."""
    first, second = shell.add("a"), shell.add("a")

    said = shell.run(verb, first, 12, second)

    assert said.code == 3
    assert said.out.endswith("ed 2 jobs\n")
    assert said.err == "holdfast: there is no job 12\n"


def test_a_refusal_is_told_to_programs_as_an_object(shell):
    """On stderr; the answer holds what was done."""
    running, waiting = shell.add("a", "--priority", 900), shell.add("a")
    with shell.queue() as queue:
        queue.claim(renew=False)

    said = shell.run("delete", running, waiting, "--json")

    assert said.code == 4
    assert said.records == [{"id": str(waiting), "state": None}]
    assert '"code": "REFUSED"' in said.err
    assert '"exit": 4' in said.err


def test_a_thousand_refusals_are_told_in_short(shell, monkeypatch):
    """People see the first, and how many there are."""
    monkeypatch.setattr(jobs, "TOGETHER", 7)
    ids = [shell.add("a") for _ in range(2)]

    said = shell.run("delete", *ids, *range(1, 101))

    assert said.code == 3
    assert said.out == "deleted 2 jobs\n"
    assert said.err.count("there is no job") == jobs.TOLD
    assert said.err.endswith("and 80 more refusals\n")


def test_many_jobs_are_done_in_many_transactions(shell):
    """All of them, and the counts agree."""
    shell.ok("add", "a", "--file", "-", stdin="1\n" * 1700)

    assert shell.ok("cancel", "--task", "a", "--yes").out == "cancelled 1,700 jobs\n"
    assert shell.ok("counts", "--json").record["totals"] == {"CANCELLED": 1700}
    assert shell.ok("doctor").code == 0


def test_a_bad_moment_is_refused(shell):
    """Before any job is touched."""
    assert "--run-at is 'soon'" in shell.refused("requeue", shell.add("a"), "--run-at", "soon", code=2)
