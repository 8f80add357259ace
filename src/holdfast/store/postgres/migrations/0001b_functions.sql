-- The notice; it is locked until this transaction ends. In PL/pgSQL, here and below, because it caches plans for the
-- session.
CREATE FUNCTION {schema}.notice() RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        RETURN (SELECT value FROM {schema}.rows WHERE tbl = '' AND key = '');
    END IF;
    PERFORM pg_advisory_xact_lock_shared({notice_lock});
    IF current_setting('transaction_isolation') = 'read committed' THEN
        RETURN (SELECT value FROM {schema}.rows WHERE tbl = '' AND key = '');
    END IF;
    RETURN (SELECT value FROM {schema}.rows WHERE tbl = '' AND key = '' FOR SHARE);
END
$$;

-- Set the notice, after all batches that have read the old one, and all plain statements, have ended.
CREATE FUNCTION {schema}.set_notice(new_notice bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({notice_lock});
    UPDATE {schema}.rows SET value = new_notice WHERE tbl = '' AND key = '';
    PERFORM {schema}.fence();
END
$$;

-- Let plain statements find the view of jobs only if there is no notice. With the rights of the owner, who alone may.
CREATE FUNCTION {schema}.fence() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.rows WHERE tbl = '' AND key = '' AND value <> '') THEN
        ALTER VIEW IF EXISTS {schema}.plain_jobs RENAME TO closed_jobs;
    ELSE
        ALTER VIEW IF EXISTS {schema}.closed_jobs RENAME TO plain_jobs;
    END IF;
END
$$;

-- Called by a statement that finds other jobs than it expects, so that it is rolled back and the batch done again.
CREATE FUNCTION {schema}.refuse() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not all jobs are of the version before, or new' USING ERRCODE = 'HF001';
END
$$;

-- Take advisory locks (docs/decisions/0007). Each is given as its number times two, plus one if exclusive. Those in `late`
-- are only tried.
CREATE FUNCTION {schema}.take_locks(late bigint[], locks bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lock bigint;
    nothing text;
BEGIN
    FOREACH lock IN ARRAY late LOOP
        IF NOT (
            CASE WHEN lock & 1 = 1 THEN pg_try_advisory_xact_lock(lock >> 1)
            ELSE pg_try_advisory_xact_lock_shared(lock >> 1) END
        ) THEN
            RAISE EXCEPTION 'another batch has a lock that this one must not wait for' USING ERRCODE = 'HF003';
        END IF;
    END LOOP;
    FOREACH lock IN ARRAY locks LOOP
        IF lock & 1 = 1 THEN
            nothing := pg_advisory_xact_lock(lock >> 1);
        ELSE
            nothing := pg_advisory_xact_lock_shared(lock >> 1);
        END IF;
    END LOOP;
END
$$;

-- The tasks of a tenant that have READY jobs, with their numbers, by name from `from_task` on and below `below`: the first
-- `most` of them. No more rows are read than these have.
CREATE FUNCTION {schema}.ready_tasks(of_tenant text, from_task text, below text, most integer)
RETURNS TABLE (task text, number bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT task, sum(number)::bigint FROM (
        SELECT task, number FROM {schema}.counts
        WHERE place = 2 AND tenant = of_tenant AND task >= from_task AND task < below
        UNION ALL SELECT task, number FROM {schema}.count_changes
        WHERE place = 2 AND tenant = of_tenant AND task >= from_task AND task < below
    ) AS parts GROUP BY task HAVING sum(number) > 0 ORDER BY task LIMIT most;
END
$$;

-- The tenants that have READY jobs, likewise: by some index lookups for each name.
CREATE FUNCTION {schema}.ready_tenants(from_tenant text, below text, most integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    name text := from_tenant;
    found integer := 0;
BEGIN
    WHILE found < most LOOP
        name := least(
            (SELECT tenant FROM {schema}.counts WHERE place = 2 AND tenant >= name ORDER BY tenant LIMIT 1),
            (SELECT tenant FROM {schema}.count_changes WHERE place = 2 AND tenant >= name ORDER BY tenant LIMIT 1)
        );
        EXIT WHEN name IS NULL OR name COLLATE "C" >= below COLLATE "C";
        IF EXISTS (SELECT FROM {schema}.ready_tasks(name, '', {above}, 1)) THEN
            RETURN NEXT name;
            found := found + 1;
        END IF;
        -- The next name in order: text has no characters below this one.
        name := name || E'\x01';
    END LOOP;
END
$$;

-- The first pairs that have READY jobs.
CREATE FUNCTION {schema}.ready_pairs(most integer) RETURNS TABLE (tenant text, task text, number bigint)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT name, ready.task, ready.number FROM {schema}.ready_tenants('', {above}, most) AS name
    CROSS JOIN LATERAL {schema}.ready_tasks(name, '', {above}, most) AS ready LIMIT most;
END
$$;

-- Begin a batch. It takes the lock of the notice and the `locks` that the previous try of the batch asked for, and only
-- then reads the clock. Unless `few` is 0, it also returns what a claim or a waiting process reads first: when upkeep is
-- needed next, some tables, the first pairs with READY jobs, and the time that this took.
CREATE FUNCTION {schema}.first_reads(
    locks bigint[], of_tables text[], few integer, moments_from bigint[],
    OUT notice bytea, OUT now_ms bigint,
    OUT moments bigint[], OUT row_tables text[], OUT row_keys text[], OUT row_values bytea[],
    OUT pair_tenants text[], OUT pair_tasks text[], OUT ready bigint[],
    OUT took_us bigint
) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz;
BEGIN
    IF locks IS NULL THEN
        notice := (SELECT value FROM {schema}.rows WHERE tbl = '' AND key = '');
    ELSE
        notice := {schema}.notice();
        IF cardinality(locks) > 0 THEN
            PERFORM {schema}.take_locks('{}', locks);
        END IF;
    END IF;
    IF few > 0 THEN
        began := clock_timestamp();
        SELECT
            ARRAY[
                (SELECT rank FROM {schema}.jobs WHERE place = 1 AND rank >= moments_from[1] ORDER BY rank LIMIT 1),
                (SELECT rank FROM {schema}.jobs WHERE place = 4 AND rank >= moments_from[2] ORDER BY rank LIMIT 1),
                (SELECT expires_at FROM {schema}.jobs
                 WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at >= moments_from[3]
                 ORDER BY expires_at LIMIT 1),
                (SELECT due_ms FROM {schema}.rows
                 WHERE tbl = 'domain' AND due_ms IS NOT NULL AND due_ms >= moments_from[4] ORDER BY due_ms LIMIT 1)
            ], asked.*, pair.*
        FROM (
            SELECT array_agg(tbl), array_agg(key), array_agg(value) FROM {schema}.rows WHERE tbl = ANY(of_tables)
        ) AS asked CROSS JOIN (
            SELECT array_agg(tenant), array_agg(task), array_agg(number) FROM {schema}.ready_pairs(few)
        ) AS pair
        INTO moments, row_tables, row_keys, row_values, pair_tenants, pair_tasks, ready;
        took_us := extract(epoch FROM clock_timestamp() - began) * 1000000;
    END IF;
    now_ms := extract(epoch FROM clock_timestamp()) * 1000;
END
$$;

-- Rows by table and key, and whole tables, after their locks are taken.
CREATE FUNCTION {schema}.hold_rows(late bigint[], locks bigint[], of_tables text[], of_keys text[], whole text[])
RETURNS TABLE (tbl text, key text, at_ms bigint, value bytea) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.take_locks(late, locks);
    RETURN QUERY SELECT found.tbl, found.key, found.at_ms, found.value
    FROM unnest(of_tables, of_keys) AS wanted (tbl, key) JOIN {schema}.rows AS found
        ON found.tbl = coalesce(wanted.tbl, of_tables[1]) AND found.key = wanted.key;
    RETURN QUERY SELECT found.tbl, found.key, found.at_ms, found.value
    FROM {schema}.rows AS found WHERE found.tbl = ANY(whole);
END
$$;

-- A tick that was never returned before. It is not before the clock, nor before the time in the row of sysid 1: until then,
-- the store from which this one was filled may have made ids. The lock is released at once, and a sequence does not wait
-- for commits, so no call waits for another transaction.
CREATE FUNCTION {schema}.next_tick(now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    free_ms bigint;
    now_tick bigint;
    tick bigint;
BEGIN
    SELECT (convert_from(value, 'UTF8')::json ->> 'ids_until_ms')::bigint INTO free_ms
    FROM {schema}.rows WHERE tbl = 'sysid' AND key = '1';
    now_tick := greatest(now_ms - 1735689600000, free_ms - 1735689600000, 1) * 32;
    PERFORM pg_advisory_lock('{schema}.ticks'::regclass::oid::bigint);
    tick := nextval('{schema}.ticks');
    IF tick < now_tick THEN
        tick := setval('{schema}.ticks', now_tick);
    END IF;
    PERFORM pg_advisory_unlock('{schema}.ticks'::regclass::oid::bigint);
    RETURN tick;
END
$$;

-- Raise an error if the notice says that the store is being moved, or has moved.
CREATE FUNCTION {schema}.check_open() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    notice CONSTANT text := convert_from({schema}.notice(), 'UTF8');
    standing CONSTANT text := nullif(notice, '')::json ->> 'standing';
BEGIN
    IF standing = 'moved' THEN
        RAISE EXCEPTION 'this store has moved to %', notice::json ->> 'other'
        USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF standing IN ('stopped', 'filling') THEN
        RAISE EXCEPTION 'this store is being moved; try again in a moment'
        USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;

-- Add a job from SQL, in any transaction, and return its id. The job is SCHEDULED and due now, as with
-- `queue.add(connection=…)`; upkeep makes it READY.
CREATE FUNCTION {schema}.add(task text, data jsonb DEFAULT '{}') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    body CONSTANT text := data::text;
    now_ms CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000;
    -- The number of this shard, and how many there are; an unsharded store has all slots.
    which CONSTANT text := coalesce((
        SELECT convert_from(value, 'UTF8') FROM {schema}.rows WHERE tbl = 'shard' AND key = 'which'
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
    PERFORM {schema}.check_open();
    tick := {schema}.next_tick(now_ms);
    -- 41 bits of ms, 11 of sysid, 5 of sequence, 6 of slot. Sysid 1: no process makes ids with it.
    job_id := ((tick / 32) << 22) | (1 << 11) | ((tick % 32) << 6)
        | (shard + shards * (tick % (64 / shards)));
    INSERT INTO {schema}.jobs (id, rank, place, tenant, task, rest) VALUES (
        job_id, now_ms, 1, '', task,
        '{"id":' || job_id || ',"task":' || to_json(task) || ',"created_at":' || now_ms || ',"run_at":' || now_ms
        || ',"size":' || octet_length(body) || '}'
    );
    INSERT INTO {schema}.data_apart (id, body) VALUES (job_id, body);
    INSERT INTO {schema}.count_changes (tenant, task, place, state, number) VALUES ('', task, 1, 'QUEUED', 1);
    PERFORM pg_notify({channel}, '');
    RETURN job_id;
END
$$;

-- Fold the differences of the counts into the sums, and delete old marks, unless another process does.
CREATE FUNCTION {schema}.fold_counts(marks_before bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    zero record;
BEGIN
    IF NOT pg_try_advisory_xact_lock({fold_lock}) THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.commit_marks WHERE at_ms < marks_before;
    FOR zero IN WITH gone AS (
        DELETE FROM {schema}.count_changes RETURNING tenant, task, place, state, number
    ),
    folded AS (
        INSERT INTO {schema}.counts (tenant, task, place, state, number)
        SELECT tenant, task, place, state, sum(number)::bigint FROM gone
        GROUP BY tenant, task, place, state HAVING sum(number) <> 0
        ON CONFLICT (tenant, task, place, state) DO UPDATE SET number = counts.number + excluded.number
        RETURNING tenant, task, place, state, number
    )
    SELECT tenant, task, place, state FROM folded WHERE number = 0
    LOOP
        DELETE FROM {schema}.counts
        WHERE tenant = zero.tenant AND task = zero.task AND place = zero.place AND state = zero.state;
    END LOOP;
END
$$;

-- Claim plain jobs in one message (docs/decisions/0024). `refused`: something else must be decided, and nothing was written.
-- The jobs are those of the pairs with up to `mosts` of each; or without `mosts` of these tenants and tasks, NULL is any. They
-- are at most `most` with `most_bytes` of data, or one. The reply has them as they were before, with their data.
CREATE FUNCTION {schema}.lease_jobs(
    pause_lock bigint, now_ms bigint, most integer, low bigint, high bigint, lease_ms bigint, most_bytes bigint,
    new_rank bigint, new_owner integer, until bigint, new_start bigint, new_token bigint,
    of_tenants text[], of_tasks text[], mosts bigint[],
    OUT refused boolean, OUT records text, OUT bodies text[], OUT raws bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    bytes bigint;
    plain bigint;
    pairs bigint;
BEGIN
    refused := true;
    -- A batch that changes the pauses has this lock until its end. What it protects is read afterwards, in a new snapshot.
    PERFORM pg_advisory_xact_lock_shared(pause_lock);
    IF EXISTS (SELECT FROM {schema}.rows WHERE tbl = 'pause')
        OR EXISTS (SELECT FROM {schema}.rows WHERE tbl = 'domain' AND due_ms IS NOT NULL AND due_ms <= now_ms)
        OR EXISTS (SELECT FROM {schema}.jobs WHERE place = 1 AND rank <= now_ms)
        OR EXISTS (SELECT FROM {schema}.jobs WHERE place = 4 AND rank <= now_ms)
        OR EXISTS (SELECT FROM {schema}.jobs WHERE expires_at > 0 AND place NOT IN (4, 6) AND expires_at <= now_ms)
    THEN
        RETURN;
    END IF;

    IF mosts IS NULL AND (of_tenants IS NOT NULL OR of_tasks IS NOT NULL) THEN
        SELECT count(*), array_agg(tenant) FILTER (WHERE is_asked), array_agg(task) FILTER (WHERE is_asked),
            array_agg(most) FILTER (WHERE is_asked)
        FROM (
            SELECT tenant, task, of_tasks IS NULL OR task = ANY(of_tasks) AS is_asked FROM (
                SELECT * FROM {schema}.ready_pairs(257) WHERE of_tenants IS NULL
                UNION ALL SELECT name, ready.* FROM unnest(of_tenants) AS name
                CROSS JOIN LATERAL {schema}.ready_tasks(name, '', {above}, 257) AS ready
            ) AS pair
        ) AS pair INTO pairs, of_tenants, of_tasks, mosts;
        refused := pairs > 256;
        IF refused OR mosts IS NULL THEN
            RETURN;
        END IF;
        refused := true;
    END IF;
    IF of_tasks IS NULL THEN
        ids := ARRAY(
            SELECT id FROM {schema}.jobs
            WHERE place = 2 AND rank + 0 >= 0 AND rank + 0 BETWEEN low AND high AND NOT mock
            ORDER BY rank + 0, id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSIF (SELECT sum(number) FROM unnest(mosts) AS number) <= most THEN
        ids := ARRAY(
            SELECT ready.id FROM unnest(of_tenants, of_tasks, mosts) AS pair (tenant, task, most)
            CROSS JOIN LATERAL (
                SELECT id FROM {schema}.jobs
                WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
                    AND rank BETWEEN low AND high
                ORDER BY rank, id LIMIT pair.most FOR UPDATE SKIP LOCKED
            ) AS ready
        );
    ELSE
        -- Merged by rank without locks, then those that no other batch has locked.
        ids := ARRAY(
            SELECT ready.id FROM unnest(of_tenants, of_tasks, mosts) AS pair (tenant, task, most)
            CROSS JOIN LATERAL (
                SELECT rank, id FROM {schema}.jobs
                WHERE place = 2 AND NOT mock AND jobs.tenant = pair.tenant AND jobs.task = pair.task
                    AND rank BETWEEN low AND high
                ORDER BY rank, id LIMIT pair.most
            ) AS ready ORDER BY ready.rank, ready.id LIMIT lease_jobs.most
        );
        IF ids <> '{}' THEN
            ids := ARRAY(SELECT id FROM {schema}.jobs WHERE id = ANY(ids) AND place + 0 = 2 FOR UPDATE SKIP LOCKED);
            IF ids = '{}' THEN
                RETURN;
            END IF;
        END IF;
    END IF;

    IF ids <> '{}' THEN
        LOOP
            SELECT '[' || string_agg(
                '{"place":2,"rank":' || rank || ',"version":' || version || ',"owner":' || owner
                || ',"lease_until":' || lease_until || ',"started_at":' || started_at || ',"claim":' || claim
                || ',' || substr(rest, 2), ','
            ) || ']', array_agg(coalesce(job.body, apart.body)), array_agg(coalesce(job.raw, apart.raw)),
                sum(coalesce(substring(rest FROM '"size":([0-9]+)')::bigint, 0)), min(plain_ms)
            FROM {schema}.jobs AS job
            LEFT JOIN LATERAL (
                SELECT * FROM {schema}.data_apart WHERE data_apart.id = job.id AND job.body IS NULL AND job.raw IS NULL
            ) AS apart ON true
            WHERE job.id = ANY(ids) INTO records, bodies, raws, bytes, plain;
            EXIT WHEN bytes <= most_bytes OR cardinality(ids) = 1;
            ids := ARRAY(
                SELECT id FROM (
                    SELECT id, sum(coalesce(substring(rest FROM '"size":([0-9]+)')::bigint, 0)) OVER first AS bytes,
                        row_number() OVER first AS at
                    FROM {schema}.jobs WHERE id = ANY(ids) WINDOW first AS (ORDER BY rank, id)
                ) AS job WHERE at = 1 OR job.bytes <= most_bytes
            );
        END LOOP;
        IF plain < lease_ms THEN
            records := NULL;
            RETURN;
        END IF;
        WITH taken AS (
            UPDATE {schema}.plain_jobs AS job
            SET place = 4, rank = new_rank, owner = new_owner, lease_until = until, started_at = new_start,
                token = new_token, claim = job.claim + 1, version = job.version + 1
            WHERE job.id = ANY(ids) RETURNING tenant, task
        )
        INSERT INTO {schema}.count_changes (tenant, task, place, state, number)
        SELECT tenant, task, change.place, change.state, change.by * count(*) FROM taken
        CROSS JOIN (VALUES (2::smallint, 'QUEUED', -1), (4::smallint, 'RUNNING', 1)) AS change (place, state, by)
        GROUP BY tenant, task, change.place, change.state, change.by;
    END IF;
    refused := false;
END
$$;
