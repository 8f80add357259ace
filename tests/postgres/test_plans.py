"""Every question has its index, also when it was planned while the table was small."""

import psycopg
import pytest

from holdfast.store.postgres.pool import SETTINGS, script_of
from holdfast.store.postgres.statements import numbers, raws, statements, texts
from holdfast.testing.stores.making import a_job, add

RANKS = {"low": 0, "high": 1 << 53, "limit": 5}
LEASE = {"lease_rank": 1, "owner": 1, "until": 1, "started_at": 1}
ONE = {"tenants": texts([""]), "tasks": texts(["t"]), "mosts": numbers([3]), "lows": numbers([0])}
RANGE = {"tenant": "", "first": "a", "above": "b"}
# A claim tells the newest turns as well.
TURNS = ("lanes_pkey", "tenants_pkey", "tenants_rests", "tenants_turns")
DONE = {"finished": numbers([1]), "states": texts(["FINISHED"]), "records": texts(["{}"])}
NONE = dict.fromkeys(("parents", "schedules", "domains"), "{}")
ASKED = [
    ("load", {"ids": numbers([1, 2])}, ["jobs_pkey"]),
    ("children", (1, 0, 5), ["jobs_children"]),
    ("children_at", {"parent": 1, "place": 5, "after": 0, "limit": 5}, ["jobs_children"]),
    ("first_1", (0, 9, 5), ["jobs_scheduled"]),
    ("first_4", (0, 9, 5), ["jobs_running"]),
    ("expiring", (9, 5), ["jobs_expiring"]),
    (
        "glance",
        {
            **dict.fromkeys(("scheduled", "running", "expiring", "domains"), 0),
            "kinds": texts(["pause", "schedule"]),
            "from": "",
            "tenant": None,
            "limit": 5,
        },
        [
            *("domains_due", "jobs_expiring", "jobs_ready_pair", "jobs_running", "jobs_scheduled"),
            "records_pkey",
        ],
    ),
    ("lineup", ("", b"d", "t", 2, 5), ["jobs_domain"]),
    ("lineup_last", ("", b"d", "t", 2, 5), ["jobs_domain"]),
    ("ready", RANKS | LEASE | {"mock": False}, ["jobs_ready", "jobs_pkey", *TURNS]),
    ("ready_of_pair", RANKS | LEASE | {"tenant": "", "task": "t"}, ["jobs_ready_pair", "jobs_pkey", *TURNS]),
    ("ready_of_picks", RANKS | LEASE | ONE, ["jobs_ready_pair", "jobs_pkey", *TURNS]),
    ("ready_of_ids", RANKS | LEASE | {"ids": numbers([1, 2])}, ["jobs_pkey", *TURNS]),
    ("candidates", RANKS | ONE, ["jobs_ready_pair"]),
    ("names_within", RANGE | {"names": 5}, ["jobs_ready_pair"]),
    ("ready_within", RANGE | {"reach": 5}, ["jobs_ready_pair"]),
    (
        "ready_page",
        RANKS | RANGE | {"mock": False, "after_rank": 0, "after_id": 0, "page": 5},
        ["jobs_ready"],
    ),
    ("domains", (texts([""]), raws([b"d"])), ["domains_pkey"]),
    ("find_unique", (texts([""]), texts(["t"]), raws([b"k"])), ["uniques_pkey"]),
    (
        "remove",
        {"ids": numbers([1]), "versions": numbers([1])},
        ["jobs_pkey", "data_apart_pkey", "results_pkey"],
    ),
    ("archive", ONE | DONE | NONE | {"ids": numbers([1]), "versions": numbers([1])}, ["jobs_pkey"]),
    ("data", {"ids": numbers([1])}, ["jobs_pkey", "archive_pkey", "data_apart_pkey"]),
    (
        "put_data",
        {"ids": numbers([1]), "bodies": texts(["{}"]), "raws": "{}"},
        ["jobs_pkey", "archive_pkey"],
    ),
    (
        "purge",
        {"before": 1, "tenant": None, "limit": 5},
        ["archive_ended", "archive_pkey", "data_apart_pkey", "results_pkey"],
    ),
]


def planned(connection, sql, values):
    """How a prepared statement goes about it, whatever its values."""
    if isinstance(values, dict):
        values = {name: value for name, value in values.items() if f"%({name})s" in sql}
    named = values if isinstance(values, dict) else dict(enumerate(values))
    for at, name in enumerate(named, start=1):
        mark = f"%({name})s" if isinstance(values, dict) else "%s"
        sql = sql.replace(mark, f"${at}", -1 if isinstance(values, dict) else 1)
    connection.execute(f"PREPARE asked AS {sql}")
    marks = ", ".join(["%s"] * len(named))
    rows = (
        psycopg.ClientCursor(connection)
        .execute(f"EXPLAIN EXECUTE asked({marks})", list(named.values()))
        .fetchall()
    )
    connection.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize(("rows", "counted"), [(0, False), (5_000, False), (5_000, True)])
def test_every_statement_goes_by_its_index(postgres, store, schema, rows, counted):
    """Whether there is nothing or much, and whatever statistics say: here, that all are children of one."""
    add(store, a_job(1))
    if rows:
        add(store, *(a_job(n, domain=b"d", parent_id=1, expires_at=9) for n in range(2, rows)))
    sql = statements(schema, locking=True)
    found = {}
    with postgres.connect() as connection:
        if counted:
            connection.execute(f'ANALYZE "{schema}".jobs')
        connection.execute(script_of(SETTINGS, local=False))
        for name, values, _ in ASKED:
            plan = planned(connection, sql[name], values)
            used = {line.split(" using ")[1].split()[0] for line in plan.splitlines() if " using " in line}
            found[name] = sorted(used) if "Seq Scan" not in plan else plan

    assert found == {name: sorted(indexes) for name, _, indexes in ASKED}
