-- The first schema. Migrations are numbered, run once, in order, and are not edited after a release.
--
-- Every name starts with holdfast_, because an application may have its own tables in the same file and write to both in
-- one transaction.

-- The version of the layout, and the oldest version of Holdfast that may still write it: `-- oldest writer: N` in the last
-- migration, or its own number (docs/decisions/0023). Read by every version: only columns may be added.
CREATE TABLE holdfast_schema (version INTEGER NOT NULL, oldest INTEGER NOT NULL) STRICT;

-- Live jobs. The columns are those by which jobs are found and ordered, those that a claim changes, and those that differ
-- between jobs of one `add_many`. `rest` is the record as JSON, without the columns from id to size. `body` is the data: text
-- for JSON, BLOB for bytes, NULL if it is large and therefore in holdfast_data, so that a claim does not write it again.
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
    rest        TEXT    NOT NULL,
    body        ANY
) STRICT;

-- A job is in the first of these indexes, in the second while READY, in the third while PAUSED or DONE, and in others only
-- if it has a parent, a domain, a schedule or an expiry. One index for all places costs no more than one for each. Equal entries are ordered by id, which
-- is the last part of each.
CREATE INDEX holdfast_place ON holdfast_jobs (place, rank);
CREATE INDEX holdfast_ready ON holdfast_jobs (tenant, task, mock, rank) WHERE place = 2;
CREATE INDEX holdfast_standing ON holdfast_jobs (place) WHERE place IN (5, 6);
CREATE INDEX holdfast_domain ON holdfast_jobs (domain, tenant, task, place, rank) WHERE domain IS NOT NULL;
CREATE INDEX holdfast_children ON holdfast_jobs (parent_id, place) WHERE parent_id > 0;
CREATE INDEX holdfast_expiring ON holdfast_jobs (expires_at) WHERE expires_at > 0 AND place NOT IN (4, 6);
CREATE INDEX holdfast_schedule ON holdfast_jobs (schedule) WHERE schedule <> '';

-- Large data of live and archived jobs, and results that are not in the archive.
CREATE TABLE holdfast_data (id INTEGER PRIMARY KEY, body ANY NOT NULL) STRICT;
CREATE TABLE holdfast_results (id INTEGER PRIMARY KEY, body ANY NOT NULL) STRICT;

-- Archived jobs: written once, the whole record as JSON, with data and result unless these are large.
CREATE TABLE holdfast_archive (
    id          INTEGER PRIMARY KEY,
    finished_at INTEGER NOT NULL,
    tenant      TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    record      TEXT    NOT NULL,
    data        ANY,
    result      ANY
) STRICT;
CREATE INDEX holdfast_ended ON holdfast_archive (finished_at, id, tenant);

-- All other rows. `due_ms` is NULL if a row is never due; the value is stored as text if it is text. The notice
-- (`ReadTxn.notice`) is the row with empty table and key.
CREATE TABLE holdfast_rows (
    tbl    TEXT NOT NULL,
    key    TEXT NOT NULL,
    due_ms INTEGER,
    value  ANY  NOT NULL,
    PRIMARY KEY (tbl, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_due ON holdfast_rows (tbl, due_ms, key) WHERE due_ms IS NOT NULL;

-- The counts of jobs; and, with place 0, the tallies, which upkeep moves into rows.
CREATE TABLE holdfast_counts (
    tenant TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    place  INTEGER NOT NULL,
    state  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant, task, place, state)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_tallies ON holdfast_counts (tenant, task, state, number) WHERE place = 0;

-- The tasks with READY jobs, in order of name (`ready_pairs.py`). The number is not in it, so only the first READY job of a
-- task and the last one write here.
CREATE INDEX holdfast_waiting ON holdfast_counts (tenant, task) WHERE place = 2;

-- It does not fire itself, so `recursive_triggers` has no effect.
CREATE TRIGGER holdfast_count_zero AFTER UPDATE OF number ON holdfast_counts WHEN NEW.number = 0
BEGIN
    DELETE FROM holdfast_counts
    WHERE tenant = NEW.tenant AND task = NEW.task AND place = NEW.place AND state = NEW.state;
END;
