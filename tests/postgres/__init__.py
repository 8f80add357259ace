"""What is PostgreSQL's own: its connections, its errors, its crashes. The suites do the rest."""
