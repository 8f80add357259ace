-- The first schema. Migrations are numbered, run once, in order, and are never edited.
--
-- Every name starts with holdfast_, because an application may keep its own tables in the same file
-- and write to both in one transaction.

-- Which of these migrations the file has.
CREATE TABLE holdfast_schema (version INTEGER NOT NULL) STRICT;

-- Live jobs. The columns are what jobs are found and ordered by, and what a claim changes; all else is
-- in `rest`, the record as JSON without those that a claim changes (place to claim).
CREATE TABLE holdfast_jobs (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    place       INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    owner       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    claim       INTEGER NOT NULL,
    mock        INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    parent_id   INTEGER NOT NULL,
    domain      BLOB,
    schedule    TEXT    NOT NULL,
    rest        TEXT    NOT NULL
) STRICT;

-- A job stands in the first of these, in the second while READY, and in others only if it has a
-- parent, a domain, a schedule or an expiry. One index for all places costs no more than one each.
CREATE INDEX holdfast_place ON holdfast_jobs (place, rank, id);
CREATE INDEX holdfast_ready ON holdfast_jobs (tenant, task, rank, id) WHERE place = 2 AND mock = 0;
CREATE INDEX holdfast_domain ON holdfast_jobs (domain, tenant, task, place, rank, id) WHERE domain IS NOT NULL;
CREATE INDEX holdfast_children ON holdfast_jobs (parent_id, place, id) WHERE parent_id > 0;
CREATE INDEX holdfast_expiring ON holdfast_jobs (expires_at, id) WHERE expires_at > 0 AND place NOT IN (4, 6);
CREATE INDEX holdfast_schedule ON holdfast_jobs (schedule, id) WHERE schedule <> '';

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

-- Who holds a unique key; `until_ms` 0: until the job ends.
CREATE TABLE holdfast_uniques (
    tenant   TEXT    NOT NULL,
    task     TEXT    NOT NULL,
    key      BLOB    NOT NULL,
    job_id   INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, task, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_lapsing ON holdfast_uniques (until_ms) WHERE until_ms > 0;

CREATE TABLE holdfast_domains (
    tenant  TEXT    NOT NULL,
    name    BLOB    NOT NULL,
    version INTEGER NOT NULL,
    due_ms  INTEGER NOT NULL,
    record  TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_due ON holdfast_domains (due_ms, tenant, name) WHERE due_ms > 0;

CREATE TABLE holdfast_counts (
    tenant TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    place  INTEGER NOT NULL,
    state  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant, task, place, state)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_zero ON holdfast_counts (number) WHERE number = 0;

-- Whether a (tenant, task) has READY jobs, going by the counts, and when it was last served: so that who
-- waits longest is the head of an index. Not how many, so that an add to a pair that has some writes nothing.
CREATE TABLE holdfast_lanes (
    tenant TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    ready  INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (tenant, task)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_waiting ON holdfast_lanes (served, tenant, task) WHERE ready > 0;

-- Small named records: handlers, sysids, workers, schedules, pauses, limits. Text where it is text.
CREATE TABLE holdfast_records (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    value ANY  NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
