-- Append-only logs: docs/decisions/0008.

-- Items by their place. `log` is the name of the log's record; text for JSON, BLOB for bytes.
CREATE TABLE holdfast_log_items (
    log  TEXT    NOT NULL,
    item INTEGER NOT NULL,
    key  BLOB,
    body ANY     NOT NULL,
    PRIMARY KEY (log, item)
) STRICT, WITHOUT ROWID;

-- Where a key is, or was before its item was trimmed; the oldest are forgotten in the end.
CREATE TABLE holdfast_log_keys (
    log  TEXT    NOT NULL,
    key  BLOB    NOT NULL,
    item INTEGER NOT NULL,
    PRIMARY KEY (log, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_log_places ON holdfast_log_keys (log, item);
