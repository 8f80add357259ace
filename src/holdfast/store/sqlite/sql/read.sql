-- What is read. Every answer is one value, JSON as a BLOB: a step per row would give up the
-- interpreter lock once per row, and text would pass through a borrowed connection's text factory.
--
--   {jobs}  the hot columns and the rest, which `as_jobs` turns into whole records
--   {rows}  (?,?,…),(?,?,…), as many as there are rows; the first column is the number of the row

-- name: as_jobs
SELECT CAST('[' || group_concat(
    '{"place":' || place || ',"rank":' || rank || ',"version":' || version || ',"owner":' || owner
    || ',"lease_until":' || lease_until || ',"started_at":' || started_at || ',"claim":' || claim
    || ',' || substr(rest, 2)
) || ']' AS BLOB) FROM ({jobs})

-- name: load
SELECT {hot} FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?))

-- One of these for each place that is asked for, merged by id.
-- name: children
SELECT id, {hot} FROM holdfast_jobs INDEXED BY holdfast_children
WHERE parent_id = ?1 AND parent_id > 0 AND place = {place} AND id > ?2

-- name: first
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_place
WHERE place = ? AND rank <= ? ORDER BY rank, id LIMIT ?

-- name: expiring
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_expiring
WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= ? ORDER BY expires_at, id LIMIT ?

-- name: lineup
SELECT {hot} FROM holdfast_jobs INDEXED BY holdfast_domain
WHERE tenant = ? AND domain = ? AND task = ? AND place = ? ORDER BY rank, id LIMIT ?

-- name: lineup_last
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

-- name: data
SELECT CAST('[' || group_concat('[' || id || ',' || CASE typeof(body)
    WHEN 'text' THEN json_quote(body) ELSE '["' || hex(body) || '"]' END || ']') || ']' AS BLOB)
FROM holdfast_data WHERE id IN (SELECT value FROM json_each(?))

-- name: results
SELECT CAST('[' || group_concat('[' || id || ',' || CASE typeof(body)
    WHEN 'text' THEN json_quote(body) ELSE '["' || hex(body) || '"]' END || ']') || ']' AS BLOB)
FROM holdfast_results WHERE id IN (SELECT value FROM json_each(?))

-- Bodies one by one, where one of them is damaged.
-- name: raw_data
SELECT id, typeof(body), CAST(body AS BLOB) FROM holdfast_data WHERE id IN (SELECT value FROM json_each(?))

-- name: raw_results
SELECT id, typeof(body), CAST(body AS BLOB) FROM holdfast_results WHERE id IN (SELECT value FROM json_each(?))

-- name: records
SELECT CAST('[' || group_concat('[' || json_quote(name) || ',' || CASE typeof(value)
    WHEN 'text' THEN json_quote(value) ELSE '["' || hex(value) || '"]' END || ']') || ']' AS BLOB)
FROM holdfast_records WHERE kind = ?

-- name: records_named
SELECT CAST('[' || group_concat('[' || json_quote(name) || ',' || CASE typeof(value)
    WHEN 'text' THEN json_quote(value) ELSE '["' || hex(value) || '"]' END || ']') || ']' AS BLOB)
FROM holdfast_records WHERE kind = ? AND name IN (SELECT value FROM json_each(?))

-- name: find_unique
SELECT CAST('[' || group_concat('[' || wanted.column1 || ',' || job_id || ',' || until_ms || ']') || ']' AS BLOB)
FROM (VALUES {rows}) AS wanted CROSS JOIN holdfast_uniques
WHERE tenant = wanted.column2 AND task = wanted.column3 AND key = wanted.column4

-- name: domains
SELECT CAST('[' || group_concat(record) || ']' AS BLOB)
FROM (VALUES {rows}) AS wanted CROSS JOIN holdfast_domains
WHERE tenant = wanted.column1 AND name = wanted.column2

-- name: due_domains
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_domains INDEXED BY holdfast_due
    WHERE due_ms > 0 AND due_ms <= ? ORDER BY due_ms, tenant, name LIMIT ?
)

-- name: list_domains
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_domains WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?
)

-- name: domain_counts
SELECT CAST('[' || group_concat((
    SELECT group_concat('[' || wanted.column1 || ',' || json_quote(task) || ',' || place || ',' || number || ']') FROM (
        SELECT task, place, count(*) AS number FROM holdfast_jobs INDEXED BY holdfast_domain
        WHERE tenant = wanted.column2 AND domain = wanted.column3 AND place IN (2, 3, 4) GROUP BY task, place
    )
)) || ']' AS BLOB) FROM (VALUES {rows}) AS wanted

-- name: tenants_by_turn
SELECT CAST('[' || group_concat('[' || served || ',' || json_quote(tenant) || ']') || ']' AS BLOB) FROM (
    SELECT served, tenant FROM holdfast_tenants INDEXED BY holdfast_tenant_turns
    WHERE ready = 1 AND (served, tenant) > (?, ?) ORDER BY served, tenant LIMIT ?
)

-- name: turns_of
SELECT CAST('[' || group_concat('[' || served || ',' || json_quote(tenant) || ']') || ']' AS BLOB)
FROM json_each(?) AS asked CROSS JOIN holdfast_tenants WHERE tenant = asked.value AND ready = 1

-- What a task must fulfil that is not passed by.
-- name: not_passed
NOT EXISTS (
    SELECT 1 FROM json_each(?{n}) AS passed
    WHERE (passed.value ->> 0 IS NULL OR passed.value ->> 0 = {tenant})
        AND (passed.value ->> 1 IS NULL OR passed.value ->> 1 = task)
)

-- {asked} is what the tasks must fulfil; ?4 and ?5 are for it.
-- name: tasks_by_turn
SELECT CAST('[' || group_concat('[' || json_quote(value) || ',[' || coalesce((
    SELECT group_concat('[' || json_quote(task) || ',' || coalesce(number, 0) || ']') FROM (
        SELECT task, (
            SELECT sum(number) FROM holdfast_counts
            WHERE tenant = named.value AND task = walked.task AND place = 2
        ) AS number
        FROM (
            SELECT task FROM holdfast_lanes INDEXED BY holdfast_lane_turns
            WHERE tenant = named.value AND ready = 1 ORDER BY served, task LIMIT ?2
        ) AS walked
        WHERE {asked} LIMIT ?3
    )
), '') || ']]') || ']' AS BLOB) FROM json_each(?1) AS named

-- name: counts
SELECT CAST('[' || group_concat(json_array(tenant, task, place, state, number)) || ']' AS BLOB)
FROM holdfast_counts

-- name: counts_of_tenant
SELECT CAST('[' || group_concat(json_array(tenant, task, place, state, number)) || ']' AS BLOB)
FROM holdfast_counts WHERE tenant = ?

-- name: moments
SELECT CAST(json_array(
    (SELECT rank FROM holdfast_jobs INDEXED BY holdfast_place WHERE place = 1 ORDER BY rank LIMIT 1),
    (SELECT rank FROM holdfast_jobs INDEXED BY holdfast_place WHERE place = 4 ORDER BY rank LIMIT 1),
    (SELECT expires_at FROM holdfast_jobs INDEXED BY holdfast_expiring
     WHERE expires_at > 0 AND place NOT IN (4, 6) ORDER BY expires_at LIMIT 1),
    (SELECT due_ms FROM holdfast_domains INDEXED BY holdfast_due WHERE due_ms > 0 ORDER BY due_ms LIMIT 1)
) AS BLOB)

-- name: read_log
SELECT CAST('[' || group_concat('[' || item || ',' || CASE WHEN key IS NULL
    THEN 'null' ELSE '"' || hex(key) || '"' END || ',' || CASE typeof(body)
    WHEN 'text' THEN json_quote(body) ELSE '["' || hex(body) || '"]' END || ']') || ']' AS BLOB)
FROM (SELECT item, key, body FROM holdfast_log_items WHERE log = ? AND item > ? ORDER BY item LIMIT ?)

-- name: find_in_log
SELECT CAST('[' || group_concat('[' || wanted.column1 || ',' || item || ']') || ']' AS BLOB)
FROM (VALUES {rows}) AS wanted CROSS JOIN holdfast_log_keys AS known
WHERE known.log = wanted.column2 AND known.key = wanted.column3

-- Where live jobs of a task stand; archived ones count as DONE, so of those there may be none.
-- name: places_of_task
SELECT DISTINCT place FROM holdfast_counts WHERE tenant = ? AND task = ? AND number <> 0 ORDER BY place

-- name: named_ready
SELECT id FROM holdfast_jobs INDEXED BY holdfast_ready
WHERE place = 2 AND mock = 0 AND tenant = ? AND task = ? ORDER BY rank, id LIMIT 1

-- name: named
SELECT id FROM holdfast_jobs INDEXED BY holdfast_place
WHERE tenant = ? AND task = ? AND place = ? AND mock = ? ORDER BY rank, id LIMIT 1

-- The notice is the record without a kind and a name: so it comes before all others, and is in no listing.
-- name: notice
SELECT CAST(value AS BLOB) FROM holdfast_records WHERE kind = '' AND name = ''

-- name: list_records
SELECT CAST('[' || group_concat('[' || json_quote(kind) || ',' || json_quote(name) || ',' || CASE typeof(value)
    WHEN 'text' THEN json_quote(value) ELSE '["' || hex(value) || '"]' END || ']') || ']' AS BLOB)
FROM (SELECT kind, name, value FROM holdfast_records WHERE (kind, name) > (?, ?) ORDER BY kind, name LIMIT ?)

-- name: list_unique
SELECT CAST('[' || group_concat('[' || json_quote(tenant) || ',' || json_quote(task) || ',"' || hex(key) || '",'
    || job_id || ',' || until_ms || ']') || ']' AS BLOB)
FROM (SELECT * FROM holdfast_uniques WHERE (tenant, task, key) > (?, ?, ?) ORDER BY tenant, task, key LIMIT ?)

-- name: list_all_domains
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_domains WHERE (tenant, name) > (?, ?) ORDER BY tenant, name LIMIT ?
)

-- name: list_turns
SELECT CAST('[' || group_concat(json_array(tenant, task, served)) || ']' AS BLOB) FROM (
    SELECT tenant, task, served FROM holdfast_lanes WHERE served > 0
    UNION ALL SELECT tenant, '', served FROM holdfast_tenants WHERE served > 0
    ORDER BY tenant, task
)

-- name: list_log_keys
SELECT CAST('[' || group_concat('[' || item || ',"' || hex(key) || '"]') || ']' AS BLOB) FROM (
    SELECT item, key FROM holdfast_log_keys INDEXED BY holdfast_log_places
    WHERE log = ? AND item > ? ORDER BY item LIMIT ?
)
