-- Fewer answers to wait for, and fewer plans to make, where a claim or an end is all that a process is about.

-- Whether a lane that is marked as having READY jobs has none by the counts. `ready::int`: by the name of the
-- lane, not along the index of all that are ready. In PL/pgSQL it is planned once for a session, in SQL once for each
-- claim that has taken the last job of a lane.
CREATE OR REPLACE FUNCTION {schema}.is_empty(of_tenant text, of_task text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.lanes WHERE tenant = of_tenant AND task = of_task AND ready::int = 1
    ) AND coalesce((
        SELECT sum(number) FROM {schema}.counts WHERE tenant = of_tenant AND task = of_task AND place = 2
    ), 0) + coalesce((
        SELECT sum(number) FROM {schema}.changes WHERE tenant = of_tenant AND task = of_task AND place = 2
    ), 0) = 0;
END
$$;

-- How a batch that claims begins: the notice, what it looks at first, and, once it has waited for whatever it had to, the
-- time.
CREATE FUNCTION {schema}.begin_claim(
    pauses_lock bigint, scheduled_from bigint, running_from bigint, expiring_from bigint, due_from bigint,
    OUT notice bytea, OUT now_ms bigint,
    OUT scheduled bigint, OUT running bigint, OUT expiring bigint, OUT due bigint, OUT names text[], OUT contents bytea[]
) LANGUAGE plpgsql AS $$
BEGIN
    notice := {schema}.notice();
    SELECT ahead.* FROM {schema}.look_ahead(pauses_lock, scheduled_from, running_from, expiring_from, due_from) AS ahead
    INTO scheduled, running, expiring, due, names, contents;
    now_ms := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
END
$$;

-- Jobs that are over, as a batch and a transaction by themselves: what `check_open`, `archive`, `put_results` and `settle`
-- do, in one call. Jobs that are not of their version make all of it fail.
CREATE FUNCTION {schema}.finish(
    ids bigint[], versions bigint[], finished bigint[], parents bigint[], tenants text[], tasks text[], states text[],
    schedules text[], domains bytea[], records text[], result_ids bigint[], result_bodies text[], result_raws bytea[],
    new_at_ms bigint, new_mark bigint,
    count_tenants text[], count_tasks text[], count_places smallint[], count_states text[], count_numbers bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    PERFORM {schema}.check_open();
    INSERT INTO {schema}.changes (tenant, task, place, state, number)
    SELECT * FROM unnest(count_tenants, count_tasks, count_places, count_states, count_numbers);
    INSERT INTO {schema}.commits (at_ms, mark) VALUES (new_at_ms, new_mark);
    WITH gone AS (
        DELETE FROM {schema}.jobs USING unnest(
            ids, versions, finished, parents, tenants, tasks, states, schedules, domains, records
        ) AS new (id, version, finished_at, parent_id, tenant, task, state, schedule, domain, record)
        WHERE jobs.id = new.id AND jobs.version = new.version
        RETURNING
            new.id, new.finished_at, coalesce(new.parent_id, 0), coalesce(new.tenant, ''), new.task, new.state,
            coalesce(new.schedule, ''), new.domain, new.record, jobs.body, jobs.raw
    )
    INSERT INTO {schema}.archive (
        id, finished_at, parent_id, tenant, task, state, schedule, domain, record, body, raw
    ) SELECT * FROM gone;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found <> cardinality(ids) THEN
        RAISE serialization_failure USING MESSAGE = 'not all of these jobs are of their version';
    END IF;
    IF cardinality(result_ids) > 0 THEN
        INSERT INTO {schema}.results (id, body, raw) SELECT * FROM unnest(result_ids, result_bodies, result_raws)
        ON CONFLICT (id) DO UPDATE SET body = excluded.body, raw = excluded.raw;
    END IF;
END
$$;
