"""`holdfast move` as people and scripts say it."""

import json
from itertools import pairwise

import pytest

import holdfast
from holdfast.queue.addresses import bare_url


def test_a_queue_moves_and_its_old_address_says_where_to(shell):
    job_id = shell.add("resize", '{"path": "a.png"}')
    target = str(shell.folder / "new.db")

    said = shell.ok("move", shell.file, "new.db")

    assert said.lines[0].startswith(f"moved 1 live and 0 archived jobs to {target}; writes waited")
    assert said.lines[1].startswith("digest ")
    assert shell.ok("show", job_id, "--store", "new.db", "--json").record["id"] == str(job_id)
    for words in (("jobs",), ("show", job_id), ("add", "x"), ("counts",), ("cancel", job_id)):
        refused = shell.run(*words)
        assert (refused.code, refused.out) == (5, "")
        assert refused.err == f"holdfast: this store has moved to {target}; use that address\n"


def test_programs_get_one_object(shell):
    """And the same digest again, when it is already done."""
    shell.add("resize")

    first = shell.ok("move", "jobs.db", "new.db", "--json", "--batch", "1").record
    again = shell.ok("move", "jobs.db", "new.db", "--json").record

    assert (first["from"], first["to"]) == (str(shell.file), str(shell.folder / "new.db"))
    assert (first["rows"]["jobs"], first["rows"]["archive"]) == (1, 0)
    assert first["digest"] == again["digest"]
    assert again["rows"] == {}
    error = json.loads(shell.run("jobs", "--json").err)["error"]
    assert (error["code"], error["exit"]) == ("MOVED", 5)


def test_a_dry_run_changes_nothing(shell):
    shell.add("resize")

    assert shell.ok("move", "jobs.db", "new.db", "--dry-run").out == "it can be done\n"

    assert len(shell.ok("jobs").lines) == 2
    assert shell.ok("move", "jobs.db", "new.db").code == 0


def test_what_cannot_be_moved_is_refused_with_the_reason(shell):
    shell.add("resize")
    with holdfast.connect(str(shell.folder / "other.db")) as other:
        other.add("mine")
    (shell.folder / "link.db").symlink_to(shell.file)

    cases = {
        ("jobs.db", "other.db"): (2, "must be empty"),
        ("jobs.db", "jobs.db"): (2, "another than the one to move from"),
        ("jobs.db", "link.db"): (2, "another than the one to move from"),
        ("nowhere.db", "new.db"): (5, f"there is no store at {shell.folder}/nowhere.db; check FROM\n"),
        ("jobs.db", "memory://"): (2, "outlives this command"),
        ("memory://", "new.db"): (2, "outlives this command"),
        ("jobs.db", "mysql://x/y"): (2, "mysql://"),
        ("jobs.db",): (2, "Missing argument 'TO'"),
        ("--undo", "jobs.db"): (2, "one with an unfinished move"),
        ("--undo", "jobs.db", "other.db"): (2, "--undo takes FROM alone"),
        ("jobs.db", "new.db", "--batch", "0"): (2, "--batch"),
    }
    for words, (code, reason) in cases.items():
        assert reason in shell.refused("move", *words, code=code), words


def test_an_unfinished_move_is_taken_back(shell):
    """All goes on where it was."""
    from holdfast.engine.migrate.move import StoreMove
    from holdfast.store.sqlite.store import SqliteStore

    shell.add("resize")
    source, target = SqliteStore(shell.file), SqliteStore(shell.folder / "new.db")
    StoreMove(source, target, here=str(shell.file), there=str(shell.folder / "new.db")).begin()
    source.close()
    target.close()
    assert "an unfinished move leads" in shell.run("move", "jobs.db", "elsewhere.db").err
    assert "being filled from" in shell.run("jobs", "--store", "new.db").err

    said = shell.ok("move", "--undo", "jobs.db")

    assert said.out.startswith(f"{shell.file} is in use again; the copy in")
    shell.add("goes on")


def test_a_queue_moves_to_shards_and_to_another_number_of_them(shell):
    """A folder of files, a list of addresses, and back to one file."""
    job_id = shell.add("resize", '{"path": "a.png"}')
    steps = [
        "jobs.db",
        "sqlite:///four?shards=4",
        f"sqlite:///{shell.folder}/0.db sqlite:///{shell.folder}/1.db",
        "one.db",
    ]

    for here, there in pairwise(steps):
        assert shell.ok("move", here, there, "--dry-run").out == "it can be done\n"
        said = shell.ok("move", here, there, "--json").record
        assert (said["to"], said["rows"]["jobs"]) == (bare_url(there), 1)
        assert shell.ok("move", here, there, "--json").record["digest"] == said["digest"]
        assert shell.run("counts", "--store", here).err.startswith("holdfast: this store has moved to ")
        assert shell.ok("show", job_id, "--store", there, "--json").record["id"] == str(job_id)
    (shell.folder / "five").mkdir()
    cases = {
        ("one.db", "sqlite:///four?shards=2"): (5, "another number of shards"),
        ("one.db", "sqlite:///four?shards=4"): (2, "must be empty"),
        ("sqlite:///five?shards=4", "new.db"): (
            5,
            f"there is no store at shard 0 of 4 ({shell.folder / 'five' / 'shard-0-of-4.db'})",
        ),
        ("sqlite:///x.db sqlite:///y.db", "new.db"): (5, "there is no store at shard 0 of 2"),
        ("sqlite:///one.db memory://", "new.db"): (2, "outlives this command"),
        (str(shell.folder / "0.db"), "new.db"): (2, "all shards of the queue: it is 0 of 2 of them"),
    }
    for words, (code, reason) in cases.items():
        assert reason in shell.refused("move", *words, code=code), words


@pytest.mark.parametrize("password", ["s3cret", "p%40ss%3Aw%2Fo"])
def test_no_password_is_ever_shown_or_kept(shell, postgres, postgres_schemas, password):
    """Not in the answer, the notice, the error or the log of whoever follows."""
    shell.add("resize")
    with postgres_schemas.one() as schema:
        query = f"host={postgres.folder}&port={postgres.port}&schema={schema}&sslpassword=hidden"
        url = f"postgresql://postgres:{password}@/{postgres.database}?{query}"

        said = [shell.run("move", "jobs.db", url), shell.run("move", "jobs.db", url, "--json")]
        said += [shell.run("jobs"), shell.run("move", "jobs.db", "elsewhere.db")]

        assert [one.code for one in said] == [0, 0, 5, 2]
        everything = "".join(one.out + one.err for one in said) + repr(shell.file.read_bytes())
        assert password not in everything
        assert "hidden" not in everything
