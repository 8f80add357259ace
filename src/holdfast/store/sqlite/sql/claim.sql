-- How a claim finds its jobs, in order. {hot}: the columns from which `as_jobs` makes whole records.

-- All READY jobs.
-- name: ready
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_place
WHERE place = 2 AND rank BETWEEN ? AND ? AND mock <= ? ORDER BY rank, id LIMIT ?

-- Those of one pair. Several pairs are merged by rank, and each index is read only as far as needed.
-- name: ready_of_pair
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE place = 2 AND mock = ? AND tenant = ? AND task = ? AND rank BETWEEN ? AND ?

-- Those of one pair, with a limit.
-- name: ready_of_pick
SELECT * FROM ({ready_of_pair} ORDER BY rank, id LIMIT ?)

-- The condition on a job: ?1 and ?2 are tenants and tasks, ?3 is a pattern (NULL: any), ?4 are the pairs to skip.
-- name: is_wanted
(?1 IS NULL OR tenant IN (SELECT value FROM json_each(?1))) AND (?2 IS NULL OR task IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR task GLOB ?3) AND (?4 = '[]' OR NOT EXISTS (
        SELECT 1 FROM json_each(?4) AS skipped
        WHERE (skipped.value ->> 0 IS NULL OR skipped.value ->> 0 = tenant)
            AND (skipped.value ->> 1 IS NULL OR skipped.value ->> 1 = task)
    ))

-- The wanted jobs among the first READY jobs.
-- name: ready_by_rank
SELECT {hot} FROM (
    SELECT id AS found FROM (
        SELECT rank, id, tenant, task, mock FROM holdfast_jobs INDEXED BY holdfast_place
        WHERE place = 2 AND rank BETWEEN ?5 AND ?6 ORDER BY rank, id LIMIT ?9
    ) WHERE mock <= ?7 AND {is_wanted} LIMIT ?8
) CROSS JOIN holdfast_jobs ON id = found

-- The wanted jobs among all READY jobs of a tenant within a range of task names.
-- name: ready_by_name
SELECT {hot} FROM (
    SELECT id AS found FROM holdfast_jobs INDEXED BY holdfast_ready
    WHERE place = 2 AND tenant = ?9 AND task >= ?10 AND task < ?11
        AND rank BETWEEN ?5 AND ?6 AND mock <= ?7 AND {is_wanted}
    ORDER BY rank, id LIMIT ?8
) CROSS JOIN holdfast_jobs ON id = found

-- The wanted pairs among the first pairs with READY jobs, of all tenants or of one; and how many were examined.
-- name: pairs
SELECT CAST('[' || count(*) || ',['
    || coalesce(group_concat(json_array(tenant, task)) FILTER (WHERE {is_wanted}), '') || ']]' AS BLOB)
FROM (
    SELECT DISTINCT tenant, task FROM holdfast_counts INDEXED BY holdfast_waiting WHERE place = 2 {of_tenant}
    ORDER BY tenant, task LIMIT ?5
)

-- name: claim
UPDATE holdfast_jobs
SET place = 4, rank = ?, owner = ?, lease_until = ?, started_at = ?, claim = claim + 1, version = version + 1
WHERE id IN (SELECT value FROM json_each(?))
