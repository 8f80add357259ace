"""The Redis store. Files of the same name have the same purpose in every store.

store         the `Store` itself                  txn       one atomic batch: the writes
reads         the reads of jobs                   claim     how a claim finds and takes its jobs
connection    sockets, scripts, the cluster       notify    how processes wake each other
add           the add of a single job             lease     a claim of plain jobs, in one message
errors        translates the server's errors      report    what `holdfast doctor` shows

rows          the reads of rows, and round trips
seen          what a batch has read and written   plan      what its commit checks and writes
keys          keys, encodings, sorted sets        listings  pages of jobs
open          which servers can be used           repair    repairs unreadable records
presence      which processes are running         lua/      the scripts
ready_pairs   which tasks have READY jobs
"""
