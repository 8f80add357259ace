-- The first schema. Migrations are numbered, run once, in order, and are never edited once they are released.
--
-- Every name starts with holdfast_, because an application may keep its own tables in the same file
-- and write to both in one transaction.

-- Which of these migrations the file has.
CREATE TABLE holdfast_schema (version INTEGER NOT NULL) STRICT;

-- Live jobs. The columns are what jobs are found and ordered by, what a claim changes, and what differs between
-- jobs that are added alike; all else is in `rest`, the record as JSON without the columns from id to size.
CREATE TABLE holdfast_jobs (
    id          INTEGER PRIMARY KEY,
    place       INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    owner       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    claim       INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    mock        INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    parent_id   INTEGER NOT NULL,
    domain      BLOB,
    schedule    TEXT    NOT NULL,
    rest        TEXT    NOT NULL
) STRICT;

-- A job stands in the first of these, in the second while READY, and in others only if it has a
-- parent, a domain, a schedule or an expiry. One index for all places costs no more than one each.
-- Entries that are equal are in order of id, which ends each of them.
CREATE INDEX holdfast_place ON holdfast_jobs (place, rank);
CREATE INDEX holdfast_ready ON holdfast_jobs (tenant, task, mock, rank) WHERE place = 2;
CREATE INDEX holdfast_domain ON holdfast_jobs (domain, tenant, task, place, rank) WHERE domain IS NOT NULL;
CREATE INDEX holdfast_children ON holdfast_jobs (parent_id, place) WHERE parent_id > 0;
CREATE INDEX holdfast_expiring ON holdfast_jobs (expires_at) WHERE expires_at > 0 AND place NOT IN (4, 6);
CREATE INDEX holdfast_schedule ON holdfast_jobs (schedule) WHERE schedule <> '';

-- Bodies, of live and archived jobs: text for JSON, BLOB for bytes.
CREATE TABLE holdfast_data (id INTEGER PRIMARY KEY, body ANY NOT NULL) STRICT;
CREATE TABLE holdfast_results (id INTEGER PRIMARY KEY, body ANY NOT NULL) STRICT;

-- Jobs that have ended: written once, the whole record as JSON.
CREATE TABLE holdfast_archive (
    id          INTEGER PRIMARY KEY,
    finished_at INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    record      TEXT    NOT NULL
) STRICT;
CREATE INDEX holdfast_ended ON holdfast_archive (finished_at, id, tenant);

-- Everything that is no job. `due_ms` is NULL where a row is never due; the value is text where it is text.
-- The notice (`ReadTxn.notice`) is the row of an empty table and an empty key.
CREATE TABLE holdfast_rows (
    tbl    TEXT NOT NULL,
    key    TEXT NOT NULL,
    due_ms INTEGER,
    value  ANY  NOT NULL,
    PRIMARY KEY (tbl, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_due ON holdfast_rows (tbl, due_ms, key) WHERE due_ms IS NOT NULL;

-- How many jobs there are of each kind; and, with a place of 0, the tallies that upkeep moves into rows.
CREATE TABLE holdfast_counts (
    tenant TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    place  INTEGER NOT NULL,
    state  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant, task, place, state)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_tallies ON holdfast_counts (tenant, task, state, number) WHERE place = 0;

-- Whose turn it is, on two levels: of tenants, and of the tasks of each (`fairness.py`). `ready`: whether there
-- are READY jobs, going by the counts. Not how many, so that an add to a pair that has some writes nothing here.
-- `served` is the number of the last turn. Who has no READY job is remembered for a while.
CREATE TABLE holdfast_pairs (
    tenant TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    ready  INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (tenant, task)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_pair_turns ON holdfast_pairs (tenant, served, task) WHERE ready = 1;
CREATE INDEX holdfast_pair_rests ON holdfast_pairs (served, tenant, task) WHERE ready = 0;

CREATE TABLE holdfast_tenants (
    tenant TEXT    NOT NULL,
    ready  INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_tenant_turns ON holdfast_tenants (served, tenant) WHERE ready = 1;
CREATE INDEX holdfast_tenant_rests ON holdfast_tenants (served, tenant) WHERE ready = 0;

-- The counts keep themselves and the turns: a count that comes to zero is deleted, a pair is ready while it has a
-- READY count, and a tenant while it has a pair that is. A pair has two READY counts, one for each state, and
-- while one goes over into the other it may be at rest for a moment; its turn stays. None of these triggers
-- fires itself, so `recursive_triggers` makes no difference.
CREATE TRIGGER holdfast_count_zero AFTER UPDATE OF number ON holdfast_counts WHEN NEW.number = 0
BEGIN
    DELETE FROM holdfast_counts
    WHERE tenant = NEW.tenant AND task = NEW.task AND place = NEW.place AND state = NEW.state;
END;

CREATE TRIGGER holdfast_count_ready AFTER INSERT ON holdfast_counts WHEN NEW.place = 2
BEGIN
    INSERT INTO holdfast_pairs (tenant, task, ready, served) VALUES (NEW.tenant, NEW.task, 1, 0)
    ON CONFLICT (tenant, task) DO UPDATE SET ready = 1 WHERE ready = 0;
    INSERT INTO holdfast_tenants (tenant, ready, served) VALUES (NEW.tenant, 1, 0)
    ON CONFLICT (tenant) DO UPDATE SET ready = 1 WHERE ready = 0;
END;

CREATE TRIGGER holdfast_count_gone AFTER DELETE ON holdfast_counts WHEN OLD.place = 2
BEGIN
    UPDATE holdfast_pairs SET ready = 0
    WHERE tenant = OLD.tenant AND task = OLD.task AND NOT EXISTS (
        SELECT 1 FROM holdfast_counts WHERE tenant = OLD.tenant AND task = OLD.task AND place = 2
    );
    UPDATE holdfast_tenants SET ready = 0
    WHERE tenant = OLD.tenant AND NOT EXISTS (
        SELECT 1 FROM holdfast_pairs INDEXED BY holdfast_pair_turns WHERE tenant = OLD.tenant AND ready = 1
    );
END;
