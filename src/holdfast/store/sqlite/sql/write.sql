-- The writes, of whole batches: {rows} is (?,?,…),(?,?,…), one for each row.

-- name: add_jobs
INSERT INTO holdfast_jobs (
    id, size, place, rank, version, owner, lease_until, started_at, claim,
    tenant, task, mock, expires_at, parent_id, domain, schedule, rest, body
) VALUES {rows}

-- A single plain add: one statement without BEGIN and COMMIT, of the columns that differ between such jobs. The trigger counts
-- it. While the store has a notice there is no such view, so that nothing need be read to notice that it is being moved.
-- name: create_adding
CREATE VIEW holdfast_adding AS SELECT id, size, place, rank, tenant, task, rest, body FROM holdfast_jobs

-- name: create_counting
CREATE TRIGGER holdfast_counting INSTEAD OF INSERT ON holdfast_adding
BEGIN
    INSERT INTO holdfast_jobs (
        id, size, place, rank, version, owner, lease_until, started_at, claim,
        tenant, task, mock, expires_at, parent_id, domain, schedule, rest, body
    ) VALUES (
        NEW.id, NEW.size, NEW.place, NEW.rank, 1, 0, 0, 0, 0, NEW.tenant, NEW.task, 0, 0, 0, NULL, '', NEW.rest, NEW.body
    );
    INSERT INTO holdfast_counts (tenant, task, place, state, number) VALUES (NEW.tenant, NEW.task, NEW.place, 'QUEUED', 1)
    ON CONFLICT (tenant, task, place, state) DO UPDATE SET number = number + 1;
END

-- name: drop_adding
DROP VIEW IF EXISTS holdfast_adding

-- name: add_job
INSERT INTO holdfast_adding (id, size, place, rank, tenant, task, rest, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- Jobs that differ only in id and data: the other columns are bound first, and once.
-- name: add_similar_jobs
INSERT INTO holdfast_jobs (
    id, size, place, rank, version, owner, lease_until, started_at, claim,
    tenant, task, mock, expires_at, parent_id, domain, schedule, rest, body
) SELECT new.column1, length(CAST(new.column2 AS BLOB)), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, new.column2
FROM (VALUES {rows}) AS new

-- name: are_archived
SELECT EXISTS (SELECT 1 FROM holdfast_archive WHERE id IN (SELECT value FROM json_each(?)))

-- name: swap_jobs
UPDATE holdfast_jobs
SET size = new.column2, place = new.column3, rank = new.column4, version = new.column5, owner = new.column6,
    lease_until = new.column7, started_at = new.column8, claim = new.column9, tenant = new.column10,
    task = new.column11, mock = new.column12, expires_at = new.column13, parent_id = new.column14,
    domain = new.column15, schedule = new.column16, rest = new.column17
FROM (VALUES {rows}) AS new
WHERE holdfast_jobs.id = new.column1 AND holdfast_jobs.version = new.column5 - 1

-- name: delete_jobs
DELETE FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(?)) AND version = ?

-- The data moves too, so it comes before `delete_jobs`.
-- name: archive_jobs
INSERT INTO holdfast_archive (id, finished_at, tenant, task, state, record, data, result)
SELECT new.column1, new.column2, new.column3, new.column4, new.column5, new.column6, body, new.column7
FROM (VALUES {rows}) AS new LEFT JOIN holdfast_jobs ON id = new.column1

-- name: delete_archived
DELETE FROM holdfast_archive WHERE id IN (SELECT value FROM json_each(?))

-- name: set_body
UPDATE holdfast_jobs SET body = ?2 WHERE id = ?1

-- name: set_archived_data
UPDATE holdfast_archive SET data = ?2 WHERE id = ?1

-- name: put_data
INSERT INTO holdfast_data (id, body) VALUES {rows} ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- name: put_results
INSERT INTO holdfast_results (id, body) VALUES {rows} ON CONFLICT (id) DO UPDATE SET body = excluded.body

-- name: delete_data
DELETE FROM holdfast_data WHERE id IN (SELECT value FROM json_each(?))

-- name: delete_results
DELETE FROM holdfast_results WHERE id IN (SELECT value FROM json_each(?))

-- A trigger deletes counts of zero: see migrations/0001.sql.
-- name: count
INSERT INTO holdfast_counts (tenant, task, place, state, number) VALUES {rows}
ON CONFLICT (tenant, task, place, state) DO UPDATE SET number = number + excluded.number

-- name: put_rows
INSERT INTO holdfast_rows (tbl, key, due_ms, value) VALUES {rows}
ON CONFLICT (tbl, key) DO UPDATE SET due_ms = excluded.due_ms, value = excluded.value

-- name: delete_rows
DELETE FROM holdfast_rows WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))
