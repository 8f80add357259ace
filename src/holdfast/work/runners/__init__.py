"""Runners: run the jobs of handlers that are kept in the store, in warm contexts. See docs/decisions/0020."""
