-- The schema. Migrations are numbered, run once, in order, and are not edited after a release.
--
-- {schema} is the quoted name of the schema. Text is compared byte by byte (collation C), as in Python.

-- The version of the layout, and the oldest version of Holdfast that may still write it: `-- oldest writer: N` in the last
-- migration, or its own number (docs/decisions/0023). Read by every version: only columns may be added.
CREATE TABLE {schema}.version (version integer NOT NULL, oldest integer NOT NULL);

-- Live jobs. The columns are those by which jobs are found and ordered, those that a claim changes (place to claim), and
-- those from which the state is derived; most new jobs have the defaults. `plain_ms` is the longest lease with which a job is
-- claimed without a batch (`core.job.plain_lease_ms`), and `token` the number of the last such claim. `rest` is the record as JSON, without the columns that a claim changes. Small data
-- is in the same row: JSON as text (`body`), anything else as bytes (`raw`).
CREATE TABLE {schema}.jobs (
    id          bigint   NOT NULL PRIMARY KEY,
    rank        bigint   NOT NULL DEFAULT 0,
    lease_until bigint   NOT NULL DEFAULT 0,
    started_at  bigint   NOT NULL DEFAULT 0,
    expires_at  bigint   NOT NULL DEFAULT 0,
    parent_id   bigint   NOT NULL DEFAULT 0,
    claim       bigint   NOT NULL DEFAULT 0,
    version     bigint   NOT NULL DEFAULT 1,
    owner       integer  NOT NULL DEFAULT 0,
    place       smallint NOT NULL DEFAULT 1,
    mock        boolean  NOT NULL DEFAULT false,
    lapsed      boolean  NOT NULL DEFAULT false,
    plain_ms    bigint   NOT NULL DEFAULT 0,
    token       bigint   NOT NULL DEFAULT 0,
    retries     boolean  NOT NULL DEFAULT false,
    tenant      text     COLLATE "C" NOT NULL DEFAULT '',
    task        text     COLLATE "C" NOT NULL,
    ended       text     COLLATE "C" NOT NULL DEFAULT '',
    schedule    text     COLLATE "C" NOT NULL DEFAULT '',
    domain      bytea,
    rest        text     NOT NULL,
    body        text,
    raw         bytea
) WITH (
    -- A job is written about three times and then deleted, so its space must be reused soon.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- The same, for commits and claims that read no notice (docs/decisions/0024). While there is one, the view has another name,
-- so that they fail. A migration that adds a column of jobs adds it here, too.
CREATE VIEW {schema}.plain_jobs AS SELECT * FROM {schema}.jobs;

-- A job is in one or two of these indexes: those of its place, and others only if it has a parent, a domain, a schedule or
-- an expiry. `rank + 0 >= 0`: so that only statements with the same words scan the index of all READY jobs.
CREATE INDEX jobs_ready ON {schema}.jobs ((rank + 0), id) WHERE place = 2 AND rank + 0 >= 0;
CREATE INDEX jobs_ready_pair ON {schema}.jobs (tenant, task, rank, id) WHERE place = 2 AND NOT mock;
CREATE INDEX jobs_scheduled ON {schema}.jobs (rank, id) WHERE place = 1;
CREATE INDEX jobs_running ON {schema}.jobs (rank, id) WHERE place = 4;
CREATE INDEX jobs_standing ON {schema}.jobs (place, id) WHERE place IN (5, 6);
CREATE INDEX jobs_domain ON {schema}.jobs (tenant, domain, task, place, rank, id) WHERE domain IS NOT NULL;
CREATE INDEX jobs_children ON {schema}.jobs (parent_id, place, id) WHERE parent_id > 0;
CREATE INDEX jobs_expiring ON {schema}.jobs (expires_at, id) WHERE expires_at > 0 AND place NOT IN (4, 6);
CREATE INDEX jobs_schedule ON {schema}.jobs (schedule, id) WHERE schedule <> '';

-- Data that is large or was replaced, and results, of live and archived jobs.
CREATE TABLE {schema}.data_apart (id bigint NOT NULL PRIMARY KEY, body text, raw bytea)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE {schema}.results (id bigint NOT NULL PRIMARY KEY, body text, raw bytea)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Jobs that have ended: written once, the whole record as JSON; purged from the old end.
CREATE TABLE {schema}.archive (
    id          bigint NOT NULL PRIMARY KEY,
    finished_at bigint NOT NULL,
    parent_id   bigint NOT NULL,
    tenant      text   COLLATE "C" NOT NULL,
    task        text   COLLATE "C" NOT NULL,
    state       text   COLLATE "C" NOT NULL,
    schedule    text   COLLATE "C" NOT NULL,
    domain      bytea,
    record      text   NOT NULL,
    body        text,
    raw         bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- `id + 0`: so that a lookup by ids never scans this index of ended jobs.
CREATE INDEX archive_ended ON {schema}.archive (finished_at, (id + 0));

-- All other rows. `due_ms` is when a row is due, or NULL; `at_ms` is when it was written. Half of each page is left free,
-- for HOT updates: most writes change neither key nor `due_ms`. The row with empty table and key is the notice. It always
-- exists, with an empty value if there is no notice, so that it can be locked in any isolation level.
CREATE TABLE {schema}.rows (
    tbl    text   COLLATE "C" NOT NULL,
    key    text   COLLATE "C" NOT NULL,
    due_ms bigint,
    at_ms  bigint NOT NULL,
    value  bytea  NOT NULL,
    PRIMARY KEY (tbl, key)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX rows_due ON {schema}.rows (tbl, due_ms, key) WHERE due_ms IS NOT NULL;
INSERT INTO {schema}.rows (tbl, key, at_ms, value) VALUES ('', '', 0, '');

-- The counts of jobs: the sums, and the differences since the sums were last folded.
CREATE TABLE {schema}.counts (
    tenant text     COLLATE "C" NOT NULL,
    task   text     COLLATE "C" NOT NULL,
    place  smallint NOT NULL,
    state  text     COLLATE "C" NOT NULL,
    number bigint   NOT NULL,
    PRIMARY KEY (tenant, task, place, state)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
-- With place 0: the tallies, which upkeep moves into rows.
CREATE INDEX counts_tallies ON {schema}.counts (tenant, task, state) WHERE place = 0;
CREATE TABLE {schema}.count_changes (
    tenant text     COLLATE "C" NOT NULL,
    task   text     COLLATE "C" NOT NULL,
    place  smallint NOT NULL,
    state  text     COLLATE "C" NOT NULL,
    number bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Those of READY jobs: the pairs (tenant, task) that have some are found by their names (`ready_pairs.py`).
CREATE INDEX counts_ready ON {schema}.counts (tenant, task) WHERE place = 2;
CREATE INDEX count_changes_ready ON {schema}.count_changes (tenant, task) WHERE place = 2;

-- The marks of the transactions of the last minutes: they show whether a COMMIT without an answer succeeded. A `void` mark
-- means that its transaction was not committed and never will be.
CREATE TABLE {schema}.commit_marks (
    at_ms bigint NOT NULL, mark bigint NOT NULL, void boolean NOT NULL DEFAULT false, PRIMARY KEY (at_ms, mark)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The last tick of the ids that `add` makes.
CREATE SEQUENCE {schema}.ticks MINVALUE 1;
