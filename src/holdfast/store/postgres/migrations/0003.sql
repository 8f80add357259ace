-- What a batch adds and what it says last are calls, sent together with its COMMIT: less to wait for, and the
-- server plans them once.

-- A mark that is `void` says that its transaction was not committed, and never will be: whoever did not get an
-- answer to a COMMIT writes it, and so keeps the transaction from leaving its own, should it still be under way.
ALTER TABLE {schema}.commits ADD COLUMN void boolean NOT NULL DEFAULT false;

-- How the counts change, with the mark of the batch; and whose lanes have READY jobs since (`turns.sql`).
-- `locks` are those of the lanes and tenants that are added to, in order; the others come with their pairs.
CREATE FUNCTION {schema}.settle(
    new_at_ms bigint, new_mark bigint,
    new_tenants text[], new_tasks text[], new_places smallint[], new_states text[], new_numbers bigint[],
    locks bigint[], pair_tenants text[], pair_tasks text[], are_filled boolean[],
    lane_locks bigint[], tenant_locks bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    the_tenants text[];
    the_tasks text[];
BEGIN
    INSERT INTO {schema}.changes (tenant, task, place, state, number)
    SELECT * FROM unnest(new_tenants, new_tasks, new_places, new_states, new_numbers);
    INSERT INTO {schema}.commits (at_ms, mark) VALUES (new_at_ms, new_mark);
    IF cardinality(locks) > 0 THEN
        PERFORM pg_advisory_xact_lock_shared(lock) FROM unnest(locks) AS lane (lock);
        -- Only now, by a view of its own: who marks a lane as empty has had its lock.
        SELECT array_agg(named.tenant), array_agg(named.task) INTO the_tenants, the_tasks
        FROM unnest(pair_tenants, pair_tasks, are_filled) AS named (tenant, task, filled)
        WHERE filled AND (
            NOT EXISTS (SELECT FROM {schema}.lanes
                        WHERE lanes.tenant = named.tenant AND lanes.task = named.task AND ready::int = 1)
            OR NOT EXISTS (SELECT FROM {schema}.tenants WHERE tenants.tenant = named.tenant AND ready)
        );
        IF the_tenants IS NOT NULL THEN
            PERFORM {schema}.fill(the_tenants, the_tasks);
        END IF;
    END IF;
    IF NOT true = ALL (are_filled) THEN
        PERFORM {schema}.rest(pair_tenants, pair_tasks, are_filled, lane_locks, tenant_locks);
    END IF;
END
$$;

-- These lanes have READY jobs.
CREATE FUNCTION {schema}.fill(the_tenants text[], the_tasks text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.lanes (tenant, task, ready, served)
    SELECT tenant, task, true, 0 FROM unnest(the_tenants, the_tasks) AS named (tenant, task) ORDER BY tenant, task
    ON CONFLICT (tenant, task) DO UPDATE SET ready = true;
    INSERT INTO {schema}.tenants (tenant, ready, served)
    SELECT DISTINCT tenant, true, 0 FROM unnest(the_tenants) AS named (tenant) ORDER BY tenant
    ON CONFLICT (tenant) DO UPDATE SET ready = true;
END
$$;

-- Of lanes whose READY jobs have become fewer those that have none left rest, if their locks can be had.
CREATE FUNCTION {schema}.rest(
    pair_tenants text[], pair_tasks text[], are_filled boolean[], lane_locks bigint[], tenant_locks bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    the_tenants text[];
    the_tasks text[];
BEGIN
    SELECT array_agg(tenant), array_agg(task) INTO the_tenants, the_tasks
    FROM unnest(pair_tenants, pair_tasks, are_filled, lane_locks, tenant_locks)
        AS named (tenant, task, filled, lane_lock, tenant_lock)
    -- In this order: a lane that is not empty must not be locked.
    WHERE CASE WHEN filled OR NOT {schema}.is_empty(tenant, task) THEN false
        ELSE pg_try_advisory_xact_lock(lane_lock) AND pg_try_advisory_xact_lock(tenant_lock) END;
    IF the_tenants IS NULL THEN
        RETURN;
    END IF;
    -- Looked at again once it is locked: somebody may have added just now.
    WITH empty AS MATERIALIZED (
        SELECT lanes.tenant, lanes.task FROM unnest(the_tenants, the_tasks) AS named (tenant, task)
        JOIN {schema}.lanes ON (lanes.tenant, lanes.task) = (named.tenant, named.task)
        WHERE {schema}.is_empty(lanes.tenant, lanes.task) FOR UPDATE OF lanes SKIP LOCKED
    )
    UPDATE {schema}.lanes SET ready = false FROM empty
    WHERE (lanes.tenant, lanes.task) = (empty.tenant, empty.task);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH empty AS MATERIALIZED (
        SELECT tenant FROM {schema}.tenants
        WHERE tenant = ANY(the_tenants) AND ready
            AND NOT EXISTS (SELECT FROM {schema}.lanes WHERE lanes.tenant = tenants.tenant AND lanes.ready)
        FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.tenants SET ready = false FROM empty WHERE tenants.tenant = empty.tenant;
END
$$;

-- Whether a lane that is marked as having READY jobs has none by the counts. `ready::int`: by the name of the
-- lane, not along the index of all that are ready.
CREATE FUNCTION {schema}.is_empty(of_tenant text, of_task text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM {schema}.lanes WHERE tenant = of_tenant AND task = of_task AND ready::int = 1
    ) AND coalesce((
        SELECT sum(number) FROM {schema}.counts WHERE tenant = of_tenant AND task = of_task AND place = 2
    ), 0) + coalesce((
        SELECT sum(number) FROM {schema}.changes WHERE tenant = of_tenant AND task = of_task AND place = 2
    ), 0) = 0
$$;

-- Add jobs that are as `template` but for id, data and its size; what their record says of these is put in here.
-- That nobody has these ids is seen by the keys, which archived jobs have as well, of their data.
CREATE FUNCTION {schema}.bear(
    template {schema}.jobs, ids bigint[], bodies text[], raws bytea[], head text, middle text, tail text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.data (id, body, raw) SELECT * FROM unnest(ids, bodies, raws);
    INSERT INTO {schema}.jobs (
        id, rank, lease_until, started_at, expires_at, parent_id, claim, version, owner, place,
        mock, lapsed, retries, tenant, task, ended, schedule, domain, rest
    )
    SELECT
        item.id, template.rank, template.lease_until, template.started_at, template.expires_at,
        template.parent_id, template.claim, template.version, template.owner, template.place,
        template.mock, template.lapsed, template.retries, template.tenant, template.task,
        template.ended, template.schedule, template.domain,
        head || item.id || middle || coalesce(octet_length(item.body), octet_length(item.raw)) || tail
    FROM unnest(ids, bodies, raws) AS item (id, body, raw);
END
$$;
