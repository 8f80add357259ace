"""The SQLite store. Files of the same name hold the same matter in every store.

store         the `Store` itself                 txn       one atomic batch: how `Changes` are written
reads         what can be read                   claim     how a claim finds its jobs
connection    what is needed of a library        notify    how processes wake each other
errors        the library's errors as ours       report    what `holdfast doctor` shows

pool          the connections of a store; forks  lock      whose turn it is to write
guard         two libraries in one process       wal       checkpoints
open          making and migrating a file        mend      records that cannot be read any more
presence      which processes are there          driver_…  the two libraries
statements, sql/, migrations/    its statements, and how a file comes to the current version
"""
