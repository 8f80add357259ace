"""Every question has its index, also when it was planned while the table was small."""

import psycopg
import pytest

from holdfast.store.contract import Changes, NewJobs
from holdfast.store.postgres.changes import parameters_of, statement_of
from holdfast.store.postgres.pool import SETTINGS, script_of
from holdfast.store.postgres.statements import LAYOUT, numbers, statements, texts
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import a_job, add, commit, ended, following, new_jobs, tally

RANKS = {"low": 0, "high": 1 << 53, "limit": 5, "look_at": 5}
LEASE = {"lease_rank": 1, "owner": 1, "until": 1, "started_at": 1}
ONE = {"tenants": texts([""]), "tasks": texts(["t"]), "mosts": numbers([3]), "lows": numbers([0])}
ANY = dict.fromkeys(("tenants", "tasks", "pattern")) | {"skipped_tenants": "{}", "skipped_tasks": "{}"}
PAGE = {"table": "k", "after": "", "prefix": "a", "above": "b", "limit": 5}
ASKED = [
    ("load", {"ids": numbers([1, 2])}, ["jobs_pkey"]),
    ("children", (1, 0, 5), ["jobs_children"]),
    ("children_at", {"parent": 1, "place": 5, "after": 0, "limit": 5}, ["jobs_children"]),
    ("first_1", (0, 9, 5), ["jobs_scheduled"]),
    ("first_2", (0, 9, 5), ["jobs_ready"]),
    ("first_4", (0, 9, 5), ["jobs_running"]),
    ("expiring", (9, 5), ["jobs_expiring"]),
    ("domain_queue", ("", b"d", "t", 2, 5), ["jobs_domain"]),
    ("domain_queue_last", ("", b"d", "t", 2, 5), ["jobs_domain"]),
    ("claim_any", RANKS | LEASE | ANY | {"mock": False}, ["jobs_ready", "jobs_pkey"]),
    ("claim_pairs", RANKS | LEASE | ONE, ["jobs_ready_pair", "jobs_pkey"]),
    ("claim_merged", RANKS | LEASE | ONE, ["jobs_ready_pair", "jobs_pkey"]),
    ("data", {"ids": numbers([1])}, ["jobs_pkey", "archive_pkey", "data_apart_pkey"]),
    ("ended", {"before": 1, "tenant": None, "limit": 5}, ["archive_ended"]),
    ("rows", ("k", texts(["a"])), ["rows_pkey"]),
    ("table", ("k",), ["rows_pkey"]),
    ("scan", PAGE, ["rows_pkey"]),
    ("scan_due", PAGE | {"due": 5}, ["rows_due"]),
    ("tables", (), ["rows_pkey"]),
    ("named_ready", ("", "t"), ["jobs_ready_pair"]),
]
# What stands in functions is called with values that lead through all of it.
CALLS = [
    "first_reads('{}', '{pause,schedule}', 17, '{0,0,0,0}')",
    "ready_tasks('', 'a', 'z', 5)",
    "ready_tenants('', 'z', 5)",
    "hold_rows('{}', '{}', '{k}', '{a,b}', '{whole}')",
]
_LIVE = [a_job(1), a_job(2, domain=b"d", retry_after=7)]
ROWS = {("k", "a"): b"1", ("k", "b"): None}
CHANGES = [
    Changes(added=new_jobs([a_job(9_001)])),
    Changes(added=new_jobs([a_job(9_001)]), data={9_001: "1"}, counts=tally(_LIVE), rows=ROWS),
    Changes(added=[NewJobs(a_job(9_001), [(9_001, "{}"), (9_002, "1" * 500)])], removed=_LIVE[:1]),
    Changes(swapped=[following(job) for job in _LIVE], results={1: "1"}, data={1: "2"}),
    Changes(archived=[ended(job) for job in _LIVE], results={1: "1", 2: b"1"}, counts=tally(_LIVE[:1])),
    Changes(removed=_LIVE, forgotten=[7, 8], notice=b"x"),
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
    marks = f"({', '.join(['%s'] * len(named))})" if named else ""
    rows = (
        psycopg.ClientCursor(connection)
        .execute(f"EXPLAIN EXECUTE asked{marks}", list(named.values()) or None)
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
    sql = statements(schema, locking=True, version=LAYOUT)
    found = {}
    with postgres.connect() as connection:
        # An earlier test may have left statistics: schemas are used again.
        tables = f"relnamespace = '\"{schema}\"'::regnamespace"
        connection.execute(
            f"DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE {tables})"
        )
        connection.execute(
            f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE {tables} AND relkind = 'r'"
        )
        if counted:
            connection.execute(f'ANALYZE "{schema}".jobs')
        connection.execute(script_of(SETTINGS, local=False))
        for name, values, _ in ASKED:
            plan = planned(connection, sql[name], values)
            used = {line.split(" using ")[1].split()[0] for line in plan.splitlines() if " using " in line}
            found[name] = sorted(used) if "Seq Scan" not in plan else plan

    assert found == {name: sorted(indexes) for name, _, indexes in ASKED}


def test_every_statement_in_a_function_goes_by_its_index(server):
    """What it reads or writes by key is found by that, whatever statistics say."""
    store = PostgresStore(server.url())
    add(store, a_job(1))
    add(store, *(a_job(n, domain=b"d", parent_id=1, expires_at=9) for n in range(2, 5_000)))
    commit(store, rows={("k", str(n)): b"" for n in range(2_000)})
    store.close()
    with server.connect() as connection:
        connection.execute("ANALYZE")
        connection.execute(script_of(SETTINGS, local=False))
        connection.execute("LOAD 'auto_explain'; SET auto_explain.log_nested_statements = on")
        connection.execute("SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = 'notice'")
        plans: list[str] = []
        connection.add_notice_handler(lambda diagnostic: plans.append(diagnostic.message_primary or ""))
        for call in CALLS:
            connection.execute(f"SELECT holdfast.{call}")

    assert [plan for plan in plans if "Seq Scan on" in plan] == []
    assert len(plans) > 15


@pytest.mark.parametrize("plain", [True, False])
def test_every_change_goes_by_its_index(postgres, store, schema, plain):
    """Whatever parts it has."""
    add(store, *(a_job(n, domain=b"d", parent_id=1, expires_at=9) for n in range(1, 3_000)))
    with postgres.connect() as connection:
        connection.execute(f'ANALYZE "{schema}".jobs')
        connection.execute(script_of(SETTINGS, local=False))
        for changes in CHANGES:
            for values in parameters_of(changes):
                plan = planned(connection, statement_of(schema, tuple(values), plain=plain), values)
                assert "Seq Scan" not in plan
