-- How a claim finds its jobs: the (rank, id) of the first that match, in order; and whose turn it was.
--
-- By pairs: the index of each (tenant, task) is walked only as far as it is needed, all of them
-- merged by rank. By scan: the READY jobs one after the other, passing by what does not match.

-- name: pick
SELECT CAST('[' || group_concat('[' || rank || ',' || id || ']') || ']' AS BLOB) FROM ({picked})

-- name: ready_of_pair
SELECT rank, id FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE place = 2 AND mock = 0 AND tenant = ? AND task = ? AND rank BETWEEN ? AND ?

-- The first jobs of each of several pairs, as many of each.
-- name: ready_of_picks
SELECT CAST('[' || group_concat('[' || picked.column1 || ',[' || coalesce((
    SELECT group_concat('[' || rank || ',' || id || ']') FROM (
        SELECT rank, id FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 AND tenant = picked.column2 AND task = picked.column3
            AND rank BETWEEN ? AND ? ORDER BY rank, id LIMIT ?
    )
), '') || ']]') || ']' AS BLOB) FROM (VALUES {rows}) AS picked

-- name: ready
SELECT rank, id FROM holdfast_jobs INDEXED BY holdfast_place
WHERE place = 2 AND rank BETWEEN ? AND ? AND mock <= ? ORDER BY rank, id LIMIT ?

-- name: ready_filtered
SELECT rank, id FROM holdfast_jobs INDEXED BY holdfast_place
WHERE place = 2 AND rank BETWEEN ?1 AND ?2 AND mock <= ?3
    AND (?4 IS NULL OR tenant IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR task IN (SELECT value FROM json_each(?5)))
    AND NOT EXISTS (
        SELECT 1 FROM json_each(?6) AS passed
        WHERE (passed.value ->> 0 IS NULL OR passed.value ->> 0 = tenant)
            AND (passed.value ->> 1 IS NULL OR passed.value ->> 1 = task)
    )
ORDER BY rank, id LIMIT ?7

-- The pairs that have READY jobs: one look into the index for each, however many jobs it has.
-- name: pairs
WITH RECURSIVE pair (tenant, task) AS (
    SELECT tenant, task FROM (
        SELECT tenant, task FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 AND tenant >= ?1 ORDER BY tenant, task LIMIT 1
    )
    UNION ALL
    SELECT following.tenant, following.task FROM pair CROSS JOIN holdfast_jobs AS following
    ON following.id = coalesce(
        (SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
         WHERE place = 2 AND mock = 0 AND tenant = pair.tenant AND task > pair.task
         ORDER BY task, rank, id LIMIT 1),
        (SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
         WHERE place = 2 AND mock = 0 AND tenant > pair.tenant
         ORDER BY tenant, task, rank, id LIMIT 1)
    )
    WHERE ?2 IS NULL OR pair.tenant = ?2
    LIMIT ?3
)
SELECT CAST('[' || group_concat(json_array(tenant, task)) || ']' AS BLOB) FROM pair
WHERE ?2 IS NULL OR tenant = ?2

-- name: tenants
WITH RECURSIVE present (tenant) AS (
    SELECT tenant FROM (
        SELECT tenant FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 ORDER BY tenant LIMIT 1
    )
    UNION ALL
    SELECT following.tenant FROM present CROSS JOIN holdfast_jobs AS following
    ON following.id = (
        SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 AND tenant > present.tenant
        ORDER BY tenant, task, rank, id LIMIT 1
    )
    LIMIT ?
)
SELECT CAST('[' || group_concat(json_quote(tenant)) || ']' AS BLOB) FROM present

-- name: claim
UPDATE holdfast_jobs
SET place = 4, rank = ?, owner = ?, lease_until = ?, started_at = ?, claim = claim + 1, version = version + 1
WHERE id IN (SELECT value FROM json_each(?))

-- name: last_turn
SELECT max(
    coalesce((SELECT served FROM holdfast_tenants INDEXED BY holdfast_tenant_turns
              WHERE ready = 1 ORDER BY served DESC LIMIT 1), 0),
    coalesce((SELECT served FROM holdfast_tenants INDEXED BY holdfast_tenant_rests
              WHERE ready = 0 ORDER BY served DESC LIMIT 1), 0)
)

-- name: turn_of
SELECT CAST(json_array(
    ({last_turn}),
    (SELECT served FROM holdfast_tenants WHERE tenant = ?1),
    (SELECT served FROM holdfast_lanes WHERE tenant = ?1 AND task = ?2)
) AS BLOB)

-- name: serve_lanes
INSERT INTO holdfast_lanes (tenant, task, ready, served) VALUES {rows}
ON CONFLICT (tenant, task) DO UPDATE SET served = excluded.served

-- name: serve_tenants
INSERT INTO holdfast_tenants (tenant, ready, served) VALUES {rows}
ON CONFLICT (tenant) DO UPDATE SET served = excluded.served

-- name: forget_lanes
DELETE FROM holdfast_lanes WHERE (tenant, task) IN (
    SELECT tenant, task FROM holdfast_lanes INDEXED BY holdfast_lane_rests
    WHERE ready = 0 AND served < ? ORDER BY served, tenant, task LIMIT ?
)

-- name: forget_tenants
DELETE FROM holdfast_tenants WHERE tenant IN (
    SELECT tenant FROM holdfast_tenants INDEXED BY holdfast_tenant_rests
    WHERE ready = 0 AND served < ? ORDER BY served, tenant LIMIT ?
)

-- By pattern, see glob.py: so many of the first READY jobs, those of them that match.
-- name: ready_matching
SELECT rank, id FROM (
    SELECT rank, id, tenant, task, mock FROM holdfast_jobs INDEXED BY holdfast_place
    WHERE place = 2 AND (rank, id) >= (?1, ?2) AND rank <= ?3 ORDER BY rank, id LIMIT ?4
)
WHERE mock <= ?5 AND (?6 IS NULL OR tenant = ?6) AND task GLOB ?7
    AND (?8 = '[]' OR NOT EXISTS (
        SELECT 1 FROM json_each(?8) AS passed
        WHERE (passed.value ->> 0 IS NULL OR passed.value ->> 0 = tenant)
            AND (passed.value ->> 1 IS NULL OR passed.value ->> 1 = task)
    ))
LIMIT ?9

-- The names within a range that have READY jobs, and the first of these, one look into the index for each.
-- name: names_within
WITH RECURSIVE name (task, rank, id) AS (
    SELECT task, rank, id FROM (
        SELECT task, rank, id FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 AND tenant = ?1 AND task >= ?2 AND task < ?3
        ORDER BY task, rank, id LIMIT 1
    )
    UNION ALL
    SELECT following.task, following.rank, following.id FROM name CROSS JOIN holdfast_jobs AS following
    ON following.id = (
        SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
        WHERE place = 2 AND mock = 0 AND tenant = ?1 AND task > name.task AND task < ?3
        ORDER BY task, rank, id LIMIT 1
    )
    LIMIT ?4
)
SELECT CAST('[' || group_concat(json_array(rank, id, task, task GLOB ?5)) || ']' AS BLOB) FROM name

-- name: more_within
SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE place = 2 AND mock = 0 AND tenant = ? AND task >= ? AND task < ?
ORDER BY task, rank, id LIMIT 1 OFFSET ?

-- name: ready_within
SELECT rank, id FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE place = 2 AND mock = 0 AND tenant = ?1 AND task >= ?2 AND task < ?3
    AND rank BETWEEN ?4 AND ?5 AND task GLOB ?6
    AND (?7 = '[]' OR NOT EXISTS (
        SELECT 1 FROM json_each(?7) AS passed
        WHERE (passed.value ->> 0 IS NULL OR passed.value ->> 0 = tenant)
            AND (passed.value ->> 1 IS NULL OR passed.value ->> 1 = task)
    ))
ORDER BY rank, id LIMIT ?8
