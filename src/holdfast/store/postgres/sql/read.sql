-- What is read. Jobs are answered as one JSON text for all: a row for each would cost more than the jobs.
--
--   {hot}     the columns that a claim changes, and the rest, which `as_jobs` turns into whole records
--   {lock}    FOR UPDATE in a batch that may write, nothing in a view
--   {free}    FOR UPDATE SKIP LOCKED there: what another has is passed by
--   {place}   a number that is part of the statement: the indexes are of one place each

-- name: as_jobs
SELECT '[' || string_agg(
    '{"place":' || place || ',"rank":' || rank || ',"version":' || version || ',"owner":' || owner
    || ',"lease_until":' || lease_until || ',"started_at":' || started_at || ',"claim":' || claim
    || ',' || substr(rest, 2), ','
) || ']' FROM ({jobs}) AS jobs

-- `parent_id + 0`: by these numbers, not along the index of all children.
-- name: load
SELECT {hot} FROM {schema}.jobs WHERE id = ANY(%(ids)s::bigint[] || ARRAY(
    SELECT parent_id FROM {schema}.jobs WHERE id = ANY(%(ids)s::bigint[]) AND parent_id + 0 > 0
)) ORDER BY id {lock}

-- name: hold
SELECT id FROM {schema}.jobs WHERE id = %s FOR UPDATE

-- `id + 0`: not along the primary key, which would lead through all jobs. It would be taken where statistics say
-- that most jobs are children of one.
-- name: children
SELECT {hot} FROM {schema}.jobs
WHERE parent_id = %s AND parent_id > 0 AND id + 0 > %s ORDER BY id + 0 LIMIT %s {lock}

-- A range of the index of children, and in its order: in that of ids the primary key has them, too.
-- name: children_at
SELECT {hot} FROM {schema}.jobs
WHERE parent_id > 0 AND (parent_id, place, id) > (%(parent)s, %(place)s::smallint, %(after)s)
    AND (parent_id, place, id) <= (%(parent)s, %(place)s::smallint, 9223372036854775807)
ORDER BY parent_id, place, id LIMIT %(limit)s {lock}

-- name: first
SELECT {hot} FROM {schema}.jobs
WHERE place = {place} AND rank BETWEEN %s AND %s ORDER BY rank, id LIMIT %s {free}

-- name: expiring
SELECT {hot} FROM {schema}.jobs
WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= %s ORDER BY expires_at, id LIMIT %s {free}

-- name: lineup
SELECT {hot} FROM {schema}.jobs
WHERE tenant = %s AND domain = %s AND task = %s AND place = %s ORDER BY rank, id LIMIT %s {free}

-- name: lineup_last
SELECT {hot} FROM {schema}.jobs
WHERE tenant = %s AND domain = %s AND task = %s AND place = %s ORDER BY rank DESC, id DESC LIMIT %s {free}

-- name: list
SELECT {hot} FROM {schema}.jobs WHERE {conditions} ORDER BY {order} LIMIT %s

-- name: list_archived
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.archive WHERE {conditions} ORDER BY id LIMIT %s
) AS found

-- name: archived
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.archive WHERE id = ANY(%s::bigint[]) ORDER BY id {lock}
) AS found

-- Beside the job, where it is small, or apart.
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

-- name: records
SELECT name, value FROM {schema}.records WHERE kind = %s

-- name: records_named
SELECT name, value FROM {schema}.records WHERE kind = %s AND name = ANY(%s::text[])

-- name: find_unique
SELECT wanted.number, held.job_id, held.until_ms
FROM unnest(%s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY AS wanted (tenant, task, key, number)
JOIN {schema}.uniques AS held ON (held.tenant, held.task, held.key) = (wanted.tenant, wanted.task, wanted.key)

-- name: domains
SELECT '[' || string_agg(record, ',') || ']', max(at_ms)
FROM unnest(%s::text[], %s::bytea[]) AS wanted (tenant, name)
JOIN {schema}.domains AS found ON (found.tenant, found.name) = (wanted.tenant, wanted.name)

-- name: due_domains
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.domains
    WHERE due_ms > 0 AND due_ms <= %s ORDER BY due_ms, tenant, name LIMIT %s
) AS due

-- name: list_domains
SELECT '[' || string_agg(record, ',') || ']' FROM (
    SELECT record FROM {schema}.domains WHERE tenant = %s AND name > %s ORDER BY name LIMIT %s
) AS found

-- name: records_ahead
SELECT kind, name, value FROM unnest(%s::text[], %s::text[]) AS wanted (kind, name)
JOIN {schema}.records USING (kind, name)
UNION ALL SELECT kind, name, value FROM {schema}.records WHERE kind = ANY(%s::text[])

-- name: domain_counts
SELECT wanted.tenant, wanted.name, counted.*
FROM unnest(%s::text[], %s::bytea[]) AS wanted (tenant, name) CROSS JOIN LATERAL (
    SELECT task, place, count(*) FROM {schema}.jobs
    WHERE tenant = wanted.tenant AND domain = wanted.name AND place IN (2, 3, 4) GROUP BY task, place
) AS counted

-- With how many differences that nobody has folded yet are in each.
-- name: counts
SELECT tenant, task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts UNION ALL SELECT *, 1 FROM {schema}.changes
) AS parts GROUP BY tenant, task, place, state HAVING sum(number) <> 0

-- name: counts_of_tenant
SELECT tenant, task, place, state, sum(number)::bigint, sum(unfolded) FROM (
    SELECT *, 0 AS unfolded FROM {schema}.counts WHERE tenant = %(tenant)s
    UNION ALL SELECT *, 1 FROM {schema}.changes WHERE tenant = %(tenant)s
) AS parts GROUP BY tenant, task, place, state HAVING sum(number) <> 0

-- name: moments
SELECT
    (SELECT rank FROM {schema}.jobs WHERE place = 1 AND rank >= %(scheduled)s ORDER BY rank LIMIT 1) AS scheduled,
    (SELECT rank FROM {schema}.jobs WHERE place = 4 AND rank >= %(running)s ORDER BY rank LIMIT 1) AS running,
    (SELECT expires_at FROM {schema}.jobs
     WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at >= %(expiring)s ORDER BY expires_at LIMIT 1) AS expiring,
    (SELECT due_ms FROM {schema}.domains WHERE due_ms > 0 AND due_ms >= %(domains)s ORDER BY due_ms LIMIT 1) AS domains

-- What one who waits looks at before he claims: the notice, the moments, some kinds of records, the first pairs of
-- tenant and task that have READY jobs, and the time, which is told after all that.
-- name: glance
SELECT
    (SELECT value FROM {schema}.records WHERE kind = '' AND name = ''), moments.*, small.*, ready.*,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM ({moments}) AS moments CROSS JOIN (
    SELECT array_agg(kind), array_agg(name), array_agg(value)
    FROM {schema}.records WHERE kind = ANY(%(kinds)s::text[])
) AS small CROSS JOIN (SELECT array_agg(tenant), array_agg(task) FROM ({pairs}) AS few) AS ready

-- name: look_ahead
SELECT * FROM {schema}.look_ahead(%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint)

-- name: read_log
SELECT item, key, body, raw FROM {schema}.log_items WHERE log = %s AND item > %s ORDER BY item LIMIT %s

-- name: find_in_log
SELECT key, item FROM {schema}.log_keys WHERE log = %s AND key = ANY(%s::bytea[])

-- Where live jobs of a task stand; archived ones count as DONE, so of those there may be none.
-- name: places_of_task
SELECT place FROM (
    SELECT place, number FROM {schema}.counts WHERE tenant = %(tenant)s AND task = %(task)s
    UNION ALL SELECT place, number FROM {schema}.changes WHERE tenant = %(tenant)s AND task = %(task)s
) AS parts GROUP BY place HAVING sum(number) <> 0 ORDER BY place

-- name: named
SELECT id FROM {schema}.jobs WHERE tenant = %s AND task = %s AND place = {place} AND mock = %s
ORDER BY rank, id LIMIT 1

-- name: named_ready
SELECT id FROM {schema}.jobs WHERE tenant = %s AND task = %s AND place = 2 AND NOT mock ORDER BY rank, id LIMIT 1

-- The notice is the record without a kind and a name: so it comes before all others, and is in no listing.
-- name: list_records
SELECT kind, name, value FROM {schema}.records WHERE (kind, name) > (%s, %s) ORDER BY kind, name LIMIT %s

-- name: list_unique
SELECT tenant, task, key, job_id, until_ms FROM {schema}.uniques
WHERE (tenant, task, key) > (%s, %s, %s::bytea) ORDER BY tenant, task, key LIMIT %s

-- name: list_all_domains
SELECT record FROM {schema}.domains WHERE (tenant, name) > (%s, %s::bytea) ORDER BY tenant, name LIMIT %s

-- name: list_turns
SELECT tenant, task, served FROM {schema}.lanes WHERE served > 0
UNION ALL SELECT tenant, '', served FROM {schema}.tenants WHERE served > 0

-- name: list_log_keys
SELECT item, key FROM {schema}.log_keys WHERE log = %s AND item > %s ORDER BY item LIMIT %s
