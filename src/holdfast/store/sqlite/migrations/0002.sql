-- Whose turn it is, on two levels: of tenants, and of the tasks of each. `served` is a number that counts
-- turns and never ties; it was a moment. Whoever has no READY job is remembered for a while (`turns.py`).
-- See docs/decisions/0004.

DROP INDEX holdfast_waiting;
DELETE FROM holdfast_lanes WHERE ready = 0;
UPDATE holdfast_lanes SET served = 0;
CREATE INDEX holdfast_lane_turns ON holdfast_lanes (tenant, served, task) WHERE ready = 1;
CREATE INDEX holdfast_lane_rests ON holdfast_lanes (served, tenant, task) WHERE ready = 0;

-- `ready`: whether the tenant has lanes that are.
CREATE TABLE holdfast_tenants (
    tenant TEXT    NOT NULL,
    ready  INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_tenant_turns ON holdfast_tenants (served, tenant) WHERE ready = 1;
CREATE INDEX holdfast_tenant_rests ON holdfast_tenants (served, tenant) WHERE ready = 0;
INSERT INTO holdfast_tenants (tenant, ready, served) SELECT DISTINCT tenant, 1, 0 FROM holdfast_lanes;
