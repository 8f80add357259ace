"""`holdfast.connect`: addresses, what is wrong with some, and that nothing is opened."""

import pytest

import holdfast
from holdfast.testing.clock import MovedClock
from tests.queue_suite.refusals import NO_DURATIONS, NO_NAMES, not_refused, row

CONNECTS = [holdfast.connect, holdfast.connect_async]


@pytest.mark.parametrize("connect", CONNECTS)
def test_connecting_opens_nothing(connect, tmp_path):
    """No file, not even where there is no such folder: that is told by the first verb."""
    queue = connect(str(tmp_path / "jobs.db"), tenant="acme", retention="1h", lease=30)
    connect(str(tmp_path / "nowhere" / "jobs.db"))

    assert list(tmp_path.iterdir()) == []
    assert (queue.tenant, queue.lease) == ("acme", 30)


def test_a_path_is_a_file_name(tmp_path):
    """As open() takes it."""
    with holdfast.connect(tmp_path / "jobs.db") as queue:
        queue.add("work")

    assert (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize("address", ["jobs.db?shards=4", "sqlite:jobs.db", "redis:/localhost", "file:a.db"])
@pytest.mark.parametrize("connect", CONNECTS)
def test_what_is_nearly_an_address_is_no_file_name(connect, address):
    """A file with such a name would be made in silence."""
    with pytest.raises(holdfast.BadInput, match="sqlite:///FILE"):
        connect(address)


@pytest.mark.parametrize("address", ["{}", "sqlite:///{}"])
def test_a_file_may_be_named_in_several_ways(tmp_path, address):
    """All of them lead to the same jobs."""
    path = tmp_path / "jobs.db"

    with holdfast.connect(address.format(path)) as queue:
        added = queue.add("work")

    with holdfast.connect(str(path)) as queue:
        assert queue.get(added.id).task == "work"


def test_a_memory_store_lives_as_long_as_its_queue():
    """And is nobody else's."""
    with holdfast.connect("memory://", clock=MovedClock(0)) as queue, holdfast.connect("memory://") as other:
        queue.add("work")

        assert (len(queue.jobs()), other.jobs()) == (1, [])


@pytest.mark.parametrize("connect", CONNECTS)
def test_bad_addresses_and_options_are_refused_at_once(connect, tmp_path):
    """Each by name."""
    stores = ["", 7, None, "mysql://host/db", "sqlite://host/jobs.db", "sqlite:///jobs.db?cache=shared"]
    rows = [row("store", connect, store) for store in stores]
    rows += [row("store option", connect, "sqlite:///jobs.db?driver=apsw")]
    rows += [row("tenant", connect, "jobs.db", tenant=name) for name in NO_NAMES if name]
    rows += [row("retention", connect, "jobs.db", retention=value) for value in NO_DURATIONS]
    rows += [row("lease", connect, "jobs.db", lease=value) for value in (*NO_DURATIONS, 0)]

    assert not_refused(rows, holdfast.BadInput) == []


def test_a_file_that_cannot_be_opened_is_told_by_the_first_verb(tmp_path):
    """By its name, for every verb alike."""
    (tmp_path / "text.db").write_text(
        "This is not a database, but a text that is long enough to be read." * 20
    )
    for path, error in (("nowhere/jobs.db", holdfast.StoreError), ("text.db", holdfast.StoreCorrupt)):
        queue = holdfast.connect(str(tmp_path / path))
        for verb in (lambda queue=queue: queue.add("work"), queue.counts, queue.next):
            with pytest.raises(error, match=path):
                verb()
        queue.close()


@pytest.mark.parametrize("url", ["jobs.db", "sqlite:///jobs.db", "sqlite:///jobs?shards=2"])
def test_a_relative_path_is_that_of_the_folder_in_which_connect_was_called(tmp_path, monkeypatch, url):
    """Whatever folder the process changes to before it opens the store."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    queue = holdfast.connect(url, journal="journal")
    monkeypatch.chdir(there)

    queue.add("work")
    queue.close()

    assert {file.name for file in here.iterdir()} >= {"journal"}
    assert len(list(here.iterdir())) > 1
    assert not list(there.iterdir())
