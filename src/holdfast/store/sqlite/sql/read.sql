-- The queries. Every result is one value, JSON as a BLOB: a step per row would release the interpreter lock once per row,
-- and text would pass through the text factory of a borrowed connection.
--
--   {hot}   the columns from which `as_jobs` makes whole records
--   {rows}  (?,?,…),(?,?,…), one for each row; the first column is the number of the row

-- One `printf` takes two thirds of the time of the same concatenation with `||`.
-- name: as_jobs
SELECT CAST('[' || group_concat(printf(
    '{"id":%d,"place":%d,"rank":%d,"version":%d,"owner":%d,"lease_until":%d,"started_at":%d,"claim":%d,"size":%d,%s',
    id, place, rank, version, owner, lease_until, started_at, claim, size, substr(rest, 2)
)) || ']' AS BLOB) FROM ({jobs})

-- name: load
SELECT {hot} FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- One of these for each requested place, merged by id.
-- name: children
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_children
WHERE parent_id = ?1 AND parent_id > 0 AND place = {place} AND id > ?2

-- name: first
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_place
WHERE place = ? AND rank <= ? ORDER BY rank, id LIMIT ?

-- name: expiring
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_expiring
WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= ? ORDER BY expires_at, id LIMIT ?

-- name: domain_queue
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_domain
WHERE tenant = ? AND domain = ? AND task = ? AND place = ? ORDER BY rank, id LIMIT ?

-- name: domain_queue_last
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_domain
WHERE tenant = ? AND domain = ? AND task = ? AND place = ? ORDER BY rank DESC, id DESC LIMIT ?

-- name: list
SELECT {hot} FROM holdfast_jobs {index} WHERE {conditions} ORDER BY id LIMIT ?

-- name: list_archived
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_archive WHERE {conditions} ORDER BY id LIMIT ?
)

-- name: archived
SELECT CAST('[' || group_concat(record) || ']' AS BLOB)
FROM holdfast_archive WHERE id IN (SELECT value FROM json_each(?))

-- name: ended
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_archive INDEXED BY holdfast_ended
    WHERE finished_at < ?1 AND (?2 IS NULL OR tenant = ?2) ORDER BY finished_at, id LIMIT ?3
)

-- Data are in the row of a job, or apart if they are large.
-- name: all_data
SELECT id, body FROM holdfast_jobs WHERE body IS NOT NULL AND id IN (SELECT value FROM json_each(?1))
    UNION ALL SELECT id, data FROM holdfast_archive WHERE data IS NOT NULL AND id IN (SELECT value FROM json_each(?1))
    UNION ALL SELECT id, body FROM holdfast_data WHERE id IN (SELECT value FROM json_each(?1))

-- A result is in the row of an archived job, or apart: if it is large, and that of an earlier run.
-- name: all_results
SELECT id, result AS body FROM holdfast_archive WHERE result IS NOT NULL AND id IN (SELECT value FROM json_each(?1))
    UNION ALL SELECT id, body FROM holdfast_results AS kept WHERE id IN (SELECT value FROM json_each(?1))
        AND NOT EXISTS (SELECT 1 FROM holdfast_archive AS old WHERE old.id = kept.id AND result IS NOT NULL)

-- Text as it is; bytes as a list with one hexadecimal text, a form that no text has.
-- name: bodies
SELECT CAST('[' || group_concat(printf('[%d,%s]', id, CASE typeof(body)
    WHEN 'text' THEN json_quote(body) ELSE '["' || hex(body) || '"]' END)) || ']' AS BLOB)
FROM ({from})

-- Bodies one by one, if one of them is damaged.
-- name: raw_bodies
SELECT id, typeof(body), CAST(body AS BLOB) FROM ({from})

-- name: as_rows
SELECT CAST('[' || group_concat(printf('[%s,%s]', json_quote(key), CASE typeof(value)
    WHEN 'text' THEN json_quote(value) ELSE '["' || hex(value) || '"]' END)) || ']' AS BLOB) FROM ({selected})

-- name: rows
SELECT key, value FROM holdfast_rows WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))

-- name: table
SELECT key, value FROM holdfast_rows WHERE tbl = ?

-- Keys in a range, except one.
-- name: scan
SELECT key, value FROM holdfast_rows WHERE tbl = ? AND key >= ? AND key <> ? AND key < ? ORDER BY key LIMIT ?

-- name: scan_due
SELECT key, value FROM holdfast_rows INDEXED BY holdfast_due
WHERE tbl = ? AND due_ms IS NOT NULL AND due_ms <= ? AND key > ? AND key >= ? AND key < ?
ORDER BY due_ms, key LIMIT ?

-- One index lookup for each table name.
-- name: tables
WITH RECURSIVE found (name) AS (
    SELECT min(tbl) FROM holdfast_rows WHERE tbl > ''
    UNION ALL SELECT (SELECT min(tbl) FROM holdfast_rows WHERE tbl > name) FROM found WHERE name IS NOT NULL
)
SELECT CAST('[' || group_concat(json_quote(name)) || ']' AS BLOB) FROM found WHERE name IS NOT NULL

-- Whether a claim has more to decide than which jobs: at ?1 something is due, or there is a notice or a pause.
-- name: is_busy
SELECT EXISTS (SELECT 1 FROM holdfast_rows WHERE tbl = '' AND key = '')
    OR EXISTS (SELECT 1 FROM holdfast_rows WHERE tbl = 'pause')
    OR EXISTS (SELECT 1 FROM holdfast_rows INDEXED BY holdfast_due
        WHERE tbl = 'domain' AND due_ms IS NOT NULL AND due_ms <= ?1)
    OR EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_place WHERE place = 1 AND rank <= ?1)
    OR EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_place WHERE place = 4 AND rank <= ?1)
    OR EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_expiring
        WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= ?1)

-- name: notice
SELECT CAST(value AS BLOB) FROM holdfast_rows WHERE tbl = '' AND key = ''

-- name: domain_counts
SELECT CAST('[' || group_concat((
    SELECT group_concat('[' || wanted.column1 || ',' || json_quote(task) || ',' || place || ',' || number || ']') FROM (
        SELECT task, place, count(*) AS number FROM holdfast_jobs INDEXED BY holdfast_domain
        WHERE tenant = wanted.column2 AND domain = wanted.column3 AND place IN (2, 3, 4) GROUP BY task, place
    )
)) || ']' AS BLOB) FROM (VALUES {rows}) AS wanted

-- One index lookup for each tenant, from above a name on; then from the first one up to that name.
-- name: ready_tenants
WITH RECURSIVE
above (tenant) AS (
    SELECT (SELECT tenant FROM holdfast_counts INDEXED BY holdfast_waiting
            WHERE place = 2 AND tenant > ?1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT next.tenant FROM holdfast_counts AS next INDEXED BY holdfast_waiting
            WHERE place = 2 AND next.tenant > above.tenant ORDER BY next.tenant LIMIT 1)
    FROM above WHERE above.tenant IS NOT NULL LIMIT ?2
),
wrapped (tenant) AS (
    SELECT (SELECT tenant FROM holdfast_counts INDEXED BY holdfast_waiting
            WHERE place = 2 AND tenant <= ?1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT next.tenant FROM holdfast_counts AS next INDEXED BY holdfast_waiting
            WHERE place = 2 AND next.tenant > wrapped.tenant AND next.tenant <= ?1 ORDER BY next.tenant LIMIT 1)
    FROM wrapped WHERE wrapped.tenant IS NOT NULL LIMIT ?2
)
SELECT CAST('[' || group_concat(json_quote(tenant)) || ']' AS BLOB) FROM (
    SELECT tenant FROM above WHERE tenant IS NOT NULL
    UNION ALL SELECT tenant FROM wrapped WHERE tenant IS NOT NULL LIMIT ?2
)

-- name: having_ready
SELECT CAST('[' || group_concat(json_quote(asked.value)) || ']' AS BLOB) FROM json_each(?) AS asked
WHERE EXISTS (
    SELECT 1 FROM holdfast_counts INDEXED BY holdfast_waiting WHERE place = 2 AND tenant = asked.value
)

-- The condition that a task is not among those to skip.
-- name: not_passed
NOT EXISTS (
    SELECT 1 FROM json_each(?{n}) AS skipped
    WHERE (skipped.value ->> 0 IS NULL OR skipped.value ->> 0 = {tenant})
        AND (skipped.value ->> 1 IS NULL OR skipped.value ->> 1 = task)
)

-- From above ?4 on, wrapping round. {asked} is a condition on the tasks, with the parameters ?5 and ?6.
-- name: ready_tasks
SELECT CAST('[' || group_concat('[' || json_quote(value) || ',[' || coalesce((
    SELECT group_concat('[' || json_quote(task) || ',' || number || ']') FROM (
        SELECT task, (
            SELECT sum(number) FROM holdfast_counts
            WHERE tenant = named.value AND task = walked.task AND place = 2
        ) AS number
        FROM (
            SELECT task FROM (
                SELECT DISTINCT task FROM holdfast_counts INDEXED BY holdfast_waiting
                WHERE place = 2 AND tenant = named.value AND task > ?4 ORDER BY task LIMIT ?2
            )
            UNION ALL SELECT task FROM (
                SELECT DISTINCT task FROM holdfast_counts INDEXED BY holdfast_waiting
                WHERE place = 2 AND tenant = named.value AND task <= ?4 ORDER BY task LIMIT ?2
            )
            LIMIT ?2
        ) AS walked
        WHERE {asked} LIMIT ?3
    )
), '') || ']]') || ']' AS BLOB) FROM json_each(?1) AS named

-- name: counts
SELECT CAST('[' || group_concat(json_array(tenant, task, place, state, number)) || ']' AS BLOB)
FROM holdfast_counts WHERE place > 0

-- name: tallies
SELECT CAST('[' || group_concat(json_array(tenant, task, 0, state, number)) || ']' AS BLOB)
FROM holdfast_counts INDEXED BY holdfast_tallies WHERE place = 0

-- name: counts_of_tenant
SELECT CAST('[' || group_concat(json_array(tenant, task, place, state, number)) || ']' AS BLOB)
FROM holdfast_counts WHERE tenant = ? AND place > 0

-- name: counts_after
SELECT CAST('[' || group_concat(json_array(tenant, task, place, state, number)) || ']' AS BLOB) FROM (
    SELECT * FROM holdfast_counts WHERE (tenant, task) > (?1, ?2) AND (?3 IS NULL OR tenant = ?3) AND place > 0
    ORDER BY tenant, task, place, state LIMIT ?4
)

-- name: totals
SELECT CAST('[' || group_concat(json_array('', task, place, state, number)) || ']' AS BLOB) FROM (
    SELECT task, place, state, sum(number) AS number FROM holdfast_counts
    WHERE place > 0 AND (?1 IS NULL OR task = ?1) GROUP BY task, place, state
)

-- The highest rank (`rank.LAST`), that of a job which runs without a lease, is not a time.
-- name: moments
SELECT CAST(json_array(
    (SELECT nullif(rank, 9007199254740991) FROM holdfast_jobs INDEXED BY holdfast_place
     WHERE place = 1 ORDER BY rank LIMIT 1),
    (SELECT nullif(rank, 9007199254740991) FROM holdfast_jobs INDEXED BY holdfast_place
     WHERE place = 4 ORDER BY rank LIMIT 1),
    (SELECT expires_at FROM holdfast_jobs INDEXED BY holdfast_expiring
     WHERE expires_at > 0 AND place NOT IN (4, 6) ORDER BY expires_at LIMIT 1),
    (SELECT due_ms FROM holdfast_rows INDEXED BY holdfast_due
     WHERE tbl = 'domain' AND due_ms IS NOT NULL ORDER BY due_ms LIMIT 1)
) AS BLOB)

-- The places of a task's live jobs. Archived jobs count as DONE, so there may be no live job in DONE.
-- name: places_of_task
SELECT DISTINCT place FROM holdfast_counts WHERE tenant = ? AND task = ? AND place > 0 ORDER BY place

-- name: named_ready
SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE tenant = ? AND task = ? AND place = 2 AND mock = ? ORDER BY rank, id LIMIT 1

-- name: named
SELECT id FROM holdfast_jobs INDEXED BY holdfast_place
WHERE tenant = ? AND task = ? AND place = ? AND mock = ? ORDER BY rank, id LIMIT 1
