"""The helpers for users' tests, tested."""
