-- How a claim takes its jobs: the first that match, by (rank, id), skipping those that another batch has.
--
--   {found}   the query that selects and locks them; never more than the limit: others could not claim those
--
-- The result is `found`, not RETURNING: the rows are locked in their current version, so no other transaction can change
-- them before the UPDATE. A join of the two would take a tenth longer.
--
-- The reply also has the data in the rows of the jobs, in the same order, and the time in microseconds. Fields that have their default at a first claim are left out of the record.

-- name: claim
WITH {found},
taken AS (
    UPDATE {schema}.jobs AS job
    SET place = 4, rank = %(lease_rank)s, owner = %(owner)s, lease_until = %(until)s, started_at = %(started_at)s,
        claim = job.claim + 1, version = job.version + 1
    WHERE job.id = ANY(ARRAY(SELECT id FROM found))
)
SELECT '[' || string_agg(
    '{"place":2,"rank":' || rank || ',"version":' || version || CASE
        WHEN owner = 0 AND lease_until = 0 AND started_at = 0 AND claim = 0 THEN '' ELSE
        ',"owner":' || owner || ',"lease_until":' || lease_until || ',"started_at":' || started_at || ',"claim":' || claim
    END || ',' || substr(rest, 2), ','
) || ']', array_agg(body), CASE WHEN count(raw) > 0 THEN array_agg(raw) END,
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint, {looked_at}
FROM found

-- All READY jobs in order, skipping those that do not match.
-- name: claim_any
found AS MATERIALIZED (
    SELECT id, {hot}, tenant, task, body, raw FROM {schema}.jobs
    WHERE place = 2 AND rank + 0 >= 0 AND rank + 0 BETWEEN %(low)s AND %(high)s AND (%(mock)s::boolean OR NOT mock)
        AND (%(tenants)s::text[] IS NULL OR tenant = ANY(%(tenants)s::text[]))
        AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
        AND (%(pattern)s::text IS NULL OR task ~ %(pattern)s::text)
        AND NOT EXISTS (
            SELECT FROM unnest(%(skipped_tenants)s::text[], %(skipped_tasks)s::text[]) AS skipped (tenant, task)
            WHERE (skipped.tenant IS NULL OR skipped.tenant = jobs.tenant)
                AND (skipped.task IS NULL OR skipped.task = jobs.task)
        )
    ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)

-- A number of jobs of each pair, together not more than the limit.
-- name: claim_pairs
found AS MATERIALIZED (
    SELECT ready.* FROM unnest(%(tenants)s::text[], %(tasks)s::text[], %(mosts)s::bigint[], %(lows)s::bigint[])
        AS pair (tenant, task, most, low)
    CROSS JOIN LATERAL (
        SELECT id, {hot}, tenant, task, body, raw FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
            AND rank BETWEEN pair.low AND %(high)s
        ORDER BY rank, id LIMIT pair.most FOR UPDATE SKIP LOCKED
    ) AS ready
)

-- For several pairs: first the ids, merged by rank, without locks; then those that no other batch has locked. `rank + 0`,
-- `place + 0`: so that the planner looks them up by id and does not scan the index of all READY jobs.
-- name: claim_merged
candidates AS MATERIALIZED (
    SELECT ready.id FROM unnest(%(tenants)s::text[], %(tasks)s::text[], %(mosts)s::bigint[], %(lows)s::bigint[])
        AS pair (tenant, task, most, low)
    CROSS JOIN LATERAL (
        SELECT rank, id FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
            AND rank BETWEEN pair.low AND %(high)s
        ORDER BY rank, id LIMIT pair.most
    ) AS ready ORDER BY ready.rank, ready.id LIMIT %(look_at)s
),
found AS MATERIALIZED (
    SELECT id, {hot}, tenant, task, body, raw FROM {schema}.jobs
    WHERE id = ANY(ARRAY(SELECT id FROM candidates)) AND place + 0 = 2
    ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)

-- The pairs that have READY jobs: those of a tenant within a range of names, or all.
-- name: pairs_of_tenant
SELECT task FROM {schema}.ready_tasks(%(tenant)s, %(first)s, %(above)s, %(limit)s)

-- name: pairs_ready
SELECT tenant, task FROM {schema}.ready_pairs(%(limit)s)

-- name: lease_jobs
SELECT * FROM {schema}.lease_jobs(
    %(pause_lock)s, %(now)s, %(limit)s, %(low)s, %(high)s, %(lease_ms)s, %(bytes)s,
    %(lease_rank)s, %(owner)s, %(until)s, %(started_at)s, %(token)s, %(tenants)s::text[], %(tasks)s::text[], %(mosts)s::bigint[]
)

-- End a session whose last statement got no reply; there is no row if it has ended.
-- name: end_session
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND extract(epoch FROM backend_start)::text = %s

-- What such a statement has leased, as it is now.
-- name: leased_jobs
SELECT '[' || string_agg(
    '{"place":2,"version":' || version - 1 || ',"claim":' || claim - 1 || ',' || substr(rest, 2), ','
) || ']', array_agg(coalesce(job.body, apart.body)), array_agg(coalesce(job.raw, apart.raw))
FROM {schema}.jobs AS job
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.data_apart WHERE data_apart.id = job.id AND job.body IS NULL AND job.raw IS NULL
) AS apart ON true
WHERE place = 4 AND rank = %(lease_rank)s AND token = %(token)s
