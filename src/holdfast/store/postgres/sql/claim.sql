-- How a claim takes its jobs: the first that match, by (rank, id), passing by those that another has.
--
--   {found}   what selects them, in order, locked; not one more than asked for is locked, or others would
--             find nothing although much is left
--
-- What was found is what is taken: it is locked, each as it stands now, and nobody can change it before the UPDATE does. A
-- join of the two, to have only what that changed, would take longer by a tenth.
--
-- With the jobs comes the data that stands beside them, in the same order; and the newest turn of all, and those of
-- their lane and its tenant, where they are of one. What a first claim finds at its default is left out of the record.

-- name: claim
WITH found AS MATERIALIZED ({found}),
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
    (SELECT served FROM {schema}.lanes WHERE lanes.tenant = min(found.tenant) AND lanes.task = min(found.task)),
    (SELECT served FROM {schema}.tenants WHERE tenants.tenant = min(found.tenant))
FROM found

-- All READY jobs one after the other, passing by what does not match.
-- name: ready
SELECT id, {hot}, {more} FROM {schema}.jobs
WHERE place = 2 AND rank + 0 BETWEEN %(low)s AND %(high)s AND (%(mock)s OR NOT mock)
ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: ready_filtered
SELECT id, {hot}, {more} FROM {schema}.jobs
WHERE place = 2 AND rank + 0 BETWEEN %(low)s AND %(high)s AND (%(mock)s OR NOT mock)
    AND (%(tenants)s::text[] IS NULL OR tenant = ANY(%(tenants)s::text[]))
    AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
    AND NOT EXISTS (
        SELECT FROM unnest(%(passed_tenants)s::text[], %(passed_tasks)s::text[]) AS passed (tenant, task)
        WHERE (passed.tenant IS NULL OR passed.tenant = jobs.tenant)
            AND (passed.task IS NULL OR passed.task = jobs.task)
    )
ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: ready_of_pair
SELECT id, {hot}, {more} FROM {schema}.jobs
WHERE place = 2 AND NOT mock AND tenant = %(tenant)s AND task = %(task)s AND rank BETWEEN %(low)s AND %(high)s
ORDER BY rank, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- Of several pairs first the numbers, merged by rank, without locks; then those, if nobody else has them.
-- name: candidates
SELECT ready.id FROM unnest(%(tenants)s::text[], %(tasks)s::text[], %(mosts)s::bigint[], %(lows)s::bigint[])
    AS pair (tenant, task, most, low)
CROSS JOIN LATERAL (
    SELECT rank, id FROM {schema}.jobs
    WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
        AND rank BETWEEN pair.low AND %(high)s
    ORDER BY rank, id LIMIT pair.most
) AS ready ORDER BY ready.rank, ready.id LIMIT %(limit)s

-- `rank + 0`, `place + 0`: by these numbers, not along the index of all that are READY.
-- name: ready_of_ids
SELECT id, {hot}, {more} FROM {schema}.jobs
WHERE id = ANY(%(ids)s::bigint[]) AND place + 0 = 2 ORDER BY rank + 0, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- So many of each pair, where all of them together are no more than asked for.
-- name: ready_of_picks
SELECT ready.* FROM unnest(%(tenants)s::text[], %(tasks)s::text[], %(mosts)s::bigint[], %(lows)s::bigint[])
    AS pair (tenant, task, most, low)
CROSS JOIN LATERAL (
    SELECT id, {hot}, {more} FROM {schema}.jobs
    WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
        AND rank BETWEEN pair.low AND %(high)s
    ORDER BY rank, id LIMIT pair.most FOR UPDATE SKIP LOCKED
) AS ready

-- By pattern, see claim.py: the names within a range that have READY jobs, one look for each.
-- name: names_within
WITH RECURSIVE name (task) AS (
    (SELECT task FROM {schema}.jobs
     WHERE place = 2 AND NOT mock AND tenant = %(tenant)s AND task >= %(first)s AND task < %(above)s
     ORDER BY task LIMIT 1)
    UNION ALL
    SELECT following.task FROM name CROSS JOIN LATERAL (
        SELECT task FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND tenant = %(tenant)s AND jobs.task > name.task AND jobs.task < %(above)s
        ORDER BY task LIMIT 1
    ) AS following
)
SELECT task FROM name LIMIT %(names)s

-- The READY jobs of all names within a range, so many of them, without locks.
-- name: ready_within
SELECT rank, id, tenant, task FROM {schema}.jobs
WHERE place = 2 AND NOT mock AND tenant = %(tenant)s AND task >= %(first)s AND task < %(above)s
ORDER BY task, rank, id LIMIT %(reach)s

-- The next READY jobs whose names lie within a range, by rank, without locks.
-- name: ready_page
SELECT rank, id, tenant, task FROM {schema}.jobs
WHERE place = 2 AND (rank + 0, id) > (%(after_rank)s, %(after_id)s) AND rank + 0 <= %(high)s
    AND (%(mock)s OR NOT mock) AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND task >= %(first)s AND task < %(above)s
ORDER BY rank + 0, id LIMIT %(page)s

-- The pairs that have READY jobs: one look into the index for each, however many jobs it has.
-- name: pairs
WITH RECURSIVE pair (tenant, task) AS (
    (SELECT tenant, task FROM {schema}.jobs
     WHERE place = 2 AND NOT mock AND tenant >= %(from)s ORDER BY tenant, task LIMIT 1)
    UNION ALL
    SELECT following.tenant, following.task FROM pair CROSS JOIN LATERAL (
        SELECT tenant, task FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND (jobs.tenant, jobs.task) > (pair.tenant, pair.task)
        ORDER BY tenant, task LIMIT 1
    ) AS following
    WHERE %(tenant)s::text IS NULL OR pair.tenant = %(tenant)s
)
SELECT tenant, task FROM pair WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s LIMIT %(limit)s

-- name: tenants
WITH RECURSIVE present (tenant) AS (
    (SELECT tenant FROM {schema}.jobs WHERE place = 2 AND NOT mock ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT following.tenant FROM present CROSS JOIN LATERAL (
        SELECT tenant FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND jobs.tenant > present.tenant ORDER BY tenant LIMIT 1
    ) AS following
)
SELECT tenant FROM present LIMIT %s
