"""The engine of a queue with several shards: routes commands, and runs those that need several shards."""
