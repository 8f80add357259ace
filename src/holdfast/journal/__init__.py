"""The journal: added jobs are durable in a local folder, and soon after in the store. See docs/journal.md."""
