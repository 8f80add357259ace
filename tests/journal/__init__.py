"""The journal: its files, its reservations, its ids, and queues that have one."""
