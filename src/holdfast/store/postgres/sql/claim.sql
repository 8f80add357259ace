-- How a claim takes its jobs: the first that match, by (rank, id), skipping those that another batch has.
--
--   {found}   what selects them, locked; not one more than asked for, or others would find nothing although much is left
--
-- What was found is what is taken: it is locked, each job as it stands now, and nobody can change it before the UPDATE does. A
-- join of the two, to have only what that changed, would take longer by a tenth.
--
-- With the jobs come the data that stands beside them, in the same order; the newest turn of all; where they are of one pair, the
-- turns of it and of its tenant, and whether it has another READY job after them; and how many microseconds it took. What
-- a first claim finds at its default is left out of the record.

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
    greatest(
        coalesce((SELECT served FROM {schema}.tenants WHERE ready ORDER BY served DESC LIMIT 1), 0),
        coalesce((SELECT served FROM {schema}.tenants WHERE NOT ready ORDER BY served DESC LIMIT 1), 0)
    ),
    (SELECT served FROM {schema}.pairs WHERE pairs.tenant = min(found.tenant) AND pairs.task = min(found.task)),
    (SELECT served FROM {schema}.tenants WHERE tenants.tenant = min(found.tenant)),
    EXISTS (
        SELECT FROM {schema}.jobs AS job
        WHERE job.place = 2 AND NOT job.mock AND job.tenant = min(found.tenant) AND job.task = min(found.task)
            AND (job.rank, job.id) > (max(found.rank), max(found.id))
    ),
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint, {looked_at}
FROM found

-- All READY jobs one after the other, passing by those that do not match.
-- name: claim_any
found AS MATERIALIZED (
    SELECT id, {hot}, tenant, task, body, raw FROM {schema}.jobs
    WHERE place = 2 AND rank + 0 BETWEEN %(low)s AND %(high)s AND (%(mock)s::boolean OR NOT mock)
        AND (%(tenants)s::text[] IS NULL OR tenant = ANY(%(tenants)s::text[]))
        AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
        AND (%(pattern)s::text IS NULL OR task ~ %(pattern)s::text)
        AND NOT EXISTS (
            SELECT FROM unnest(%(passed_tenants)s::text[], %(passed_tasks)s::text[]) AS passed (tenant, task)
            WHERE (passed.tenant IS NULL OR passed.tenant = jobs.tenant)
                AND (passed.task IS NULL OR passed.task = jobs.task)
        )
    ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)

-- So many of each pair, where all of them together are no more than asked for.
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

-- Of several pairs first the ids, merged by rank, without locks; then those that no other batch has. `rank + 0`, `place + 0`: by
-- these ids, not along the index of all READY jobs.
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

-- The pairs that have READY jobs: of a tenant those whose names lie in a range, or of all.
-- name: pairs_of_tenant
SELECT tenant, task FROM {schema}.pairs
WHERE tenant = %(tenant)s AND task >= %(first)s AND task < %(above)s AND ready::int = 1 LIMIT %(limit)s

-- name: pairs_ready
SELECT tenant, task FROM {schema}.pairs WHERE ready LIMIT %(limit)s
