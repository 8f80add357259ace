"""The supervisor's process: claims jobs, keeps their leases, starts executors, commits their answers."""
