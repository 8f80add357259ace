-- Small data stands beside its job, in the archive too: a table and a key less to write for each job, and a claim has
-- it at hand. What is large, and the data of jobs that come with an id, is kept apart, as all of it was before.
ALTER TABLE {schema}.jobs ADD COLUMN body text, ADD COLUMN raw bytea;
ALTER TABLE {schema}.archive ADD COLUMN body text, ADD COLUMN raw bytea;
-- Under another name: a process of the version before, which would miss what is not there, is refused.
ALTER TABLE {schema}.data RENAME TO data_apart;
ALTER INDEX {schema}.data_pkey RENAME TO data_apart_pkey;

-- `id + 0`, so that who asks for ids is never led along all that have ended.
DROP INDEX {schema}.archive_ended;
CREATE INDEX archive_ended ON {schema}.archive (finished_at, (id + 0));

-- Add jobs that are alike but for id, data and its size, and that nobody has had; what their record says of these is put
-- in here. The ids are new and in order: that nobody has one is seen by the key, and of archived jobs by a look along theirs.
--
-- With a mark they are a whole batch, and a transaction by themselves: then this does as well what `check_open` and `settle`
-- do, in fewer statements. The locks are those of the lane and its tenant, in order, where the jobs are READY.
DROP FUNCTION {schema}.bear;
CREATE FUNCTION {schema}.bear(
    new_tenant text, new_task text, new_place smallint, new_rank bigint, new_expires_at bigint, new_mock boolean,
    new_retries boolean, new_schedule text, ids bigint[], bodies text[], raws bytea[], apart boolean,
    middle text, tail text,
    new_at_ms bigint, new_mark bigint, new_state text, first_lock bigint, second_lock bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    nothing text;
    notice bytea;
    is_filled boolean;
BEGIN
    IF new_mark IS NOT NULL THEN
        nothing := pg_advisory_xact_lock_shared({notice_lock});
        IF first_lock IS NOT NULL THEN
            nothing := pg_advisory_xact_lock_shared(first_lock);
            nothing := pg_advisory_xact_lock_shared(second_lock);
        END IF;
        -- Only now, by a view of its own: who puts up a notice, or marks a lane as empty, has had these locks.
        SELECT
            (SELECT value FROM {schema}.records WHERE kind = '' AND name = ''),
            first_lock IS NULL OR (
                EXISTS (SELECT FROM {schema}.lanes
                        WHERE lanes.tenant = new_tenant AND lanes.task = new_task AND ready::int = 1)
                AND EXISTS (SELECT FROM {schema}.tenants WHERE tenants.tenant = new_tenant AND ready::int = 1)
            )
        INTO notice, is_filled;
        IF notice <> '' THEN
            PERFORM {schema}.check_open();
        END IF;
        IF NOT is_filled THEN
            PERFORM {schema}.fill(ARRAY[new_tenant], ARRAY[new_task]);
        END IF;
        INSERT INTO {schema}.changes (tenant, task, place, state, number)
        VALUES (new_tenant, new_task, new_place, new_state, cardinality(ids));
        INSERT INTO {schema}.commits (at_ms, mark) VALUES (new_at_ms, new_mark);
    END IF;
    IF apart THEN
        INSERT INTO {schema}.data_apart (id, body, raw) SELECT * FROM unnest(ids, bodies, raws);
    END IF;
    INSERT INTO {schema}.jobs (
        id, rank, lease_until, started_at, expires_at, parent_id, claim, version, owner, place,
        mock, lapsed, retries, tenant, task, ended, schedule, domain, rest, body, raw
    )
    SELECT
        item.id, new_rank, 0, 0, new_expires_at, 0, 0, 1, 0, new_place,
        new_mock, false, new_retries, new_tenant, new_task, '', new_schedule, NULL,
        '{"id":' || item.id || middle || coalesce(octet_length(item.body), octet_length(item.raw)) || tail,
        CASE WHEN NOT apart THEN item.body END, CASE WHEN NOT apart THEN item.raw END
    FROM unnest(ids, bodies, raws) AS item (id, body, raw)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.archive AS old
        WHERE old.id BETWEEN ids[1] AND ids[cardinality(ids)] AND old.id + 0 = ANY(ids)
    );
    IF NOT FOUND THEN
        RAISE unique_violation USING MESSAGE = 'an archived job has one of these ids';
    END IF;
END
$$;

-- What every claim asks first, at once: the moments at which something becomes true by itself, and what is paused, whose
-- lock the batch has from here on, shared.
CREATE FUNCTION {schema}.look_ahead(
    pauses_lock bigint, scheduled_from bigint, running_from bigint, expiring_from bigint, due_from bigint,
    OUT scheduled bigint, OUT running bigint, OUT expiring bigint, OUT due bigint, OUT names text[], OUT contents bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    nothing text;
BEGIN
    nothing := pg_advisory_xact_lock_shared(pauses_lock);
    -- Only now, by a view of its own.
    SELECT
        (SELECT rank FROM {schema}.jobs WHERE place = 1 AND rank >= scheduled_from ORDER BY rank LIMIT 1),
        (SELECT rank FROM {schema}.jobs WHERE place = 4 AND rank >= running_from ORDER BY rank LIMIT 1),
        (SELECT expires_at FROM {schema}.jobs
         WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at >= expiring_from ORDER BY expires_at LIMIT 1),
        (SELECT due_ms FROM {schema}.domains WHERE due_ms > 0 AND due_ms >= due_from ORDER BY due_ms LIMIT 1),
        ARRAY(SELECT name FROM {schema}.records WHERE kind = 'pause' ORDER BY name),
        ARRAY(SELECT value FROM {schema}.records WHERE kind = 'pause' ORDER BY name)
    INTO scheduled, running, expiring, due, names, contents;
END
$$;

-- Add a job from SQL, in whatever transaction: it enters SCHEDULED, due now, as a job of
-- `queue.add(connection=…)` does, and promotion does the rest. Returns its id.
CREATE OR REPLACE FUNCTION {schema}.add(task text, data jsonb DEFAULT '{}') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    body CONSTANT text := data::text;
    now_ms CONSTANT bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    -- Which shard this is, of how many; a store alone has all slots.
    which CONSTANT text := coalesce((
        SELECT convert_from(value, 'UTF8') FROM {schema}.records WHERE kind = 'shard' AND name = 'which'
    ), '0/1');
    shard CONSTANT bigint := split_part(which, '/', 1);
    shards CONSTANT bigint := split_part(which, '/', 2);
    tick bigint;
    job_id bigint;
BEGIN
    IF task IS NULL OR octet_length(task) NOT BETWEEN 1 AND 255 OR task ~ '[\x01-\x1f\x7f-\x9f]' THEN
        RAISE EXCEPTION 'task is %, and must be text of 1 to 255 bytes without control characters', quote_nullable(task)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF body IS NULL OR octet_length(body) > 16777216 THEN
        RAISE EXCEPTION 'data must be JSON of at most 16 MB' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    tick := {schema}.next_tick(now_ms);
    -- 41 bits of ms, 11 of sysid, 5 of sequence, 6 of slot. Sysid 1: no process makes ids with it.
    job_id := ((tick / 32) << 22) | (1 << 11) | ((tick % 32) << 6)
        | (shard + shards * (tick % (64 / shards)));
    INSERT INTO {schema}.jobs (
        id, rank, lease_until, started_at, expires_at, parent_id, claim, version, owner, place,
        mock, lapsed, retries, tenant, task, ended, schedule, domain, rest
    ) VALUES (
        job_id, now_ms, 0, 0, 0, 0, 0, 1, 0, 1, false, false, false, '', task, '', '', NULL,
        '{"id":' || job_id || ',"task":' || to_json(task) || ',"created_at":' || now_ms || ',"run_at":' || now_ms
        || ',"size":' || octet_length(body) || '}'
    );
    INSERT INTO {schema}.data_apart (id, body) VALUES (job_id, body);
    INSERT INTO {schema}.changes (tenant, task, place, state, number) VALUES ('', task, 1, 'QUEUED', 1);
    PERFORM pg_notify({channel}, '');
    RETURN job_id;
END
$$;
