-- Mark pairs and their tenants as ready. `filled`: see `commit_changes`.
CREATE FUNCTION {schema}.fill_pairs(filled text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.pairs (tenant, task, ready, served)
    SELECT filled[n], filled[n + 1], true, 0 FROM generate_series(1, cardinality(filled), 4) AS n ORDER BY 1, 2
    ON CONFLICT (tenant, task) DO UPDATE SET ready = true WHERE NOT pairs.ready;
    INSERT INTO {schema}.tenants (tenant, ready, served)
    SELECT DISTINCT filled[n], true, 0 FROM generate_series(1, cardinality(filled), 4) AS n ORDER BY 1
    ON CONFLICT (tenant) DO UPDATE SET ready = true WHERE NOT tenants.ready;
END
$$;

-- Whether a pair that is marked as ready has no READY job. Most have one after the last claimed job, at (rank, id).
CREATE FUNCTION {schema}.is_empty(of_tenant text, of_task text, last_rank bigint, last_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM {schema}.jobs
        WHERE place = 2 AND NOT mock AND tenant = of_tenant AND task = of_task AND (rank, id) > (last_rank, last_id)
    ) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM {schema}.pairs WHERE tenant = of_tenant AND task = of_task AND ready::int = 1)
        AND {schema}.ready_of(of_tenant, of_task) = 0;
END
$$;

-- Mark pairs without READY jobs as empty, if their locks are free; and their tenants likewise. `taken`: see
-- `commit_changes`.
CREATE FUNCTION {schema}.empty_pairs(taken text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    the_tenants text[];
    the_tasks text[];
BEGIN
    SELECT array_agg(taken[n]), array_agg(taken[n + 1]) INTO the_tenants, the_tasks
    FROM generate_series(1, cardinality(taken), 6) AS n
    -- In this order, because a pair that is not empty must not be locked.
    WHERE CASE WHEN {schema}.is_empty(taken[n], taken[n + 1], taken[n + 2]::bigint, taken[n + 3]::bigint)
        THEN pg_try_advisory_xact_lock(taken[n + 4]::bigint) AND pg_try_advisory_xact_lock(taken[n + 5]::bigint)
        ELSE false END;
    IF the_tenants IS NULL THEN
        RETURN;
    END IF;
    -- Checked again after the lock: another batch may have added jobs meanwhile.
    WITH empty AS MATERIALIZED (
        SELECT pairs.tenant, pairs.task FROM unnest(the_tenants, the_tasks) AS named (tenant, task)
        JOIN {schema}.pairs ON (pairs.tenant, pairs.task) = (named.tenant, named.task)
        WHERE ready::int = 1 AND {schema}.ready_of(pairs.tenant, pairs.task) = 0 FOR UPDATE OF pairs SKIP LOCKED
    )
    UPDATE {schema}.pairs SET ready = false FROM empty WHERE (pairs.tenant, pairs.task) = (empty.tenant, empty.task);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH empty AS MATERIALIZED (
        SELECT tenant FROM {schema}.tenants
        WHERE tenant = ANY(the_tenants) AND ready
            AND NOT EXISTS (SELECT FROM {schema}.pairs WHERE pairs.tenant = tenants.tenant AND pairs.ready)
        FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.tenants SET ready = false FROM empty WHERE tenants.tenant = empty.tenant;
END
$$;

-- Record the turns of pairs and their tenants; a tenant gets the last turn of its tasks. A row that another batch has
-- locked is skipped: that batch serves it at the same time.
CREATE FUNCTION {schema}.serve_pairs(turns text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH named AS MATERIALIZED (
        SELECT turns[n] AS tenant, turns[n + 1] AS task, turns[n + 2]::bigint AS turn
        FROM generate_series(1, cardinality(turns), 3) AS n
    ),
    free AS MATERIALIZED (
        SELECT named.* FROM named
        JOIN {schema}.pairs ON (pairs.tenant, pairs.task) = (named.tenant, named.task) FOR UPDATE OF pairs SKIP LOCKED
    ),
    moved AS (
        UPDATE {schema}.pairs SET served = free.turn FROM free WHERE (pairs.tenant, pairs.task) = (free.tenant, free.task)
    )
    INSERT INTO {schema}.pairs (tenant, task, ready, served)
    SELECT tenant, task, false, turn FROM named
    WHERE NOT EXISTS (SELECT FROM {schema}.pairs WHERE (pairs.tenant, pairs.task) = (named.tenant, named.task))
    ON CONFLICT DO NOTHING;
    WITH named AS MATERIALIZED (
        SELECT turns[n] AS tenant, max(turns[n + 2]::bigint) AS turn
        FROM generate_series(1, cardinality(turns), 3) AS n GROUP BY 1
    ),
    free AS MATERIALIZED (
        SELECT named.* FROM named JOIN {schema}.tenants ON tenants.tenant = named.tenant FOR UPDATE OF tenants SKIP LOCKED
    ),
    moved AS (UPDATE {schema}.tenants SET served = free.turn FROM free WHERE tenants.tenant = free.tenant)
    INSERT INTO {schema}.tenants (tenant, ready, served)
    SELECT tenant, false, turn FROM named
    WHERE NOT EXISTS (SELECT FROM {schema}.tenants WHERE tenants.tenant = named.tenant)
    ON CONFLICT DO NOTHING;
END
$$;

-- Delete pairs and tenants that have had no READY job for very many turns.
CREATE FUNCTION {schema}.forget_turns(before bigint, most integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS MATERIALIZED (
        SELECT tenant, task FROM {schema}.pairs
        WHERE NOT ready AND served < before ORDER BY served, tenant, task LIMIT most FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.pairs USING old WHERE (pairs.tenant, pairs.task) = (old.tenant, old.task);
    WITH old AS MATERIALIZED (
        SELECT tenant FROM {schema}.tenants
        WHERE NOT ready AND served < before ORDER BY served, tenant LIMIT most FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.tenants USING old WHERE tenants.tenant = old.tenant;
END
$$;

-- Fold the differences of the counts into the sums, and delete old marks, unless another process does. Returns the pairs
-- whose number of READY jobs has changed: some of them may have none.
CREATE FUNCTION {schema}.fold_counts(marks_before bigint) RETURNS TABLE (tenant text, task text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found record;
BEGIN
    IF NOT pg_try_advisory_xact_lock({fold_lock}) THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.commit_marks WHERE at_ms < marks_before;
    FOR found IN WITH gone AS (
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
    UNION ALL SELECT DISTINCT tenant, task, 2::smallint, NULL FROM gone WHERE place = 2
    LOOP
        IF found.state IS NOT NULL THEN
            DELETE FROM {schema}.counts
            WHERE tenant = found.tenant AND task = found.task AND place = found.place AND state = found.state;
        ELSE
            tenant := found.tenant;
            task := found.task;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Write a `Changes`, in the order of its fields, and two more things: the mark of the batch, by which the outcome of a
-- COMMIT without an answer is found, and the turns. A part that is NULL costs nothing. An array with one value applies to
-- all jobs or rows of its part; a missing column has its default. Each array costs as much as a small index lookup.
-- Therefore columns that all new jobs have in common need no array, and some arrays contain several columns. An expression
-- costs as much for one job as for a thousand, so jobs that have all other columns by default, and ids that no archived job
-- can have, are inserted without them (`added_plain`):
--
--   counts   tenant, task, place, state, number
--   filled   pairs that get more READY jobs, which are marked as ready: tenant, task, locks of pair and tenant
--   served   tenant, task, turn               taken   tenant, task, rank and id of the last, locks of pair and tenant
--
--   HF001   a job does not have the expected version, or does not exist: the batch is tried again
--   HF002   the notice has changed since the batch read it
--   HF003   `take_locks`
CREATE FUNCTION {schema}.commit_changes(
    new_mark bigint DEFAULT NULL, time_ms bigint DEFAULT 0, writer_ms bigint DEFAULT 0, expected_notice bytea DEFAULT NULL,
    late bigint[] DEFAULT '{}', locks bigint[] DEFAULT NULL,
    alike_tenant text DEFAULT '', alike_task text DEFAULT NULL, alike_place smallint DEFAULT 1, alike_rank bigint DEFAULT 0,
    added_ids bigint[] DEFAULT NULL, added_bodies text[] DEFAULT NULL, added_raws bytea[] DEFAULT NULL,
    added_apart boolean DEFAULT NULL, added_middle text DEFAULT NULL, added_tail text DEFAULT NULL,
    added_plain boolean DEFAULT NULL, added_rest text[] DEFAULT NULL,
    added_tenant text[] DEFAULT NULL, added_task text[] DEFAULT NULL, added_place smallint[] DEFAULT NULL,
    added_rank bigint[] DEFAULT NULL, added_version bigint[] DEFAULT NULL, added_owner integer[] DEFAULT NULL,
    added_lease_until bigint[] DEFAULT NULL, added_started_at bigint[] DEFAULT NULL, added_claim bigint[] DEFAULT NULL,
    added_mock boolean[] DEFAULT NULL, added_lapsed boolean[] DEFAULT NULL, added_retries boolean[] DEFAULT NULL,
    added_ended text[] DEFAULT NULL, added_expires_at bigint[] DEFAULT NULL, added_parent_id bigint[] DEFAULT NULL,
    added_domain bytea[] DEFAULT NULL, added_schedule text[] DEFAULT NULL,
    swapped_ids bigint[] DEFAULT NULL, swapped_rest text[] DEFAULT NULL,
    swapped_tenant text[] DEFAULT NULL, swapped_task text[] DEFAULT NULL, swapped_place smallint[] DEFAULT NULL,
    swapped_rank bigint[] DEFAULT NULL, swapped_version bigint[] DEFAULT NULL, swapped_owner integer[] DEFAULT NULL,
    swapped_lease_until bigint[] DEFAULT NULL, swapped_started_at bigint[] DEFAULT NULL, swapped_claim bigint[] DEFAULT NULL,
    swapped_mock boolean[] DEFAULT NULL, swapped_lapsed boolean[] DEFAULT NULL, swapped_retries boolean[] DEFAULT NULL,
    swapped_ended text[] DEFAULT NULL, swapped_expires_at bigint[] DEFAULT NULL, swapped_parent_id bigint[] DEFAULT NULL,
    swapped_domain bytea[] DEFAULT NULL, swapped_schedule text[] DEFAULT NULL,
    archived_ids bigint[] DEFAULT NULL, archived_record text[] DEFAULT NULL, archived_version bigint[] DEFAULT NULL,
    archived_finished_at bigint[] DEFAULT NULL, archived_parent_id bigint[] DEFAULT NULL,
    archived_tenant text[] DEFAULT NULL, archived_task text[] DEFAULT NULL, archived_state text[] DEFAULT NULL,
    archived_schedule text[] DEFAULT NULL, archived_domain bytea[] DEFAULT NULL,
    removed_ids bigint[] DEFAULT NULL, removed_version bigint[] DEFAULT NULL, forgotten_ids bigint[] DEFAULT NULL,
    data_ids bigint[] DEFAULT NULL, data_bodies text[] DEFAULT NULL, data_raws bytea[] DEFAULT NULL,
    result_ids bigint[] DEFAULT NULL, result_bodies text[] DEFAULT NULL, result_raws bytea[] DEFAULT NULL,
    counts text[] DEFAULT NULL,
    row_table text[] DEFAULT NULL, row_key text[] DEFAULT NULL, row_due bigint[] DEFAULT NULL, row_value bytea[] DEFAULT NULL,
    gone_table text[] DEFAULT NULL, gone_key text[] DEFAULT NULL, new_notice bytea DEFAULT NULL,
    filled text[] DEFAULT NULL, served text[] DEFAULT NULL, forget_before bigint DEFAULT NULL,
    forget_most integer DEFAULT NULL, taken text[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found_rows bigint;
    nothing text;
    notice bytea;
    is_filled boolean := true;
BEGIN
    -- Locks first, in the order of docs/decisions/0007. What they protect is read afterwards, in a new snapshot.
    IF expected_notice IS NOT NULL THEN
        nothing := pg_advisory_xact_lock_shared({notice_lock});
    END IF;
    IF locks IS NOT NULL THEN
        PERFORM {schema}.take_locks(late, locks);
    END IF;
    IF filled IS NOT NULL THEN
        FOR n IN 1..cardinality(filled) BY 4 LOOP
            nothing := pg_advisory_xact_lock_shared(filled[n + 2]::bigint);
        END LOOP;
        -- Only the pairs: the tenant of a pair that is marked as ready is marked, too, and stays so while the lock of the
        -- pair is held. `ready::int`: so that the planner does not scan the index of ready pairs.
        FOR n IN 1..cardinality(filled) BY 4 LOOP
            is_filled := is_filled AND EXISTS (
                SELECT FROM {schema}.pairs WHERE tenant = filled[n] AND task = filled[n + 1] AND ready::int = 1
            );
        END LOOP;
        IF NOT is_filled THEN
            FOR n IN 1..cardinality(filled) BY 4 LOOP
                nothing := pg_advisory_xact_lock_shared(filled[n + 3]::bigint);
            END LOOP;
        END IF;
    END IF;
    IF expected_notice IS NOT NULL THEN
        notice := (SELECT value FROM {schema}.rows WHERE tbl = '' AND key = '');
    END IF;
    IF notice <> expected_notice THEN
        RAISE EXCEPTION 'the notice has changed' USING ERRCODE = 'HF002';
    END IF;
    IF new_notice IS NOT NULL THEN
        nothing := pg_advisory_xact_lock({notice_lock});
        UPDATE {schema}.rows SET value = new_notice WHERE tbl = '' AND key = '';
    END IF;

    IF added_ids IS NOT NULL THEN
        IF added_apart THEN
            INSERT INTO {schema}.data_apart (id, body, raw)
            SELECT added_ids[n], added_bodies[n], added_raws[n] FROM generate_subscripts(added_ids, 1) AS n
            WHERE coalesce(octet_length(added_bodies[n]), octet_length(added_raws[n])) > 400;
        END IF;
        IF added_plain THEN
            INSERT INTO {schema}.jobs (id, tenant, task, place, rank, rest, body, raw)
            SELECT
                id, alike_tenant, alike_task, alike_place, alike_rank,
                '{"id":' || id || added_middle || coalesce(octet_length(body), octet_length(raw)) || added_tail, body, raw
            FROM unnest(added_ids, added_bodies, added_raws) AS added (id, body, raw);
        ELSE
            INSERT INTO {schema}.jobs (
                id, tenant, task, place, rank, version, owner, lease_until, started_at, claim, mock, lapsed, retries, ended,
                expires_at, parent_id, schedule,
                domain, rest, body, raw
            )
            SELECT
                added_ids[n], coalesce(added_tenant[n], alike_tenant), coalesce(added_task[n], alike_task),
                coalesce(added_place[n], alike_place), coalesce(added_rank[n], alike_rank),
                coalesce(added_version[n], added_version[1], 1), coalesce(added_owner[n], added_owner[1], 0),
                coalesce(added_lease_until[n], added_lease_until[1], 0),
                coalesce(added_started_at[n], added_started_at[1], 0), coalesce(added_claim[n], added_claim[1], 0),
                coalesce(added_mock[n], added_mock[1], false), coalesce(added_lapsed[n], added_lapsed[1], false),
                coalesce(added_retries[n], added_retries[1], false), coalesce(added_ended[n], added_ended[1], ''),
                coalesce(added_expires_at[n], added_expires_at[1], 0), coalesce(added_parent_id[n], added_parent_id[1], 0),
                coalesce(added_schedule[n], added_schedule[1], ''),
                CASE WHEN cardinality(added_domain) = 1 THEN added_domain[1] ELSE added_domain[n] END,
                CASE WHEN added_rest IS NOT NULL THEN added_rest[n] ELSE '{"id":' || added_ids[n] || added_middle
                    || coalesce(octet_length(added_bodies[n]), octet_length(added_raws[n])) || added_tail END,
                CASE WHEN added_apart IS NULL OR octet_length(added_bodies[n]) <= 400 THEN added_bodies[n] END,
                CASE WHEN added_apart IS NULL OR octet_length(added_raws[n]) <= 400 THEN added_raws[n] END
            FROM generate_subscripts(added_ids, 1) AS n
            WHERE NOT EXISTS (SELECT FROM {schema}.archive WHERE id = ANY(added_ids));
            IF NOT FOUND THEN
                RAISE unique_violation USING MESSAGE = 'an archived job has one of these ids';
            END IF;
        END IF;
    END IF;

    IF swapped_ids IS NOT NULL THEN
        UPDATE {schema}.jobs AS job SET (
            tenant, task, place, rank, version, owner, lease_until, started_at, claim, mock, lapsed, retries, ended,
            expires_at, parent_id, schedule,
            domain, rest
        ) = ROW (
            coalesce(swapped_tenant[n], swapped_tenant[1], ''), coalesce(swapped_task[n], swapped_task[1]),
            coalesce(swapped_place[n], swapped_place[1], 1), coalesce(swapped_rank[n], swapped_rank[1], 0),
            coalesce(swapped_version[n], swapped_version[1], 1), coalesce(swapped_owner[n], swapped_owner[1], 0),
            coalesce(swapped_lease_until[n], swapped_lease_until[1], 0),
            coalesce(swapped_started_at[n], swapped_started_at[1], 0), coalesce(swapped_claim[n], swapped_claim[1], 0),
            coalesce(swapped_mock[n], swapped_mock[1], false), coalesce(swapped_lapsed[n], swapped_lapsed[1], false),
            coalesce(swapped_retries[n], swapped_retries[1], false), coalesce(swapped_ended[n], swapped_ended[1], ''),
            coalesce(swapped_expires_at[n], swapped_expires_at[1], 0),
            coalesce(swapped_parent_id[n], swapped_parent_id[1], 0),
            coalesce(swapped_schedule[n], swapped_schedule[1], ''),
            CASE WHEN cardinality(swapped_domain) = 1 THEN swapped_domain[1] ELSE swapped_domain[n] END, swapped_rest[n]
        )
        FROM generate_subscripts(swapped_ids, 1) AS n
        WHERE job.id = swapped_ids[n] AND job.version = coalesce(swapped_version[n], swapped_version[1]) - 1;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(swapped_ids) THEN
            RAISE EXCEPTION 'not all jobs are of the version before' USING ERRCODE = 'HF001';
        END IF;
    END IF;

    IF archived_ids IS NOT NULL THEN
        -- Data in the row of a job is deleted with the row.
        WITH gone AS (
            DELETE FROM {schema}.jobs AS job USING generate_subscripts(archived_ids, 1) AS n
            WHERE job.id = archived_ids[n] AND job.version = coalesce(archived_version[n], archived_version[1]) - 1
            RETURNING n, body, raw
        )
        INSERT INTO {schema}.archive (
            id, finished_at, parent_id, tenant, task, state, schedule, domain, record, body, raw
        )
        SELECT
            archived_ids[n], coalesce(archived_finished_at[n], archived_finished_at[1]),
            coalesce(archived_parent_id[n], archived_parent_id[1], 0), coalesce(archived_tenant[n], archived_tenant[1], ''),
            coalesce(archived_task[n], archived_task[1]), coalesce(archived_state[n], archived_state[1], 'FINISHED'),
            coalesce(archived_schedule[n], archived_schedule[1], ''),
            CASE WHEN cardinality(archived_domain) = 1 THEN archived_domain[1] ELSE archived_domain[n] END,
            archived_record[n], body, raw
        FROM gone;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(archived_ids) THEN
            RAISE EXCEPTION 'not all jobs are of the version before' USING ERRCODE = 'HF001';
        END IF;
    END IF;

    IF removed_ids IS NOT NULL THEN
        DELETE FROM {schema}.jobs USING generate_subscripts(removed_ids, 1) AS n
        WHERE id = removed_ids[n] AND version = removed_version[n];
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(removed_ids) THEN
            RAISE EXCEPTION 'not all jobs are of their version' USING ERRCODE = 'HF001';
        END IF;
    END IF;

    IF forgotten_ids IS NOT NULL THEN
        DELETE FROM {schema}.archive WHERE id = ANY(forgotten_ids);
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        IF found_rows <> cardinality(forgotten_ids) THEN
            RAISE EXCEPTION 'not all jobs are in the archive' USING ERRCODE = 'HF001';
        END IF;
    END IF;

    IF removed_ids IS NOT NULL OR forgotten_ids IS NOT NULL THEN
        DELETE FROM {schema}.data_apart WHERE id = ANY(removed_ids || forgotten_ids);
        DELETE FROM {schema}.results WHERE id = ANY(removed_ids || forgotten_ids);
    END IF;

    IF data_ids IS NOT NULL THEN
        -- The data is no longer in the row of the job.
        UPDATE {schema}.jobs SET body = NULL, raw = NULL
        WHERE id = ANY(data_ids) AND (body IS NOT NULL OR raw IS NOT NULL);
        UPDATE {schema}.archive SET body = NULL, raw = NULL
        WHERE id = ANY(data_ids) AND (body IS NOT NULL OR raw IS NOT NULL);
        INSERT INTO {schema}.data_apart (id, body, raw)
        SELECT data_ids[n], data_bodies[n], data_raws[n] FROM generate_subscripts(data_ids, 1) AS n
        ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw;
    END IF;

    IF result_ids IS NOT NULL THEN
        INSERT INTO {schema}.results (id, body, raw)
        SELECT result_ids[n], result_bodies[n], result_raws[n] FROM generate_subscripts(result_ids, 1) AS n
        ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw;
    END IF;

    IF cardinality(counts) = 5 THEN
        INSERT INTO {schema}.count_changes (tenant, task, place, state, number)
        VALUES (counts[1], counts[2], counts[3]::smallint, counts[4], counts[5]::bigint);
    ELSIF counts IS NOT NULL THEN
        INSERT INTO {schema}.count_changes (tenant, task, place, state, number)
        SELECT counts[n], counts[n + 1], counts[n + 2]::smallint, counts[n + 3], counts[n + 4]::bigint
        FROM generate_series(1, cardinality(counts), 5) AS n;
    END IF;

    IF row_key IS NOT NULL THEN
        INSERT INTO {schema}.rows (tbl, key, due_ms, at_ms, value)
        SELECT coalesce(row_table[n], row_table[1]), row_key[n], row_due[n], writer_ms, row_value[n]
        FROM generate_subscripts(row_key, 1) AS n
        ON CONFLICT (tbl, key) DO UPDATE SET due_ms = excluded.due_ms, at_ms = excluded.at_ms, value = excluded.value;
    END IF;
    IF gone_key IS NOT NULL THEN
        DELETE FROM {schema}.rows USING generate_subscripts(gone_key, 1) AS n
        WHERE tbl = coalesce(gone_table[n], gone_table[1]) AND key = gone_key[n];
    END IF;

    IF new_mark IS NOT NULL THEN
        INSERT INTO {schema}.commit_marks (at_ms, mark) VALUES (time_ms, new_mark);
    END IF;
    IF NOT is_filled THEN
        PERFORM {schema}.fill_pairs(filled);
    END IF;
    IF served IS NOT NULL THEN
        PERFORM {schema}.serve_pairs(served);
    END IF;
    IF forget_before IS NOT NULL THEN
        PERFORM {schema}.forget_turns(forget_before, forget_most);
    END IF;
    IF taken IS NOT NULL THEN
        PERFORM {schema}.empty_pairs(taken);
    END IF;
END
$$;
