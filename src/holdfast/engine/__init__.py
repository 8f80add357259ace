"""Commands in, replies out: the rules applied in batches to a store, and what becomes true by itself."""
