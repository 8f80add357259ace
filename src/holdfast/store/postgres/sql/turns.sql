-- Whose turn it is: lanes and tenants, whether they have READY jobs, and their last turn (`turns.py`).
--
-- A lane that is `ready` may have none left, where somebody was adding while the last one went, or the last one was
-- taken by one who waited for it: then `fold` finds it. One that has some is always `ready`. Who adds has a shared lock of the lane and its tenant; who finds it empty tries for
-- the exclusive one, and otherwise leaves it as it is: `settle`, in the second migration.

-- name: tenants_by_turn
SELECT served, tenant FROM {schema}.tenants
WHERE ready AND (served, tenant) > (%s, %s) ORDER BY served, tenant LIMIT %s

-- name: turns_of
SELECT served, tenant FROM {schema}.tenants WHERE ready AND tenant = ANY(%s::text[])

-- Lanes that are marked and have none take nobody's place: they are passed by as they are met.
-- name: tasks_by_turn
SELECT named.tenant, asked.task, asked.number
FROM unnest(%(tenants)s::text[]) WITH ORDINALITY AS named (tenant, at)
CROSS JOIN LATERAL (
    SELECT served, task, number FROM (
        SELECT served, task,
            coalesce((SELECT sum(number) FROM {schema}.counts
                      WHERE counts.tenant = named.tenant AND counts.task = walked.task AND place = 2), 0)
            + coalesce((SELECT sum(number) FROM {schema}.changes
                        WHERE changes.tenant = named.tenant AND changes.task = walked.task AND place = 2), 0) AS number
        FROM (
            SELECT served, task FROM {schema}.lanes
            WHERE tenant = named.tenant AND ready ORDER BY served, task LIMIT %(looked_at)s
        ) AS walked
        WHERE (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[])) AND NOT EXISTS (
            SELECT FROM unnest(%(passed_tenants)s::text[], %(passed_tasks)s::text[]) AS passed (tenant, task)
            WHERE (passed.tenant IS NULL OR passed.tenant = named.tenant)
                AND (passed.task IS NULL OR passed.task = walked.task)
        )
        ORDER BY served, task OFFSET 0
    ) AS counted WHERE number > 0 ORDER BY served, task LIMIT %(limit)s
) AS asked ORDER BY named.at, asked.served, asked.task

-- A row that somebody else is just writing is passed by: he has it served at this very moment.
-- name: serve
WITH lane AS (SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS lane (tenant, task, served)),
whole AS (SELECT * FROM unnest(%s::text[], %s::bigint[]) AS whole (tenant, served)),
free_lanes AS MATERIALIZED (
    SELECT lane.* FROM lane
    JOIN {schema}.lanes ON (lanes.tenant, lanes.task) = (lane.tenant, lane.task) FOR UPDATE OF lanes SKIP LOCKED
),
free_tenants AS MATERIALIZED (
    SELECT whole.* FROM whole JOIN {schema}.tenants ON tenants.tenant = whole.tenant FOR UPDATE OF tenants SKIP LOCKED
),
moved_lanes AS (
    UPDATE {schema}.lanes SET served = free_lanes.served FROM free_lanes
    WHERE (lanes.tenant, lanes.task) = (free_lanes.tenant, free_lanes.task)
),
moved_tenants AS (
    UPDATE {schema}.tenants SET served = free_tenants.served FROM free_tenants
    WHERE tenants.tenant = free_tenants.tenant
),
new_lanes AS (
    INSERT INTO {schema}.lanes (tenant, task, ready, served)
    SELECT tenant, task, false, served FROM lane
    WHERE NOT EXISTS (SELECT FROM {schema}.lanes WHERE (lanes.tenant, lanes.task) = (lane.tenant, lane.task))
    ON CONFLICT DO NOTHING
)
INSERT INTO {schema}.tenants (tenant, ready, served)
SELECT tenant, false, served FROM whole
WHERE NOT EXISTS (SELECT FROM {schema}.tenants WHERE tenants.tenant = whole.tenant)
ON CONFLICT DO NOTHING

-- name: rest
SELECT {schema}.rest(
    %(pair_tenants)s::text[], %(pair_tasks)s::text[], %(are_filled)s::boolean[],
    %(lane_locks)s::bigint[], %(tenant_locks)s::bigint[]
)

-- Who has rested for very many turns is forgotten.
-- name: forget_lanes
WITH old AS MATERIALIZED (
    SELECT tenant, task FROM {schema}.lanes
    WHERE NOT ready AND served < %s ORDER BY served, tenant, task LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.lanes USING old WHERE (lanes.tenant, lanes.task) = (old.tenant, old.task)

-- name: forget_tenants
WITH old AS MATERIALIZED (
    SELECT tenant FROM {schema}.tenants
    WHERE NOT ready AND served < %s ORDER BY served, tenant LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.tenants USING old WHERE tenants.tenant = old.tenant

-- Turns as they were in another store; nobody else is there yet.
-- name: put_lane_turns
INSERT INTO {schema}.lanes (tenant, task, ready, served)
SELECT tenant, task, false, served FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS new (tenant, task, served)
ON CONFLICT (tenant, task) DO UPDATE SET served = excluded.served

-- name: put_tenant_turns
INSERT INTO {schema}.tenants (tenant, ready, served)
SELECT tenant, false, served FROM unnest(%s::text[], %s::bigint[]) AS new (tenant, served)
ON CONFLICT (tenant) DO UPDATE SET served = excluded.served
