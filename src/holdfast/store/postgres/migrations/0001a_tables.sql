-- The schema. Migrations are numbered, run once, in order, and are never edited once they were released.
--
-- {schema} is the schema's name, quoted. Text is compared byte by byte (C), as Python compares it.

-- Which of the migrations the schema has.
CREATE TABLE {schema}.version (version integer NOT NULL);

-- Live jobs. The columns are what jobs are found and ordered by, what a claim changes (place to claim), and what their
-- state follows from; all else is in `rest`, the record as JSON without those that a claim changes. Small data stands beside
-- the job, JSON as text (`body`), anything else as bytes (`raw`).
CREATE TABLE {schema}.jobs (
    id          bigint   NOT NULL PRIMARY KEY,
    rank        bigint   NOT NULL,
    lease_until bigint   NOT NULL,
    started_at  bigint   NOT NULL,
    expires_at  bigint   NOT NULL,
    parent_id   bigint   NOT NULL,
    claim       bigint   NOT NULL,
    version     bigint   NOT NULL,
    owner       integer  NOT NULL,
    place       smallint NOT NULL,
    mock        boolean  NOT NULL,
    lapsed      boolean  NOT NULL,
    retries     boolean  NOT NULL,
    tenant      text     COLLATE "C" NOT NULL,
    task        text     COLLATE "C" NOT NULL,
    ended       text     COLLATE "C" NOT NULL,
    schedule    text     COLLATE "C" NOT NULL,
    domain      bytea,
    rest        text     NOT NULL,
    body        text,
    raw         bytea
) WITH (
    -- A job is written about three times and then gone: space is needed again at once.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- A job stands in one or two of these: those of its place, and others only if it has a parent, a domain, a schedule or an
-- expiry. `rank + 0`, so that only a statement that asks for that order walks along all READY jobs.
CREATE INDEX jobs_ready ON {schema}.jobs ((rank + 0), id) WHERE place = 2;
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
-- `id + 0`, so that a statement that asks for ids never walks along all that have ended.
CREATE INDEX archive_ended ON {schema}.archive (finished_at, (id + 0));

-- Everything that is no job: `due_ms` is the moment at which a row is due, if any, `at_ms` the time of its writer. Half of each page
-- is left free: most writes change neither key nor `due_ms`, and find room beside the row. The row without a table
-- and a key is the notice; there is always one, empty where there is none, so that it can be locked in any isolation level.
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

-- How many jobs there are of each kind: the sums, and what has been added to them since they were last folded.
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
-- With a place of 0: the tallies that upkeep moves into rows.
CREATE INDEX counts_tallies ON {schema}.counts (tenant, task, state) WHERE place = 0;
CREATE TABLE {schema}.count_changes (
    tenant text     COLLATE "C" NOT NULL,
    task   text     COLLATE "C" NOT NULL,
    place  smallint NOT NULL,
    state  text     COLLATE "C" NOT NULL,
    number bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX count_changes_ready ON {schema}.count_changes (tenant, task) WHERE place = 2;

-- The marks of the last minutes' transactions, by which one whose COMMIT was never answered is found. One that is `void` says
-- that its transaction was not committed, and never will be.
CREATE TABLE {schema}.commits (
    at_ms bigint NOT NULL, mark bigint NOT NULL, void boolean NOT NULL DEFAULT false, PRIMARY KEY (at_ms, mark)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Turns, of tenants and of the tasks of each: whether they have READY jobs, and their last turn, a number (docs/decisions/0004).
CREATE TABLE {schema}.pairs (
    tenant text    COLLATE "C" NOT NULL,
    task   text    COLLATE "C" NOT NULL,
    ready  boolean NOT NULL,
    served bigint  NOT NULL,
    PRIMARY KEY (tenant, task)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX pairs_ready ON {schema}.pairs (tenant, served, task) WHERE ready;
CREATE INDEX pairs_empty ON {schema}.pairs (served, tenant, task) WHERE NOT ready;
CREATE TABLE {schema}.tenants (
    tenant text    COLLATE "C" NOT NULL PRIMARY KEY,
    ready  boolean NOT NULL,
    served bigint  NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX tenants_ready ON {schema}.tenants (served, tenant) WHERE ready;
CREATE INDEX tenants_empty ON {schema}.tenants (served, tenant) WHERE NOT ready;

-- The ticks of the ids that `add` makes.
CREATE SEQUENCE {schema}.ticks MINVALUE 1;
