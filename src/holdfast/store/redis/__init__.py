"""The Redis store. Files of the same name hold the same matter in every store.

store         the `Store` itself                  txn       one atomic batch: what can be written
reads         what can be read of jobs            claim     how a claim finds and takes its jobs
connection    sockets, sessions, the cluster      notify    how processes wake each other
errors        the server's errors as ours         report    what `holdfast doctor` shows

rows          what can be read of rows, and how the server is asked
seen          what a batch has read and written   plan      what its commit checks and writes
keys          names, stored forms, orders         listings  pages of jobs
open          which servers can be used           mend      records that cannot be read
presence      which processes are there           lua/      the scripts
"""
