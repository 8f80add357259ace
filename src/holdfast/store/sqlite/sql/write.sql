-- What is written, whole batches at a time: {rows} is (?,?,…),(?,?,…), as many as there are rows.

-- name: newest
SELECT max(coalesce((SELECT max(id) FROM holdfast_jobs), 0), coalesce((SELECT max(id) FROM holdfast_archive), 0))

-- name: known
SELECT CAST('[' || group_concat(value) || ']' AS BLOB) FROM json_each(?)
WHERE value IN (SELECT id FROM holdfast_jobs) OR value IN (SELECT id FROM holdfast_archive)

-- name: insert_jobs
INSERT INTO holdfast_jobs (
    id, tenant, task, place, rank, version, owner, lease_until, started_at, claim,
    mock, expires_at, parent_id, domain, schedule, rest
) VALUES {rows}

-- The columns from tenant to schedule are the same for all: they are bound first, and once.
-- name: insert_alike
INSERT INTO holdfast_jobs (
    id, tenant, task, place, rank, version, owner, lease_until, started_at, claim,
    mock, expires_at, parent_id, domain, schedule, rest
) SELECT new.column1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, new.column2
FROM (VALUES {rows}) AS new

-- name: swap
UPDATE holdfast_jobs
SET tenant = new.column2, task = new.column3, place = new.column4, rank = new.column5,
    version = new.column6, owner = new.column7, lease_until = new.column8, started_at = new.column9,
    claim = new.column10, mock = new.column11, expires_at = new.column12, parent_id = new.column13,
    domain = new.column14, schedule = new.column15, rest = new.column16
FROM (VALUES {rows}) AS new
WHERE holdfast_jobs.id = new.column1 AND holdfast_jobs.version = new.column6 - 1

-- name: delete_jobs
DELETE FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?)) AND version = ?

-- name: insert_archive
INSERT INTO holdfast_archive (id, finished_at, tenant, task, state, record) VALUES {rows}

-- name: delete_archive
DELETE FROM holdfast_archive WHERE id IN (SELECT value FROM json_each(?))

-- name: ended_before
SELECT CAST('[' || group_concat(record) || ']' AS BLOB) FROM (
    SELECT record FROM holdfast_archive INDEXED BY holdfast_ended
    WHERE finished_at < ?1 AND (?2 IS NULL OR tenant = ?2) ORDER BY finished_at, id LIMIT ?3
)

-- name: put_data
INSERT INTO holdfast_data (id, body) VALUES {rows} ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- name: put_results
INSERT INTO holdfast_results (id, body) VALUES {rows} ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- name: delete_data
DELETE FROM holdfast_data WHERE id IN (SELECT value FROM json_each(?))

-- name: delete_results
DELETE FROM holdfast_results WHERE id IN (SELECT value FROM json_each(?))

-- name: put_unique
INSERT INTO holdfast_uniques (tenant, task, key, job_id, until_ms) VALUES {rows}
ON CONFLICT (tenant, task, key) DO UPDATE SET job_id = excluded.job_id, until_ms = excluded.until_ms

-- The keys are looked up first, and then looked up again: older SQLites go through the whole table
-- where an index's columns are compared with values that do not come from a column of the same type.
-- name: drop_unique
DELETE FROM holdfast_uniques WHERE (tenant, task, key) IN (
    SELECT tenant, task, key FROM (VALUES {rows}) AS gone CROSS JOIN holdfast_uniques
    WHERE tenant = gone.column1 AND task = gone.column2 AND key = gone.column3
)

-- name: lapse_unique
DELETE FROM holdfast_uniques WHERE (tenant, task, key) IN (
    SELECT tenant, task, key FROM holdfast_uniques INDEXED BY holdfast_lapsing
    WHERE until_ms > 0 AND until_ms <= ? ORDER BY until_ms LIMIT ?
)

-- name: insert_domains
INSERT INTO holdfast_domains (tenant, name, version, due_ms, record) VALUES {rows} ON CONFLICT DO NOTHING

-- name: swap_domains
UPDATE holdfast_domains SET version = new.column3, due_ms = new.column4, record = new.column5
FROM (VALUES {rows}) AS new
WHERE holdfast_domains.tenant = new.column1 AND holdfast_domains.name = new.column2
    AND holdfast_domains.version = new.column3 - 1

-- name: drop_domains
DELETE FROM holdfast_domains WHERE (tenant, name) IN (
    SELECT tenant, name FROM (VALUES {rows}) AS gone CROSS JOIN holdfast_domains
    WHERE tenant = gone.column1 AND name = gone.column2 AND version = gone.column3
)

-- name: count
INSERT INTO holdfast_counts (tenant, task, place, state, number) VALUES {rows}
ON CONFLICT (tenant, task, place, state) DO UPDATE SET number = number + excluded.number

-- name: drop_zero_counts
DELETE FROM holdfast_counts INDEXED BY holdfast_zero WHERE number = 0

-- name: fill_lanes
INSERT INTO holdfast_lanes (tenant, task, ready, served) VALUES {rows}
ON CONFLICT (tenant, task) DO UPDATE SET ready = 1 WHERE ready = 0

-- name: fill_tenants
INSERT INTO holdfast_tenants (tenant, ready, served) VALUES {rows}
ON CONFLICT (tenant) DO UPDATE SET ready = 1 WHERE ready = 0

-- name: rest_lanes
UPDATE holdfast_lanes SET ready = 0
WHERE (tenant, task) IN (SELECT column1, column2 FROM (VALUES {rows})) AND ready = 1 AND NOT EXISTS (
    SELECT 1 FROM holdfast_counts
    WHERE tenant = holdfast_lanes.tenant AND task = holdfast_lanes.task AND place = 2
)

-- name: rest_tenants
UPDATE holdfast_tenants SET ready = 0
WHERE tenant IN (SELECT column1 FROM (VALUES {rows})) AND ready = 1 AND NOT EXISTS (
    SELECT 1 FROM holdfast_lanes INDEXED BY holdfast_lane_turns
    WHERE tenant = holdfast_tenants.tenant AND ready = 1
)

-- name: put_records
INSERT INTO holdfast_records (kind, name, value) VALUES {rows}
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value

-- name: drop_records
DELETE FROM holdfast_records WHERE kind = ? AND name IN (SELECT value FROM json_each(?))

-- name: append_log
INSERT INTO holdfast_log_items (log, item, key, body) VALUES {rows} ON CONFLICT DO NOTHING

-- name: put_log_keys
INSERT INTO holdfast_log_keys (log, key, item) VALUES {rows}
ON CONFLICT (log, key) DO UPDATE SET item = excluded.item

-- name: trim_log
DELETE FROM holdfast_log_items WHERE log = ? AND item > ? AND item <= ?

-- name: trim_log_keys
DELETE FROM holdfast_log_keys WHERE (log, key) IN (
    SELECT log, key FROM holdfast_log_keys INDEXED BY holdfast_log_places WHERE log = ? AND item <= ?
)
