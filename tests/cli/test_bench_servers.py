"""`holdfast bench` on a server: in schemas or under prefixes that are gone afterwards."""

import json

import pytest

from tests.postgres.test_address import holdfast_cli

SMALL = ("--scale", "0.01", "--rounds", "1", "--json")


@pytest.fixture
def schemas(postgres):
    """Lists the schemas of the database."""

    def read():
        with postgres.connect() as connection:
            return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()}

    return read


@pytest.mark.proof
def test_it_measures_on_postgres_and_leaves_nothing(postgres_url, schemas):
    before = schemas()
    code, text = holdfast_cli("bench", "add_many", "next", "drain", *SMALL, "--store", postgres_url)

    assert code == 0, text
    answer = json.loads(text)
    assert "PostgreSQL" in answer["settings"]["store"]
    assert "fsync = on" in answer["settings"]["store"]
    assert [figure["value"] > 0 for figure in answer["figures"]] == [True] * 3
    assert schemas() == before


def test_it_measures_on_redis_and_leaves_nothing(redis_server):
    code, text = holdfast_cli("bench", "add", "latency", *SMALL, "--store", redis_server.url())

    assert code == 0, text
    assert "Redis" in json.loads(text)["settings"]["store"]
    with redis_server.client() as client:
        assert list(client.scan_iter(match="*bench-*", count=1_000)) == []


def test_a_folder_makes_no_sense_for_a_server(postgres_url, tmp_path):
    code, text = holdfast_cli("bench", "add", "--folder", str(tmp_path), "--store", postgres_url)

    assert (code, "the server knows" in text) == (2, True)
