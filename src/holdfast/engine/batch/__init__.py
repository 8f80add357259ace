"""The working set of one transaction: what was read, what was decided, and one write at the end."""
