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

-- Write a `Changes`, in the order of its fields, and the mark of the batch, by which the outcome of a
-- COMMIT without an answer is found. A part that is NULL costs nothing. An array with one value applies to
-- all jobs or rows of its part; a missing column has its default. Each array costs as much as a small index lookup.
-- Therefore columns that all new jobs have in common need no array, and some arrays contain several columns. An expression
-- costs as much for one job as for a thousand, so jobs that have all other columns by default, and ids that no archived job
-- can have, are inserted without them (`added_plain`). `counts` has tenant, task, place, state and number.
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
    gone_table text[] DEFAULT NULL, gone_key text[] DEFAULT NULL, new_notice bytea DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found_rows bigint;
    nothing text;
    notice bytea;
BEGIN
    -- Locks first, in the order of docs/decisions/0007. What they protect is read afterwards, in a new snapshot.
    IF expected_notice IS NOT NULL THEN
        nothing := pg_advisory_xact_lock_shared({notice_lock});
    END IF;
    IF locks IS NOT NULL THEN
        PERFORM {schema}.take_locks(late, locks);
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
END
$$;
