"""The PostgreSQL store. Files of the same name have the same purpose in every store.

store         the `Store` itself             txn       one atomic batch: the writes
reads         the reads                      claim     how a claim finds its jobs
connection    one connection to the engine   notify    how processes wake each other
errors        the library's errors as ours   report    what `holdfast doctor` shows
sql/, migrations/    its statements, and how a schema comes to the current version
"""
