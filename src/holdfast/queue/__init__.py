"""What people hold: `Queue`, `AsyncQueue`, tasks and claimed jobs, over any store."""
