-- The first schema. Migrations are numbered, run once, in order, and are never edited.
--
-- {schema} is the schema's name, quoted. Text is compared byte by byte (C), as Python compares it.

-- Which of these migrations the schema has.
CREATE TABLE {schema}.version (version integer NOT NULL);

-- Live jobs. The columns are what jobs are found and ordered by, what a claim changes (place to claim), and
-- what their state follows from; all else is in `rest`, the record as JSON without those that a claim changes.
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
    rest        text     NOT NULL
) WITH (
    -- A job is written about three times and then gone: space is needed again at once.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- A job stands in one or two of these: those of its place, and others only if it has a parent, a domain, a
-- schedule or an expiry.
-- `rank + 0`, so that only who asks for that order is led along all that are READY.
CREATE INDEX jobs_ready ON {schema}.jobs ((rank + 0), id) WHERE place = 2;
CREATE INDEX jobs_ready_pair ON {schema}.jobs (tenant, task, rank, id) WHERE place = 2 AND NOT mock;
CREATE INDEX jobs_scheduled ON {schema}.jobs (rank, id) WHERE place = 1;
CREATE INDEX jobs_running ON {schema}.jobs (rank, id) WHERE place = 4;
CREATE INDEX jobs_standing ON {schema}.jobs (place, id) WHERE place IN (5, 6);
CREATE INDEX jobs_domain ON {schema}.jobs (tenant, domain, task, place, rank, id) WHERE domain IS NOT NULL;
CREATE INDEX jobs_children ON {schema}.jobs (parent_id, place, id) WHERE parent_id > 0;
CREATE INDEX jobs_expiring ON {schema}.jobs (expires_at, id) WHERE expires_at > 0 AND place NOT IN (4, 6);
CREATE INDEX jobs_schedule ON {schema}.jobs (schedule, id) WHERE schedule <> '';

-- Bodies, of live and archived jobs: one of the two columns, JSON as text, anything else as bytes.
CREATE TABLE {schema}.data (id bigint NOT NULL PRIMARY KEY, body text, raw bytea)
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
    record      text   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX archive_ended ON {schema}.archive (finished_at, id);

-- Who holds a unique key; `until_ms` 0: until the job ends.
CREATE TABLE {schema}.uniques (
    tenant   text   COLLATE "C" NOT NULL,
    task     text   COLLATE "C" NOT NULL,
    key      bytea  NOT NULL,
    job_id   bigint NOT NULL,
    until_ms bigint NOT NULL,
    PRIMARY KEY (tenant, task, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX uniques_lapsing ON {schema}.uniques (until_ms) WHERE until_ms > 0;

-- What is kept of domains that are limited. `at_ms` is the time of whoever wrote it. Half of each page is left free: most writes change neither the
-- key nor `due_ms`, and find room beside the row.
CREATE TABLE {schema}.domains (
    tenant  text   COLLATE "C" NOT NULL,
    name    bytea  NOT NULL,
    version bigint NOT NULL,
    due_ms  bigint NOT NULL,
    at_ms   bigint NOT NULL,
    record  text   NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX domains_due ON {schema}.domains (due_ms, tenant, name) WHERE due_ms > 0;

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
CREATE TABLE {schema}.changes (
    tenant text     COLLATE "C" NOT NULL,
    task   text     COLLATE "C" NOT NULL,
    place  smallint NOT NULL,
    state  text     COLLATE "C" NOT NULL,
    number bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX changes_ready ON {schema}.changes (tenant, task) WHERE place = 2;

-- The marks of the last minutes' transactions, by which one whose COMMIT was never answered is found. Not by its
-- number alone: after a crash a number that was given before it is given again.
CREATE TABLE {schema}.commits (at_ms bigint NOT NULL, mark bigint NOT NULL, PRIMARY KEY (at_ms, mark))
WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Whose turn it is, of tenants and of the tasks of each: whether they have READY jobs, and their last turn, a
-- number. See docs/decisions/0004, and sql/postgres/turns.sql for how they are written.
CREATE TABLE {schema}.lanes (
    tenant text    COLLATE "C" NOT NULL,
    task   text    COLLATE "C" NOT NULL,
    ready  boolean NOT NULL,
    served bigint  NOT NULL,
    PRIMARY KEY (tenant, task)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX lanes_turns ON {schema}.lanes (tenant, served, task) WHERE ready;
CREATE INDEX lanes_rests ON {schema}.lanes (served, tenant, task) WHERE NOT ready;
CREATE TABLE {schema}.tenants (
    tenant text    COLLATE "C" NOT NULL PRIMARY KEY,
    ready  boolean NOT NULL,
    served bigint  NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX tenants_turns ON {schema}.tenants (served, tenant) WHERE ready;
CREATE INDEX tenants_rests ON {schema}.tenants (served, tenant) WHERE NOT ready;

-- Small named records: handlers, sysids, workers, schedules, pauses, limits.
CREATE TABLE {schema}.records (
    kind  text  COLLATE "C" NOT NULL,
    name  text  COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Append-only logs: docs/decisions/0008. Items by their place, and where a key is, or was before its item was
-- trimmed. `log` is the name of the log's record.
CREATE TABLE {schema}.log_items (
    log  text   COLLATE "C" NOT NULL,
    item bigint NOT NULL,
    key  bytea,
    body text,
    raw  bytea,
    PRIMARY KEY (log, item)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE {schema}.log_keys (
    log  text   COLLATE "C" NOT NULL,
    key  bytea  NOT NULL,
    item bigint NOT NULL,
    PRIMARY KEY (log, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX log_places ON {schema}.log_keys (log, item);

-- The ticks of the ids that `add` makes.
CREATE SEQUENCE {schema}.ticks MINVALUE 1;

-- A tick that was never given before, not before the clock: see `core/ids.py`. The lock is given back at once,
-- and a sequence does not wait for commits, so nobody waits for anybody's transaction.
CREATE FUNCTION {schema}.next_tick(now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_tick CONSTANT bigint := greatest(now_ms - 1735689600000, 1) * 32;
    tick bigint;
BEGIN
    PERFORM pg_advisory_lock('{schema}.ticks'::regclass::oid::bigint);
    tick := nextval('{schema}.ticks');
    IF tick < now_tick THEN
        tick := setval('{schema}.ticks', now_tick);
    END IF;
    PERFORM pg_advisory_unlock('{schema}.ticks'::regclass::oid::bigint);
    RETURN tick;
END
$$;

-- Add a job from SQL, in whatever transaction: it enters SCHEDULED, due now, as a job of
-- `queue.add(connection=…)` does, and promotion does the rest. Returns its id.
CREATE FUNCTION {schema}.add(task text, data jsonb DEFAULT '{}') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    body CONSTANT text := data::text;
    now_ms CONSTANT bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    -- Which shard this is, of how many; a store alone has all slots.
    which CONSTANT text := coalesce((
        SELECT convert_from(value, 'UTF8') FROM {schema}.records WHERE kind = 'shard' AND name = 'which'
    ), '0/1');
    shard CONSTANT bigint := split_part(which, '/', 1);
    shards CONSTANT bigint := split_part(which, '/', 2);
    tick bigint;
    job_id bigint;
BEGIN
    IF task IS NULL OR octet_length(task) NOT BETWEEN 1 AND 255 OR task ~ '[\x01-\x1f\x7f-\x9f]' THEN
        RAISE EXCEPTION 'task is %, and must be text of 1 to 255 bytes without control characters', quote_nullable(task)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF body IS NULL OR octet_length(body) > 16777216 THEN
        RAISE EXCEPTION 'data must be JSON of at most 16 MB' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    tick := {schema}.next_tick(now_ms);
    -- 41 bits of ms, 11 of sysid, 5 of sequence, 6 of slot. Sysid 1: no process makes ids with it.
    job_id := ((tick / 32) << 22) | (1 << 11) | ((tick % 32) << 6)
        | (shard + shards * (tick % (64 / shards)));
    INSERT INTO {schema}.jobs (
        id, rank, lease_until, started_at, expires_at, parent_id, claim, version, owner, place,
        mock, lapsed, retries, tenant, task, ended, schedule, domain, rest
    ) VALUES (
        job_id, now_ms, 0, 0, 0, 0, 0, 1, 0, 1, false, false, false, '', task, '', '', NULL,
        '{"id":' || job_id || ',"task":' || to_json(task) || ',"created_at":' || now_ms || ',"run_at":' || now_ms
        || ',"size":' || octet_length(body) || '}'
    );
    INSERT INTO {schema}.data (id, body) VALUES (job_id, body);
    INSERT INTO {schema}.changes (tenant, task, place, state, number) VALUES ('', task, 1, 'QUEUED', 1);
    PERFORM pg_notify({channel}, '');
    RETURN job_id;
END
$$;
