-- One who waits for jobs and is woken has them by two messages: what he looks at and what he takes is one call.

-- How a batch begins for him. He looks as `glance` does; where there is nothing for him that is all, and no batch has begun:
-- `names` is NULL. Else it has its locks, in the order of `begin_claim`, and the jobs, taken as `claim` takes them, where all that
-- is READY and asked for is of one task of one tenant, and nothing is paused, due, left to do, or said on the door against it;
-- otherwise he goes the long way. `newest` is NULL unless it was tried. `few`: where so many tasks have READY jobs not all may be seen.
CREATE FUNCTION {schema}.seek(
    pauses_lock bigint, scheduled_from bigint, running_from bigint, expiring_from bigint, due_from bigint,
    of_kinds text[], few integer, of_tenants text[], of_tasks text[],
    most integer, lease_ms bigint, unleased_rank bigint, new_owner integer, starts boolean, given_ms bigint,
    OUT notice bytea, OUT now_ms bigint,
    OUT scheduled bigint, OUT running bigint, OUT expiring bigint, OUT due bigint, OUT names text[], OUT contents bytea[],
    OUT seen_kinds text[], OUT seen_names text[], OUT seen_contents bytea[], OUT ready_tenants text[], OUT ready_tasks text[],
    OUT answer text, OUT bodies text[], OUT raws bytea[], OUT newest bigint, OUT of_lane bigint, OUT of_tenant bigint
) LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint;
    the_tenant text;
    the_task text;
    until bigint := 0;
BEGIN
    WITH RECURSIVE pair (tenant, task) AS (
        (SELECT tenant, task FROM {schema}.jobs WHERE place = 2 AND NOT mock ORDER BY tenant, task LIMIT 1)
        UNION ALL
        SELECT following.tenant, following.task FROM pair CROSS JOIN LATERAL (
            SELECT tenant, task FROM {schema}.jobs
            WHERE place = 2 AND NOT mock AND (jobs.tenant, jobs.task) > (pair.tenant, pair.task)
            ORDER BY tenant, task LIMIT 1
        ) AS following
    )
    SELECT
        (SELECT value FROM {schema}.records WHERE kind = '' AND name = ''),
        (SELECT rank FROM {schema}.jobs WHERE place = 1 AND rank >= scheduled_from ORDER BY rank LIMIT 1),
        (SELECT rank FROM {schema}.jobs WHERE place = 4 AND rank >= running_from ORDER BY rank LIMIT 1),
        (SELECT expires_at FROM {schema}.jobs
         WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at >= expiring_from ORDER BY expires_at LIMIT 1),
        (SELECT due_ms FROM {schema}.domains WHERE due_ms > 0 AND due_ms >= due_from ORDER BY due_ms LIMIT 1),
        small.*, ready.*
    FROM (
        SELECT array_agg(kind), array_agg(name), array_agg(value) FROM {schema}.records WHERE kind = ANY(of_kinds)
    ) AS small CROSS JOIN (
        SELECT
            array_agg(tenant), array_agg(task), count(*) FILTER (WHERE asked),
            min(tenant) FILTER (WHERE asked), min(task) FILTER (WHERE asked)
        FROM (
            SELECT tenant, task, (of_tenants IS NULL OR tenant = ANY(of_tenants)) AND (of_tasks IS NULL OR task = ANY(of_tasks))
                AS asked
            FROM pair LIMIT few
        ) AS first
    ) AS ready
    INTO notice, scheduled, running, expiring, due, seen_kinds, seen_names, seen_contents, ready_tenants, ready_tasks,
        wanted, the_tenant, the_task;
    now_ms := coalesce(given_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    IF wanted = 0 AND coalesce(cardinality(ready_tenants), 0) < few
        AND coalesce(least(scheduled, running, expiring, due) > now_ms, true)
    THEN
        RETURN;
    END IF;
    notice := {schema}.notice();
    PERFORM pg_advisory_xact_lock_shared(pauses_lock);
    -- Only now, by a view of its own.
    SELECT coalesce(array_agg(name), '{}'), coalesce(array_agg(value), '{}') FROM {schema}.records WHERE kind = 'pause'
    INTO names, contents;
    now_ms := coalesce(given_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    IF wanted <> 1 OR cardinality(ready_tenants) >= few OR cardinality(names) > 0 OR 'chore' = ANY(seen_kinds)
        OR least(scheduled, running, expiring, due) <= now_ms
        OR nullif(convert_from(notice, 'UTF8'), '')::json ->> 'standing' IN ('moved', 'stopped', 'filling')
    THEN
        RETURN;
    END IF;
    IF lease_ms > 0 THEN
        until := now_ms + lease_ms;
    END IF;
    WITH found AS MATERIALIZED (
        SELECT * FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND tenant = the_tenant AND task = the_task
        ORDER BY rank, id LIMIT most FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {schema}.jobs AS job
        SET place = 4, rank = CASE WHEN until = 0 THEN unleased_rank ELSE until END, owner = new_owner, lease_until = until,
            started_at = CASE WHEN starts THEN now_ms ELSE 0 END, claim = job.claim + 1, version = job.version + 1
        WHERE job.id = ANY(ARRAY(SELECT id FROM found))
    )
    SELECT '[' || string_agg(
        '{"place":2,"rank":' || rank || ',"version":' || version || ',"owner":' || owner || ',"lease_until":' || lease_until
        || ',"started_at":' || started_at || ',"claim":' || claim || ',' || substr(rest, 2), ','
    ) || ']', array_agg(body), array_agg(raw),
        greatest(
            coalesce((SELECT served FROM {schema}.tenants WHERE ready ORDER BY served DESC LIMIT 1), 0),
            coalesce((SELECT served FROM {schema}.tenants WHERE NOT ready ORDER BY served DESC LIMIT 1), 0)
        ),
        (SELECT served FROM {schema}.lanes WHERE lanes.tenant = the_tenant AND lanes.task = the_task),
        (SELECT served FROM {schema}.tenants WHERE tenants.tenant = the_tenant)
    FROM found INTO answer, bodies, raws, newest, of_lane, of_tenant;
END
$$;
