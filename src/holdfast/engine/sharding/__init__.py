"""The engine of a queue of several shards: which shard a command is about, and commands about several."""
