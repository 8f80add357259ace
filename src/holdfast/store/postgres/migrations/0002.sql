-- A store that is moved: docs/decisions/0011. What SQL adds obeys the notice on the door as every batch does, and
-- makes no id that was made in the store before.

-- There is always a notice, which says nothing as long as it is empty: so that a transaction that sees the store as it
-- was at its beginning cannot lock it once it was changed.
INSERT INTO {schema}.records (kind, name, value) VALUES ('', '', '');

-- What stands on the door. A batch has it locked, shared, until its end: whoever changes it waits for that. In a function,
-- because its plans are made once for a session: so it costs a batch no more than a few microseconds.
CREATE FUNCTION {schema}.notice() RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        RETURN (SELECT value FROM {schema}.records WHERE kind = '' AND name = '');
    END IF;
    PERFORM pg_advisory_xact_lock_shared({notice_lock});
    IF current_setting('transaction_isolation') = 'read committed' THEN
        RETURN (SELECT value FROM {schema}.records WHERE kind = '' AND name = '');
    END IF;
    RETURN (SELECT value FROM {schema}.records WHERE kind = '' AND name = '' FOR SHARE);
END
$$;

-- Refuse to write where the notice does.
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

-- A tick that was never given before, not before the clock, nor before the moment up to which the store that this one
-- was filled from may have made some: it stands in the record of sysid 1.
CREATE OR REPLACE FUNCTION {schema}.next_tick(now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    free_ms bigint;
    now_tick bigint;
    tick bigint;
BEGIN
    PERFORM {schema}.check_open();
    SELECT (convert_from(value, 'UTF8')::json ->> 'ids_until_ms')::bigint INTO free_ms
    FROM {schema}.records WHERE kind = 'sysid' AND name = '1';
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
