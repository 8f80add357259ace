"""The PostgreSQL store. Files of the same name have the same purpose in every store.

store         the `Store` itself             txn       one atomic batch: the writes
reads         the reads                      claim     how a claim finds its jobs
connection    one connection to the server   notify    how processes wake each other
errors        the library's errors as ours   report    what `holdfast doctor` shows

open          creates and migrates a schema  pool      the connections of a process
url           the address and its options    tries     what is tried again, and how long
changes       `Changes` as one call          statements  SQL from the files in sql/
locks         advisory locks, in order       starts    index scans that skip dead entries
ready_pairs   which tasks have READY jobs    counts    folds differences into sums
lease         a claim of plain jobs          settle    what became of a commit without a reply
borrow        a caller's connection          presence  which processes are alive
repair        sets damaged records aside     sql/, migrations/  its statements and tables
"""
