"""The public API: `Queue`, `AsyncQueue`, tasks and claimed jobs, on any store."""
