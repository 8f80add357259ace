"""Runners of stored handlers, with real child processes."""
