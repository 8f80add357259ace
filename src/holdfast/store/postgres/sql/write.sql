-- What is written, whole batches at a time: a column of the rows is an array, and `unnest` makes rows of them.
--
-- `(… IN (SELECT …)) IS TRUE` is looked up in a hash; as a join it would go through all for each, since joins
-- by hash are switched off: planned while a table is small, one would read all of it when it is large.

-- Jobs and their data, which is kept apart. That nobody has these numbers is nearly always so, and seen by the keys,
-- which archived jobs have as well, of data that is apart; others are looked for. Where somebody has one, the batch is
-- done again with `insert_carefully`: what exists already is left alone, and if there is any, the numbers of those that
-- were added are answered.
-- name: insert
WITH kept AS (
    INSERT INTO {schema}.data_apart (id, body, raw)
    SELECT * FROM unnest(%(id)s::bigint[], %(bodies)s::text[], %(raws)s::bytea[])
)
INSERT INTO {schema}.jobs ({columns}) SELECT {columns} FROM {rows}
WHERE NOT EXISTS (SELECT FROM {schema}.archive WHERE archive.id = new.id)

-- What jobs that are alike share comes once; with a mark it is a whole batch: see the fourth migration.
-- name: bear
SELECT {schema}.bear(
    %(tenant)s::text, %(task)s::text, %(place)s::smallint, %(rank)s::bigint, %(expires_at)s::bigint, %(mock)s::boolean,
    %(retries)s::boolean, %(schedule)s::text, %(ids)s::bigint[], %(bodies)s::text[], %(raws)s::bytea[],
    %(apart)s::boolean, %(middle)s::text, %(tail)s::text,
    %(at_ms)s::bigint, %(mark)s::bigint, %(state)s::text, %(first_lock)s::bigint, %(second_lock)s::bigint
)

-- name: insert_carefully
WITH added AS (
    INSERT INTO {schema}.jobs ({columns})
    SELECT {columns} FROM {rows}
    WHERE NOT EXISTS (SELECT FROM {schema}.archive WHERE archive.id = new.id)
    ON CONFLICT (id) DO NOTHING RETURNING id
),
kept AS (
    INSERT INTO {schema}.data_apart (id, body, raw)
    SELECT new.id, new.body, new.raw
    FROM unnest(%(id)s::bigint[], %(bodies)s::text[], %(raws)s::bytea[]) AS new (id, body, raw)
    WHERE (new.id IN (SELECT id FROM added)) IS TRUE
    ON CONFLICT (id) DO NOTHING
)
SELECT CASE WHEN count(*) < %(count)s THEN coalesce(array_agg(id), '{}') END FROM added

-- name: swap
UPDATE {schema}.jobs SET
    tenant = new.tenant, task = new.task, place = new.place, rank = new.rank, version = new.version,
    owner = new.owner, lease_until = new.lease_until, started_at = new.started_at, claim = new.claim,
    mock = new.mock, lapsed = new.lapsed, retries = new.retries, ended = new.ended,
    expires_at = new.expires_at, parent_id = new.parent_id, domain = new.domain, schedule = new.schedule,
    rest = new.rest
FROM {rows} WHERE jobs.id = new.id AND jobs.version = new.version - 1

-- name: remove
WITH gone AS (
    DELETE FROM {schema}.jobs USING unnest(%(ids)s::bigint[], %(versions)s::bigint[]) AS old (id, version)
    WHERE jobs.id = old.id AND jobs.version = old.version RETURNING jobs.id
),
dropped_data AS (DELETE FROM {schema}.data_apart USING gone WHERE data_apart.id = gone.id),
dropped_results AS (DELETE FROM {schema}.results USING gone WHERE results.id = gone.id)
SELECT count(*) FROM gone

-- Data that stands beside a job goes with it. An array that is empty says that none of these has one.
-- name: archive
WITH gone AS (
    DELETE FROM {schema}.jobs USING unnest(
        %(ids)s::bigint[], %(versions)s::bigint[], %(finished)s::bigint[], %(parents)s::bigint[], %(tenants)s::text[],
        %(tasks)s::text[], %(states)s::text[], %(schedules)s::text[], %(domains)s::bytea[], %(records)s::text[]
    ) AS new (id, version, finished_at, parent_id, tenant, task, state, schedule, domain, record)
    WHERE jobs.id = new.id AND jobs.version = new.version
    RETURNING
        new.id, new.finished_at, coalesce(new.parent_id, 0), coalesce(new.tenant, ''), new.task, new.state,
        coalesce(new.schedule, ''), new.domain, new.record, jobs.body, jobs.raw
),
kept AS (
    INSERT INTO {schema}.archive (
        id, finished_at, parent_id, tenant, task, state, schedule, domain, record, body, raw
    ) SELECT * FROM gone
)
SELECT count(*) FROM gone

-- The same as a whole batch: see the fifth migration.
-- name: finish
SELECT {schema}.finish(
    %(ids)s::bigint[], %(versions)s::bigint[], %(finished)s::bigint[], %(parents)s::bigint[], %(tenants)s::text[],
    %(tasks)s::text[], %(states)s::text[], %(schedules)s::text[], %(domains)s::bytea[], %(records)s::text[],
    %(result_ids)s::bigint[], %(result_bodies)s::text[], %(result_raws)s::bytea[],
    %(at_ms)s::bigint, %(mark)s::bigint, %(count_tenants)s::text[], %(count_tasks)s::text[], %(places)s::smallint[],
    %(count_states)s::text[], %(numbers)s::bigint[]
)

-- name: forget
WITH gone AS (DELETE FROM {schema}.archive WHERE id = ANY(%(ids)s::bigint[])),
dropped AS (DELETE FROM {schema}.data_apart WHERE id = ANY(%(ids)s::bigint[]))
DELETE FROM {schema}.results WHERE id = ANY(%(ids)s::bigint[])

-- name: purge
WITH old AS MATERIALIZED (
    SELECT id FROM {schema}.archive
    WHERE finished_at < %(before)s AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    ORDER BY finished_at, id + 0 LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM {schema}.archive USING old WHERE archive.id = old.id RETURNING archive.record),
dropped_data AS (DELETE FROM {schema}.data_apart USING old WHERE data_apart.id = old.id),
dropped_results AS (DELETE FROM {schema}.results USING old WHERE results.id = old.id)
SELECT '[' || string_agg(record, ',') || ']' FROM gone

-- What stood beside the job stands there no more.
-- name: put_data
WITH moved AS (
    UPDATE {schema}.jobs SET body = NULL, raw = NULL
    WHERE id = ANY(%(ids)s::bigint[]) AND (body IS NOT NULL OR raw IS NOT NULL)
),
moved_archive AS (
    UPDATE {schema}.archive SET body = NULL, raw = NULL
    WHERE id = ANY(%(ids)s::bigint[]) AND (body IS NOT NULL OR raw IS NOT NULL)
)
INSERT INTO {schema}.data_apart (id, body, raw)
SELECT * FROM unnest(%(ids)s::bigint[], %(bodies)s::text[], %(raws)s::bytea[])
ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw

-- name: put_results
INSERT INTO {schema}.results (id, body, raw)
SELECT * FROM unnest(%(ids)s::bigint[], %(bodies)s::text[], %(raws)s::bytea[])
ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw

-- name: put_unique
INSERT INTO {schema}.uniques (tenant, task, key, job_id, until_ms)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant, task, key) DO UPDATE SET job_id = excluded.job_id, until_ms = excluded.until_ms

-- name: drop_unique
DELETE FROM {schema}.uniques USING unnest(%s::text[], %s::text[], %s::bytea[]) AS gone (tenant, task, key)
WHERE (uniques.tenant, uniques.task, uniques.key) = (gone.tenant, gone.task, gone.key)

-- name: lapse_unique
WITH over AS MATERIALIZED (
    SELECT tenant, task, key FROM {schema}.uniques
    WHERE until_ms > 0 AND until_ms <= %s ORDER BY until_ms LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.uniques USING over
WHERE (uniques.tenant, uniques.task, uniques.key) = (over.tenant, over.task, over.key)

-- name: insert_domains
INSERT INTO {schema}.domains (at_ms, tenant, name, version, due_ms, record)
SELECT %s::bigint, * FROM unnest(%s::text[], %s::bytea[], %s::bigint[], %s::bigint[], %s::text[]) ON CONFLICT DO NOTHING

-- name: swap_domains
UPDATE {schema}.domains SET at_ms = %s, version = new.version, due_ms = new.due_ms, record = new.record
FROM unnest(%s::text[], %s::bytea[], %s::bigint[], %s::bigint[], %s::text[])
    AS new (tenant, name, version, due_ms, record)
WHERE (domains.tenant, domains.name) = (new.tenant, new.name) AND domains.version = new.version - 1

-- name: drop_domains
DELETE FROM {schema}.domains USING unnest(%s::text[], %s::bytea[], %s::bigint[]) AS gone (tenant, name, version)
WHERE (domains.tenant, domains.name, domains.version) = (gone.tenant, gone.name, gone.version)

-- The last of a batch: see the second migration.
-- name: settle
SELECT {schema}.settle(
    %(at_ms)s, %(mark)s, %(count_tenants)s::text[], %(count_tasks)s::text[], %(places)s::smallint[],
    %(count_states)s::text[], %(numbers)s::bigint[],
    %(locks)s::bigint[], %(pair_tenants)s::text[], %(pair_tasks)s::text[], %(are_filled)s::boolean[],
    %(lane_locks)s::bigint[], %(tenant_locks)s::bigint[]
)

-- name: mark
INSERT INTO {schema}.commits (at_ms, mark) VALUES (%(at_ms)s, %(mark)s)

-- Whoever had no answer to a COMMIT asks by its mark. Where there is none there shall be none: one that comes too
-- late finds the key taken, and one that is under way is waited for.
-- name: void
INSERT INTO {schema}.commits (at_ms, mark, void) VALUES (%(at_ms)s, %(mark)s, true) ON CONFLICT DO NOTHING

-- name: is_marked
SELECT EXISTS (SELECT FROM {schema}.commits WHERE at_ms = %(at_ms)s AND mark = %(mark)s AND NOT void)

-- name: forget_marks
DELETE FROM {schema}.commits WHERE at_ms < %s

-- Answers what has come to zero, and whose READY jobs have become more or fewer.
-- name: fold
WITH gone AS (DELETE FROM {schema}.changes RETURNING tenant, task, place, state, number),
sums AS (
    SELECT tenant, task, place, state, sum(number)::bigint AS number FROM gone
    GROUP BY tenant, task, place, state HAVING sum(number) <> 0
),
folded AS (
    INSERT INTO {schema}.counts (tenant, task, place, state, number)
    SELECT tenant, task, place, state, number FROM sums
    ON CONFLICT (tenant, task, place, state) DO UPDATE SET number = counts.number + excluded.number
    RETURNING tenant, task, place, state, number
)
SELECT true, tenant, task, place, state FROM folded WHERE number = 0
UNION ALL SELECT DISTINCT false, tenant, task, place, '' FROM gone WHERE place = 2

-- name: drop_zero
DELETE FROM {schema}.counts
USING unnest(%s::text[], %s::text[], %s::smallint[], %s::text[]) AS zero (tenant, task, place, state)
WHERE (counts.tenant, counts.task, counts.place, counts.state) = (zero.tenant, zero.task, zero.place, zero.state)

-- name: put_records
INSERT INTO {schema}.records (kind, name, value) SELECT %s, * FROM unnest(%s::text[], %s::bytea[])
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value

-- name: drop_records
DELETE FROM {schema}.records WHERE kind = %s AND name = ANY(%s::text[])

-- name: append_log
INSERT INTO {schema}.log_items (log, item, key, body, raw)
SELECT %s, * FROM unnest(%s::bigint[], %s::bytea[], %s::text[], %s::bytea[]) ON CONFLICT DO NOTHING

-- Of a key that comes twice the last place counts.
-- name: put_log_keys
INSERT INTO {schema}.log_keys (log, key, item)
SELECT %s, key, max(item) FROM unnest(%s::bytea[], %s::bigint[]) AS new (key, item) GROUP BY key
ON CONFLICT (log, key) DO UPDATE SET item = excluded.item

-- name: trim_log
DELETE FROM {schema}.log_items WHERE log = %s AND item > %s AND item <= %s

-- name: trim_log_keys
DELETE FROM {schema}.log_keys WHERE log = %s AND item <= %s

-- In the order given.
-- name: lock
SELECT count(*) FROM unnest(%s::bigint[], %s::boolean[]) AS wanted (number, exclusive)
WHERE CASE WHEN exclusive THEN pg_advisory_xact_lock(number) IS NULL
    ELSE pg_advisory_xact_lock_shared(number) IS NULL END

-- name: try_lock
SELECT bool_and(CASE WHEN exclusive THEN pg_try_advisory_xact_lock(number)
    ELSE pg_try_advisory_xact_lock_shared(number) END)
FROM unnest(%s::bigint[], %s::boolean[]) AS wanted (number, exclusive)
