"""`holdfast bench` on a server: each measure beside bare psycopg, in schemas that are gone afterwards."""

import json

import pytest

from tests.postgres.test_address import holdfast_cli

SMALL = ("--scale", "0.01", "--rounds", "1", "--json")


def schemas(postgres):
    """All that there are."""
    with postgres.connect() as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()}


@pytest.mark.parametrize(
    "measures",
    [("add_many", "claim", "add", "add64"), ("drain", "backlog"), ("domains", "latency", "latency2")],
)
def test_each_measure_has_both_sides(postgres, postgres_url, measures):
    before = schemas(postgres)
    code, text = holdfast_cli("bench", *measures, *SMALL, "--store", postgres_url)

    assert code == 0, text
    answer = json.loads(text)
    assert "PostgreSQL" in answer["settings"]["store"]
    assert "fsync = on" in answer["settings"]["store"]
    assert [figure["ours"] > 0 and figure["raw"] > 0 for figure in answer["figures"]] == [True] * len(
        measures
    )
    assert schemas(postgres) == before


def test_an_idle_worker_is_listened_to(postgres, postgres_url):
    """How often it asks, and that it does not write."""
    code, text = holdfast_cli("bench", "idle", "asks", *SMALL, "--store", postgres_url)

    assert code == 0, text
    idle, asks = json.loads(text)["figures"]
    assert (idle["unit"], asks["unit"]) == ("% of a core, no write", "a minute")
    assert asks["ours"] >= 0


def test_a_folder_makes_no_sense_for_a_server(postgres_url, tmp_path):
    code, text = holdfast_cli("bench", "add", "--folder", str(tmp_path), "--store", postgres_url)

    assert (code, "the server knows" in text) == (2, True)
