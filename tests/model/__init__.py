"""Random histories: a store and the memory store get the same commands, and what they show is compared."""
