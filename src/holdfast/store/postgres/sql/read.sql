-- The queries. All jobs of a reply are one JSON text: a row for each job would cost more than the jobs.
--
--   {hot}     the columns that a claim changes, and the rest, which `as_jobs` turns into whole records
--   {lock}    FOR UPDATE in a batch, empty in a read-only transaction
--   {free}    FOR UPDATE SKIP LOCKED there: jobs that another batch has locked are skipped
--   {place}   a number that is part of the statement: each index is for one place

-- name: as_jobs
SELECT '[' || string_agg(
    '{"place":' || place || ',"rank":' || rank || ',"version":' || version || ',"owner":' || owner
    || ',"lease_until":' || lease_until || ',"started_at":' || started_at || ',"claim":' || claim
    || ',' || substr(rest, 2), ','
) || ']' FROM ({jobs}) AS jobs

-- `parent_id + 0`: so that the planner uses the ids and not the index of all children.
-- name: load
SELECT {hot} FROM {schema}.jobs WHERE id = ANY(%(ids)s::bigint[] || ARRAY(
    SELECT parent_id FROM {schema}.jobs WHERE id = ANY(%(ids)s::bigint[]) AND parent_id + 0 > 0
)) ORDER BY id {lock}

-- name: hold
SELECT id FROM {schema}.jobs WHERE id = %s FOR UPDATE

-- `id + 0`: so that the planner does not scan the primary key, that is all jobs, if statistics say that most jobs have one
-- parent.
-- name: children
SELECT {hot} FROM {schema}.jobs
WHERE parent_id = %s AND parent_id > 0 AND id + 0 > %s ORDER BY id + 0 LIMIT %s {lock}

-- In the order of the index of children; ordered by id alone, the planner could use the primary key.
-- name: children_at
SELECT {hot} FROM {schema}.jobs
WHERE parent_id > 0 AND (parent_id, place, id) > (%(parent)s, %(place)s::smallint, %(after)s)
    AND (parent_id, place, id) <= (%(parent)s, %(place)s::smallint, 9223372036854775807)
ORDER BY parent_id, place, id LIMIT %(limit)s {lock}

-- name: first
SELECT {hot} FROM {schema}.jobs
WHERE place = {place} AND rank BETWEEN %s AND %s ORDER BY rank, id LIMIT %s {free}

-- name: first_ready
SELECT {hot} FROM {schema}.jobs
WHERE place = 2 AND rank + 0 >= 0 AND rank + 0 BETWEEN %s AND %s ORDER BY rank + 0, id LIMIT %s {free}

-- name: expiring
SELECT {hot} FROM {schema}.jobs
WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= %s ORDER BY expires_at, id LIMIT %s {free}

-- name: domain_queue
SELECT {hot} FROM {schema}.jobs
WHERE tenant = %s AND domain = %s AND task = %s AND place = %s ORDER BY rank, id LIMIT %s {free}

-- name: domain_queue_last
SELECT {hot} FROM {schema}.jobs
WHERE tenant = %s AND domain = %s AND task = %s AND place = %s ORDER BY rank DESC, id DESC LIMIT %s {free}

-- name: domain_counts
SELECT wanted.tenant, wanted.name, counted.*
FROM unnest(%s::text[], %s::bytea[]) AS wanted (tenant, name) CROSS JOIN LATERAL (
    SELECT task, place, count(*) FROM {schema}.jobs
    WHERE tenant = wanted.tenant AND domain = wanted.name AND place IN (2, 3, 4) GROUP BY task, place
) AS counted

-- name: list
SELECT {hot} FROM {schema}.jobs WHERE {conditions} ORDER BY {order} LIMIT %s

-- The first READY job of each pair.
-- name: heads
SELECT {hot} FROM {schema}.jobs WHERE id IN (
    SELECT head.id FROM unnest(%s::text[], %s::text[]) AS pair (tenant, task) CROSS JOIN LATERAL (
        SELECT id FROM {schema}.jobs
        WHERE jobs.tenant = pair.tenant AND jobs.task = pair.task AND place = 2 AND NOT mock
        ORDER BY rank, id LIMIT 1
    ) AS head
)

-- name: list_archived
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.archive WHERE {conditions} ORDER BY id LIMIT %s
) AS found

-- name: archived
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.archive WHERE id = ANY(%s::bigint[]) ORDER BY id {lock}
) AS found

-- name: ended
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.archive
    WHERE finished_at < %(before)s AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    ORDER BY finished_at, id + 0 LIMIT %(limit)s {free}
) AS found

-- In the row of the job if it is small, otherwise in a table of its own.
-- name: data
SELECT id, body, raw FROM {schema}.jobs
WHERE id = ANY(%(ids)s::bigint[]) AND (body IS NOT NULL OR raw IS NOT NULL)
UNION ALL SELECT id, body, raw FROM {schema}.archive
WHERE id = ANY(%(ids)s::bigint[]) AND (body IS NOT NULL OR raw IS NOT NULL)
UNION ALL SELECT id, body, raw FROM {schema}.data_apart WHERE id = ANY(%(ids)s::bigint[])

-- name: data_apart
SELECT id, body, raw FROM {schema}.data_apart WHERE id = ANY(%(ids)s::bigint[])

-- name: results
SELECT id, body, raw FROM {schema}.results WHERE id = ANY(%(ids)s::bigint[])

-- name: rows
SELECT key, value FROM {schema}.rows WHERE tbl = %s AND key = ANY(%s::text[])

-- name: table
SELECT key, value FROM {schema}.rows WHERE tbl = %s

-- name: hold_rows
SELECT * FROM {schema}.hold_rows(
    %(late)s::bigint[], %(locks)s::bigint[], %(tables)s::text[], %(keys)s::text[], %(whole)s::text[]
)

-- name: scan
SELECT key, value FROM {schema}.rows
WHERE tbl = %(table)s AND key > %(after)s AND key >= %(prefix)s AND key < %(above)s ORDER BY key LIMIT %(limit)s

-- name: scan_due
SELECT key, value FROM {schema}.rows
WHERE tbl = %(table)s AND due_ms IS NOT NULL AND due_ms <= %(due)s
    AND key > %(after)s AND key >= %(prefix)s AND key < %(above)s
ORDER BY due_ms, key LIMIT %(limit)s

-- One index lookup for each table, independent of its size. The notice is the row with an empty table name.
-- name: tables
WITH RECURSIVE found (tbl) AS (
    (SELECT tbl FROM {schema}.rows WHERE tbl > '' ORDER BY tbl LIMIT 1)
    UNION ALL
    SELECT (SELECT tbl FROM {schema}.rows WHERE rows.tbl > found.tbl ORDER BY tbl LIMIT 1)
    FROM found WHERE found.tbl IS NOT NULL
)
SELECT tbl FROM found WHERE tbl IS NOT NULL

-- With the number of differences in each that are not folded yet.
-- name: counts
SELECT tenant, task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts UNION ALL SELECT *, 1 FROM {schema}.count_changes
) AS parts WHERE place > 0 GROUP BY tenant, task, place, state HAVING sum(number) <> 0

-- name: counts_of_tenant
SELECT tenant, task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts WHERE tenant = %(tenant)s
    UNION ALL SELECT *, 1 FROM {schema}.count_changes WHERE tenant = %(tenant)s
) AS parts WHERE place > 0 GROUP BY tenant, task, place, state HAVING sum(number) <> 0

-- name: counts_after
SELECT tenant, task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts UNION ALL SELECT *, 1 FROM {schema}.count_changes
) AS parts WHERE place > 0 AND (tenant, task) > (%(after_tenant)s, %(after_task)s)
AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
GROUP BY tenant, task, place, state HAVING sum(number) <> 0 ORDER BY tenant, task, place, state LIMIT %(limit)s

-- name: totals
SELECT '', task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts UNION ALL SELECT *, 1 FROM {schema}.count_changes
) AS parts WHERE place > 0 AND (%(task)s::text IS NULL OR task = %(task)s)
GROUP BY task, place, state HAVING sum(number) <> 0

-- name: tallies
SELECT tenant, task, place, state, sum(number)::bigint FROM (
    SELECT * FROM {schema}.counts WHERE place = 0 UNION ALL SELECT * FROM {schema}.count_changes WHERE place = 0
) AS parts GROUP BY tenant, task, place, state HAVING sum(number) <> 0

-- name: first_reads
SELECT * FROM {schema}.first_reads(
    %(locks)s::bigint[], %(tables)s::text[], %(few)s::integer, %(moments)s::bigint[]
)

-- The places of a task's live jobs. Archived jobs count as DONE, so there may be no live job in DONE.
-- name: places_of_task
SELECT place FROM (
    SELECT place, number FROM {schema}.counts WHERE tenant = %(tenant)s AND task = %(task)s
    UNION ALL SELECT place, number FROM {schema}.count_changes WHERE tenant = %(tenant)s AND task = %(task)s
) AS parts WHERE place > 0 GROUP BY place HAVING sum(number) <> 0 ORDER BY place

-- name: named
SELECT id FROM {schema}.jobs WHERE tenant = %s AND task = %s AND place = {place} AND mock = %s
ORDER BY rank, id LIMIT 1

-- name: named_ready
SELECT id FROM {schema}.jobs WHERE tenant = %s AND task = %s AND place = 2 AND NOT mock ORDER BY rank, id LIMIT 1

-- Tenants that have READY jobs from a name on, below another.
-- name: ready_tenants
SELECT * FROM {schema}.ready_tenants(%s, %s, %s)

-- name: having_ready
SELECT tenant FROM unnest(%s::text[]) AS named (tenant)
WHERE EXISTS (SELECT FROM {schema}.ready_tasks(tenant, '', {above}, 1))

-- Of each tenant, tasks from a name on; then those below it.
-- name: ready_tasks
SELECT named.tenant, asked.task, asked.number
FROM unnest(%(tenants)s::text[]) WITH ORDINALITY AS named (tenant, at)
CROSS JOIN LATERAL (
    SELECT walked.task, walked.number FROM (
        SELECT 1 AS part, * FROM {schema}.ready_tasks(named.tenant, %(first)s, {above}, %(looked_at)s)
        UNION ALL SELECT 2, * FROM {schema}.ready_tasks(named.tenant, '', %(first)s, %(looked_at)s)
    ) AS walked
    WHERE (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[])) AND NOT EXISTS (
        SELECT FROM unnest(%(skipped_tenants)s::text[], %(skipped_tasks)s::text[]) AS skipped (tenant, task)
        WHERE (skipped.tenant IS NULL OR skipped.tenant = named.tenant)
            AND (skipped.task IS NULL OR skipped.task = walked.task)
    )
    ORDER BY part, task LIMIT %(limit)s
) AS asked ORDER BY named.at

-- How long the archive keeps jobs, if that was ever set.
-- name: retention
SELECT convert_from(value, 'UTF8') FROM {schema}.rows WHERE tbl = 'setting' AND key = 'retention_ms'

-- For a process that got no answer to its COMMIT. If there is no mark, this writes a void one: a transaction that commits
-- later finds the key taken, and this statement waits for one that is in progress.
-- name: void
INSERT INTO {schema}.commit_marks (at_ms, mark, void) VALUES (%(at_ms)s, %(mark)s, true) ON CONFLICT DO NOTHING

-- name: is_marked
SELECT EXISTS (SELECT FROM {schema}.commit_marks WHERE at_ms = %(at_ms)s AND mark = %(mark)s AND NOT void)

-- name: fold_counts
SELECT {schema}.fold_counts(%s::bigint)
