"""The PostgreSQL store. Files of the same name hold the same matter in every store.

store         the `Store` itself             txn       one atomic batch: what can be written
reads         what can be read               claim     how a claim finds its jobs
connection    one connection to the engine   notify    how processes wake each other
errors        the library's errors as ours   report    what `holdfast doctor` shows
sql/, migrations/    its statements, and how a schema comes to the current version
"""
