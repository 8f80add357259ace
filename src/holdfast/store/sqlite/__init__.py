"""The SQLite store. Files of the same name have the same purpose in every store.

store         the `Store` itself                 txn       one atomic batch: how `Changes` are written
reads         the reads                          claim     how a claim finds its jobs
connection    a connection of `sqlite3`          notify    how processes wake each other
borrow        a caller's connection
errors        translates the library's errors    report    what `holdfast doctor` shows

pool          the connections of a store; forks  lock      the queue of writers
guard         two libraries in one process       wal       checkpoints
open          creating and migrating a file      repair    repairs unreadable records
presence      which processes are running
statements, sql/, migrations/    the SQL
"""
